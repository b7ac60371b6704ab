"""The last check of each table, in one word."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from deltaworks.catalogue.verdicts import last_checks
from deltaworks.quality import Outcome, Verdict, results

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def check(root: Path, at: datetime, *found: tuple[Outcome, str], table: str = "orders", run: str = "run") -> None:
    verdicts = [
        Verdict(table=table, expectation=f"{n}", expects="e", why="w", severity=severity, outcome=outcome, rows=1)
        for n, (outcome, severity) in enumerate(found)
    ]
    results.append(root, run, "shop", verdicts, at)


@pytest.mark.parametrize(
    ("found", "word"),
    [
        ([(Outcome.PASSED, "critical"), (Outcome.PASSED, "warning")], "passed"),
        ([(Outcome.PASSED, "critical"), (Outcome.FAILED, "warning")], "warning"),
        ([(Outcome.FAILED, "warning"), (Outcome.FAILED, "critical")], "failed"),
        ([(Outcome.PASSED, "critical"), (Outcome.ERROR, "info")], "failed"),
    ],
)
def test_a_check_has_a_verdict(tmp_path: Path, found: list[tuple[Outcome, str]], word: str) -> None:
    check(tmp_path, NOON, *found)

    assert last_checks(tmp_path)["orders"].verdict == word


def test_only_the_last_check_of_each_table_counts(tmp_path: Path) -> None:
    check(tmp_path, NOON, (Outcome.FAILED, "critical"), run="first")
    check(tmp_path, NOON - timedelta(hours=1), (Outcome.FAILED, "critical"), table="users", run="first")
    check(tmp_path, NOON + timedelta(hours=1), *[(Outcome.PASSED, "critical")] * 3, run="second")

    last = last_checks(tmp_path)

    assert (last["orders"].run_id, last["orders"].outcomes, last["orders"].at) == (
        "second",
        {"passed": 3},
        NOON + timedelta(hours=1),
    )
    assert (last["users"].verdict, last["users"].run_id) == ("failed", "first")


def test_nobody_has_checked_anything(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "theirs", pa.table({"a": [1]}))

    assert last_checks(tmp_path) == {}
