"""The runs of a replay: how one is planned, resumed, found, discarded and rolled back.

Runs that would publish the same days of the same table exclude each other from the plan to the end, whether they are at
work or lie there unfinished. What a run does in its phases is in `phases.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

from deltaworks import clock
from deltaworks.control import batches, cluster, corrections, jobs, set_aside, table_commands
from deltaworks.control.paths import PipelinePaths, known_pipelines
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.errors import ConfigurationError, ConflictError
from deltaworks.files import remove_tree, walk
from deltaworks.lakehouse.archive_reader import ArchiveReader
from deltaworks.lakehouse.publish import ownership
from deltaworks.lakehouse.publish.corrections import KeptCorrections
from deltaworks.lakehouse.publish.publication import Publication
from deltaworks.lakehouse.schema import plan_schemas
from deltaworks.names import RUN
from deltaworks.object_path import ObjectPath
from deltaworks.replay import days, same_tasks, same_topics
from deltaworks.replay.begin import Broker, begun_later
from deltaworks.replay.model import ReplayPaths, ReplayPlan, ReplayRequest, ReplayState, locked
from deltaworks.replay.phases import ReplayRun
from deltaworks.replay.plan import DAY_MS, code_version, make_plan
from deltaworks.settings import Settings
from deltaworks.topology.archives import Archives


def start(settings: Settings, request: ReplayRequest, *, run_id: str | None = None) -> ReplayRun:
    """Plans a new run; with an id of the caller's, the run of that id if it is planned already.

    Raises:
        ConfigurationError: the request makes no sense, or the pipeline never ran.
        ConflictError: another run would publish some of the same.
        KafkaTopicError: it would have to read records of a topic that was recreated since.
    """
    own, pipeline = PipelinePaths.of(settings, request.pipeline), _loaded(settings, request.pipeline)
    with locked(own.replays / "lock", wait=True):
        if run_id is not None and ReplayPaths.of(own, run_id).plan.exists():
            return resume(settings, run_id)
        _sweep(own)
        broker = Broker(settings.cluster_of(request.pipeline))
        plan = make_plan(settings, pipeline, request, broker, run_id)
        from_ms = _require_complete(settings, pipeline, plan)
        record = PipelinePaths.of(settings, request.pipeline).batches
        archive = ArchiveReader(settings.tables, Archives.of(pipeline.plan()), plan.topics.get)
        plan = begun_later(plan, pipeline, from_ms, lambda: batches.read(record), broker, archive)
        same_tasks.require(plan)
        same_topics.require_readable(plan, pipeline, lambda: batches.read(record), archive)
        for other in unfinished(settings, request.pipeline):
            if not request.dry_run and not other.request.dry_run:
                _require_apart(plan, other)
        paths = ReplayPaths.of(own, plan.run_id)
        paths.root.mkdir(parents=True, exist_ok=True)
        if cluster.of(settings, request.pipeline) is not None:
            paths.share(own.shared_replays / plan.run_id)
        paths.write_state(ReplayState(done=["plan"]))
        paths.write_plan(plan)
    return ReplayRun(settings, pipeline, paths, plan)


def newest_days(settings: Settings, name: str, tables: Collection[str], count: int) -> tuple[int, int]:
    """The newest complete days of a pipeline: the first moment, and the first no longer.

    Without windows, days are complete when they are over.

    Args:
        settings: name its tables.
        name: the pipeline.
        tables: of these tables; empty: of all.
        count: how many days.
    """
    pipeline = jobs.load(settings, name)
    schemas = plan_schemas(pipeline.plan().tables, pipeline.dead_letters.table)
    chosen = [schema for schema in schemas if not tables or schema.name in tables]
    windowed, sessions = days.windowed_tables(chosen), days.session_tables(pipeline, chosen)
    _, end_ms = days.publishable((settings.tables,), windowed, sessions, None, None)
    end_ms = clock.wall_ms() // DAY_MS * DAY_MS if end_ms is None else end_ms
    return end_ms - count * DAY_MS, end_ms


def resume(settings: Settings, run_id: str) -> ReplayRun:
    """An unfinished run.

    Raises:
        ConfigurationError: there is no such run, or the code has changed since it was planned, and nothing is
            published yet.
    """
    paths, plan = find(settings, run_id)
    pipeline = _loaded(settings, plan.request.pipeline)
    version = code_version(settings, pipeline)
    if version != plan.code_version and "publish" not in paths.read_state().done:
        raise ConfigurationError(
            f"Run {run_id} was planned with code {plan.code_version}; the code in jobs/ is {version} now.",
            hint=f"bring that code back, or `deltaworks discard {run_id}` and start another replay",
        )
    return ReplayRun(settings, pipeline, paths, plan)


def _loaded(settings: Settings, name: str) -> Pipeline:
    """A pipeline that reads history."""
    found = replace(jobs.load(settings, name), schemas=replace(jobs.schemas_of(settings, name), of_history=True))
    return set_aside.applied(PipelinePaths.of(settings, name), found)


def find(settings: Settings, run_id: str) -> tuple[ReplayPaths, ReplayPlan]:
    """A run that was not finished.

    Raises:
        ConfigurationError: there is none of that id.
    """
    RUN.checked(run_id)
    for root in settings.pipelines.glob(f"*/replays/{run_id}/plan.json"):
        paths = ReplayPaths.of(PipelinePaths.of(settings, root.parents[2].name), run_id)
        return paths, paths.read_plan()
    known = [plan.run_id for _, plan in all_unfinished(settings)]
    raise ConfigurationError(
        f"There is no unfinished replay {run_id!r}.", hint=f"unfinished: {', '.join(known) or 'none'}"
    )


def all_unfinished(settings: Settings) -> list[tuple[ReplayPaths, ReplayPlan]]:
    """The unfinished runs of all pipelines, oldest first."""
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
    with locked(paths.lock, wait=False):
        told = ownership.read(own.handover(run_id))
        if told is not None and told.state != "undone" and "publish" not in paths.read_state().done:
            raise ConflictError(
                f"A hand-over to run {run_id} was begun.",
                hint=f"deltaworks replay {plan.request.pipeline} --resume {run_id} completes it, "
                f"deltaworks rollback {run_id} takes it back",
            )
        if plan.request.hand_over and told is None:
            ownership.abandon(settings.tables, plan.tables, run_id)
            remove_tree(own.checkpoint_of(run_id).root)
        paths.remove()


def throw_away_leftovers(settings: Settings, name: str, *, but: Collection[str]) -> list[str]:
    """Discards what earlier runs of a pipeline's `reprocess=` have left, so that one night that failed does not fail
    all those after it; returns their ids.

    What was begun to be published or handed over stays, and so does what the gate has refused, as long as the code is
    the same: it would refuse it again, and somebody should see why.

    Args:
        settings: name the home.
        name: the pipeline.
        but: ids of runs that go on, unless the code has changed since they were planned.

    Raises:
        ConflictError: another process still works on one of them.
    """
    own = PipelinePaths.of(settings, name)
    version = code_version(settings, set_aside.applied(own, jobs.load(settings, name)))
    thrown = []
    for paths, plan in list(_runs(settings, name)):
        begun = paths.publication.exists() or own.handover(plan.run_id).exists()
        refused = paths.read_state().passed is False or plan.run_id in but
        if plan.request.by_policy and not begun and not (refused and plan.code_version == version):
            discard(settings, plan.run_id)
            thrown.append(plan.run_id)
    return thrown


def publication_of(settings: Settings, run_id: str) -> tuple[str, Path]:
    """The pipeline and the record of what a run has published.

    Raises:
        ConfigurationError: it has published nothing that is still known.
    """
    RUN.checked(run_id)
    found = {
        file.stem: (own.root.name, file)
        for own in known_pipelines(settings)
        for file in own.publications.glob("*.json")
    }
    if run_id in found:
        return found[run_id]
    raise ConfigurationError(
        f"No publication of a run {run_id!r} is known.", hint=f"publications: {', '.join(sorted(found)) or 'none'}"
    )


def rollback(settings: Settings, run_id: str, *, requested_by: str) -> tuple[Publication, list[KeptCorrections]]:
    """Takes back what a run has published, also under a running stream, and sends the corrections of that."""
    name, _ = publication_of(settings, run_id)
    done = table_commands.rollback(settings, jobs.load(settings, name), run_id, requested_by=requested_by)
    return done, corrections.send(settings, name)


def abandoned(settings: Settings, before_s: float) -> list[Path]:
    """Folders in the object store of runs that this home does not know, unchanged since a time (seconds since 1970).

    A machine that is lost leaves them, or an executor that goes on when its run is gone. A run of another home is among
    them if that keeps it for longer.
    """
    lasting = settings.lasting_pipelines
    if not isinstance(lasting, ObjectPath):
        return []
    found = []
    for name in _names_in(lasting):
        own = PipelinePaths.of(settings, name)
        for run_id in _names_in(own.shared_replays):
            folder = own.shared_replays / run_id
            known = ReplayPaths.of(own, run_id).plan.exists()
            if not known and all(about.st_mtime < before_s for _, about in walk(folder)):
                found.append(folder)
    return found


def _names_in(folder: Path) -> list[str]:
    return [each.name for each in folder.iterdir()] if folder.is_dir() else []


def _sweep(own: PipelinePaths) -> None:
    """Removes what processes that died have left of runs without a plan; nobody plans meanwhile."""
    for folder in own.replays.iterdir():
        if folder.is_dir() and not (folder / "plan.json").exists():
            ReplayPaths.of(own, folder.name).remove_rest()


def _require_complete(settings: Settings, pipeline: Pipeline, plan: ReplayPlan) -> int | None:
    """Days that the stream may still write to cannot be published; better known now than after an hour.

    Returns:
        The first moment to publish, as far as production's sessions say.
    """
    schemas = days.published_tables(pipeline, plan)
    windowed, sessions = days.windowed_tables(schemas), days.session_tables(pipeline, schemas)
    request = plan.request
    begin, _ = days.publishable(
        (settings.tables,), windowed, sessions, request.from_ms, request.to_ms, complete=request.complete_days
    )
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
