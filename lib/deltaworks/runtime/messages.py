"""The messages between tasks, planner and driver: one type of row, and its payloads."""

from __future__ import annotations

import zlib
from typing import NamedTuple

import msgspec

from deltaworks.kafka.ranges import Range
from deltaworks.lakehouse.writes import TableWrite
from deltaworks.runtime.arrivals import Arrival


class Row(NamedTuple):
    """A message to a task, or to the driver."""

    route: int
    """Which shard gets it."""
    stage: int
    task: int
    kind: int
    payload: bytes
    batch: bytes
    """msgpack `BatchHeader`, the same in all rows of a micro-batch."""


SCHEMA = "route int, stage int, task int, kind int, payload binary, batch binary"
"""The same in SQL."""

INPUT = 0
"""msgpack `list[Range]`: what the task has to read from Kafka; empty in a tick without records."""
EXCHANGE = 1
"""msgpack `RecordBatch`: what an upstream task sends to this task."""
RESULT = 2
"""msgpack `TaskResult`, for the driver."""
BATCH = 3
"""msgpack `BatchPlan`, for the driver, one per batch."""
TOLD = 4
"""`packed` files with what the driver tells the task of its tables; only if it is on another machine."""
SHOW = 5
"""Tasks of the shard that have nothing to do show readers of stores which batch theirs are of; empty payload."""
PLACE = 6
"""msgpack `control.served.Place`: where the stores of the shard's tasks are, for the driver."""
TO_DRIVER = frozenset({RESULT, BATCH, PLACE})
"""What tasks pass on."""

Told = dict[str, dict[str, bytes]]
"""Table -> name of a file -> content; see `lakehouse.page_index`."""


def packed(told: Told) -> bytes:
    """As a payload; names of pages resemble each other."""
    return zlib.compress(msgspec.msgpack.encode(told), 1)


def unpacked(payload: bytes) -> Told:
    """Inverse of `packed`."""
    return msgspec.msgpack.decode(zlib.decompress(payload), type=Told)


class BatchHeader(msgspec.Struct, frozen=True, array_like=True):
    """What every task of a micro-batch needs to know about it."""

    id: int
    clock_ms: int
    """The time of the batch, the same for every task and every attempt."""
    intent: str
    """Digest of its intent."""
    known: int
    """The highest batch that has an intent; beyond `id` while batches of a rewound checkpoint run again."""
    position: bytes | None = None
    """How far global tables have been read, as msgpack `Offsets`; None: there are none."""
    in_slices: bool = False
    """Tasks hold a few records at a time, because the batch was too large for memory."""


class BatchPlan(msgspec.Struct, frozen=True, array_like=True):
    """What a batch consists of."""

    ranges: list[Range]
    """The ranges of every topic, including those of global tables."""
    tick: bool
    """Tasks that depend on the wall clock run, with records or without."""


class ReadSize(msgspec.Struct, frozen=True, array_like=True):
    """The size of a sample of the records that a task has read."""

    topic: str
    records: int
    size_bytes: int


class TaskCounts(msgspec.Struct, frozen=True, array_like=True):
    """What a task did in one batch."""

    records_in: int
    dropped: int
    late: int
    lost_results: int
    dead_letters: int
    sent: int
    stream_time_ms: int
    next_tick_ms: int | None
    """When the task has something to do without records, on the wall clock."""
    sizes: list[ReadSize] = []
    requests: dict[str, int] = {}
    """Requests of its process to an object store since the last result of one of its tasks, by kind."""
    restored_entries: int = 0
    """Entries of the changelog that were read to bring its local store up to date."""
    restore_s: float = 0.0
    """How long that took."""
    phases: dict[str, float] = {}
    """Seconds of its parts: `open`, `read`, `process`, `commit`, `keep`; see `control.heartbeat.Heartbeat`."""
    stores: dict[str, tuple[int, int]] = {}
    """Store -> its entries and bytes, as they were before the batch."""
    arrivals: list[Arrival] = []
    """When the records from Kafka came."""
    processed_ms: int = 0
    """When all of them were processed, on its wall clock."""
    committed_ms: int = 0
    """When its results were in Kafka, likewise."""
    transaction_s: float = 0.0
    """How long the commit of its Kafka transaction took; a part of the phase `commit`."""


class TaskResult(msgspec.Struct, frozen=True, array_like=True):
    """What a task hands to the driver: files to commit, numbers for the heartbeat."""

    stage: int
    task: int
    ranges: list[Range]
    counts: TaskCounts
    writes: list[TableWrite]
    recovery: str
    """What had to be done to its local store; a `RecoveryAction`."""
    skipped_transaction: bool
    """The Kafka transaction of this batch had been committed by an earlier attempt."""
