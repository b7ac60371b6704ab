"""Recorded micro-batches, run in one process: several partitions, every stage with all its tasks, a commit per batch.

The streaming host records which offsets and which wall clock each micro-batch had. Given the same batches, this host
gives the same bytes: the same records per output topic and task in the same order, the same rows, the same stores.
It does not simulate Spark, transactions or Delta commits; it has no crashes, but tasks can be built again from their
state between batches (`Restarts`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from types import MappingProxyType
from typing import Any

from deltaworks.kafka.ranges import Range
from deltaworks.kernel.errors import ErrorPolicy
from deltaworks.kernel.exchanges import ExchangeOutput
from deltaworks.kernel.records import Coordinates, DeadLetter, Headers, RecordBatch, Rows, SinkRecords
from deltaworks.kernel.stores.build import Store
from deltaworks.kernel.stores.memory import MemoryState
from deltaworks.kernel.task import Task, TaskMetrics
from deltaworks.runtime.task_loop import Inputs, Sent, TaskId, process, rounds, take_turns
from deltaworks.testing.call_outs import Fake, fakes_for
from deltaworks.testing.memory_tables import TablesInMemory
from deltaworks.testing.topics import RawRecord
from deltaworks.topology.nodes.sinks import DeltaSink, TableKind
from deltaworks.topology.plan import Plan
from deltaworks.topology.sinks import SinkRecord
from deltaworks.topology.stages import Stage

Restarts = Callable[[int, TaskId], bool]
"""`(batch id, task)` -> whether the task is built from its state before that batch."""


@dataclass(frozen=True)
class MicroBatch:
    """The content of one micro-batch of a stream."""

    wall_clock_ms: int
    records: tuple[RecordBatch, ...]
    """Records of source topics, per topic-partition in offset order."""
    tick: bool = False
    """Whether tasks that depend on the wall clock run even without records."""


@dataclass(frozen=True)
class TableRow:
    """A row that a task handed over for a Delta table, in the words of `Collector`."""

    kind: str
    """`append`, `change`, `window` or `close`."""
    key: Any = None
    value: Any = None
    timestamp_ms: int = 0
    source: Coordinates | None = None
    start_ms: int = 0
    end_ms: int = 0
    """Bounds of the window; for `close`, windows that end earlier are final."""


@dataclass
class TaskOutput:
    """Everything that one task produced, in order."""

    topics: dict[str, list[RawRecord]] = field(default_factory=dict)
    placed: dict[tuple[str, int], list[RawRecord]] = field(default_factory=dict)
    """`(topic, partition)` -> the same records, if the topology has chosen their partition itself."""
    rows: dict[str, list[TableRow]] = field(default_factory=dict)
    """Rows by table."""
    dead_letters: list[DeadLetter] = field(default_factory=list)
    sinks: dict[str, list[SinkRecord[Any, Any]]] = field(default_factory=dict)
    """Records by the name of the author's sink."""


@dataclass
class Recording:
    """The result of a run."""

    tasks: dict[TaskId, TaskOutput]
    tables: TablesInMemory
    """The content of the tables at the end, for all tasks together; final windows differ by task (`rows`)."""
    stores: dict[TaskId, dict[str, list[tuple[bytes, bytes]]]]
    """Committed entries per store at the end, the reserved store `__task__` included; empty stores are left out."""
    exchanges: list[dict[TaskId, list[RecordBatch]]]
    """Per micro-batch: the records that each task received through exchanges."""
    metrics: list[dict[TaskId, TaskMetrics]]
    """Per micro-batch, for the tasks that ran."""

    def topic(self, topic: str) -> list[RawRecord]:
        """Every record of an output topic, task by task."""
        return [record for task in sorted(self.tasks) for record in self.tasks[task].topics.get(topic, ())]


def run_recorded(
    plan: Plan,
    topic_partitions: Mapping[str, int],
    batches: Iterable[MicroBatch],
    *,
    errors: ErrorPolicy | None = None,
    first_batch_id: int = 0,
    restarts: Restarts = lambda batch_id, task: False,
    max_cached_entries: int = 200_000,
    idle_timeout: timedelta | None = None,
    sink_partitions: Mapping[str, int] = MappingProxyType({}),
    call_outs: Mapping[str, Fake] | None = None,
) -> Recording:
    """Runs micro-batches through every stage of a plan.

    A task runs in a batch if it has input, and in a tick if it depends on the wall clock. Stages run in order, so
    records for a later stage arrive in the same batch. The stages of a cycle take turns until nothing is left, before
    the next stage runs. Global tables take their records of the batch before any task runs.

    Args:
        plan: The topology.
        topic_partitions: Partitions of every source topic; they decide the number of tasks.
        batches: The micro-batches, in order.
        errors: What happens to records that fail; None: the run fails.
        first_batch_id: Id of the first batch; offsets after an exchange depend on it.
        restarts: Which tasks lose their memory before which batch.
        max_cached_entries: As in `Task`.
        idle_timeout: As in `Pipeline`; it requires ticks.
        sink_partitions: Partitions of output topics, for the topology's partitioners; other topics have 1.
        call_outs: As in `TopologyTestDriver`.

    Raises:
        StreamsError: A record failed and the policy says `fail`.
    """
    build = partial(
        Task,
        errors=errors or ErrorPolicy(),
        max_cached_entries=max_cached_entries,
        idle_timeout_ms=None if idle_timeout is None else idle_timeout // timedelta(milliseconds=1),
        answers=fakes_for(plan, call_outs),
    )
    host = _Host(plan, topic_partitions, build, sink_partitions, idle_timeout=idle_timeout is not None)
    for batch_id, batch in enumerate(batches, start=first_batch_id):
        host.run(batch_id, batch, restarts)
    return host.recording()


def cut(records: Sequence[RecordBatch], ends: Sequence[Sequence[int]]) -> list[tuple[RecordBatch, ...]]:
    """Cuts records into micro-batches.

    Args:
        records: One per topic-partition.
        ends: Per micro-batch, how many records of each topic-partition have been read at its end. Records after the
            last cut make one more batch.
    """
    batches: list[tuple[RecordBatch, ...]] = []
    read = [0] * len(records)
    for upto in [*ends, [len(each.offsets) for each in records]]:
        parts = [part_of(each, start, max(start, stop)) for each, start, stop in zip(records, read, upto, strict=True)]
        read = [max(start, stop) for start, stop in zip(read, upto, strict=True)]
        batches.append(tuple(part for part in parts if part.offsets))
    return batches


def part_of(records: RecordBatch, start: int, stop: int) -> RecordBatch:
    """The records from one position to another."""
    part = slice(start, stop)
    return RecordBatch(
        records.topic,
        records.partition,
        records.offsets[part],
        records.timestamps_ms[part],
        records.keys[part],
        records.values[part],
        None if records.headers is None else records.headers[part],
    )


class _Host:
    def __init__(
        self,
        plan: Plan,
        topic_partitions: Mapping[str, int],
        build: Callable[..., Task],
        sink_partitions: Mapping[str, int],
        *,
        idle_timeout: bool,
    ) -> None:
        self._groups = plan.groups
        self._counts = plan.tasks(topic_partitions)
        self._readers = plan.readers
        self._idle_timeout = idle_timeout
        self._tables = TablesInMemory(plan.tables)
        exchange_partitions = plan.exchange_partitions(topic_partitions)
        self._globals = [
            _RecordedTask(partial(build, stage, 0, exchange_partitions={}), stage, 0, self._tables, sink_partitions)
            for stage in plan.global_stages
        ]
        global_stores = {name: store for recorded in self._globals for name, store in recorded.stores.items()}
        self._tasks = {
            (stage.index, task): _RecordedTask(
                partial(build, stage, task, exchange_partitions=exchange_partitions, global_stores=global_stores),
                stage,
                task,
                self._tables,
                sink_partitions,
            )
            for stage, count in zip(plan.stages, self._counts, strict=True)
            for task in range(count)
        }
        self._exchanges: list[dict[TaskId, list[RecordBatch]]] = []
        self._metrics: list[dict[TaskId, TaskMetrics]] = []

    def run(self, batch_id: int, batch: MicroBatch, restarts: Restarts) -> None:
        for recorded in self._globals:
            if mine := [each for each in batch.records if recorded.stage.reads(each.topic)]:
                recorded.begin(batch_id)
                task = recorded.task(batch.wall_clock_ms)
                task.process(mine, batch.wall_clock_ms)
                task.punctuate(batch.wall_clock_ms)
                recorded.commit()
        runs: dict[TaskId, _TaskRun] = {}
        read = {_range_of(each): each for each in batch.records if each.offsets}

        def run_of(task: TaskId) -> _TaskRun:
            if task not in runs:
                recorded = self._tasks[task]
                if restarts(batch_id, task):
                    recorded.rebuild(batch.wall_clock_ms)
                runs[task] = _TaskRun(recorded, batch_id, batch.wall_clock_ms, read, self._readers)
            return runs[task]

        waiting = self._inputs(read, tick=batch.tick)
        for group, members, inputs in rounds(self._groups, self._counts, waiting):
            for to, records in take_turns(members, inputs, run_of, cyclic=group.cyclic):
                waiting.setdefault(to, Inputs()).exchanges.append(records)
        self._exchanges.append({task: run.received for task, run in runs.items() if run.received})
        self._metrics.append({task: run.metrics for task, run in runs.items() if run.metrics is not None})

    def _inputs(self, records: Mapping[Range, RecordBatch], *, tick: bool) -> dict[TaskId, Inputs]:
        """The input of each task that has something to read, or ticks."""
        inputs = {
            task: Inputs()
            for task, recorded in self._tasks.items()
            if tick and recorded.stage.ticks(idle_timeout=self._idle_timeout)
        }
        for range_, each in records.items():
            for task, recorded in self._tasks.items():
                if recorded.reads(each):
                    inputs.setdefault(task, Inputs()).ranges.append(range_)
        return inputs

    def recording(self) -> Recording:
        return Recording(
            tasks={task: recorded.output for task, recorded in self._tasks.items()},
            tables=self._tables,
            stores={task: recorded.state.contents() for task, recorded in self._tasks.items()},
            exchanges=self._exchanges,
            metrics=self._metrics,
        )


class _TaskRun:
    """One task in one micro-batch."""

    def __init__(
        self,
        recorded: _RecordedTask,
        batch_id: int,
        wall_ms: int,
        records: Mapping[Range, RecordBatch],
        readers: Mapping[str, int],
    ) -> None:
        self._recorded, self._batch_id, self._wall_ms = recorded, batch_id, wall_ms
        self._records, self._readers = records, readers
        self.received: list[RecordBatch] = []
        self.metrics: TaskMetrics | None = None

    def turn(self, inputs: Inputs, *, last: bool) -> Sent:
        """A turn as in a stream, except that the task is given its records instead of reading them from Kafka."""
        self.received += inputs.exchanges
        self._recorded.begin(self._batch_id)
        process(self._recorded.task(self._wall_ms), inputs, self._read, self._wall_ms)
        sent = self._recorded.commit()
        self.metrics = self._recorded.metrics.after(self.metrics)
        return [((self._readers[exchange], task), records) for (exchange, task), records in sent.items()]

    def _read(self, ranges: list[Range]) -> list[list[RecordBatch]]:
        return [[self._records[each] for each in ranges]]


def _range_of(records: RecordBatch) -> Range:
    return Range(records.topic, records.partition, records.offsets[0], records.offsets[-1] + 1)


class _RecordedTask:
    """A task with its state and what it produced; the collector of the task."""

    def __init__(
        self,
        build: Callable[..., Task],
        stage: Stage,
        number: int,
        tables: TablesInMemory,
        sink_partitions: Mapping[str, int],
    ) -> None:
        self.stage = stage
        self._sink_partitions = sink_partitions
        self.state = MemoryState()
        self.output = TaskOutput()
        self._build = build
        self._number = number
        self._tables = tables
        self._batch_id = -1
        self._exchanged = ExchangeOutput(number, self._batch_id)
        self._task: Task | None = None

    @property
    def metrics(self) -> TaskMetrics:
        return self.task(0).metrics

    @property
    def stores(self) -> Mapping[str, Store]:
        return self.task(0).stores

    def task(self, wall_clock_ms: int) -> Task:
        """The task, made for the first batch, so that users' processors are initialized at its time."""
        if self._task is None:
            self.rebuild(wall_clock_ms)
        assert self._task is not None
        return self._task

    def rebuild(self, wall_clock_ms: int) -> None:
        self._task = self._build(state=self.state, collector=self, wall_clock_ms=wall_clock_ms)

    @property
    def id(self) -> TaskId:
        return self.stage.index, self._number

    def reads(self, records: RecordBatch) -> bool:
        return records.partition == self._number and self.stage.reads(records.topic)

    def begin(self, batch_id: int) -> None:
        if batch_id != self._batch_id:
            self._batch_id = batch_id
            self._exchanged = ExchangeOutput(self._number, batch_id)

    def commit(self) -> dict[tuple[str, int], RecordBatch]:
        """The records that it has sent, by exchange and task."""
        self.state.apply(self.task(0).commit())
        return self._exchanged.take()

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Headers,
        partition_key: bytes | None = None,
    ) -> None:
        self.output.topics.setdefault(topic, []).append(RawRecord(key, value, timestamp_ms, headers))

    def partitions(self, topic: str) -> int:
        return self._sink_partitions.get(topic, 1)

    def send_to(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Headers,
    ) -> None:
        self.output.placed.setdefault((topic, partition), []).append(RawRecord(key, value, timestamp_ms, headers))
        self.send(topic, key, value, timestamp_ms, headers)

    def exchange(
        self, exchange: str, partition: int, key: bytes | None, value: bytes | None, timestamp_ms: int, headers: Headers
    ) -> None:
        self._exchanged.add(exchange, partition, key, value, timestamp_ms, headers)

    def rows(self, sink: str) -> Rows:
        table = next((node for node in self.stage.tables if node.name == sink), None)
        if table is None:
            return SinkRecords(self.output.sinks.setdefault(sink, []))
        return _RecordedRows(self.output, table, self._tables.rows(sink))

    def dead_letter(self, letter: DeadLetter) -> None:
        self.output.dead_letters.append(letter)


class _RecordedRows(Rows):
    """The rows of a table in the output of a task, and in the table."""

    def __init__(self, output: TaskOutput, sink: DeltaSink, rows: Rows) -> None:
        self._output, self._sink, self._rows = output, sink, rows

    def add(self, row: tuple[Any, ...]) -> None:
        match self._sink.kind:
            case TableKind.APPEND:
                self._record(TableRow("append", *row))
            case TableKind.CHANGELOG:
                self._record(TableRow("change", *row))
            case TableKind.WINDOWED:
                key, value, timestamp_ms, start_ms, end_ms = row
                self._record(TableRow("window", key, value, timestamp_ms, None, start_ms, end_ms))
        self._rows.add(row)

    def close_windows(self, before_ms: int) -> None:
        self._record(TableRow("close", end_ms=before_ms))

    def _record(self, row: TableRow) -> None:
        self._output.rows.setdefault(self._sink.table, []).append(row)
