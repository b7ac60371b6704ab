"""Lets a stream go on with another number of tasks.

```
stopped    all that it has begun is finished; its topics have more partitions, or its exchanges, or it gets more cores
made       a checkpoint beside its own: each entry is with the task that gets the records of its key now
switched   the stream goes on with it, from the same offsets, as the same query, and reads the new partitions, too
moved      the open windows of its tables are in pages of the new tasks; the next driver does that if nobody has
```

Until the switch, everything is as it was. After it, there is no way back: the tables go on with the new tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from deltaworks import clock
from deltaworks.config import Kafka
from deltaworks.control import fence, jobs, set_aside, table_commands, topics
from deltaworks.control.between_drivers import between_drivers
from deltaworks.control.checkpoint import CheckpointPlan, stored_plan
from deltaworks.control.lease import Lease
from deltaworks.control.paths import PipelinePaths
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.errors import ConfigurationError, ConflictError, IncompatibleCheckpointError
from deltaworks.faults import reach
from deltaworks.kafka import admin
from deltaworks.kafka.ranges import Offsets, Range
from deltaworks.kernel.records import RecordBatch
from deltaworks.kernel.stores.keys import inner_key_of
from deltaworks.lakehouse import layout, moved_pages
from deltaworks.lakehouse.moved_pages import MovedPages, MovedTable, RowTasks
from deltaworks.lakehouse.schema import Role, TableSchema, plan_schemas
from deltaworks.replay import quiet
from deltaworks.rescale.keys import Bounds, Growth, Placement
from deltaworks.runtime.consumer import RangeReader
from deltaworks.runtime.state.local_store import LocalStore, stores_of
from deltaworks.runtime.state.recovery import local_path
from deltaworks.runtime.state.splitting import Splitter
from deltaworks.settings import Settings
from deltaworks.spark import handover, stored_state, widening
from deltaworks.spark.handover import RESCALED
from deltaworks.spark.stopped import ReadState, StoppedStores, StoppedStream
from deltaworks.topology import partitions
from deltaworks.topology.nodes.sinks import TableKind
from deltaworks.topology.plan import Plan
from deltaworks.topology.rescaling import StageMove, Widths, stage_moves
from deltaworks.topology.stages import Stage, StoreSpec

Report = Callable[[str], None]
_KEYED_BY_WINDOW = ("window", "session", "suppress")


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What a rescale changes."""

    partitions: dict[str, tuple[int, int]]
    """Source topic -> how many partitions the stream reads, before and after; those that differ."""
    tasks: tuple[tuple[int, int], ...]
    """Of each stage, before and after."""
    shards: tuple[int, int]
    """Shards per stage, and so the cores that it can use, before and after."""
    partitioners: dict[str, str] = {}
    """Source topic -> how its producers place keys, where that decides."""

    @property
    def is_needed(self) -> bool:
        """Whether there is one."""
        return self.is_of_tasks or self.shards[0] != self.shards[1]

    @property
    def is_of_tasks(self) -> bool:
        """Whether keys may belong to other tasks after it."""
        return bool(self.partitions or any(a != b for a, b in self.tasks))


class Rescaled(msgspec.Struct, frozen=True, kw_only=True):
    """What was done."""

    change: Change
    checkpoint: str | None
    """The name of the new one; None: there was nothing to change."""
    first_batch: int
    """The first batch with the new tasks."""
    seconds: float
    """How long the stream was stopped for it, without its own stop and start."""


def look(settings: Settings, name: str, *, partitioner: str | None = None) -> Change:
    """What a rescale would change; changes nothing.

    Args:
        settings: where the pipeline runs.
        name: of the pipeline.
        partitioner: how the producers of its topics place keys, a name of `PARTITIONERS`; None: it is found out.

    Raises:
        ConfigurationError: there is no such pipeline, or it has not run here.
        TopologyError: keys do not say where state belongs; every reason is told.
        IncompatibleCheckpointError: the code in jobs/ has another topology than the stream.
        KafkaTopicError: its producers place keys in an unknown way.
    """
    return _Rescaling.of(settings, name, partitioner).change


def rescale(
    settings: Settings,
    name: str,
    *,
    by: str,
    partitioner: str | None = None,
    report: Report = lambda _: None,
    read: ReadState = stored_state.read,
) -> Rescaled:
    """Lets a stream go on with the partitions, exchanges and cores that there are now.

    A running stream is stopped for it, and started again.

    Args:
        settings: where the pipeline runs.
        name: of the pipeline.
        by: who asks for it.
        partitioner: as for `look`.
        report: called with lines of progress.
        read: reads Spark's state.

    Raises:
        ConflictError: a replay, a publication or a batch is not finished, or records wait in old partitions that must
            be read before. Nothing has changed.
        DeltaworksError: as `look`. Nothing has changed.
    """
    work = _Rescaling.of(settings, name, partitioner, read)
    if not work.change.is_needed:
        return Rescaled(change=work.change, checkpoint=None, first_batch=-1, seconds=0.0)
    work.require_quiet()
    done: list[Rescaled] = []

    def act(generation: int, _: Callable[[], None]) -> None:
        with Lease(work.paths.lease, name, generation):
            fence.advance(work.paths.fence, generation, name)
            work.require_quiet()
            done.append(work.carry_out(generation, report))

    before = work.paths.switched
    between_drivers(
        settings, name, act, lambda: work.paths.switched == before, by=by, report=report, new_code=work.is_new_code
    )
    return done[0]


@dataclass(frozen=True)
class _Topics:
    """Those of a cluster; see `keys.Topics`."""

    cluster: Kafka
    pipeline: str

    def begins(self, topics: Sequence[str]) -> Bounds:
        return admin.begin_offsets(self.cluster, topics)

    def ends(self, topics: Sequence[str]) -> Bounds:
        return admin.end_offsets(self.cluster, topics)

    def read(self, part: Range) -> Iterator[RecordBatch]:
        with closing(RangeReader(self.cluster, self.pipeline)) as reader:
            for portion in reader.read([part]):
                yield from portion


@dataclass(frozen=True)
class _Rescaling:
    settings: Settings
    pipeline: Pipeline
    plan: Plan
    paths: PipelinePaths
    before: CheckpointPlan
    partitions: Mapping[str, int]
    """Of every source topic, as the broker has them."""
    moves: tuple[StageMove, ...]
    change: Change
    is_new_code: bool
    """Whether it is the code of the project that asks for other numbers of tasks."""
    placement: Placement
    read: ReadState

    @classmethod
    def of(
        cls, settings: Settings, name: str, partitioner: str | None, read: ReadState = stored_state.read
    ) -> _Rescaling:
        paths = PipelinePaths.of(settings, name)
        pipeline = set_aside.applied(paths, jobs.load(settings, name))
        plan, before = pipeline.plan(), stored_plan(paths.current.plan)
        if before is None:
            raise ConfigurationError(
                f"Pipeline {name!r} has not run here: it starts with the partitions that there are.",
                hint=f"deltaworks deploy {name}",
            )
        StoppedStream.of(settings, plan, paths)  # the topology must be the same
        cluster = settings.cluster_of(name)
        found = topics.check(cluster, pipeline, plan, begun=True, held=before.partitions)
        now = {topic: found.now[topic] for topic in plan.source_topics}
        was = _widths_before(plan, before, found.matched)
        moves = stage_moves(plan, was, Widths.of(plan, now | found.matched))
        growths = _growths(moves, before.partitions, now)
        placement = Placement(_Topics(cluster, name), partitioner)
        change = Change(
            partitions={topic: (before.partitions[topic], count) for topic, count in now.items()
                        if before.partitions[topic] != count},
            tasks=tuple((move.before, move.after) for move in moves),
            shards=(before.shards, pipeline.shards(settings.cores)),
            partitioners=placement.look(growths),
        )  # fmt: skip
        is_new_code = Widths.of(plan, before.partitions | found.matched).tasks != before.tasks
        return cls(settings, pipeline, plan, paths, before, now, moves, change, is_new_code, placement, read)

    def require_quiet(self) -> None:
        """Raises `ConflictError` if something is not finished that belongs to the tasks that there are."""
        if not self.change.is_of_tasks:
            return
        quiet.require(
            self.settings,
            self.paths,
            self.pipeline.name,
            command="rescale",
            replays=", and have as many tasks as before",
        )

    def carry_out(self, generation: int, report: Report) -> Rescaled:
        """While no driver runs; by the holder of the lease."""
        begun, paths = clock.ticks_s(), self.paths
        handover.settle(paths)
        stream = StoppedStream.of(self.settings, self.plan, paths, self.read)
        assert stream is not None
        if stream.before.query_id != self.before.query_id or stream.before.tasks != self.before.tasks:
            raise ConflictError(
                f"Pipeline {self.pipeline.name!r} was handed over or rescaled meanwhile.", hint="look again, and repeat"
            )
        stream.require_settled()
        last = stream.last_batch()
        if not self.change.is_of_tasks:
            report("spreading the state")
            return self._done(widening.widen(stream, self.change.shards[1], generation), last, begun)
        start = handover.offsets_after(paths, last) or dict(self.before.start or {})
        report("looking at the records that are not read yet")
        self.placement.require_placed(_growths(self.moves, self.before.partitions, self.partitions), start)
        name = f"{RESCALED}{sum(each.startswith(RESCALED) for each in paths.switched) + 1}"
        report("spreading the state")
        with stream.stores() as stores:
            spread = _Spread(self, stores, last)
            made = stream.make_next(
                name,
                last,
                spread.opened,
                partitions=dict(self.partitions),
                tasks=tuple(move.after for move in self.moves),
                shards=self.change.shards[1],
                start=_with_new(start, self.change.partitions),
            )
            if spread.tables:
                moved_pages.note(made.moved_pages, MovedPages(name=name, tables=spread.tables))
            reach("rescale.made")
            handover.switch(paths, name)
        reach("rescale.switched")
        report("moving open windows")
        table_commands.opened(self.settings, self.pipeline, self.plan, self.before.query_id, generation).close()
        return self._done(name, last, begun)

    def _done(self, name: str, last: int, begun_s: float) -> Rescaled:
        return Rescaled(change=self.change, checkpoint=name, first_batch=last + 1, seconds=clock.ticks_s() - begun_s)


@dataclass
class _Spread:
    """The stores of the new tasks, one stage after the other; and what moves in tables."""

    work: _Rescaling
    stores: StoppedStores
    last_batch: int
    tables: dict[str, MovedTable] = field(default_factory=dict)

    @contextmanager
    def opened(self, stage: int, task: int, stores: dict[str, bool]) -> Iterator[LocalStore | None]:
        """Opens the stores of a new task; see `handover.OpenStore`."""
        if task == 0:
            self._spread(self.work.moves[stage])
        local = LocalStore(local_path(self._folder, stage, task), stores)
        try:
            yield local
        finally:
            local.discard()
            local.close()

    @property
    def _folder(self) -> Path:
        return self.stores.scratch / "spread"

    def _spread(self, move: StageMove) -> None:
        stage, work = move.stage, self.work
        found = {name: _Rows(RowTasks(work.settings.tables, schema), specs) for name, (schema, specs)
                 in self._windowed(stage).items()}  # fmt: skip

        def seen(spec: StoreSpec, key: bytes, task: int) -> None:
            for rows in found.values():
                rows.seen(spec, key, task)

        with Splitter(move, self._folder, work.change.partitioners, seen) as split:
            for task in range(move.before):
                with self.stores.opened(stage.index, task, stores_of(stage)) as opened:
                    if opened is not None:
                        split.add(task, opened[0])
            split.finish()
        for name, rows in found.items():
            keys = move.stores[rows.specs[0].name].keys
            tag = layout.query_tag(work.before.query_id)
            if rows.tasks.pages and keys.before != keys.after:
                self.tables[name] = rows.tasks.move(keys.children, batch_id=max(0, self.last_batch), tag=tag)

    def _windowed(self, stage: Stage) -> dict[str, tuple[TableSchema, list[StoreSpec]]]:
        """The windowed tables of a stage, and the stores that have the keys of their rows."""
        schemas = {schema.name: schema for schema in plan_schemas(self.work.plan.tables, None)
                   if schema.role is Role.WINDOWED}  # fmt: skip
        specs = {spec.name: spec for spec in stage.stores if spec.kind in _KEYED_BY_WINDOW}
        found = {}
        for sink in stage.tables:
            if sink.kind is TableKind.WINDOWED:
                above = partitions.nodes_above(stage, (sink.name,))
                names = {store for node in above for store in node.stores} & specs.keys()
                if not names:
                    raise IncompatibleCheckpointError(
                        f"No store has the windows of table '{sink.table}', so nothing says which task goes on with "
                        "them.",
                        hint="nothing has been changed; please report this",
                    )
                found[sink.table] = schemas[sink.table], [specs[name] for name in sorted(names)]
        return found


@dataclass
class _Rows:
    """Tells a table which keys go to which tasks."""

    tasks: RowTasks
    specs: list[StoreSpec]
    _last: tuple[str, bytes] | None = None

    def __post_init__(self) -> None:
        self._serdes = {spec.name: inner_key_of(spec)[1] for spec in self.specs}

    def seen(self, spec: StoreSpec, key: bytes, task: int) -> None:
        if spec.name in self._serdes and (spec.name, key) != self._last:
            self._last = spec.name, key
            self.tasks.note(self._serdes[spec.name].deserialize(key), task)


def _widths_before(plan: Plan, before: CheckpointPlan, matched: Mapping[str, int]) -> Widths:
    """The widths that the state has: those of the checkpoint, even if the code asks for other exchanges now."""
    widths = Widths.of(plan, before.partitions | dict(matched))
    if widths.tasks == before.tasks:
        return widths
    sources = dict(widths.sources)
    for stage in plan.stages:
        if widths.tasks[stage.index] != before.tasks[stage.index]:
            if stage.topics or stage.patterns:
                raise IncompatibleCheckpointError(
                    f"The checkpoint of pipeline {plan.name!r} has {before.tasks[stage.index]} tasks of stage "
                    f"{stage.index}, whose topics had {widths.tasks[stage.index]} partitions.",
                    hint="nothing has been changed; please report this",
                )
            sources |= dict.fromkeys(stage.exchanges_in, before.tasks[stage.index])
    return Widths(before.tasks, sources)


def _growths(moves: tuple[StageMove, ...], before: Mapping[str, int], now: Mapping[str, int]) -> list[Growth]:
    """The topics whose keys decide where moved entries belong."""
    keys = [each for move in moves for store in move.stores.values() for each in (store.keys, store.left) if each]
    names = {topic for each in keys if each.before != each.after for topic in each.topics}
    return [Growth(topic, before[topic], now[topic]) for topic in sorted(names)]


def _with_new(start: Offsets, grown: Mapping[str, tuple[int, int]]) -> Offsets:
    """The offsets with the partitions that are new, which are read from their beginning."""
    new = {topic: {str(number): 0 for number in range(*counts)} for topic, counts in grown.items()}
    return {topic: {**new.get(topic, {}), **start.get(topic, {})} for topic in {**start, **new}}
