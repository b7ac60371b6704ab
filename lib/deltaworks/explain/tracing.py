"""Processes recorded batches again, record by record, and notes which step read what another step wrote.

A *step* is the processing of one record in one task, with everything that follows from it at once. A task commits after
each step and keeps nothing in memory, so each read of a store goes through `_Store`, which knows the step that wrote
the entry. An exchange takes the record to a step of its own.

The order is that of the stream, so stores and tables end as they do there; but every update is forwarded, where the
stream may forward the last one of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from deltaworks.dsl.pipeline import Pipeline
from deltaworks.kafka.ranges import Range
from deltaworks.kernel.exchanges import ExchangeOutput
from deltaworks.kernel.records import DeadLetter, Headers, RecordBatch, Rows, SinkRecords
from deltaworks.kernel.stores.build import Store
from deltaworks.kernel.stores.memory import MemoryState
from deltaworks.kernel.stores.state import StateReader, StoreChanges
from deltaworks.kernel.task import TASK_STORE, Task
from deltaworks.runtime.task_loop import Inputs, Sent, TaskId, rounds, take_turns
from deltaworks.topology.plan import Plan
from deltaworks.topology.stages import Stage
from deltaworks.topology.timestamps import ConsumedRecord


@dataclass(frozen=True, slots=True)
class InputRecord:
    """A record as it was read from Kafka or an archive."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    batch: int
    """The batch that read it."""
    wall_ms: int
    """The time of that batch."""

    @property
    def place(self) -> tuple[str, int, int]:
        """Topic, partition and offset."""
        return self.topic, self.partition, self.offset


@dataclass(frozen=True)
class TracedBatch:
    """A recorded batch with its records, per topic-partition in offset order."""

    batch: int
    wall_ms: int
    tick: bool
    records: Sequence[RecordBatch]


@dataclass(slots=True)
class Step:
    """The processing of one record in one task, or what the clock made a task do."""

    task: tuple[str | int, int]
    batch: int
    wall_ms: int
    record: int
    """Number of the input record; -1: the record came through an exchange, or there is none."""
    sender: int
    """The step that sent the record through an exchange; -1: none did."""
    parents: tuple[int, ...] = ()
    """The steps that wrote what this one read or replaced."""
    newest: int = -1
    """The last step of the task, up to this one, at which its stream time rose."""


@dataclass(frozen=True, slots=True)
class Write:
    """A row that was written to the watched sink."""

    step: int
    row: tuple[Any, ...]
    """See `kernel.records.Rows`; empty if only the stream has it."""


@dataclass
class Trace:
    """What happened."""

    records: list[InputRecord] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    closings: list[tuple[int, int]] = field(default_factory=list)
    """`(step, before_ms)`: windows of the step's task that end before are final since then."""
    own: dict[int, list[int]] = field(default_factory=dict)
    """Record -> the steps that processed it itself."""


class Watched(Protocol):
    """Says which rows of the sink matter."""

    def __call__(self, row: tuple[Any, ...]) -> bool: ...


def trace(
    pipeline: Pipeline,
    partitions: Mapping[str, int],
    batches: Iterable[TracedBatch],
    sink: str,
    watched: Watched,
    *,
    sink_partitions: Mapping[str, int],
    done: Callable[[Trace], bool] = lambda trace: False,
) -> Trace:
    """Processes batches and notes what the watched rows of one sink depend on.

    Args:
        pipeline: with the code to run, and with the records that were set aside.
        partitions: of every source topic.
        batches: in order.
        sink: name of the node that writes the rows.
        watched: whether a row matters.
        sink_partitions: of output topics, for the topology's partitioners; other topics have 1.
        done: asked after each batch; true ends the trace.

    Raises:
        StreamsError: a record failed, and the pipeline says fail.
    """
    found = Trace()
    host = _Host(pipeline, partitions, found, sink, watched, sink_partitions)
    for batch in batches:
        host.run(batch)
        if done(found):
            break
    return found


class _Notes:
    """What the stores of all tasks have in common: the step at work, and who wrote which entry."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._writers: dict[tuple[object, str, bytes], int] = {}
        self._read: set[int] = set()
        self._step = -1
        self._newest: dict[object, tuple[int, int]] = {}

    def begin(self, step: Step) -> int:
        self.trace.steps.append(step)
        self._step = len(self.trace.steps) - 1
        self._read = set()
        return self._step

    def read(self, task: object, store: str, key: bytes) -> None:
        if (writer := self._writers.get((task, store, key))) is not None:
            self._read.add(writer)

    def wrote(self, task: object, store: str, key: bytes) -> None:
        self.read(task, store, key)
        self._writers[task, store, key] = self._step

    def end(self, stream_ms: int) -> None:
        step = self.trace.steps[self._step]
        self._read.discard(self._step)
        step.parents = tuple(sorted(self._read))
        newest, newest_ms = self._newest.get(step.task, (-1, -1))
        if stream_ms > newest_ms:
            newest = self._step
            self._newest[step.task] = newest, stream_ms
        step.newest = newest
        self._step, self._read = -1, set()


class _State:
    """`StateBackend` whose entries remember their writers."""

    def __init__(self, notes: _Notes, task: object) -> None:
        self._notes, self._task, self._below = notes, task, MemoryState()

    def reader(self, store: str) -> _Reader:
        return _Reader(self._below.reader(store), partial(self._notes.read, self._task, store))

    def apply(self, changes: Mapping[str, StoreChanges]) -> None:
        for name, change in changes.items():
            if name != TASK_STORE:
                for key, _ in change.entries:
                    self._notes.wrote(self._task, name, key)
        self._below.apply(changes)


class _Reader:
    """`StateReader` that says what was read."""

    def __init__(self, below: StateReader, noted: Callable[[bytes], None]) -> None:
        self._below, self._noted = below, noted

    def get(self, key: bytes) -> bytes | None:
        self._noted(key)
        return self._below.get(key)

    def scan(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        return self._each(self._below.scan(start, stop))

    def scan_time(self, start_ms: int, stop_ms: int | None) -> Iterator[tuple[bytes, bytes]]:
        return self._each(self._below.scan_time(start_ms, stop_ms))

    def _each(self, entries: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        for key, value in entries:
            self._noted(key)
            yield key, value


class _Host:
    """All tasks of all stages; like `testing.recorded`, but each record is a step."""

    def __init__(
        self,
        pipeline: Pipeline,
        partitions: Mapping[str, int],
        found: Trace,
        sink: str,
        watched: Watched,
        sink_partitions: Mapping[str, int],
    ) -> None:
        plan = pipeline.plan()
        self._plan, self._counts = plan, plan.tasks(partitions)
        self._readers = plan.readers
        self._idle_timeout = pipeline.idle_timeout is not None
        self._found, notes = found, _Notes(found)
        self._senders: dict[tuple[TaskId, str, int, int], int] = {}
        exchanges = plan.exchange_partitions(partitions)
        make = partial(_TracedTask, pipeline=pipeline, notes=notes, sink=sink, watched=watched, topics=sink_partitions)
        self._globals = [make(stage, 0, space="global", exchanges={}, globals_={}) for stage in plan.global_stages]
        stores = {name: store for task in self._globals for name, store in task.stores.items()}
        self._tasks = {
            (stage.index, number): make(stage, number, space=stage.index, exchanges=exchanges, globals_=stores)
            for stage, count in zip(plan.stages, self._counts, strict=True)
            for number in range(count)
        }

    def run(self, batch: TracedBatch) -> None:
        inputs: dict[TaskId, Inputs] = {
            id: Inputs() for id, task in self._tasks.items() if batch.tick and task.ticks(self._idle_timeout)
        }
        numbers: dict[tuple[str, int, int], int] = {}
        whole: dict[Range, RecordBatch] = {}
        for part in batch.records:
            if not part.offsets:
                continue
            self._note(part, batch, numbers)
            for task in self._globals:
                if task.stage.reads(part.topic):
                    task.begin_batch(batch)
                    task.steps([part], lambda topic, partition, offset: (numbers[topic, partition, offset], -1))
            range_ = Range(part.topic, part.partition, part.offsets[0], part.offsets[-1] + 1)
            whole[range_] = part
            for id, task in self._tasks.items():
                if id[1] == part.partition and task.stage.reads(part.topic):
                    inputs.setdefault(id, Inputs()).ranges.append(range_)
        self._senders.clear()

        def member(id: TaskId) -> _Turn:
            return _Turn(id, self._tasks[id], batch, whole, numbers, self._senders, self._readers)

        for group, members, given in rounds(self._plan.groups, self._counts, inputs):
            for to, records in take_turns(members, given, member, cyclic=group.cyclic):
                inputs.setdefault(to, Inputs()).exchanges.append(records)

    def _note(self, part: RecordBatch, batch: TracedBatch, numbers: dict[tuple[str, int, int], int]) -> None:
        columns = zip(part.offsets, part.timestamps_ms, part.keys, part.values, part.headers_of_each, strict=True)
        for offset, time_ms, key, value, headers in columns:
            numbers[part.topic, part.partition, offset] = len(self._found.records)
            self._found.records.append(
                InputRecord(
                    part.topic, part.partition, offset, time_ms, key, value, headers, batch.batch, batch.wall_ms
                )
            )


class _Turn:
    """`task_loop.Member` for one task in one batch."""

    def __init__(
        self,
        id: TaskId,
        task: _TracedTask,
        batch: TracedBatch,
        whole: Mapping[Range, RecordBatch],
        numbers: Mapping[tuple[str, int, int], int],
        senders: dict[tuple[TaskId, str, int, int], int],
        readers: Mapping[str, int],
    ) -> None:
        self._id, self._task, self._batch, self._whole = id, task, batch, whole
        self._numbers, self._senders, self._readers = numbers, senders, readers

    def turn(self, inputs: Inputs, *, last: bool) -> Sent:
        self._task.begin_batch(self._batch)
        parts = [*(self._whole[each] for each in inputs.ranges), *inputs.exchanges]
        sent: list[tuple[TaskId, RecordBatch]] = []
        for step, (exchange, number), records in self._task.steps(parts, self._came_from):
            to = self._readers[exchange], number
            for offset in records.offsets:
                self._senders[to, exchange, records.partition, offset] = step
            sent.append((to, records))
        return sent

    def _came_from(self, topic: str, partition: int, offset: int) -> tuple[int, int]:
        sender = self._senders.get((self._id, topic, partition, offset))
        return (self._numbers[topic, partition, offset], -1) if sender is None else (-1, sender)


class _TracedTask:
    """A task with its state; the collector of the task."""

    def __init__(
        self,
        stage: Stage,
        number: int,
        *,
        space: str | int,
        exchanges: Mapping[str, int],
        globals_: Mapping[str, Store],
        pipeline: Pipeline,
        notes: _Notes,
        sink: str,
        watched: Watched,
        topics: Mapping[str, int],
    ) -> None:
        self.stage, self._number, self._space = stage, number, space
        self._notes, self._sink, self._watched, self._topics = notes, sink, watched, topics
        self._state = _State(notes, (space, number))
        self._exchanged = ExchangeOutput(number, -1)
        self._batch = TracedBatch(-1, 0, False, ())
        self._task: Task | None = None
        idle_ms = None if pipeline.idle_timeout is None else int(pipeline.idle_timeout.total_seconds() * 1000)
        self._new = partial(
            Task, stage, number, state=self._state, collector=self, errors=pipeline.errors,
            exchange_partitions=exchanges, idle_timeout_ms=idle_ms, max_cached_entries=0, global_stores=globals_,
        )  # fmt: skip

    @property
    def stores(self) -> Mapping[str, Store]:
        return self._made.stores

    @property
    def _made(self) -> Task:
        if self._task is None:
            self._task = self._new(wall_clock_ms=self._batch.wall_ms)
        return self._task

    def ticks(self, idle_timeout: bool) -> bool:
        return self.stage.ticks(idle_timeout=idle_timeout)

    def begin_batch(self, batch: TracedBatch) -> None:
        if batch.batch != self._batch.batch:
            self._batch = batch
            self._exchanged = ExchangeOutput(self._number, batch.batch)

    def steps(
        self, parts: Sequence[RecordBatch], came_from: Callable[[str, int, int], tuple[int, int]]
    ) -> list[tuple[int, tuple[str, int], RecordBatch]]:
        """Processes the records of a turn one by one; returns the step, the exchange and task, and what was sent."""
        wall_ms = self._batch.wall_ms
        sent: list[tuple[int, tuple[str, int], RecordBatch]] = []
        for each in self._in_order(parts):
            record, sender = came_from(each.topic, each.partition, each.offsets[0])
            sent += self._step(record, sender, partial(self._made.process, [each], wall_ms))
        sent += self._step(-1, -1, partial(self._made.punctuate if parts else self._made.tick, wall_ms))
        return sent

    def _step(
        self, record: int, sender: int, act: Callable[[], None]
    ) -> list[tuple[int, tuple[str, int], RecordBatch]]:
        task = self._made
        number = self._notes.begin(
            Step((self._space, self._number), self._batch.batch, self._batch.wall_ms, record, sender)
        )
        if record >= 0:
            self._notes.trace.own.setdefault(record, []).append(number)
        act()
        self._state.apply(task.commit())
        self._notes.end(task.metrics.stream_time_ms)
        return [(number, to, records) for to, records in self._exchanged.take().items()]

    def _in_order(self, parts: Sequence[RecordBatch]) -> list[RecordBatch]:
        """Batches of one record each, in the order of `kernel.order`."""
        newest: dict[tuple[str, int], int] = {}
        ranked: list[tuple[int, str, int, int, RecordBatch]] = []
        for part in sorted(parts, key=lambda part: (part.topic, part.partition, part.offsets[0])):
            at = part.topic, part.partition
            for index in range(len(part.offsets)):
                each = _one(part, index)
                newest[at] = max(newest.get(at, -1), self._time_of(each))
                ranked.append((newest[at], *at, each.offsets[0], each))
        ranked.sort(key=lambda entry: entry[:4])
        return [entry[4] for entry in ranked]

    def _time_of(self, each: RecordBatch) -> int:
        """The time of a record by which it waits for its turn; one that fails has no turn."""
        time_ms = each.timestamps_ms[0]
        source = next((node for node in self.stage.sources if node.reads(each.topic)), None)
        if source is None or source.timestamp_extractor is None:
            return time_ms
        place = (each.topic, each.partition, each.offsets[0], self._batch.wall_ms)
        record = ConsumedRecord(each.keys[0], each.values[0], time_ms, each.headers_of_each[0], *place)
        return source.time_before_its_turn(record, self._made.partition_time_ms(each.topic, each.partition))

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Headers,
        partition_key: bytes | None = None,
    ) -> None: ...

    def partitions(self, topic: str) -> int:
        return self._topics.get(topic, 1)

    def send_to(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Headers,
    ) -> None: ...

    def exchange(
        self, exchange: str, partition: int, key: bytes | None, value: bytes | None, timestamp_ms: int, headers: Headers
    ) -> None:
        self._exchanged.add(exchange, partition, key, value, timestamp_ms, headers)

    def rows(self, sink: str) -> Rows:
        return _Watching(self._notes, self._watched) if sink == self._sink else _Ignored()

    def dead_letter(self, letter: DeadLetter) -> None: ...


class _Ignored(SinkRecords):
    def add(self, row: tuple[Any, ...]) -> None: ...

    def close_windows(self, before_ms: int) -> None: ...


class _Watching(Rows):
    def __init__(self, notes: _Notes, watched: Watched) -> None:
        self._notes, self._watched = notes, watched

    def add(self, row: tuple[Any, ...]) -> None:
        if self._watched(row):
            self._notes.trace.writes.append(Write(len(self._notes.trace.steps) - 1, row))

    def close_windows(self, before_ms: int) -> None:
        self._notes.trace.closings.append((len(self._notes.trace.steps) - 1, before_ms))


def _one(part: RecordBatch, index: int) -> RecordBatch:
    headers = None if part.headers is None or not part.headers[index] else [part.headers[index]]
    return RecordBatch(
        part.topic,
        part.partition,
        [part.offsets[index]],
        [part.timestamps_ms[index]],
        [part.keys[index]],
        [part.values[index]],
        headers,
    )


def depends_on_clock(plan: Plan, pipeline: Pipeline) -> bool:
    """Whether results may depend on the wall clock."""
    return any(
        stage.ticks(idle_timeout=pipeline.idle_timeout is not None)
        or any(source.timestamp_extractor is not None for source in stage.sources)
        for stage in plan.stages
    )
