"""Plans a replay: which batches run again, what they read, and which tables can be published from them."""

from __future__ import annotations

import hashlib
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import msgspec

from deltaworks import clock
from deltaworks.control import batches
from deltaworks.control.batches import BatchRecord, TopicsRead
from deltaworks.control.checkpoint import CheckpointPlan, stored_plan
from deltaworks.control.paths import PipelinePaths
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.errors import ConfigurationError, ConflictError
from deltaworks.kafka.ranges import Offsets
from deltaworks.lakehouse.archive_reader import ArchiveReader
from deltaworks.lakehouse.schema import Role, TableSchema, plan_schemas
from deltaworks.replay import same_tasks, same_topics
from deltaworks.replay.begin import Broker
from deltaworks.replay.model import ReplayPlan, ReplayRequest
from deltaworks.settings import Settings
from deltaworks.topology.archives import Archives
from deltaworks.topology.nodes import CallOut
from deltaworks.topology.plan import Plan

DAY_MS = 86_400_000


def make_plan(
    settings: Settings,
    pipeline: Pipeline,
    request: ReplayRequest,
    broker: Broker,
    run_id: str | None = None,
) -> ReplayPlan:
    """Plans a run as of now; reads the record of batches, changes nothing.

    Args:
        settings: where the pipeline keeps its files.
        pipeline: the pipeline, with the code to replay.
        request: what is wanted.
        broker: answers questions about topics and offsets.
        run_id: letters, digits, `-` and `_`; None: a new one.

    Raises:
        ConfigurationError: the request makes no sense, or the pipeline never ran.
    """
    _require_days(request)
    _require_whole(request)
    plan, paths = pipeline.plan(), PipelinePaths.of(settings, pipeline.name)
    checkpoint = _checkpoint(paths, pipeline.name)
    read = batches.topics_read(batches.read(paths.batches))
    first, last, records, ends = _extent(paths, pipeline.name, read)
    require_answers(plan, request)
    partitions = _partitions(pipeline, plan, checkpoint, ends)
    topics = broker.partition_counts()
    mine = same_topics.read_by(plan, ends)
    read = read.of(mine)
    thinned = sorted(broker.compacted([topic for topic in {*ends, *plan.global_topics} if topic in topics]))
    archive = ArchiveReader(settings.tables, Archives.of(plan), read.ids.get)
    return ReplayPlan(
        run_id=run_id or f"{clock.utc_now():%Y%m%dT%H%M%S}-{secrets.token_hex(3)}",
        request=request,
        created_ms=clock.wall_ms(),
        code_version=code_version(settings, pipeline),
        query_id=checkpoint.query_id,
        first_batch=first.batch,
        last_batch=last.batch,
        records=records,
        end_offsets=ends,
        partitions=partitions,
        global_partitions={topic: topics[topic] for topic in plan.global_topics},
        sink_partitions={topic: topics[topic] for topic in plan.sink_topics if topic in topics},
        sink_limits=dict(broker.record_limits(topics)),
        tasks=plan.tasks(partitions),
        compacted=tuple(thinned),
        incomplete=tuple(topic for topic in thinned if not archive.is_whole(topic, ends.get(topic, {}))),
        tables=_tables(pipeline, plan, request),
        topics=dict(read.ids),
        recreated=dict(read.recreated),
        gone=same_topics.gone(mine, read.ids, broker.topic_ids(mine)),
        rescaled=tuple(same_tasks.rescaled(paths)),
    )


def extended(settings: Settings, pipeline: Pipeline, plan: ReplayPlan) -> ReplayPlan:
    """The same plan, extended to the latest batch.

    Raises:
        ConflictError: the stream has been handed over since, so its later batches belong to another query.
        KafkaTopicError: it reads a topic that was recreated.
    """
    paths = PipelinePaths.of(settings, pipeline.name)
    require_same_stream(paths, plan)
    read = batches.topics_read(batches.read(paths.batches))
    _, last, records, ends = _extent(paths, pipeline.name, read)
    read = read.of(same_topics.read_by(pipeline.plan(), ends))
    later = msgspec.structs.replace(
        plan,
        last_batch=last.batch,
        records=records,
        end_offsets=ends,
        topics=dict(read.ids),
        recreated=dict(read.recreated),
        rescaled=tuple(same_tasks.rescaled(paths)),
    )
    same_tasks.require(later)
    archive = ArchiveReader(settings.tables, Archives.of(pipeline.plan()), later.topics.get)
    same_topics.require_readable(later, pipeline, lambda: batches.read(paths.batches), archive)
    return later


def require_same_stream(paths: PipelinePaths, plan: ReplayPlan) -> None:
    """Raises `ConflictError` if the pipeline was handed over, or back, since a replay was planned."""
    checkpoint = stored_plan(paths.current.plan)
    if checkpoint is None or checkpoint.query_id != plan.query_id:
        raise ConflictError(
            f"Run {plan.run_id} has processed the batches of query {plan.query_id}, but the stream is another one now.",
            hint=f"deltaworks discard {plan.run_id}, and start another replay",
        )


def code_version(settings: Settings, pipeline: Pipeline) -> str:
    """Twelve digits that identify the code of a pipeline: its file, and everything that it uses from `jobs/`."""
    folder = settings.jobs
    left, files = [f"jobs.{pipeline.name}"], dict[str, Path]()
    while left:
        name = left.pop()
        module = sys.modules.get(name)
        file = Path(getattr(module, "__file__", None) or "/")
        if name in files or not file.is_relative_to(folder):
            continue
        files[name] = file
        for value in vars(module).values():
            left.append(value.__name__ if isinstance(value, ModuleType) else str(getattr(value, "__module__", "")))
    digest = hashlib.sha256()
    for file in sorted(files.values()):
        digest.update(file.relative_to(folder).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def _require_days(request: ReplayRequest) -> None:
    for name, value in (("from", request.from_ms), ("to", request.to_ms)):
        if value is not None and value % DAY_MS:
            raise ConfigurationError(f"--{name} is not the beginning of a UTC day.", hint="days look like 2026-11-22")
    if request.from_ms is not None and request.to_ms is not None and request.from_ms >= request.to_ms:
        raise ConfigurationError(
            "The range of days is empty: --from is not before --to.",
            hint="--to is the first day that is no longer published",
        )


def _require_whole(request: ReplayRequest) -> None:
    if not request.hand_over:
        return
    limits = {"--from": request.from_ms is not None, "--to": request.to_ms is not None, "--table": request.tables,
              "--order time": request.order == "time", "--only-different": request.only_different}  # fmt: skip
    if given := [option for option, is_given in limits.items() if is_given]:
        raise ConfigurationError(
            f"{', '.join(given)}: a hand-over always includes all tables and stores, from the beginning, as recorded.",
            hint=f"leave out {', '.join(given)}, or --hand-over",
        )


def require_answers(plan: Plan, request: ReplayRequest) -> None:
    """Refuses the order of time: answers of other systems are recorded by batch, and it has other batches.

    Args:
        plan: of the pipeline.
        request: what is wanted.

    Raises:
        ConfigurationError: an operator would need answers in another order.
    """
    asking = [node.name for node in plan.nodes if isinstance(node, CallOut) and not node.ask_again]
    if asking and request.order == "time":
        raise ConfigurationError(
            f"{', '.join(asking)}: answers of other systems are recorded in the order of the stream, not by time.",
            hint="leave out --order time; with ask_again=True, the operator asks anew",
        )


def _checkpoint(paths: PipelinePaths, name: str) -> CheckpointPlan:
    plan = stored_plan(paths.current.plan)
    if plan is None:
        raise ConfigurationError(
            f"Pipeline {name!r} has no checkpoint here, so there is no history to replay.",
            hint=f"deltaworks deploy {name}, and let it process something",
        )
    return plan


def _extent(paths: PipelinePaths, name: str, read: TopicsRead) -> tuple[BatchRecord, BatchRecord, int, Offsets]:
    """First and last batch, how many offsets they read, and where they end.

    If a topic was recreated, a partition of which nothing has been read since then ends at 0.
    """
    first = last = None
    records, ends, ticked = 0, dict[str, dict[str, int]](), False
    for record in batches.read(paths.batches):
        if last is not None and record.batch != last.batch + 1:
            raise ConfigurationError(
                f"The record of batches of {name!r} has a gap: {record.batch} comes after {last.batch}.",
                hint=f"the files in {paths.batches} belong to the stream; restore what was removed",
            )
        first, last = first or record, record
        ticked = ticked or record.tick
        for topic, parts in record.offsets.items():
            for partition, (start, stop) in parts.items():
                records += stop - start
                ends.setdefault(topic, {})[partition] = 0 if batches.is_before(record, topic, read.recreated) else stop
    if first is None or last is None or not (ends or ticked):
        raise ConfigurationError(
            f"Pipeline {name!r} has not processed a record yet, so there is no history to replay.",
            hint=f"deltaworks produce {name}, or wait for its first records",
        )
    return first, last, records, ends


def _partitions(pipeline: Pipeline, plan: Plan, checkpoint: CheckpointPlan, ends: Offsets) -> dict[str, int]:
    """Partitions of every topic that the tasks read, as the stream knew them."""
    known = dict(checkpoint.partitions)
    for topic, parts in ends.items():
        if plan.reads(topic):
            known.setdefault(topic, max(map(int, parts)) + 1)
    new = [topic for topic in plan.source_topics if topic not in known]
    if new:
        raise ConfigurationError(
            f"Pipeline {pipeline.name!r} reads {', '.join(new)} now, which the stream that is replayed did not.",
            hint="no batch of the record has records of it: deploy the new topology with a new checkpoint",
        )
    return {topic: count for topic, count in known.items() if plan.reads(topic)}


def _tables(pipeline: Pipeline, plan: Plan, request: ReplayRequest) -> tuple[str, ...]:
    """The tables to publish: the requested ones, or all that can be."""
    schemas = {schema.name: schema for schema in plan_schemas(plan.tables, pipeline.dead_letters.table)}
    unknown = [table for table in request.tables if table not in schemas]
    if unknown:
        raise ConfigurationError(
            f"Pipeline {pipeline.name!r} writes no table {', '.join(unknown)}.", hint=f"tables: {', '.join(schemas)}"
        )
    whole = [table for table in request.tables if _is_whole(schemas[table])]
    if whole and (request.from_ms is not None or request.to_ms is not None):
        raise ConfigurationError(
            f"{', '.join(whole)}: a table without windows has no days; each row depends on all history before it.",
            hint="leave out --from and --to, then its changelog and its snapshot are published as a whole",
        )
    if request.hand_over:
        return tuple(schemas)
    if not request.tables:
        with_days = tuple(name for name, schema in schemas.items() if not _is_whole(schema))
        if not with_days:
            raise ConfigurationError(
                f"Pipeline {pipeline.name!r} writes no table that has days.",
                hint="name the tables to publish as a whole with --table: " + (", ".join(schemas) or "it has none"),
            )
        return with_days
    asked = {*request.tables, *(_other_half(schemas, table) for table in whole)}
    return tuple(name for name in schemas if name in asked)


def _is_whole(schema: TableSchema) -> bool:
    return schema.role in (Role.CHANGELOG, Role.SNAPSHOT)


def _other_half(schemas: Mapping[str, TableSchema], table: str) -> str:
    """The other table of a changelog and its snapshot, which are published together."""
    names = list(schemas)
    at = names.index(table)
    return names[at + 1] if schemas[table].role is Role.CHANGELOG else names[at - 1]
