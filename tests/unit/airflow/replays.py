"""Replays whose phases take notes instead of working: all else (plan, folder, lock, order of phases) is real."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from deltaworks.control import jobs
from deltaworks.control.paths import PipelinePaths
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.lakehouse.publish.comparison import Comparison, Day, RowCounts, TableComparison
from deltaworks.lakehouse.publish.publication import PublicationRecord, PublicationRequest, TablePublication
from deltaworks.lakehouse.publish.scope import Scope
from deltaworks.quality.verdict import Outcome, Verdict
from deltaworks.replay import runs
from deltaworks.replay.model import Phase, ReplayPaths, ReplayPlan, ReplayRequest, ReplayState
from deltaworks.replay.phases import Engines, ReplayRun, Report
from deltaworks.replay.plan import code_version
from deltaworks.settings import Settings

EQUAL = RowCounts(production=1_000, staging=1_000, equal=1_000, changed=0, only_production=0, only_staging=0)
ROWS = RowCounts(production=1_000, staging=1_001, equal=990, changed=9, only_production=1, only_staging=2)


class Notes:
    """What the phases were asked for, and what they answer."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.requests: list[ReplayRequest] = []
        self.approved_by: list[str] = []
        self.errors: dict[Phase, Exception] = {}
        """Raised instead of an answer."""
        self.passes = True
        """What the gate says."""
        self.equal = False
        """What the comparison says."""

    def note(self, phase: Phase) -> None:
        self.done.append(phase)
        if phase in self.errors:
            raise self.errors[phase]


def take_notes(patch: Any) -> Notes:
    """Replaces the work of the phases, and what `plan` asks of the broker and of the stream's files.

    Args:
        patch: has `setattr(object, name, value)`, as pytest's `monkeypatch`.
    """
    notes = Notes()

    def make_plan(
        settings: Settings,
        pipeline: Pipeline,
        request: ReplayRequest,
        broker: object,
        run_id: str | None,
    ) -> ReplayPlan:
        notes.requests.append(request)
        notes.note("plan")
        return plan_of(request, run_id or "a-new-one", code_version(settings, pipeline))

    def run(self: ReplayRun, engines: Engines | None, state: ReplayState, report: Report) -> None:
        notes.note("run")

    def compare(self: ReplayRun, state: ReplayState, report: Report) -> None:
        state.differences = 0 if notes.equal else 12
        write_findings(self.paths, **({"rows": EQUAL} if notes.equal else {}))
        notes.note("compare")

    def gate(self: ReplayRun, engines: Engines | None, state: ReplayState, report: Report) -> None:
        state.passed = notes.passes
        notes.note("gate")

    def publish(self: ReplayRun, engines: Engines | None, state: ReplayState, report: Report) -> None:
        notes.note("publish")
        approval = self.paths.read_state().approval
        notes.approved_by += [] if approval is None else [approval.by]
        write_publication(self.paths, self.plan.run_id, "wordcount_hours")

    def verify(self: ReplayRun, state: ReplayState, report: Report) -> None:
        notes.note("verify")

    patch.setattr(runs, "make_plan", make_plan)
    patch.setattr(runs, "begun_later", lambda plan, *_: plan)
    for phase in (run, compare, gate, publish, verify):
        patch.setattr(ReplayRun, f"_{phase.__name__}", phase)
    return notes


def plan_of(request: ReplayRequest, run_id: str, version: str = "0123456789ab") -> ReplayPlan:
    return ReplayPlan(
        run_id=run_id,
        request=request,
        created_ms=0,
        code_version=version,
        query_id="q",
        first_batch=0,
        last_batch=41,
        records=12_345,
        end_offsets={},
        partitions={},
        global_partitions={},
        sink_partitions={},
        tasks=(1,),
        tables=("order_counts",),
    )


def planned(
    settings: Settings,
    name: str,
    run_id: str,
    *done: Phase,
    passed: bool | None = None,
    hand_over: bool = False,
    by_policy: bool = False,
) -> ReplayPaths:
    """The folder of a run that has done these phases after `plan`."""
    paths = ReplayPaths.of(PipelinePaths.of(settings, name), run_id)
    version = code_version(settings, jobs.load(settings, name))
    request = ReplayRequest(
        pipeline=name, requested_by="somebody", reason="prices", hand_over=hand_over, by_policy=by_policy
    )
    plan = plan_of(request, run_id, version)
    paths.root.mkdir(parents=True)
    paths.plan.write_bytes(msgspec.json.encode(plan))
    paths.write_state(ReplayState(done=["plan", *done], passed=passed))
    return paths


def write_findings(paths: ReplayPaths, *verdicts: Verdict, **table: Any) -> None:
    """What `compare` and `gate` leave: one table with differences."""
    differing = TableComparison(
        **{
            "table": "order_counts",
            "role": "windowed",
            "rows": ROWS,
            "days": (
                Day(
                    day="2026-11-21",
                    production=900,
                    staging=900,
                    equal=900,
                    changed=0,
                    only_production=0,
                    only_staging=0,
                ),
                Day(
                    day="2026-11-22",
                    production=100,
                    staging=101,
                    equal=90,
                    changed=9,
                    only_production=1,
                    only_staging=2,
                ),
            ),
            "columns": {"amount": 9, "count": 0},
            "samples": (),
            "production_version": 7,
            "staging_version": 1,
            **table,
        }
    )
    scope = Scope(end_offsets={}, last_batch=41)
    comparison = Comparison(tables=(differing,), scope=scope, compared_ms=0, seconds=0.1)
    paths.comparison.write_bytes(msgspec.json.encode(comparison))
    paths.verdicts.write_bytes(msgspec.json.encode(verdicts or (verdict(),), enc_hook=str))


def write_publication(paths: ReplayPaths, run_id: str, *tables: str, **days: Any) -> None:
    """The record of a publication of some tables, each of which has the version 8 since."""
    request = PublicationRequest(
        run_id=run_id,
        pipeline="wordcount",
        code_version="0123456789ab",
        batches=(0, 41),
        end_offsets={},
        tables=tables,
        requested_by="somebody",
        **days,
    )
    done = TablePublication(
        version_before=7, version_after=8, removed_files=1, removed_rows=1, added_files=1, added_rows=1
    )
    record = PublicationRecord(
        request=request, state="published", round=1, tables=dict.fromkeys(tables, done), begun_ms=0, files={}
    )
    paths.publication.parent.mkdir(parents=True, exist_ok=True)
    record.save(paths.publication.parent)


def _day(day: str, **rows: int) -> Day:
    return Day(day=day, **{"changed": 0, "only_production": 0, "only_staging": 0, **rows})


def verdict(outcome: Outcome = Outcome.PASSED, **more: Any) -> Verdict:
    usual = {"table": "order_counts", "expectation": "KeysAreUnique", "expects": "keys are unique", "why": "so it is"}
    return Verdict(**{**usual, "severity": "critical", "outcome": outcome, "rows": 1_001, **more})


def phase_done(paths: ReplayPaths, phase: Phase, **state: Any) -> None:
    """As if the phase had been done by another process."""
    before = paths.read_state()
    for name, value in state.items():
        setattr(before, name, value)
    before.done.append(phase)
    paths.write_state(before)


def project_settings(home: Path, patch: pytest.MonkeyPatch) -> Settings:
    """Of this repository, with a home of its own; the environment says the same."""
    root = Path(__file__).parents[3]
    settings = Settings.from_environment({"DELTAWORKS_PROJECT": str(root), "DELTAWORKS_HOME": str(home)})
    for name, value in settings.environment().items():
        patch.setenv(name, value)
    return settings
