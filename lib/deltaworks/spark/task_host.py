"""Kafka Streams tasks inside Spark: one group of `transformWithState` hosts the kernel tasks of one shard.

Spark's state keeps the version and the changelog of every task, all in one map: Spark prepares each state variable
again in every batch and partition, which costs more than its use. Rows of other operators pass through, because a
branch in a streaming plan would run an operator twice.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from functools import lru_cache
from struct import Struct
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
from deltaworks.runtime import messages
from deltaworks.runtime.shard import Operator, run_shard
from deltaworks.runtime.state.initial_state import with_initial_state
from deltaworks.runtime.state.recovery import CheckpointState, StateHeader, decode_header, encode_header
from deltaworks.runtime.task_loop import TaskId
from deltaworks.runtime.worker import HostConfig, worker_for
from deltaworks.spark.executor import of_executor

_ROW = Row(*messages.Row._fields)
_TASK, _SEGMENT = Struct(">ii"), Struct(">q")
"""Keys of the state: that of a task's header, and what follows it in the key of a segment."""
VARIABLE = "tasks"
"""The one variable of Spark's state."""


class SparkState:
    """`recovery.CheckpointState` of one task over the state of its shard."""

    def __init__(self, task: TaskId, state: MapState) -> None:
        self._task = _TASK.pack(*task)
        self._said_by = f"the state of task {task} in Spark's checkpoint"
        self._state = state

    def header(self) -> StateHeader | None:
        value = self._state.getValue((self._task,))
        return decode_header(bytes(value[0]), self._said_by) if value is not None else None

    def update(self, header: StateHeader) -> None:
        self._state.updateValue((self._task,), (encode_header(header),))

    def segment(self, segment_id: int) -> bytes:
        value = self._state.getValue(self._segment(segment_id))
        assert value is not None, f"segment {segment_id} is missing in {self._said_by}"
        return bytes(value[0])

    def put_segment(self, segment_id: int, data: bytes) -> None:
        self._state.updateValue(self._segment(segment_id), (data,))

    def remove_segment(self, segment_id: int) -> None:
        self._state.removeKey(self._segment(segment_id))

    def _segment(self, segment_id: int) -> tuple[bytes]:
        return (self._task + _SEGMENT.pack(segment_id),)


def place_of(key: bytes) -> tuple[TaskId, int | None]:
    """What a key of the state stands for: a task and its segment; None: its header."""
    stage, task = _TASK.unpack_from(key)
    return (stage, task), _SEGMENT.unpack_from(key, _TASK.size)[0] if len(key) > _TASK.size else None


@lru_cache(maxsize=1)
def _unpacked(packed: bytes) -> HostConfig:
    """Once per process: it makes new clients of an object store."""
    config: HostConfig = pickle.loads(packed)
    return config if config.local_root is not None else config.at(of_executor())


class TaskHost(StatefulProcessor):
    """Hosts the tasks of one operator; one group is one shard.

    Args:
        config: is packed at once: paths in it say how this process reaches them now.
        operator: which one.
        routes: of all tasks.
    """

    def __init__(self, config: HostConfig, operator: Operator, routes: dict[TaskId, int]) -> None:
        self._packed = pickle.dumps(config)
        self._operator = operator
        self._routes = routes
        self._mine = {route for (stage, _), route in routes.items() if stage in operator.stages}

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getMapState(VARIABLE, "key binary", "value binary")
        self._config = _unpacked(self._packed)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:
        if key[0] not in self._mine:
            yield from rows
            return
        worker = worker_for(self._config, self._routes)
        context = TaskContext.get()
        assert context is not None
        batch_id = self._config.first_batch + int(context.getLocalProperty("streaming.sql.batchId") or -1)
        with disk.told(self._config.local_folder):
            for row in run_shard(
                worker,
                self._operator,
                batch_id,
                map(messages.Row._make, rows),
                self._committed,
                context.attemptNumber(),
            ):
                yield _ROW(*row)

    def close(self) -> None:
        pass

    def _committed(self, task: TaskId) -> CheckpointState:
        committed, initial = SparkState(task, self._state), self._config.initial_state
        return committed if initial is None else with_initial_state(committed, initial, *task)
