"""The cascade of a replay: rehearsed, counted, computed, taken back, refused; without Spark."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from deltaworks.cascade import release
from deltaworks.errors import TerminalError
from deltaworks.replay import runs
from deltaworks.replay.report import comparison_of
from deltaworks.settings import Settings
from tests.hosts.cascading import DATES, JOB, ODD_DATE, Cascade, cascading
from tests.hosts.test_reprocess import day

BY_HAND = [sys.executable, "-m", "tests.hosts.batch_by_hand"]


@pytest.fixture
def cascade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cascade:
    command = release._command
    monkeypatch.setattr(release, "_command", lambda *arguments: [*BY_HAND, *command(*arguments)[5:]])
    return cascading(tmp_path, monkeypatch)


def test_it_is_rehearsed_counted_computed_and_taken_back(cascade: Cascade) -> None:
    before, at = cascade.totals(), cascade.everything()
    run = cascade.start(778, from_ms=day(0), to_ms=day(5), only_different=True)

    cascade.advance(run, "gate")
    found = comparison_of(run.paths)
    (behind,) = [table for table in found.tables if table.role == "batch"]
    odd = {each for each in before if each[0] == ODD_DATE}
    assert [each.day for each in behind.days if each.different] == [ODD_DATE.isoformat()]
    assert (behind.table, behind.rows.production, behind.rows.changed) == ("daily", len(odd), len(odd))
    assert run.paths.read_state().differences == found.differences > behind.rows.different > 0
    assert cascade.everything() == at, "nothing that others read has changed"
    assert not run.paths.rehearsed.exists()

    cascade.advance(run, "verify")
    release.complete(cascade.settings, run.plan, run.paths.read_state(), print)
    after = cascade.totals()
    assert after == cascade.expected()
    assert {each for each in after if after[each] != before[each]} == odd
    rehearsed = {each.after["payer"]: each.after["total"] for each in behind.samples if each.after is not None}
    assert rehearsed == {payer: after[ODD_DATE, payer] for _, payer in odd}

    runs.rollback(cascade.settings, run.plan.run_id, requested_by="ada")
    assert release.roll_back(cascade.settings, run.plan.run_id, print) == ["daily"]
    assert cascade.totals() == before


def test_a_rehearsal_runs_here_as_its_tables_are_here(cascade: Cascade, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    compute = release.compute

    def noted(settings: Settings, *arguments: Any) -> None:
        told.append(settings.process_environment().get("DELTAWORKS_SPARK_TASKS", "cluster"))
        compute(settings, *arguments)

    monkeypatch.setattr(release, "compute", noted)
    run = cascade.start(778, from_ms=day(0), to_ms=day(5), only_different=True)
    cascade.advance(run, "gate")

    assert told == ["here"]


def test_a_job_that_would_fail_keeps_everything_as_it_is(cascade: Cascade) -> None:
    at = cascade.everything()
    run = cascade.start(779, from_ms=day(0), to_ms=day(5))

    with pytest.raises(TerminalError, match=r"(?s)'daily' would fail; nothing was published .*779 is no amount"):
        cascade.advance(run, "publish")
    state = run.paths.read_state()
    assert (state.next, state.passed) == ("gate", None)
    assert cascade.everything() == at

    (cascade.settings.jobs / "batch" / "daily.py").write_text(JOB.replace("779", "-1"))
    cascade.advance(run, "gate")
    assert run.paths.read_state().passed


def test_a_hand_over_is_rehearsed_on_the_tables_that_the_stream_would_go_on_with(cascade: Cascade) -> None:
    before, at = cascade.totals(), cascade.everything()
    run = cascade.start(778, hand_over=True)

    cascade.advance(run, "gate")
    (behind,) = [table for table in comparison_of(run.paths).tables if table.role == "batch"]
    assert [each.day for each in behind.days] == [each.isoformat() for each in DATES]
    assert [each.day for each in behind.days if each.different] == [ODD_DATE.isoformat()]
    for sample in behind.samples:
        assert sample.before is not None and sample.after is not None
        total = before[ODD_DATE, str(sample.before["payer"])]
        assert sample.before["total"] == total != sample.after["total"]
    assert cascade.everything() == at
