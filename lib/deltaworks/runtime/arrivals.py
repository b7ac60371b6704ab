"""When records came, as far as latencies need it: a few of those that a task has read in a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_OF_PORTION, _OF_BATCH = 4, 32


class Arrival(NamedTuple):
    """A record that was read, and how many it stands for."""

    timestamp_ms: int
    read_ms: int
    """When it was read, on the wall clock of the task."""
    records: int


class Arrivals:
    """Those of one task in one batch: evenly spread, and never many, however large the batch is."""

    def __init__(self) -> None:
        self._found: list[Arrival] = []

    def add(self, timestamps_ms: Sequence[int], read_ms: int) -> None:
        """Takes records that were read together, in their order."""
        number = len(timestamps_ms)
        chosen = min(number, _OF_PORTION)
        ends = [number * (n + 1) // chosen for n in range(chosen)]
        for begin, end in zip([0, *ends], ends, strict=False):
            self._found.append(Arrival(timestamps_ms[begin], read_ms, end - begin))
        while len(self._found) > _OF_BATCH:
            self._found = _halved(self._found)

    @property
    def found(self) -> list[Arrival]:
        """All of them; the sum of their `records` is the number of records."""
        return self._found


def _halved(found: Sequence[Arrival]) -> list[Arrival]:
    """Every second one, which also stands for the one after it."""
    beside = [*found[1::2], *([Arrival(0, 0, 0)] if len(found) % 2 else [])]
    return [one._replace(records=one.records + other.records) for one, other in zip(found[::2], beside, strict=True)]
