"""Kafka Streams tasks inside Spark: one group of `transformWithState` hosts the kernel tasks of one slot.

Spark's state keeps the stamp and the changelog of every task. Rows of other operators pass through, because a branch in
a streaming plan would run an operator twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    MapState,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from deltaworks import disk
from deltaworks.spark.protocol import Truth, TruthHeader, decode_header, encode_header
from deltaworks.spark.routes import Operator
from deltaworks.spark.seed import seeded
from deltaworks.spark.slot import run_slot
from deltaworks.spark.turns import TaskId
from deltaworks.spark.worker import HostConfig, worker_for


class SparkTruth:
    """`protocol.Truth` of one task over the state of its slot."""

    def __init__(self, task: TaskId, headers: MapState, segments: MapState) -> None:
        self._task = task
        self._headers = headers
        self._segments = segments

    def header(self) -> TruthHeader | None:
        value = self._headers.getValue(self._task)
        what = f"the state of task {self._task} in Spark's checkpoint"
        return decode_header(bytes(value[0]), what) if value is not None else None

    def update(self, header: TruthHeader) -> None:
        self._headers.updateValue(self._task, (encode_header(header),))

    def segment(self, segment_id: int) -> bytes:
        value = self._segments.getValue((*self._task, segment_id))
        assert value is not None, f"segment {segment_id} of task {self._task} is missing in Spark's state"
        return bytes(value[0])

    def put_segment(self, segment_id: int, data: bytes) -> None:
        self._segments.updateValue((*self._task, segment_id), (data,))

    def remove_segment(self, segment_id: int) -> None:
        self._segments.removeKey((*self._task, segment_id))


class TaskHost(StatefulProcessor):
    """Hosts the tasks of one operator; one group is one slot."""

    def __init__(self, config: HostConfig, operator: Operator, routes: dict[TaskId, int]) -> None:
        self._config = config
        self._operator = operator
        self._routes = routes
        self._mine = {route for (stage, _), route in routes.items() if stage in operator.stages}

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._headers = handle.getMapState("headers", "stage int, task int", "header binary")
        self._segments = handle.getMapState("segments", "stage int, task int, id long", "data binary")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:
        if key[0] not in self._mine:
            yield from rows
            return
        worker = worker_for(self._config, self._routes)
        context = TaskContext.get()
        assert context is not None
        batch_id = self._config.first_batch + int(context.getLocalProperty("streaming.sql.batchId") or -1)
        with disk.told(Path(self._config.local_root)):
            yield from run_slot(worker, self._operator, batch_id, rows, self._truth, context.attemptNumber())

    def close(self) -> None:
        pass

    def _truth(self, task: TaskId) -> Truth:
        truth, seed = SparkTruth(task, self._headers, self._segments), self._config.seed
        return truth if seed is None else seeded(truth, Path(seed), *task)
