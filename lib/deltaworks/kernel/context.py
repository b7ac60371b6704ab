"""What the processors of one task share: the record in process, the way out, the error policy, the counters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from deltaworks.errors import RecordPosition, StreamsError
from deltaworks.kernel.errors import ErrorPolicy, OnError, class_name, dead_letter
from deltaworks.kernel.records import Collector, Coordinates, Headers, RecordBatch

Process = Callable[[Any, Any, int, Headers], None]
"""`(key, value, timestamp_ms, headers)`: hands one record to an operator."""
NO_HEADERS: Headers = ()


@dataclass
class TaskMetrics:
    """Counters of one batch of a task."""

    records_in: int = 0
    dropped: int = 0
    """Records that an operator skipped by its rules (a null key, a null value) or because of a failure."""
    late: int = 0
    """Records that came after their window had closed, counted per window."""
    dead_letters: int = 0
    stream_time_ms: int = -1
    """The largest timestamp the task has ever seen; -1 before the first record."""


class TaskContext:
    """State of the task that changes from record to record; one per task, shared by its processors."""

    __slots__ = (
        "_origins",
        "_policy",
        "_resumed",
        "batches",
        "collector",
        "index",
        "metrics",
        "number",
        "partition",
        "wall_clock_ms",
    )

    def __init__(
        self, partition: int, collector: Collector, policy: ErrorPolicy, origins: Mapping[str, str | None]
    ) -> None:
        self.partition = partition
        self.collector = collector
        self.metrics = TaskMetrics()
        self.wall_clock_ms = 0
        self.batches: list[RecordBatch] = []
        """The input of the micro-batch in process."""
        self.number = 0
        """The record in process: which batch ..."""
        self.index = 0
        """... and where in it."""
        self._policy = policy
        self._origins = origins
        self._resumed: dict[tuple[str, int], int] = {}
        """Topic and partition -> the batch that `resume` adds to."""

    @property
    def coordinates(self) -> Coordinates:
        """Where the record in process came from."""
        batch = self.batches[self.number]
        return Coordinates(batch.topic, batch.partition, batch.offsets[self.index])

    @property
    def headers(self) -> Headers:
        """The headers that the record in process was read with."""
        headers = self.batches[self.number].headers
        return headers[self.index] if headers else NO_HEADERS

    def resume(self, source: Coordinates, timestamp_ms: int, headers: Headers) -> None:
        """A record of an earlier time is in process again; the bytes that it was read as are gone."""
        place = source.topic, source.partition
        number = self._resumed.get(place)
        if number is None:
            number = self._resumed[place] = len(self.batches)
            self.batches.append(RecordBatch(source.topic, source.partition, [], [], [], [], []))
        batch = self.batches[number]
        batch.offsets.append(source.offset)
        batch.timestamps_ms.append(timestamp_ms)
        batch.keys.append(None)
        batch.values.append(None)
        if batch.headers is not None:
            batch.headers.append(headers)
        self.number, self.index = number, len(batch.offsets) - 1

    def forget_batches(self) -> None:
        """No record is in process, and none will be looked at again."""
        self.batches.clear()
        self._resumed.clear()

    def drop(self) -> None:
        """Counts a record that an operator skips by its rules."""
        self.metrics.dropped += 1

    def unreadable(self, source: str, error: Exception) -> None:
        """The record in process does not decode."""
        self._failed(self._policy.deserialization, "cannot be read", source, error)

    def failed(self, operator: str, error: Exception) -> None:
        """A user's function raised on the record in process."""
        self._failed(self._policy.processing, "failed", operator, error)

    def unwritable(self, sink: str, error: Exception) -> None:
        """A result of the record in process does not encode."""
        self._failed(self._policy.production, "has a result that cannot be written", sink, error)

    def _failed(self, on_error: OnError, what: str, operator: str, error: Exception) -> None:
        if isinstance(error, StreamsError):
            raise error
        batch = self.batches[self.number]
        if on_error == "fail":
            position = RecordPosition(
                operator=operator,
                topic=batch.topic,
                partition=batch.partition,
                offset=batch.offsets[self.index],
                timestamp_ms=batch.timestamps_ms[self.index],
                origin=self._origins.get(operator),
            )
            raise StreamsError(
                f"a record {what}: {class_name(error)}: {error}",
                position=position,
                hint='Pipeline(..., on_error="continue") sets such records aside as dead letters and goes on.',
            ) from error
        self.metrics.dropped += 1
        self.metrics.dead_letters += 1
        self.collector.dead_letter(dead_letter(batch, self.index, operator, error))
