"""What was found is kept, whoever else writes at the same moment."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from deltaworks.errors import TableError, TransientError
from deltaworks.quality import Outcome, Verdict, results

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
FAILED = Verdict(
    table="orders",
    expectation="ExpectColumnValuesToNotBeNull",
    expects="city values must never be null.",
    why="Orders go somewhere.",
    severity="critical",
    outcome=Outcome.FAILED,
    rows=3,
    unexpected=2,
    sample=({"id": 2, "amount": Decimal("1.10")}, {"id": 3, "amount": None}),
)
PASSED = Verdict(
    table="users", expectation="KeysUnique", expects="one row per key", why="", severity="warning",
    outcome=Outcome.PASSED, rows=7, unexpected=0,
)  # fmt: skip


def rows(root: Path, name: str) -> list[dict[str, Any]]:
    table: list[dict[str, Any]] = DeltaTable(root / name).to_pyarrow_table().to_pylist()
    return table


def test_every_verdict_is_a_row_and_every_sampled_row_too(tmp_path: Path) -> None:
    results.append(tmp_path, "run-1", "shop", [FAILED, PASSED], AT)

    failed, passed = sorted(rows(tmp_path, "quality_results"), key=lambda row: str(row["table"]))
    assert failed == {
        "run_id": "run-1",
        "pipeline": "shop",
        "table": "orders",
        "expectation": "ExpectColumnValuesToNotBeNull",
        "expects": "city values must never be null.",
        "why": "Orders go somewhere.",
        "severity": "critical",
        "outcome": "failed",
        "blocks": True,
        "unexpected": 2,
        "rows": 3,
        "observed": None,
        "error": None,
        "at": AT,
    }
    assert (passed["outcome"], passed["blocks"], passed["rows"]) == ("passed", False, 7)
    failures = rows(tmp_path, "quality_failures")
    assert [(row["run_id"], row["table"], row["row"]) for row in failures] == [
        ("run-1", "orders", '{"id":2,"amount":"1.10"}'),
        ("run-1", "orders", '{"id":3,"amount":null}'),
    ]


def test_rows_of_any_type_are_json(tmp_path: Path) -> None:
    row = {"bytes": b"\xff", "at": AT, "day": date(2026, 3, 1), "map": [("a", 1)], "nan": float("nan"), "big": 10**30}

    results.append(tmp_path, "run-1", "shop", [replace(FAILED, sample=(row,))], AT)

    assert msgspec.json.decode(rows(tmp_path, "quality_failures")[0]["row"]) == {
        "bytes": "/w==",
        "at": "2026-03-01T12:00:00Z",
        "day": "2026-03-01",
        "map": [["a", 1]],
        "nan": None,
        "big": 10**30,
    }


def test_runs_that_end_at_the_same_moment_are_all_kept(tmp_path: Path) -> None:
    def append(run: int) -> None:
        results.append(tmp_path, f"run-{run}", "shop", [FAILED, PASSED], AT)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(append, range(40)))

    assert len(rows(tmp_path, "quality_results")) == len(rows(tmp_path, "quality_failures")) == 80
    assert {row["run_id"] for row in rows(tmp_path, "quality_results")} == {f"run-{run}" for run in range(40)}


def test_many_small_files_become_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "_TOO_MANY_FILES", 5)

    for run in range(12):
        results.append(tmp_path, f"run-{run}", "shop", [FAILED], AT)

    assert len(DeltaTable(tmp_path / "quality_results").file_uris()) <= 5
    assert len(rows(tmp_path, "quality_results")) == 12


def test_a_run_without_failures_leaves_no_commit_behind(tmp_path: Path) -> None:
    for run in range(3):
        results.append(tmp_path, f"run-{run}", "shop", [PASSED], AT)

    assert rows(tmp_path, "quality_failures") == []
    assert DeltaTable(tmp_path / "quality_failures").version() == 0


def test_others_that_are_always_first_are_an_error_that_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise CommitFailedError("somebody was first")

    monkeypatch.setattr(results, "write_deltalake", refuse)
    monkeypatch.setattr(results, "_PAUSE_S", 0.0)

    with pytest.raises(TransientError, match="somebody was first"):
        results.append(tmp_path, "run-1", "shop", [PASSED], AT)


def test_a_table_with_other_columns_is_left_alone(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "quality_results", pa.table({"run": [1]}))

    with pytest.raises(TableError, match="has other columns"):
        results.append(tmp_path, "run-1", "shop", [PASSED], AT)
