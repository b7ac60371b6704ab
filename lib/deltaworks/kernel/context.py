"""The state that the processors of one task share: record in process, output, error policy, counters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from deltaworks.errors import (
    AnswersError,
    ConfigurationError,
    ConflictError,
    IncompatibleCheckpointError,
    IntentError,
    KafkaTopicError,
    LeaseError,
    ProductionError,
    RecordPosition,
    SetAsideError,
    StreamsError,
    TransientError,
)
from deltaworks.kernel.errors import ErrorPolicy, answer, class_name, dead_letter, described, error_context, stops
from deltaworks.kernel.records import Collector, Coordinates, DeadLetter, Headers, RecordBatch
from deltaworks.kernel.sizes import shortened
from deltaworks.topology.error_handlers import (
    MAX_RETRIES,
    DeadLetterRecord,
    ErrorAction,
    FailedRecord,
    Handling,
    Response,
)
from deltaworks.topology.records import Header
from deltaworks.topology.resend import without_header

Process = Callable[[Any, Any, int, Headers], None]
"""`(key, value, timestamp_ms, headers)`: hands one record to an operator."""
NO_HEADERS: Headers = ()
NOWHERE = Coordinates("", -1, -1)
"""The coordinates of output that no record has caused."""
_NO_RECORDS_FAULT = (
    MemoryError,
    AnswersError,
    ConfigurationError,
    ConflictError,
    StreamsError,
    TransientError,
    IntentError,
    LeaseError,
    KafkaTopicError,
    IncompatibleCheckpointError,
)
"""Errors that a host raises while a record is in process; no policy decides about them."""


@dataclass
class TaskMetrics:
    """Counters of one batch of a task."""

    records_in: int = 0
    dropped: int = 0
    """Records that an operator skipped by its rules (a null key, a null value) or because of a failure: dead letters
    count here too."""
    late: int = 0
    """Records that came after their window had closed, counted in each aggregate and for each window."""
    lost_results: int = 0
    """Windows that left their store before they were forwarded; only with `compatible_with_kafka`."""
    dead_letters: int = 0
    stream_time_ms: int = -1
    """The largest timestamp the task has ever seen; -1 before the first record."""

    def after(self, earlier: TaskMetrics | None) -> TaskMetrics:
        """The sum of this batch and an earlier one."""
        if earlier is None:
            return self
        return TaskMetrics(
            records_in=earlier.records_in + self.records_in,
            dropped=earlier.dropped + self.dropped,
            late=earlier.late + self.late,
            lost_results=earlier.lost_results + self.lost_results,
            dead_letters=earlier.dead_letters + self.dead_letters,
            stream_time_ms=self.stream_time_ms,
        )


def unique(record: Coordinates, task: int, exchanges: Collection[str]) -> Coordinates:
    """The coordinates by which a record is set aside; after an exchange they are unique only with the task, which is
    added.

    Args:
        record: the coordinates in the task.
        task: its number.
        exchanges: the exchanges that the stage reads.
    """
    return (
        Coordinates(f"{record.topic}/{task}", record.partition, record.offset) if record.topic in exchanges else record
    )


class TaskContext:
    """State of the task that changes from record to record; one per task, shared by its processors."""

    __slots__ = (
        "_header",
        "_origins",
        "_policy",
        "_resumed",
        "_retries",
        "batches",
        "collector",
        "exchanges",
        "failed_records",
        "index",
        "keeps_bytes",
        "metrics",
        "number",
        "partition",
        "scopes",
        "stream_time_ms",
        "taken",
        "wall_clock_ms",
    )

    def __init__(
        self, partition: int, collector: Collector, policy: ErrorPolicy, origins: Mapping[str, str | None]
    ) -> None:
        self.partition = partition
        self.exchanges: frozenset[str] = frozenset()
        """The exchanges that it reads, which are not topics."""
        self.collector = collector
        self.metrics = TaskMetrics()
        self.wall_clock_ms = 0
        self.stream_time_ms = -1
        """The largest timestamp taken so far, record by record; only in tasks that have a user's processor."""
        self.batches: list[RecordBatch] = []
        """The input of the micro-batch in process."""
        self.number = 0
        """The batch of the record in process ..."""
        self.index = 0
        """... and the position in it."""
        self.taken: dict[str, tuple[Any, ...]] = {}
        """Sink -> `(makers, batch number, index, key, value, timestamp_ms, headers)` of the last record it wrote."""
        self.scopes: Mapping[str, frozenset[str]] = {}
        """Node -> the nodes that made the records which it gets; see `processors/raw_records.py`."""
        self.keeps_bytes = policy.keep_bytes
        self.failed_records: Callable[[DeadLetter], None] | None = None
        """Told of each dead letter of the policy; None: nobody asks."""
        self._header: dict[int, Header] = {}
        """Number of a batch -> the header with which its only record was sent again."""
        self._policy = policy
        self._retries = 0
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

    @property
    def source_key(self) -> bytes | None:
        """The key of the record in process, as it was read; None if its bytes are gone."""
        batch = self.batches[self.number]
        return batch.keys[self.index] if batch.keys else None

    def resume(self, source: Coordinates, timestamp_ms: int, headers: Headers) -> None:
        """A record of an earlier time is in process again; its original bytes are gone."""
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

    def sent_again(self, header: Header) -> None:
        """The record in process was sent again: its operators do not see the header, its dead letter has it."""
        batch, index = self.batches[self.number], self.index
        self.disguise(batch.timestamps_ms[index], without_header(self.headers))
        self._header[self.number] = header

    def disguise(self, timestamp_ms: int, headers: Headers) -> None:
        """Gives the record in process another time and other headers from here on."""
        batch, index = self.batches[self.number], self.index
        self.batches.append(
            RecordBatch(
                batch.topic,
                batch.partition,
                [batch.offsets[index]],
                [timestamp_ms],
                [batch.keys[index]],
                [batch.values[index]],
                [headers],
            )
        )
        header = self._header.get(self.number)
        self.number, self.index = len(self.batches) - 1, 0
        if header is not None:
            self._header[self.number] = header

    def one_by_one(self, batches: Iterable[RecordBatch]) -> Iterator[int]:
        """Takes batches one at a time, releases the bytes of the one before, and yields their numbers."""
        number = -1
        for batch in batches:
            if number >= 0 and not self.keeps_bytes:
                self.batches[number] = _without_bytes(self.batches[number])
            number = len(self.batches)
            self.batches.append(batch)
            self.metrics.records_in += len(batch.offsets)
            yield number

    def forget_batches(self) -> None:
        """Called when no record is in process, and none will be needed again."""
        self.batches.clear()
        self.taken.clear()
        self._header.clear()
        self._resumed.clear()

    def drop(self) -> None:
        """Counts a record that an operator skips by its rules."""
        self.metrics.dropped += 1

    def unreadable(self, source: str, error: Exception, handling: Handling | None = None) -> None:
        """The record in process does not decode, or is not allowed; `handling` replaces the policy."""
        letter = self._letter(source, error, None, None)
        record = FailedRecord(letter.key, letter.value, letter.timestamp_ms, letter.headers, letter.source.topic)
        self._failed("deserialization", "cannot be read", letter, record, error, handling)

    def failed(
        self,
        operator: str,
        error: Exception,
        key: Any = None,
        value: Any = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> None:
        """A user's function raised.

        Args:
            key: The record's key when it reached the operator, and so on; without a timestamp, the record in process
                counts.
        """
        kept = timestamp_ms is None or headers is None or not self._taken(operator, key, value, timestamp_ms, headers)
        letter = self._letter(operator, error, timestamp_ms, headers, with_bytes=kept)
        record = FailedRecord(key, value, letter.timestamp_ms, letter.headers)
        self._failed("processing", "failed", letter, record, error)

    def unwritable(
        self,
        sink: str,
        error: Exception,
        topic: str | None,
        again: Process,
        key: Any,
        value: Any,
        timestamp_ms: int,
        headers: Headers,
    ) -> None:
        """A result of the record in process does not encode, or does not fit its table or topic.

        Args:
            topic: The topic that it was meant for; None: a Delta table.
            again: Writes it again, if a handler asks for that.
        """
        kept = not self._taken(sink, key, value, timestamp_ms, headers)
        letter = self._letter(sink, error, timestamp_ms, headers, with_bytes=kept)
        record = FailedRecord(key, value, timestamp_ms, headers, topic)
        if self._failed("production", "has a result that cannot be written", letter, record, error):
            self._retries += 1
            try:
                again(key, value, timestamp_ms, headers)
            finally:
                self._retries -= 1

    def as_read(self, operator: str, timestamp_ms: int, headers: Headers) -> DeadLetter:
        """The record in process as a dead letter that does not say what is wrong: its sink may find that out later."""
        source = self.coordinates
        batch = self.batches[self.number] if source.topic else None
        if (header := self._header.get(self.number)) is not None:
            headers = (*headers, header)
        key, value = (None, None) if batch is None else (batch.keys[self.index], batch.values[self.index])
        return DeadLetter(key, value, headers, timestamp_ms, source, "", "", operator, "")

    def _taken(self, operator: str, key: Any, value: Any, timestamp_ms: int, headers: Headers) -> bool:
        """Whether a sink has already written the very record on which an operator has failed."""
        made_by = self.scopes.get(operator, frozenset())
        return any(
            makers & made_by
            and (number, index, of_time_ms) == (self.number, self.index, timestamp_ms)
            and of_key is key
            and of_value is value
            and of_headers is headers
            for makers, number, index, of_key, of_value, of_time_ms, of_headers in self.taken.values()
        )

    def _letter(
        self,
        operator: str,
        error: Exception,
        timestamp_ms: int | None,
        headers: Headers | None,
        *,
        with_bytes: bool = True,
    ) -> DeadLetter:
        source = self.coordinates
        batch = self.batches[self.number] if source.topic else None
        if timestamp_ms is None:
            timestamp_ms = -1 if batch is None else batch.timestamps_ms[self.index]
        if headers is None:
            headers = self.headers if batch is not None else NO_HEADERS
        if (header := self._header.get(self.number)) is not None:
            headers = (*headers, header)
        return dead_letter(
            None if batch is None or not with_bytes else batch.keys[self.index],
            None if batch is None or not with_bytes else batch.values[self.index],
            timestamp_ms,
            headers,
            source,
            operator,
            error,
        )

    def _failed(
        self,
        kind: Literal["deserialization", "processing", "production"],
        what: str,
        letter: DeadLetter,
        record: FailedRecord,
        error: Exception,
        handling: Handling | None = None,
    ) -> bool:
        """Applies the policy; True if the record is to be written again."""
        if isinstance(error, _NO_RECORDS_FAULT):
            raise error
        if isinstance(error, SetAsideError):  # the decision is already made
            self._keep(letter)
            self.metrics.dropped += 1
            return False
        said: Handling = getattr(self._policy, kind) if handling is None else handling
        try:
            response = answer(said, error_context(kind, self.partition, letter), record, error)
        except Exception as bad:
            raise self._stopped(f"has an error handler that failed ({class_name(bad)}: {bad})", letter, error) from bad
        if isinstance(response, Response):
            if response.action is ErrorAction.RETRY and kind == "production" and self._retries < MAX_RETRIES:
                return True
            for own in response.dead_letters:
                self._set_aside(own, letter)
            self.metrics.dead_letters += len(response.dead_letters)
        else:
            try:
                self._keep(letter)
            except ProductionError as bad:
                raise self._stopped("has a dead letter that cannot be written", letter, bad) from bad
        if stops(response):
            raise self._stopped(what, letter, error) from error
        self.metrics.dropped += 1
        return False

    def _keep(self, letter: DeadLetter) -> None:
        """Writes a dead letter of the policy."""
        self.collector.dead_letter(letter)
        self.metrics.dead_letters += 1
        if self.failed_records is not None:
            self.failed_records(letter)

    def _set_aside(self, own: DeadLetterRecord, letter: DeadLetter) -> None:
        """Writes a dead letter of an error handler, shortened if it is too large for its topic."""
        try:
            try:
                self.collector.send(own.topic, own.key, own.value, own.timestamp_ms, own.headers)
            except ProductionError as error:
                if error.limit is None:
                    raise
                key, value, headers = shortened(own.key, own.value, own.headers, error.limit)
                self.collector.send(own.topic, key, value, own.timestamp_ms, headers)
        except ProductionError as bad:
            raise self._stopped("has a dead letter that cannot be written", letter, bad) from bad

    def _stopped(self, what: str, letter: DeadLetter, error: Exception) -> StreamsError:
        source = unique(letter.source, self.partition, self.exchanges)
        position = RecordPosition(
            operator=letter.operator,
            topic=source.topic or "no topic",
            partition=source.partition,
            offset=source.offset,
            timestamp_ms=self.batches[self.number].timestamps_ms[self.index] if source.topic else letter.timestamp_ms,
            origin=self._origins.get(letter.operator),
        )
        return StreamsError(
            f"a record {what}: {described(error)}",
            position=position,
            hint='Pipeline(..., on_error="continue") sets such records aside as dead letters and goes on.',
        )


def _without_bytes(batch: RecordBatch) -> RecordBatch:
    nothing: list[bytes | None] = [None] * len(batch.offsets)
    return RecordBatch(
        batch.topic, batch.partition, batch.offsets, batch.timestamps_ms, nothing, nothing, batch.headers
    )
