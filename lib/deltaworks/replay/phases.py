"""What each phase of a replay does: run, compare, gate, publish, verify, clean.

Each phase can be done again: a run whose process died goes on with the phase that it was in. Until `publish` nothing
outside the folder of the run has changed. How a run is planned, resumed and found is in `runs.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import msgspec

from deltaworks import clock
from deltaworks.control import corrections, sink_corrections, table_commands
from deltaworks.control.paths import PipelinePaths
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.errors import ConfigurationError, TableError
from deltaworks.files import replace_file
from deltaworks.lakehouse.publish import comparison
from deltaworks.lakehouse.publish.comparison import Comparison
from deltaworks.lakehouse.publish.publication import PublicationRequest
from deltaworks.lakehouse.publish.scope import Scope
from deltaworks.lakehouse.schema import TableSchema, plan_schemas
from deltaworks.replay import days, same_topics
from deltaworks.replay.begin import Broker
from deltaworks.replay.model import (
    PHASES,
    Approval,
    Narrowed,
    Phase,
    ReplayPaths,
    ReplayPlan,
    ReplayState,
    day_of,
    locked,
    range_of,
)
from deltaworks.replay.narrowing import narrowed
from deltaworks.replay.plan import require_same_stream
from deltaworks.replay.report import comparison_of
from deltaworks.runtime import sinks
from deltaworks.settings import Settings

Report = Callable[[str], None]


class Engines(Protocol):
    """The phases that need Spark and Great Expectations; `replay.work` has them."""

    def process(
        self, settings: Settings, pipeline: Pipeline, paths: ReplayPaths, plan: ReplayPlan, report: Report
    ) -> None:
        """Runs the batches of a plan into staging tables; goes on where an earlier attempt was."""

    def judge(
        self,
        settings: Settings,
        pipeline: Pipeline,
        paths: ReplayPaths,
        plan: ReplayPlan,
        scope: Scope,
        report: Report,
    ) -> bool:
        """Whether the staging tables may be published."""

    def hand_over(
        self, settings: Settings, pipeline: Pipeline, paths: ReplayPaths, plan: ReplayPlan, report: Report
    ) -> None:
        """Lets the stream go on as what the replay has made; once more, it completes what was begun."""


@dataclass
class ReplayRun:
    """One run of a replay, made by `runs.start` or `runs.resume`; `with run.held():` around everything that it does."""

    settings: Settings
    pipeline: Pipeline
    paths: ReplayPaths

    plan: ReplayPlan
    """A hand-over extends it."""

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nobody else works on the run.

        Raises:
            ConflictError: somebody does.
        """
        with locked(self.paths.lock, wait=False):
            yield

    def advance(self, until: Phase, report: Callable[[Phase], Report], engines: Engines | None = None) -> ReplayState:
        """Does what has not been done, up to a phase; stops after the gate if that was not passed.

        Args:
            until: the last phase to do.
            report: gives, per phase, what to call with lines of progress.
            engines: for `run` and `gate`, and to hand over; None: that is done already, or not asked for.
        """
        work: dict[Phase, Callable[[ReplayState, Report], None]] = {
            "run": partial(self._run, engines),
            "compare": self._compare,
            "gate": partial(self._gate, engines),
            "publish": partial(self._publish, engines),
            "verify": self._verify,
            "clean": self._clean,
        }
        state = self.paths.read_state()
        while (phase := state.next) is not None and PHASES.index(phase) <= PHASES.index(until):
            state.error, state.process = None, os.getpid()
            self._write(state)
            try:
                work[phase](state, report(phase))
            except Exception as error:
                state.error = f"{phase}: {error}"
                self._write(state)
                raise
            if phase == "gate" and not state.passed:
                self._write(state)
                break
            state.done.append(phase)
            if phase == "clean":
                break
            self._write(state)
        return state

    def ask(self, place: str) -> None:
        """Notes where somebody is asked to approve it. For whoever holds the run."""
        state = self.paths.read_state()
        state.asked = place
        self._write(state)

    def approve(self, by: str) -> None:
        """Notes who says that it may be published; kept with what is published. For whoever holds the run."""
        state = self.paths.read_state()
        state.approval = Approval(by=by, at_ms=clock.wall_ms())
        self._write(state)

    def scope(self, state: ReplayState) -> Scope:
        """What the run stands for."""
        return Scope(
            from_ms=state.from_ms,
            to_ms=state.to_ms,
            end_offsets=self.plan.end_offsets,
            last_batch=self.plan.last_batch,
        )

    @property
    def schemas(self) -> list[TableSchema]:
        """Of the tables that are published."""
        return days.published_tables(self.pipeline, self.plan)

    def _run(self, engines: Engines | None, state: ReplayState, report: Report) -> None:
        assert engines is not None
        broker = Broker(self.settings.cluster_of(self.pipeline.name))
        same_topics.require_unchanged(self.plan, broker.topic_ids)
        engines.process(self.settings, self.pipeline, self.paths, self.plan, report)
        same_topics.require_unchanged(self.plan, broker.topic_ids)  # nor while it was read
        request, begin = self.plan.request, self.plan.begin
        if request.hand_over:
            return  # all days, those with open windows too
        state.from_ms, state.to_ms = days.publishable(
            (self.settings.tables, self.paths.tables),
            days.windowed_tables(self.schemas),
            days.session_tables(self.pipeline, self.schemas),
            request.from_ms,
            request.to_ms,
            complete=request.complete_days,
        )
        if state.from_ms is not None and begin is not None and state.from_ms < begin.complete_from_ms:
            raise TableError(
                f"Sessions of the replay reach back over {day_of(begin.complete_from_ms)}, those of production do "
                f"not; what was before batch {begin.batch} has not been read.",
                hint=f"deltaworks discard {self.plan.run_id}, and replay from {day_of(state.from_ms)} on or earlier",
            )
        report(f"days {range_of(state.from_ms, state.to_ms)}")

    def _compare(self, state: ReplayState, report: Report) -> None:
        found = self._comparison(state, report)
        replace_file(self.paths.comparison, msgspec.json.encode(found))
        state.differences = found.differences
        report(f"{found.differences:,} rows differ from production")
        if self.plan.request.only_different:
            days_of_all = (state.from_ms, state.to_ms)
            state.narrowed = narrowed(found, self.schemas, days_of_all, partial(self._widened, days_of_all))
            report(_chosen(state.narrowed))

    def _widened(
        self, within: tuple[int | None, int | None], tables: Sequence[str], of_days: tuple[int, int]
    ) -> tuple[int | None, int | None]:
        """The range of days in which no session of these tables is cut."""
        sessions = days.session_tables(self.pipeline, [schema for schema in self.schemas if schema.name in tables])
        return days.widened((self.settings.tables, self.paths.tables), sessions, of_days, within)

    def _gate(self, engines: Engines | None, state: ReplayState, report: Report) -> None:
        assert engines is not None
        scope = self.scope(state)
        state.passed = engines.judge(self.settings, self.pipeline, self.paths, self.plan, scope, report)
        state.differences = comparison_of(self.paths).differences

    def publication_request(self) -> PublicationRequest:
        """What is asked of the committer of the tables."""
        state, request = self.paths.read_state(), self.plan.request
        chosen = state.narrowed or Narrowed(tables=self.plan.tables, from_ms=state.from_ms, to_ms=state.to_ms)
        return PublicationRequest(
            run_id=self.plan.run_id,
            pipeline=self.pipeline.name,
            code_version=self.plan.code_version,
            batches=(self.plan.first_batch, self.plan.last_batch),
            end_offsets=self.plan.end_offsets,
            from_ms=chosen.from_ms,
            to_ms=chosen.to_ms,
            tables=chosen.tables,
            reason=request.reason,
            requested_by=request.requested_by,
            approved_by=None if state.approval is None else state.approval.by,
            corrections=corrections.request_of(self.pipeline, same_batches=request.order == "recorded"),
            sinks=sink_corrections.request_of(self.pipeline, same_batches=request.order == "recorded"),
        )

    def _publish(self, engines: Engines | None, state: ReplayState, report: Report) -> None:
        if self.plan.request.dry_run:
            raise ConfigurationError(
                f"Run {self.plan.run_id} is a dry run, which is never published.",
                hint=f"deltaworks discard {self.plan.run_id}, and start a replay without --code",
            )
        if self.plan.request.hand_over:
            assert engines is not None
            engines.hand_over(self.settings, self.pipeline, self.paths, self.plan, report)
            self.plan = self.paths.read_plan()
            line = f"the stream goes on from checkpoint {self.plan.run_id}, after batch {self.plan.last_batch}"
            told = sink_corrections.told(self.settings, self.pipeline.name, [])
            report(f"{line}{_approved(state)}{sinks.kept(self.pipeline.plan())}{told}")
            return
        require_same_stream(PipelinePaths.of(self.settings, self.pipeline.name), self.plan)
        if self.plan.request.only_different and state.narrowed is None:
            report("production is equal: nothing is published")
            return
        roots = (self.settings.tables, self.paths.tables)
        days.require_some(roots, days.windowed_tables(self.schemas), self.plan.tables, state.to_ms)
        corrections.prepare(self.settings.cluster_of(self.pipeline.name), self.pipeline)
        sink_corrections.correct(self.settings, self.pipeline.name)  # of an earlier one: each knows the one before
        done = table_commands.publish(self.settings, self.pipeline, self.paths.tables, self.publication_request())
        told = corrections.told(corrections.send(self.settings, self.pipeline.name))
        in_sinks = sink_corrections.correct(self.settings, self.pipeline.name)
        told += sinks.kept(self.pipeline.plan()) + sink_corrections.told(self.settings, self.pipeline.name, in_sinks)
        report(f"{len(done.tables)} tables{_approved(state)}{told}")

    def _verify(self, state: ReplayState, report: Report) -> None:
        found = self._comparison(state, report)
        if found.differences:
            raise TableError(
                f"{found.differences:,} rows of production are not those that run {self.plan.run_id} has published.",
                hint=f"`deltaworks rollback {self.plan.run_id}` brings back what was there; then look at the tables",
            )
        report("production holds what was published, row by row")

    def _clean(self, state: ReplayState, report: Report) -> None:
        self.paths.remove()
        report("the staging tables are gone; the publication can be rolled back")

    def _comparison(self, state: ReplayState, report: Report) -> Comparison:
        """Of what would be published; of a hand-over, each table as far as its own days are complete."""
        from_ms, to_ms, ends_ms = state.from_ms, state.to_ms, {}
        if self.plan.request.hand_over:
            roots = (self.settings.tables, self.paths.tables)
            from_ms = to_ms = None
            windowed = days.windowed_tables(self.schemas)
            ends_ms = {name: days.publishable(roots, [name], (), None, None)[1] for name in windowed}
        return comparison.compare(
            plan_schemas(self.pipeline.plan().tables, self.pipeline.dead_letters.table),
            self.settings.tables,
            self.paths.tables,
            from_ms=from_ms,
            to_ms=to_ms,
            ends_ms=ends_ms,
            end_offsets=self.plan.end_offsets,
            last_batch=self.plan.last_batch,
            tables=self.plan.tables,
            same_batches=self.plan.request.order == "recorded",
            summed=None if self.pipeline.reprocess is None else self.pipeline.reprocess.summed,
            report=report,
        )

    def _write(self, state: ReplayState) -> None:
        state.updated_ms = clock.wall_ms()
        self.paths.write_state(state)


def _approved(state: ReplayState) -> str:
    return "" if state.approval is None else f", approved by {state.approval.by}"


def _chosen(chosen: Narrowed | None) -> str:
    if chosen is None:
        return "nothing has to be published"
    return f"to publish: {', '.join(chosen.tables)}, {range_of(chosen.from_ms, chosen.to_ms)}"
