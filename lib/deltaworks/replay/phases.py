"""A run, phase by phase: plan, run, compare, gate, publish, verify, clean.

Each phase can be done again: a run whose process died goes on with the phase that it was in. Until `publish` nothing
outside the folder of the run has changed. Runs that would publish the same days of the same table exclude each other
from the plan to the end, whether they are at work or lie there unfinished.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec

from deltaworks import clock
from deltaworks.control import batches, jobs, set_aside, table_commands
from deltaworks.control.paths import PipelinePaths
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.errors import ConfigurationError, ConflictError, TableError
from deltaworks.files import lock, replace_file
from deltaworks.lakehouse.archive_reader import ArchiveReader
from deltaworks.lakehouse.publish import comparison, ownership
from deltaworks.lakehouse.publish.comparison import Comparison
from deltaworks.lakehouse.publish.publication import Publication, PublicationRequest
from deltaworks.lakehouse.publish.scope import Scope
from deltaworks.lakehouse.schema import Role, TableSchema, plan_schemas
from deltaworks.names import RUN
from deltaworks.replay import days, same_topics
from deltaworks.replay.begin import Broker, begun_later
from deltaworks.replay.model import PHASES, Approval, Phase, ReplayPaths, ReplayPlan, ReplayRequest, ReplayState, day_of
from deltaworks.replay.plan import code_version, make_plan, require_same_stream
from deltaworks.settings import Settings
from deltaworks.topology.archives import Archives
from deltaworks.topology.nodes.aggregates import SessionAggregate

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
    """One run of a replay; `with run.held():` around everything that it does."""

    settings: Settings
    pipeline: Pipeline
    paths: ReplayPaths

    plan: ReplayPlan
    """A hand-over extends it."""

    @classmethod
    def start(cls, settings: Settings, request: ReplayRequest, *, run_id: str | None = None) -> ReplayRun:
        """Plans a new run; with an id of the caller's, the run of that id if it is planned already.

        Raises:
            ConfigurationError: the request makes no sense, or the pipeline never ran.
            ConflictError: another run would publish some of the same.
            KafkaTopicError: it would have to read what a topic held that was made anew since.
        """
        own = PipelinePaths.of(settings, request.pipeline)
        pipeline = set_aside.applied(own, jobs.load(settings, request.pipeline))
        with _locked(own.replays / "lock", wait=True):
            if run_id is not None and ReplayPaths.of(own, run_id).plan.exists():
                return cls.resume(settings, run_id)
            _sweep(own.replays)
            broker = Broker(settings.bootstrap)
            plan = make_plan(settings, pipeline, request, broker, run_id)
            from_ms = _require_complete(settings, pipeline, plan)
            record = PipelinePaths.of(settings, request.pipeline).batches
            archive = ArchiveReader(settings.tables, Archives.of(pipeline.plan()), plan.topics.get)
            plan = begun_later(plan, pipeline, from_ms, lambda: batches.read(record), broker, archive)
            same_topics.require_readable(plan, pipeline, lambda: batches.read(record), archive)
            for other in unfinished(settings, request.pipeline):
                _require_apart(plan, other)
            paths = ReplayPaths.of(own, plan.run_id)
            paths.root.mkdir(parents=True, exist_ok=True)
            paths.write_state(ReplayState(done=["plan"]))
            paths.write_plan(plan)
        return cls(settings, pipeline, paths, plan)

    @classmethod
    def resume(cls, settings: Settings, run_id: str) -> ReplayRun:
        """An unfinished run.

        Raises:
            ConfigurationError: there is no such run, or the code has changed since it was planned, and nothing is
                published yet.
        """
        paths, plan = find(settings, run_id)
        pipeline = jobs.load(settings, plan.request.pipeline)
        pipeline = set_aside.applied(PipelinePaths.of(settings, pipeline.name), pipeline)
        version = code_version(settings, pipeline)
        if version != plan.code_version and "publish" not in paths.read_state().done:
            raise ConfigurationError(
                f"Run {run_id} was planned with code {plan.code_version}; the code in jobs/ is {version} now.",
                hint=f"bring that code back, or `deltaworks discard {run_id}` and start another replay",
            )
        return cls(settings, pipeline, paths, plan)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nobody else works on the run.

        Raises:
            ConflictError: somebody does.
        """
        with _locked(self.paths.lock, wait=False):
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
        return _published(self.pipeline, self.plan)

    def _run(self, engines: Engines | None, state: ReplayState, report: Report) -> None:
        assert engines is not None
        broker = Broker(self.settings.bootstrap)
        same_topics.require_unchanged(self.plan, broker.topic_ids)
        engines.process(self.settings, self.pipeline, self.paths, self.plan, report)
        same_topics.require_unchanged(self.plan, broker.topic_ids)  # nor while it was read
        request, begin = self.plan.request, self.plan.begin
        if request.hand_over:
            return  # all days, those with open windows too
        state.from_ms, state.to_ms = days.publishable(
            (self.settings.tables, self.paths.tables),
            _windowed(self.schemas),
            _with_sessions(self.pipeline, self.schemas),
            request.from_ms,
            request.to_ms,
        )
        if state.from_ms is not None and begin is not None and state.from_ms < begin.complete_from_ms:
            raise TableError(
                f"Sessions of the replay reach back over {day_of(begin.complete_from_ms)}, those of production do "
                f"not; what was before batch {begin.batch} has not been read.",
                hint=f"deltaworks discard {self.plan.run_id}, and replay from {day_of(state.from_ms)} on or earlier",
            )
        report(f"days {_day(state.from_ms, 'the beginning')} to {_day(state.to_ms, 'the last batch')}")

    def _compare(self, state: ReplayState, report: Report) -> None:
        found = self._comparison(state, report)
        replace_file(self.paths.comparison, msgspec.json.encode(found))
        state.differences = found.differences
        report(f"{found.differences:,} rows differ from production")

    def _gate(self, engines: Engines | None, state: ReplayState, report: Report) -> None:
        assert engines is not None
        scope = self.scope(state)
        state.passed = engines.judge(self.settings, self.pipeline, self.paths, self.plan, scope, report)

    def publication_request(self) -> PublicationRequest:
        """What is asked of the committer of the tables."""
        state, request = self.paths.read_state(), self.plan.request
        return PublicationRequest(
            run_id=self.plan.run_id,
            pipeline=self.pipeline.name,
            code_version=self.plan.code_version,
            batches=(self.plan.first_batch, self.plan.last_batch),
            end_offsets=self.plan.end_offsets,
            from_ms=state.from_ms,
            to_ms=state.to_ms,
            tables=self.plan.tables,
            reason=request.reason,
            requested_by=request.requested_by,
            approved_by=None if state.approval is None else state.approval.by,
        )

    def _publish(self, engines: Engines | None, state: ReplayState, report: Report) -> None:
        if self.plan.request.hand_over:
            assert engines is not None
            engines.hand_over(self.settings, self.pipeline, self.paths, self.plan, report)
            self.plan = self.paths.read_plan()
            line = f"the stream goes on from checkpoint {self.plan.run_id}, after batch {self.plan.last_batch}"
            report(f"{line}{_approved(state)}")
            return
        require_same_stream(PipelinePaths.of(self.settings, self.pipeline.name), self.plan)
        roots = (self.settings.tables, self.paths.tables)
        days.require_some(roots, _windowed(self.schemas), self.plan.tables, state.to_ms)
        done = table_commands.publish(self.settings, self.pipeline, self.paths.tables, self.publication_request())
        report(f"{len(done.tables)} tables{_approved(state)}")

    def _verify(self, state: ReplayState, report: Report) -> None:
        found = self._comparison(state, report)
        if found.differences:
            raise TableError(
                f"{found.differences:,} rows of production are not those that run {self.plan.run_id} has published.",
                hint=f"`deltaworks rollback {self.plan.run_id}` brings back what was there; then look at the tables",
            )
        report("production holds what was published, row by row")

    def _clean(self, state: ReplayState, report: Report) -> None:
        _remove(self.paths)
        report("the staging tables are gone; the publication can be rolled back")

    def _comparison(self, state: ReplayState, report: Report) -> Comparison:
        """Of what would be published; of a hand-over, each table as far as its own days are complete."""
        from_ms, to_ms, ends_ms = state.from_ms, state.to_ms, {}
        if self.plan.request.hand_over:
            roots = (self.settings.tables, self.paths.tables)
            from_ms = to_ms = None
            ends_ms = {name: days.publishable(roots, [name], (), None, None)[1] for name in _windowed(self.schemas)}
        return comparison.compare(
            plan_schemas(self.pipeline.plan().tables, self.pipeline.dead_letter_table),
            self.settings.tables,
            self.paths.tables,
            from_ms=from_ms,
            to_ms=to_ms,
            ends_ms=ends_ms,
            end_offsets=self.plan.end_offsets,
            last_batch=self.plan.last_batch,
            tables=self.plan.tables,
            same_batches=self.plan.request.order == "recorded",
            report=report,
        )

    def _write(self, state: ReplayState) -> None:
        state.updated_ms = clock.wall_ms()
        self.paths.write_state(state)


def find(settings: Settings, run_id: str) -> tuple[ReplayPaths, ReplayPlan]:
    """A run that was not finished.

    Raises:
        ConfigurationError: there is none of that id.
    """
    RUN.checked(run_id)
    for root in settings.pipelines.glob(f"*/replays/{run_id}/plan.json"):
        paths = ReplayPaths.of(PipelinePaths(root.parents[2]), run_id)
        return paths, paths.read_plan()
    known = [plan.run_id for _, plan in all_unfinished(settings)]
    raise ConfigurationError(
        f"There is no unfinished replay {run_id!r}.", hint=f"unfinished: {', '.join(known) or 'none'}"
    )


def all_unfinished(settings: Settings) -> list[tuple[ReplayPaths, ReplayPlan]]:
    """Of all pipelines, oldest first."""
    names = sorted(path.parent.name for path in settings.pipelines.glob("*/replays"))
    found = [run for name in names for run in _runs(settings, name)]
    return sorted(found, key=lambda run: run[1].created_ms)


def unfinished(settings: Settings, name: str) -> list[ReplayPlan]:
    """The plans of the runs of a pipeline that are neither cleaned up nor discarded."""
    return [plan for _, plan in _runs(settings, name)]


def _runs(settings: Settings, name: str) -> Iterator[tuple[ReplayPaths, ReplayPlan]]:
    own = PipelinePaths.of(settings, name)
    for file in sorted(own.replays.glob("*/plan.json")):
        paths = ReplayPaths.of(own, file.parent.name)
        try:
            plan = paths.read_plan()
        except FileNotFoundError:
            continue  # removed meanwhile
        yield paths, plan


def discard(settings: Settings, run_id: str) -> None:
    """Throws a run away; production stays as it is.

    Raises:
        ConfigurationError: there is no such run.
        ConflictError: somebody works on it, or a hand-over to it was begun.
    """
    paths, plan = find(settings, run_id)
    own = PipelinePaths.of(settings, plan.request.pipeline)
    with _locked(paths.lock, wait=False):
        told = ownership.read(own.handover(run_id))
        if told is not None and told.state != "undone" and "publish" not in paths.read_state().done:
            raise ConflictError(
                f"A hand-over to run {run_id} was begun.",
                hint=f"deltaworks replay {plan.request.pipeline} --resume {run_id} completes it, "
                f"deltaworks rollback {run_id} takes it back",
            )
        if plan.request.hand_over and told is None:
            ownership.abandon(settings.tables, plan.tables, run_id)
            shutil.rmtree(own.checkpoint_of(run_id).root, ignore_errors=True)
        _remove(paths)


def _remove(paths: ReplayPaths) -> None:
    """Without its plan a run is gone, all at once; a process that dies now leaves a folder for `_sweep`."""
    paths.plan.unlink()
    shutil.rmtree(paths.root, ignore_errors=True)


def _sweep(replays: Path) -> None:
    """Removes what processes that died have left of runs without a plan; nobody plans meanwhile."""
    for folder in replays.iterdir():
        if folder.is_dir() and not (folder / "plan.json").exists():
            shutil.rmtree(folder, ignore_errors=True)


def publication_of(settings: Settings, run_id: str) -> tuple[str, Path]:
    """The pipeline and the record of what a run has published.

    Raises:
        ConfigurationError: it has published nothing that is still known.
    """
    RUN.checked(run_id)
    for file in settings.pipelines.glob(f"*/publications/{run_id}.json"):
        return file.parents[1].name, file
    known = sorted(path.stem for path in settings.pipelines.glob("*/publications/*.json"))
    raise ConfigurationError(
        f"No publication of a run {run_id!r} is known.", hint=f"publications: {', '.join(known) or 'none'}"
    )


def rollback(settings: Settings, run_id: str, *, requested_by: str) -> Publication:
    """Takes back what a run has published, also under a running stream."""
    name, _ = publication_of(settings, run_id)
    return table_commands.rollback(settings, jobs.load(settings, name), run_id, requested_by=requested_by)


def _approved(state: ReplayState) -> str:
    return "" if state.approval is None else f", approved by {state.approval.by}"


def _published(pipeline: Pipeline, plan: ReplayPlan) -> list[TableSchema]:
    schemas = plan_schemas(pipeline.plan().tables, pipeline.dead_letter_table)
    return [schema for schema in schemas if schema.name in plan.tables]


def _windowed(schemas: list[TableSchema]) -> list[str]:
    return [schema.name for schema in schemas if schema.role is Role.WINDOWED]


def _with_sessions(pipeline: Pipeline, schemas: list[TableSchema]) -> set[str]:
    """The tables whose windows are sessions."""
    plan = pipeline.plan()
    by_sessions = {node.name for node in plan.nodes if isinstance(node, SessionAggregate)}
    return {schema.name for schema in schemas} & {sink.table for sink in plan.tables if sink.window_node in by_sessions}


def _require_complete(settings: Settings, pipeline: Pipeline, plan: ReplayPlan) -> int | None:
    """Days that the stream may still write to cannot be published; better known now than after an hour.

    Returns:
        The first moment to publish, as far as production's sessions say.
    """
    schemas = _published(pipeline, plan)
    sessions = _with_sessions(pipeline, schemas)
    request = plan.request
    begin, _ = days.publishable((settings.tables,), _windowed(schemas), sessions, request.from_ms, request.to_ms)
    return begin


def _require_apart(plan: ReplayPlan, other: ReplayPlan) -> None:
    tables = sorted(set(plan.tables) & set(other.tables))
    mine, theirs = plan.request, other.request
    before = mine.to_ms is not None and theirs.from_ms is not None and mine.to_ms <= theirs.from_ms
    after = theirs.to_ms is not None and mine.from_ms is not None and theirs.to_ms <= mine.from_ms
    if tables and not before and not after:
        raise ConflictError(
            f"Run {other.run_id} replays some of the same days of {', '.join(tables)}, and is not finished.",
            hint=f"go on with it (deltaworks replay {theirs.pipeline} --resume {other.run_id}) "
            f"or throw it away (deltaworks discard {other.run_id})",
        )


def _day(time_ms: int | None, otherwise: str) -> str:
    return otherwise if time_ms is None else day_of(time_ms)


@contextmanager
def _locked(path: Path, *, wait: bool) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        if not lock(file, wait=wait):
            raise ConflictError(
                f"Another process works on the replay {path.parent.name}.",
                hint="wait for it; a process that dies lets go of it",
            )
        yield
