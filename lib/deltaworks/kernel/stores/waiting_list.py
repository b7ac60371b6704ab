"""The records of a left or outer stream-stream join that have no partner yet."""

from __future__ import annotations

from collections.abc import Iterable

from deltaworks.kernel.stores.entries import TIME_BYTES
from deltaworks.kernel.stores.state import StateReader
from deltaworks.kernel.stores.time_ordered import TimeOrderedStore
from deltaworks.topology.stages import StoreSpec

NO_TIME = 2**63 - 1
"""Means that nothing waits. Kafka Streams calculates with it, and overflows."""
MARKS = b"\xff"
"""The key of the entry that is no record, but has the times of the walks."""


class WaitingList(TimeOrderedStore):
    """Both sides share it: ordered by time, right before left, key; several values per key in the order they came.

    `newest_ms` is the join's stream time: the largest timestamp of both sides, skipped records included.
    """

    def __init__(self, spec: StoreSpec, reader: StateReader, *, newest_ms: int) -> None:
        super().__init__(spec, reader, newest_ms=newest_ms)
        marks = reader.get(MARKS)
        self.min_ms = NO_TIME
        """The end of the last walk, or an earlier time that was added since; below it nothing can be due."""
        self.next_walk_ms = 0
        """No walk before this wall-clock time."""
        if marks is not None:
            self.min_ms = int.from_bytes(marks[:TIME_BYTES], "big")
            self.next_walk_ms = int.from_bytes(marks[TIME_BYTES:], "big")
        self._committed_marks = (self.min_ms, self.next_walk_ms)

    def _take_marks(self) -> list[tuple[bytes, bytes | None]]:
        marks = (self.min_ms, self.next_walk_ms)
        if marks == self._committed_marks:
            return []
        self._committed_marks = marks
        return [(MARKS, b"".join(mark.to_bytes(TIME_BYTES, "big") for mark in marks))]


def earliest(marks: Iterable[bytes]) -> bytes:
    """The marks with which nothing is missed that is due by one of these."""
    times = zip(*((mark[:TIME_BYTES], mark[TIME_BYTES:]) for mark in marks), strict=True)
    return b"".join(map(min, times))


def waiting_key(time_ms: int, side: bytes, key: bytes) -> bytes:
    """The key under which a record waits.

    Args:
        time_ms: its timestamp.
        side: `LEFT` or `RIGHT`.
        key: its key.
    """
    return time_ms.to_bytes(TIME_BYTES, "big") + side + key


def is_left(waiting: bytes) -> bool:
    """Whether the record is of the left side."""
    return waiting[TIME_BYTES] == LEFT[0]


def key_of(waiting: bytes) -> bytes:
    """The bytes of the record's key."""
    return waiting[TIME_BYTES + 1 :]


RIGHT = b"\0"
LEFT = b"\1"
