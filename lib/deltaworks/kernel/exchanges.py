"""The records that one task of a stage hands to the tasks of a later stage within a micro-batch.

Every host uses this, so that offsets after an exchange are the same everywhere: each upstream task is a partition, and
the offset is `batch id * 2**32 + position within (exchange, upstream task, downstream task)`.
"""

from __future__ import annotations

from deltaworks.kernel.records import Headers, RecordBatch

_BATCH_SHIFT = 32


def batch_of(offset: int) -> int:
    """The batch in which a record after an exchange was made."""
    return offset >> _BATCH_SHIFT


class ExchangeOutput:
    """Collects the records of one upstream task and one micro-batch."""

    def __init__(self, task: int, batch_id: int) -> None:
        self._task = task
        self._first_offset = batch_id << _BATCH_SHIFT
        self._batches: dict[tuple[str, int], RecordBatch] = {}
        self._headers: dict[tuple[str, int], list[Headers]] = {}
        self._taken: dict[tuple[str, int], int] = {}

    def add(
        self, exchange: str, partition: int, key: bytes | None, value: bytes | None, timestamp_ms: int, headers: Headers
    ) -> None:
        """Appends a record for task `partition` of the stage that reads `exchange`; the `exchange` of a `Collector`."""
        to = exchange, partition
        batch = self._batches.get(to)
        if batch is None:
            batch = self._batches[to] = RecordBatch(exchange, self._task, [], [], [], [])
        if headers or to in self._headers:
            self._note_headers(to, len(batch.keys), headers)
        batch.timestamps_ms.append(timestamp_ms)
        batch.keys.append(key)
        batch.values.append(value)

    def batches(self) -> dict[tuple[str, int], RecordBatch]:
        """`(exchange, downstream task)` -> its records, in the order in which they were added."""
        return {to: self._finished(to, batch) for to, batch in sorted(self._batches.items())}

    def take(self) -> dict[tuple[str, int], RecordBatch]:
        """Like `batches`, but only the records added since the last call; in a cycle there are several calls."""
        taken = self.batches()
        for to, batch in taken.items():
            self._taken[to] = self._taken.get(to, 0) + len(batch.keys)
        self._batches.clear()
        self._headers.clear()
        return taken

    def _note_headers(self, to: tuple[str, int], earlier: int, headers: Headers) -> None:
        self._headers.setdefault(to, [()] * earlier).append(headers)

    def _finished(self, to: tuple[str, int], batch: RecordBatch) -> RecordBatch:
        first = self._first_offset + self._taken.get(to, 0)
        offsets = list(range(first, first + len(batch.keys)))
        return RecordBatch(
            batch.topic, batch.partition, offsets, batch.timestamps_ms, batch.keys, batch.values, self._headers.get(to)
        )
