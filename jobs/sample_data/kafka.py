"""What the sample data of all jobs shares."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from enum import Enum

from deltaworks.testing.sample_data import SampleRecord

PARTITIONS = 4
"""Number of partitions of every input topic."""
SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000


class Outbox:
    """Records that were sent and wait for their moment of delivery, in a simulation of producers.

    Attributes:
        sent: how many.
    """

    def __init__(self) -> None:
        self.sent = 0
        self._waiting: list[tuple[int, int, SampleRecord]] = []

    def send(
        self, topic: str, key: bytes | None, value: bytes | None, timestamp_ms: int, kind: Enum, *, arrives_ms: int
    ) -> SampleRecord:
        """Sends a record, which is delivered at `arrives_ms`; those without a key take turns on the partitions."""
        self.sent += 1
        partition = self.sent % PARTITIONS if key is None else None
        record = SampleRecord(topic, partition, key, value, timestamp_ms, kind)
        heapq.heappush(self._waiting, (arrives_ms, self.sent, record))
        return record

    def due(self, now_ms: int) -> Iterator[SampleRecord]:
        """Those whose moment has come, which do not wait any longer."""
        while self._waiting and self._waiting[0][0] <= now_ms:
            yield heapq.heappop(self._waiting)[2]
