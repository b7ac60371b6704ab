"""What the person who is asked gets to read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deltaworks.lakehouse.publish.comparison import RowCounts
from deltaworks.quality.verdict import Outcome, Verdict
from deltaworks.replay.model import Approval, ReplayPaths, ReplayRequest, ReplayState
from deltaworks.replay.report import markdown
from tests.unit.airflow.replays import plan_of, verdict, write_findings

REQUEST = ReplayRequest(pipeline="orders", requested_by="airflow ada", reason="prices | were *wrong*\n<b>")


def report(folder: Path, *verdicts: Verdict, approval: Approval | None = None, **table: Any) -> str:
    paths = ReplayPaths(folder, folder / "publication.json")
    write_findings(paths, *verdicts, **table)
    state = ReplayState(from_ms=1_795_305_600_000, to_ms=1_795_392_000_000, passed=True, approval=approval)
    return markdown(paths, plan_of(REQUEST, "the-run"), state)


def test_it_says_what_was_asked_for_and_by_whom(tmp_path: Path) -> None:
    text = report(tmp_path)

    assert "| Replay | `the-run` |" in text
    assert "| Days | 2026-11-22 to 2026-11-23 (exclusive), UTC |" in text
    assert "| Read | batches 0 to 41, 12,345 records, recorded order |" in text
    assert "| Requested by | airflow ada |" in text
    assert "deltaworks rollback the-run" in text


def test_it_says_who_has_approved_it_before(tmp_path: Path) -> None:
    assert "Already approved by" not in report(tmp_path)
    assert "| Already approved by | airflow bob |" in report(tmp_path, approval=Approval(by="airflow bob", at_ms=0))


def test_what_people_write_does_not_break_the_page(tmp_path: Path) -> None:
    assert r"| Why | prices \| were \*wrong\* &lt;b&gt; |" in report(tmp_path)


def test_it_shows_per_table_what_would_change_in_which_columns_and_days(tmp_path: Path) -> None:
    lines = report(tmp_path).splitlines()

    assert "12 rows differ." in lines
    assert "| `order_counts` | 1,000 | 1,001 | 990 | 9 | 1 | 2 |" in lines
    assert "- changed: `amount` in 9 rows" in lines
    assert "- days: 2026-11-22 (10 of 100, 2 new)" in lines


def test_new_and_lost_columns_and_days_that_stay_as_they_are_are_named(tmp_path: Path) -> None:
    text = report(tmp_path, new_columns=("tax",), gone_columns=("vat",), open_days=("2026-11-23",))

    assert "- columns that production does not have: tax" in text
    assert "- columns that only production has: vat" in text
    assert "- days that are not published because their windows may still change: 2026-11-23" in text


def test_a_replay_that_changes_nothing_says_so(tmp_path: Path) -> None:
    same = RowCounts(production=5, staging=5, equal=5, changed=0, only_production=0, only_staging=0)
    text = report(tmp_path, rows=same, days=(), columns={"amount": 0})

    assert "Nothing: every row equals production." in text
    assert "changed:" not in text


def test_it_says_what_the_gate_has_found_short_of_blocking(tmp_path: Path) -> None:
    text = report(
        tmp_path,
        verdict(),
        verdict(Outcome.FAILED, severity="warning", expects="amounts | are positive", unexpected=3),
        verdict(Outcome.FAILED, severity="warning", expects="about as many rows", observed="twice as many"),
        verdict(Outcome.ERROR, expects="it can be read", error="no such column"),
    )

    assert "1 of 4 expectations and invariants hold." in text
    assert r"| `order_counts` | amounts \| are positive | 3 of 1,001 rows | warning |" in text
    assert "| `order_counts` | about as many rows | twice as many | warning |" in text
    assert "not checked: no such column" in text


def test_a_long_list_is_cut_and_says_so(tmp_path: Path) -> None:
    found = [verdict(Outcome.FAILED, severity="warning", unexpected=1) for _ in range(13)]
    text = report(tmp_path, *found, new_columns=tuple(f"c{number}" for number in range(12)))

    assert text.count("| 1 of 1,001 rows |") == 10
    assert "... and 3 more." in text
    assert "c9 and 2 more" in text
