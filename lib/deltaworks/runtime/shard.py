"""One batch of the tasks of one shard: open the stores, process, make durable, answer.

A shard gets a few rows per batch: the offset ranges to read, or the records that upstream tasks sent. The kernel does
the rest (`task_loop` says in which order). If stages send records in a cycle, their tasks are in one shard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass

import msgspec

from deltaworks import clock
from deltaworks.errors import IntentError, KafkaReadError, KafkaWriteError, StreamsError
from deltaworks.faults import reach
from deltaworks.kafka.ranges import Range
from deltaworks.kernel.records import RecordBatch
from deltaworks.kernel.task import TaskMetrics
from deltaworks.object_path import take_requests
from deltaworks.runtime import messages
from deltaworks.runtime.arrivals import Arrivals
from deltaworks.runtime.messages import BatchHeader, ReadSize, Row, TaskCounts, TaskResult
from deltaworks.runtime.state import changelog
from deltaworks.runtime.state.local_store import Changes
from deltaworks.runtime.state.recovery import CheckpointState, Pending, append, next_version
from deltaworks.runtime.task_loop import Inputs, TaskId, process, rounds, take_turns
from deltaworks.runtime.worker import Worker
from deltaworks.topology.stages import StageGroup

_encode = msgspec.msgpack.Encoder().encode
PHASES = ("open", "read", "process", "commit", "keep")
"""The parts of a task's batch; see `Heartbeat.task_phases`."""
_DISTRUST_FROM = 2
"""Number of attempts that open the local stores; later ones begin without them."""
CheckpointStates = Callable[[TaskId], CheckpointState]
"""The state of each task in Spark's checkpoint."""


@dataclass(frozen=True)
class Operator:
    """Stages whose tasks are hosted together."""

    groups: tuple[StageGroup, ...]
    """The groups that it runs, one after the other."""
    shards: int

    @property
    def stages(self) -> tuple[int, ...]:
        """The stages of all groups."""
        return tuple(stage for group in self.groups for stage in group.stages)


def run_shard(
    worker: Worker,
    operator: Operator,
    batch_id: int,
    rows: Iterable[Row],
    committed: CheckpointStates,
    attempt: int = 0,
) -> Iterator[Row]:
    """Runs the tasks that the rows are for; passes on rows for other tasks and for the driver.

    Args:
        worker: keeps the tasks.
        operator: whose tasks to run.
        batch_id: the id that Spark gives the batch.
        rows: the rows of one shard.
        committed: the state of the tasks.
        attempt: number of earlier attempts by Spark. If two workers died without an error, the local stores may be the
            reason, so the third attempt begins without them.

    Raises:
        IntentError: the rows belong to another batch.
        StreamsError: a record failed, and the pipeline's error policy is to fail.
        FencedError: a newer generation has taken over.
        KafkaReadError, KafkaWriteError: the attempt failed again with new clients.
        StateError: a local store cannot be read, or another process has written it meanwhile.
    """
    waiting: dict[TaskId, Inputs] = {}
    batch: BatchHeader | None = None
    shown: Row | None = None
    header = b""
    for row in rows:
        if row.kind in messages.TO_DRIVER:
            yield row
            continue
        if batch is None:
            header = bytes(row.batch)
            batch = msgspec.msgpack.decode(header, type=BatchHeader)
            if batch.id != batch_id:
                raise IntentError(
                    f"Spark counts batch {batch_id} where the intent says batch {batch.id}.",
                    hint="were files of two copies of this home mixed? Restore one of the copies as a whole",
                )
            if attempt >= _DISTRUST_FROM:
                worker.discard_stores(row.route)
        if row.kind == messages.TOLD:
            worker.told[row.stage, row.task] = bytes(row.payload)
            continue
        if row.kind == messages.SHOW:
            shown = row
            continue
        inputs = waiting.setdefault((row.stage, row.task), Inputs())
        if row.kind == messages.EXCHANGE:
            inputs.exchanges.append(msgspec.msgpack.decode(row.payload, type=RecordBatch))
        else:
            inputs.ranges += msgspec.msgpack.decode(row.payload, type=list[Range])
    if batch is not None and shown is not None:
        for task in worker.tasks_of(shown.route, operator.stages):
            if task not in waiting:
                worker.show(task, committed(task), batch)
        if (place := worker.place()) is not None:
            yield shown._replace(kind=messages.PLACE, payload=_encode(place))
    if batch is None or not waiting:
        return
    worker.open_globals(batch.position)
    here = frozenset(operator.stages)
    for group, members, mine in rounds(operator.groups, worker.config.tasks, waiting):
        sent, results = _try_turns(worker, batch, members, mine, committed, cyclic=group.cyclic)
        for to, records in sent:
            if to[0] in here:
                waiting.setdefault(to, Inputs()).exchanges.append(records)
            else:
                yield _row(worker, header, to, messages.EXCHANGE, _encode(records))
        for result in results:
            yield _row(worker, header, (result.stage, result.task), messages.RESULT, _encode(result))


_Sent = list[tuple[TaskId, RecordBatch]]


def _try_turns(
    worker: Worker,
    batch: BatchHeader,
    members: Sequence[TaskId],
    inputs: dict[TaskId, Inputs],
    committed: CheckpointStates,
    *,
    cyclic: bool,
) -> tuple[_Sent, list[TaskResult]]:
    """Tries once more with new clients if Kafka failed the first attempt, as when a broker was restarted.

    Spark's state is written, and changes are kept, only when every transaction is committed. So an attempt that cannot
    read or write leaves nothing but transactions, which the next attempt recognises.
    """
    try:
        return _take_turns(worker, batch, members, inputs, committed, cyclic=cyclic)
    except (KafkaReadError, KafkaWriteError):
        for task in members:
            worker.forget_reader(task)
    # Outside the handler: dead letters report the exception that is being handled.
    return _take_turns(worker, batch, members, inputs, committed, cyclic=cyclic)


def _take_turns(
    worker: Worker,
    batch: BatchHeader,
    members: Sequence[TaskId],
    inputs: dict[TaskId, Inputs],
    committed: CheckpointStates,
    *,
    cyclic: bool,
) -> tuple[_Sent, list[TaskResult]]:
    """Runs every member until none has anything to do; then makes all of them durable.

    First come the Kafka transactions of all members, then their changelogs, in Spark's state. Whatever is lost in
    between is done again from the same state with the same result, and the transaction markers show what was already
    done. Local stores get the changes when Spark has committed the batch (`recovery`).
    """
    while True:
        done = _one_pass(worker, batch, members, inputs, committed, cyclic=cyclic)
        if done is not None:
            return done


def _one_pass(
    worker: Worker,
    batch: BatchHeader,
    members: Sequence[TaskId],
    inputs: dict[TaskId, Inputs],
    committed: CheckpointStates,
    *,
    cyclic: bool,
) -> tuple[_Sent, list[TaskResult]] | None:
    """See `_take_turns`; None: answers of other systems were missing, or others count, and the next pass has them."""
    runs: dict[TaskId, _TaskRun] = {}

    def run_of(task: TaskId) -> _TaskRun:
        if task not in runs:
            runs[task] = _TaskRun(worker, task, batch, committed(task))
        return runs[task]

    try:
        sent = _processed(members, inputs, run_of, runs, cyclic=cyclic)
        if sent is None or not all(run.record() for run in runs.values()):
            _end_pass(worker, runs)
            return None
        worker.check_fence()
        for run in runs.values():
            run.require_same_store()
        for run in runs.values():
            run.write()
    except BaseException:
        for task in runs:
            worker.task(*task).collector.abort()
        raise
    for run in runs.values():
        run.keep()
    return sent, [run.result() for run in runs.values()]


def _processed(
    members: Sequence[TaskId],
    inputs: dict[TaskId, Inputs],
    run_of: Callable[[TaskId], _TaskRun],
    runs: dict[TaskId, _TaskRun],
    *,
    cyclic: bool,
) -> _Sent | None:
    """What members have sent; None if answers are missing: without them, an operator may even have failed."""
    try:
        sent = take_turns(members, inputs, run_of, cyclic=cyclic)
    except StreamsError:
        if not any(run.is_waiting for run in runs.values()):
            raise
        return None
    return None if any(run.is_waiting for run in runs.values()) else sent


def _end_pass(worker: Worker, runs: dict[TaskId, _TaskRun]) -> None:
    """Drops what a pass has done, then asks what it could not answer."""
    for task, run in runs.items():
        worker.task(*task).collector.abort()
        run.give_up()
    asking = [answers for task in runs if (answers := worker.task(*task).answers) is not None and answers.is_waiting]
    found = iter(worker.asker.ask([each for answers in asking for each in answers.open], worker.check_fence))
    for answers in asking:
        answers.take([next(found) for _ in answers.open])


class _TaskRun:
    """One task in one batch."""

    def __init__(self, worker: Worker, task: TaskId, batch: BatchHeader, committed: CheckpointState) -> None:
        reach("task.start")
        self._worker, self._task, self._batch, self._committed = worker, task, batch, committed
        self._phases = dict.fromkeys(PHASES, 0.0)
        begun_s = clock.ticks_s()
        worker.hear(task)
        self._header, self._recovery = worker.open(task, committed)
        self._hosted = hosted = worker.task(*task)
        reach("task.opened")
        self._kernel = worker.kernel(hosted, *task, self._header.version, batch.clock_ms)
        self._phases["open"] = clock.ticks_s() - begun_s
        hosted.kernel = hosted.version = None  # not trusted again unless this batch ends well
        hosted.collector.begin(batch.id, batch.intent, batch.known)
        if hosted.answers is not None:
            hosted.answers.begin(batch.id, batch.intent)
        self._ranges: list[Range] = []
        self._changes: list[Changes] = []
        self._sizes: list[ReadSize] = []
        self._arrivals = Arrivals()
        self._processed_ms = self._committed_ms = 0
        self._metrics: TaskMetrics | None = None

    def turn(self, inputs: Inputs, *, last: bool) -> _Sent:
        """Processes the inputs; returns what the task sends to other tasks.

        Args:
            inputs: records, or nothing in a tick.
            last: the task has no other turn in this batch.
        """
        begun_s, read_s = clock.ticks_s(), self._phases["read"]
        self._ranges += inputs.ranges
        read = self._read_beside if self._batch.in_slices else self._read
        process(self._kernel, inputs, read, self._batch.clock_ms, in_slices=self._batch.in_slices)
        reach("task.processed")
        changes = self._kernel.commit()
        self._changes.append(changes)
        self._metrics = self._kernel.metrics.after(self._metrics)
        if not last:
            assert self._hosted.overlay is not None, "a task outside a cycle has several turns"
            self._hosted.overlay.apply(changes)
        reach("task.flushed")
        sent = list(self._hosted.collector.take_exchanges())
        self._phases["process"] += clock.ticks_s() - begun_s - (self._phases["read"] - read_s)
        self._processed_ms = clock.wall_ms()
        return sent

    @property
    def is_waiting(self) -> bool:
        """Whether it lacks answers of other systems."""
        return self._hosted.answers is not None and self._hosted.answers.is_waiting

    def record(self) -> bool:
        """Makes the answers of other systems durable; False: others count, so the batch has to run again."""
        return self._hosted.answers is None or self._hosted.answers.record()

    def give_up(self) -> None:
        """Closes users' processors, as the task is built anew."""
        with suppress(Exception):
            self._kernel.close()

    def require_same_store(self) -> None:
        """Raises `StateError` if another process has written the local store while it was read."""
        self._hosted.local.require(self._header.version)

    def write(self) -> None:
        """Writes its files and commits its transaction."""
        begun_s = clock.ticks_s()
        self._writes = self._hosted.collector.finish()
        self._phases["commit"] = clock.ticks_s() - begun_s
        self._committed_ms = clock.wall_ms()

    def keep(self) -> None:
        """Adds its changes to Spark's state; they wait in memory until Spark commits that."""
        begun_s = clock.ticks_s()
        in_one_turn = len(self._changes) == 1
        changes = changelog.ordered(self._changes[0]) if in_one_turn else changelog.merge(self._changes, oldest=False)
        base, version = self._header.version, next_version(self._header)
        chunks = changelog.encode(changes)
        append(self._committed, self._header, version, changes, chunks)
        self._worker.publish(self._task, self._batch, (base, version), chunks)
        spark_batch = self._batch.id - self._worker.config.first_batch
        self._worker.keep(self._task, self._kernel, Pending(spark_batch, base, version, changes, clock.ticks_s()))
        self._phases["keep"] = clock.ticks_s() - begun_s
        reach("task.end")

    def result(self) -> TaskResult:
        """The answer to the driver."""
        hosted, metrics, restore = self._hosted, self._metrics, self._hosted.restore
        assert metrics is not None and restore is not None
        counts = TaskCounts(
            records_in=metrics.records_in,
            dropped=metrics.dropped + hosted.collector.refused,
            late=metrics.late,
            lost_results=metrics.lost_results,
            dead_letters=metrics.dead_letters + hosted.collector.refused,
            sent=hosted.collector.sent,
            stream_time_ms=metrics.stream_time_ms,
            next_tick_ms=self._kernel.next_tick_ms(),
            sizes=self._sizes,
            requests=take_requests(),
            restored_entries=restore.entries,
            restore_s=restore.seconds,
            phases=self._phases,
            stores=hosted.local.sizes(),
            arrivals=self._arrivals.found,
            processed_ms=self._processed_ms,
            committed_ms=self._committed_ms,
            transaction_s=hosted.collector.transaction_s,
        )
        recovery, skipped = self._recovery.value, hosted.collector.skipping
        return TaskResult(*self._task, self._ranges, counts, self._writes, recovery, skipped)

    def _read(self, ranges: list[Range]) -> Iterable[list[RecordBatch]]:
        portions = self._worker.reader(self._hosted).read(ranges)
        return self._hosted.collector.archived(ranges, self._measured(portions))

    def _read_beside(self, ranges: list[Range]) -> Iterator[list[RecordBatch]]:
        """Reads with a separate reader, so that several ranges can be read alternately."""
        with closing(self._worker.clients.reader()) as reader:
            yield from self._hosted.collector.archived(ranges, self._measured(reader.read(ranges)))

    def _measured(self, portions: Iterable[list[RecordBatch]]) -> Iterator[list[RecordBatch]]:
        """Measures the size of records in the first portion, and when all of them came."""
        waiting, is_first = iter(portions), True
        while True:
            begun_s = clock.ticks_s()
            portion = next(waiting, None)
            self._phases["read"] += clock.ticks_s() - begun_s
            if portion is None:
                return
            if is_first:
                self._sizes += [ReadSize(batch.topic, len(batch.offsets), _size_of(batch)) for batch in portion]
            is_first, read_ms = False, clock.wall_ms()
            for batch in portion:
                self._arrivals.add(batch.timestamps_ms, read_ms)
            yield portion


def _size_of(batch: RecordBatch) -> int:
    """Bytes of keys and values."""
    return sum(len(data) for column in (batch.keys, batch.values) for data in column if data is not None)


def _row(worker: Worker, header: bytes, to: TaskId, kind: int, payload: bytes) -> Row:
    return Row(worker.routes[to], *to, kind, payload, header)
