"""Publishing and rolling back, as commands to the only committer of a pipeline's tables.

While the stream runs, its driver executes commands between two batches. While it is stopped, the caller takes the lease
and executes them.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from deltaworks import clock
from deltaworks.control import batches, commands, fence
from deltaworks.control.checkpoint import stored_plan
from deltaworks.control.commands import Answer, Command
from deltaworks.control.lease import Lease
from deltaworks.control.paths import PipelinePaths
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.errors import DeltaworksError, TableError
from deltaworks.lakehouse import moved_pages
from deltaworks.lakehouse.committer import TableCommitter, TableOptions
from deltaworks.lakehouse.publish import publication
from deltaworks.lakehouse.publish.publication import Publication, PublicationRequest
from deltaworks.lakehouse.retention import Retention
from deltaworks.lakehouse.schema import plan_schemas
from deltaworks.object_path import ObjectPath, path_of
from deltaworks.settings import Settings
from deltaworks.topology.plan import Plan

_WITH_SINKS = "-with-sinks"
"""Such a command has a kind of its own: a driver that does not know of sinks would leave them as they are, and refuses
what it does not know."""
_UNKNOWN = "There is no command"
_log = logging.getLogger(__name__)


def publish(
    settings: Settings, pipeline: Pipeline, staging: Path, request: PublicationRequest, *, timeout_s: float = 600.0
) -> Publication:
    """Publishes staging tables; repeating the request finds it done.

    Args:
        settings: the settings, for the location of the tables.
        pipeline: the pipeline.
        staging: folder of the staging tables.
        request: what to publish of them.
        timeout_s: how long to wait for a driver that is busy with a batch.

    Raises:
        TableError: the tables cannot be published; says why. Production is unchanged.
        TransientError: the driver did not answer in time; it will not be published later.
    """
    arguments = {"staging": str(staging), "request": msgspec.to_builtins(request)}
    return _ask(
        settings, pipeline, _kind("publish", request), request.run_id, arguments, request.requested_by, timeout_s
    )


def rollback(
    settings: Settings, pipeline: Pipeline, run_id: str, *, requested_by: str, timeout_s: float = 600.0
) -> Publication:
    """Takes back what a run has published; raises like `publish`."""
    found = publication.read(PipelinePaths.of(settings, pipeline.name).publications, run_id)
    return _ask(
        settings,
        pipeline,
        _kind("rollback", None if found is None else found.request),
        run_id,
        {},
        requested_by,
        timeout_s,
    )


def opened(settings: Settings, pipeline: Pipeline, plan: Plan, query_id: str, generation: int) -> TableCommitter:
    """The committer of a pipeline's tables, opened; for the holder of its lease, whose generation the fence admits.

    Raises:
        ConfigurationError: `[retention]` says something that cannot be used.
        FencedError: a newer generation has opened the tables.
        TableError: a table has other columns, or belongs to another checkpoint.
    """
    paths = PipelinePaths.of(settings, pipeline.name)
    archives = pipeline.archives(plan).tables
    options = TableOptions(retention=Retention.of(settings.retention_of(pipeline.name)))
    if moved_pages.is_waiting(paths.current.moved_pages):
        moved_pages.settle(
            settings.tables,
            pipeline.name,
            query_id,
            plan_schemas(plan.tables, pipeline.dead_letters.table, archives, pipeline=pipeline.name),
            paths.current.moved_pages,
            generation=generation,
            properties=options.properties,
        )
    committer = TableCommitter(
        settings.tables,
        pipeline.name,
        query_id,
        plan.tables,
        pipeline.dead_letters.table,
        archives=archives,
        options=options,
    )
    committer.open(generation, admitted=lambda: fence.held(paths.fence, generation, pipeline.name))
    committer.settled(batches.last_number(paths.batches))
    return committer


def carry_out(
    paths: PipelinePaths, pipeline: str, committer: TableCommitter, committing: threading.Lock, generation: int, by: str
) -> None:
    """Executes pending commands; for the holder of the lease, which must not be committing anything else.

    A command that fails is answered with its error and does not affect the driver.
    """
    for command in commands.pending(paths.commands):
        begun = clock.ticks_s()
        with committing:
            fence.check(paths.fence, generation, pipeline)
            begun_work = clock.ticks_s()
            try:
                said = Answer(result=_execute(paths, committer, command), seconds=0.0, by=by)
                committer.publish_cut()
            except DeltaworksError as error:
                said = Answer(error=error.message, hint=error.hint, seconds=0.0, by=by)
        seconds = clock.ticks_s() - begun_work
        commands.answer(paths.commands, command, msgspec.structs.replace(said, seconds=seconds))
        _log.info(
            "command %s: %s in %.2f s, after waiting %.2f s",
            command.id,
            said.error or "done",
            seconds,
            begun_work - begun,
        )


def _execute(paths: PipelinePaths, committer: TableCommitter, command: Command) -> dict[str, Any]:
    match command.kind.removesuffix(_WITH_SINKS):
        case "publish":
            request = msgspec.convert(command.arguments["request"], PublicationRequest)
            staging = _staging(paths, command.arguments["staging"])
            done = publication.publish(committer, staging, request, paths.publications)
        case "rollback":
            done = publication.rollback(committer, paths.publications, command.arguments["run_id"])
        case _:
            raise TableError(f"{_UNKNOWN} {command.kind!r}.", hint="the driver and the caller have different versions")
    result: dict[str, Any] = msgspec.to_builtins(done)
    return result


def _staging(paths: PipelinePaths, named: str) -> Path:
    """The staging folder that a command names; it has to belong to a replay of this pipeline."""
    staging = path_of(named)
    if isinstance(staging, ObjectPath):
        place = paths.shared_replays
        is_below = staging.is_relative_to(place) and ".." not in staging.parts
    else:
        place = paths.replays
        is_below = staging.resolve().is_relative_to(place.resolve())
    if not is_below:
        raise TableError(f"{staging} holds no staging tables: it is not below {place}.", hint="repeat the call")
    return staging


def _kind(kind: str, request: PublicationRequest | None) -> str:
    return kind if request is None or request.sinks is None else kind + _WITH_SINKS


def _ask(
    settings: Settings,
    pipeline: Pipeline,
    kind: str,
    run_id: str,
    arguments: Mapping[str, Any],
    by: str,
    timeout_s: float,
) -> Publication:
    paths = PipelinePaths.of(settings, pipeline.name)
    command = Command(
        id=f"{kind}-{run_id}-{secrets.token_hex(2)}",
        kind=kind,
        arguments={"run_id": run_id, **arguments},
        requested_by=by,
        at_ms=clock.wall_ms(),
    )
    commands.put(paths.commands, command)
    said = commands.wait(paths.commands, command, act=lambda: _act(settings, pipeline, paths, by), timeout_s=timeout_s)
    if said.result is None:
        if (said.error or "").startswith(_UNKNOWN):
            raise TableError(
                f"The driver of '{pipeline.name}' ({said.by}) is of an older version of deltaworks, which would leave "
                f"the sinks of run {run_id} as they are: it knows no {kind}. Nothing has changed.",
                hint=f"deltaworks deploy {pipeline.name}, so that its driver is of this version; then ask again",
            )
        raise TableError(said.error or "the command was not executed", hint=said.hint)
    return msgspec.convert(said.result, Publication)


def _act(settings: Settings, pipeline: Pipeline, paths: PipelinePaths, by: str) -> None:
    """Executes pending commands if no driver runs; raises `LeaseError` if one does."""
    generation = fence.read(paths.fence) + 1
    with Lease(paths.lease, pipeline.name, generation):
        fence.advance(paths.fence, generation, pipeline.name)
        checkpoint = stored_plan(paths.current.plan)
        if checkpoint is None:
            raise TableError(f"{paths.current.plan} does not exist.", hint="has the pipeline ever run here?")
        committer = opened(settings, pipeline, pipeline.plan(), checkpoint.query_id, generation)
        try:
            carry_out(paths, pipeline.name, committer, threading.Lock(), generation, by)
        finally:
            committer.close()
