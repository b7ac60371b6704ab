"""The one row type that flows through the streaming plan, and what its payloads mean."""

from __future__ import annotations

import msgspec

from deltaworks.kafka.ranges import Range
from deltaworks.lakehouse.writes import TableWrite

SCHEMA = "route int, task int, kind int, payload binary, wall_ms long"

RANGES = 0
"""msgpack `list[Range]`: what the task has to read from Kafka."""
HOP = 1
"""msgpack `RecordBatch`: what an upstream task sends to this task."""
RESULT = 2
"""msgpack `TaskResult`: for the driver."""


class TaskCounts(msgspec.Struct, frozen=True, array_like=True):
    """What a task did in one batch."""

    records_in: int
    dropped: int
    late: int
    dead_letters: int
    sent: int
    stream_time_ms: int
    state_entries: int


class TaskResult(msgspec.Struct, frozen=True, array_like=True):
    """What a task hands to the driver: files to commit, numbers for the heartbeat."""

    stage: int
    task: int
    ranges: list[Range]
    counts: TaskCounts
    writes: list[TableWrite]
    opened: str
    """What the store protocol had to do: same, undo, rebuild, new."""
    skipped_transaction: bool
    """The Kafka transaction of this batch had been committed by an earlier attempt."""
