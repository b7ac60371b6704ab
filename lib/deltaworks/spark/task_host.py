"""A Kafka Streams task inside Spark: one group of `transformWithState` hosts the kernel tasks of one slot.

A group gets a few rows per batch: the offset ranges to read, or the records that upstream tasks sent. The kernel does
the rest; Spark's state keeps the stamp and the changelog. Rows of other stages pass through, because a branch in a
streaming plan would run the operator twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    MapState,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from deltaworks.errors import KafkaReadError, KafkaWriteError
from deltaworks.faults import reach
from deltaworks.kafka.ranges import Range
from deltaworks.kernel.records import RecordBatch
from deltaworks.spark import rows as row_kinds
from deltaworks.spark.protocol import Truth, TruthHeader, commit_store, open_store
from deltaworks.spark.rows import TaskCounts, TaskResult
from deltaworks.spark.worker import HostConfig, HostedTask, Worker, worker_for

_OutputRow = Row("route", "task", "kind", "payload", "wall_ms")
_encode = msgspec.msgpack.Encoder().encode


class SparkTruth:
    """`protocol.Truth` of one task over the state of its slot."""

    def __init__(self, task: int, headers: MapState, segments: MapState) -> None:
        self._task = task
        self._headers = headers
        self._segments = segments

    def header(self) -> TruthHeader | None:
        value = self._headers.getValue((self._task,))
        return msgspec.msgpack.decode(bytes(value[0]), type=TruthHeader) if value is not None else None

    def update(self, header: TruthHeader) -> None:
        self._headers.updateValue((self._task,), (_encode(header),))

    def segment(self, segment_id: int) -> bytes:
        value = self._segments.getValue((self._task, segment_id))
        assert value is not None, f"segment {segment_id} of task {self._task} is missing in Spark's state"
        return bytes(value[0])

    def put_segment(self, segment_id: int, data: bytes) -> None:
        self._segments.updateValue((self._task, segment_id), (data,))

    def remove_segment(self, segment_id: int) -> None:
        self._segments.removeKey((self._task, segment_id))


class TaskHost(StatefulProcessor):
    """Hosts the tasks of one stage; one group is one slot."""

    def __init__(self, config: HostConfig, stage: int, routes: dict[tuple[int, int], int]) -> None:
        self._config = config
        self._stage = stage
        self._routes = routes
        self._mine = {route for (s, _), route in routes.items() if s == stage}

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._headers = handle.getMapState("headers", "task int", "header binary")
        self._segments = handle.getMapState("segments", "task int, id long", "data binary")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:
        if key[0] not in self._mine:
            yield from rows
            return
        worker = worker_for(self._config, self._routes)
        context = TaskContext.get()
        assert context is not None
        batch_id = int(context.getLocalProperty("streaming.sql.batchId") or -1)
        passing, by_task = _split(rows)
        yield from passing
        for task, addressed in sorted(by_task.items()):
            truth = SparkTruth(task, self._headers, self._segments)
            yield from _try_batch(worker, self._stage, task, batch_id, addressed, truth)

    def close(self) -> None:
        pass


def _try_batch(worker: Worker, stage: int, task: int, batch_id: int, rows: list[Row], truth: Truth) -> Iterator[Row]:
    """`run_batch`, and once more with new clients if Kafka failed the first attempt: a broker that was restarted.

    The first row comes after everything is durable, so an attempt that cannot read or write has yielded nothing.
    """
    try:
        yield from run_batch(worker, stage, task, batch_id, rows, truth)
    except (KafkaReadError, KafkaWriteError):
        worker.forget_reader(stage, task)
        yield from run_batch(worker, stage, task, batch_id, rows, truth)


def run_batch(worker: Worker, stage: int, task: int, batch_id: int, rows: list[Row], truth: Truth) -> Iterator[Row]:
    """One batch of one task: open the stores, process, make durable, answer.

    The order is Kafka transaction, local store, changelog: whatever is lost in between is done again with the same
    result, and the transaction marker and the stamp recognise what was already done.
    """
    reach("task.start")
    hosted = worker.task(stage, task)
    header, opened = open_store(hosted.local, truth)
    reach("task.opened")
    wall_ms: int = rows[0].wall_ms
    kernel = worker.kernel(hosted, stage, task, header.stamp, wall_ms)
    hosted.kernel = hosted.stamp = None  # not to be trusted again unless this batch ends well
    ranges = [r for row in rows if row.kind == row_kinds.RANGES for r in _ranges(row.payload)]
    hops = [_record_batch(row.payload) for row in rows if row.kind == row_kinds.HOP]
    hosted.collector.begin(batch_id)
    try:
        for portion in _portions(worker, hosted, ranges, hops):
            kernel.process(portion, wall_ms)
        kernel.punctuate(wall_ms)
        reach("task.processed")
        changes = kernel.commit()
        reach("task.flushed")
        worker.check_fence()
        writes = hosted.collector.finish()
    except BaseException:
        hosted.collector.abort()
        raise
    header = commit_store(hosted.local, truth, header, changes)
    hosted.kernel, hosted.stamp = kernel, header.stamp
    for downstream, batches in hosted.collector.hops():
        yield _OutputRow(worker.routes[downstream], downstream[1], row_kinds.HOP, _encode(batches), wall_ms)
    metrics = kernel.metrics
    counts = TaskCounts(
        records_in=metrics.records_in,
        dropped=metrics.dropped,
        late=metrics.late,
        dead_letters=metrics.dead_letters,
        sent=hosted.collector.sent,
        stream_time_ms=metrics.stream_time_ms,
        state_entries=hosted.local.entry_count(),
    )
    result = TaskResult(stage, task, ranges, counts, writes, opened.value, hosted.collector.skipping)
    yield _OutputRow(worker.routes[stage, task], task, row_kinds.RESULT, _encode(result), wall_ms)
    reach("task.end")


def _split(rows: Iterable[Row]) -> tuple[list[Row], dict[int, list[Row]]]:
    """Results on their way to the driver, and what each task of this slot has to do."""
    passing: list[Row] = []
    by_task: dict[int, list[Row]] = {}
    for row in rows:
        if row.kind == row_kinds.RESULT:
            passing.append(row)
        else:
            by_task.setdefault(row.task, []).append(row)
    return passing, by_task


def _portions(
    worker: Worker, hosted: HostedTask, ranges: list[Range], hops: list[RecordBatch]
) -> Iterable[list[RecordBatch]]:
    """Portions the kernel may process one after the other; inputs that must be merged come in one portion."""
    if not ranges:
        return [hops]
    portions = worker.reader(hosted).read(ranges)
    if not hops:
        return portions
    return [[*(batch for portion in portions for batch in portion), *hops]]


def _ranges(payload: bytes | bytearray) -> list[Range]:
    return msgspec.msgpack.decode(payload, type=list[Range])


def _record_batch(payload: bytes | bytearray) -> RecordBatch:
    return msgspec.msgpack.decode(payload, type=RecordBatch)
