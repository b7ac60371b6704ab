"""The two ends of a topology under test: topics to write into and to read from, with typed keys and values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, ClassVar, Generic, TypeVar

from deltaworks.dsl.mistakes import Hinted
from deltaworks.errors import SerializationError
from deltaworks.kernel.records import Headers
from deltaworks.serdes.base import Serde
from deltaworks.testing.clocks import instant_at, instant_ms
from deltaworks.testing.shown import html_table, typed_name
from deltaworks.topology.durations import milliseconds

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True)
class RawRecord:
    """A record as a topic holds it."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers = ()


@dataclass(frozen=True)
class TestRecord(Hinted, Generic[K, V]):
    """A record with everything that a test may compare."""

    __test__ = False
    _other_names: ClassVar[dict[str, str]] = {
        "key": "key",
        "value": "value",
        "timestamp": "timestamp_ms; time is the same as a datetime",
        "record_time": "time",
    }

    key: K | None
    value: V | None
    timestamp_ms: int = 0
    headers: Headers = ()

    @property
    def time(self) -> datetime:
        """The timestamp as an instant in UTC."""
        return instant_at(self.timestamp_ms)


class TestInputTopic(Hinted, Generic[K, V]):
    """Writes records into a topic; made by `TopologyTestDriver.create_input_topic`.

    A record without a timestamp gets that of the topic's clock, which begins at `start` and then moves by `advance`
    with each such record.
    """

    __test__ = False

    def __init__(
        self,
        topic: str,
        pipe: Callable[[RawRecord], None],
        key: Serde[K],
        value: Serde[V],
        start: datetime,
        advance: timedelta,
    ) -> None:
        self._topic = topic
        self._pipe = pipe
        self._key = key
        self._value = value
        self._now_ms = instant_ms(start, "start=")
        self._advance_ms = milliseconds(advance, "advance=")

    def __repr__(self) -> str:
        name = typed_name("TestInputTopic", self._key, self._value)
        return f"{name} '{self._topic}', clock at {instant_at(self._now_ms)}"

    def advance_time(self, advance: timedelta) -> None:
        """Moves the clock of the topic forward; a step back is an error."""
        advance_ms = milliseconds(advance, "the advance of the clock")
        if advance_ms < 0:
            raise ValueError(f"the clock of a topic cannot go back by {-advance}")
        self._now_ms += advance_ms

    def pipe_input(
        self,
        key: K | None,
        value: V | None,
        *,
        timestamp_ms: int | None = None,
        at: datetime | None = None,
        headers: Headers = (),
    ) -> None:
        """Writes one record; when this returns, the topology has processed it.

        Args:
            key: The key, or None.
            value: The value, or None.
            timestamp_ms: Its time in milliseconds since the epoch.
            at: Its time as an instant, instead of `timestamp_ms`.
            headers: Its headers.
        """
        if at is not None:
            timestamp_ms = instant_ms(at, "the time of a record")
        if timestamp_ms is None:
            timestamp_ms = self._tick()
        if not isinstance(timestamp_ms, int):
            raise TypeError(f"timestamp_ms= takes milliseconds, at= takes an instant, but got {timestamp_ms!r}")
        key_bytes = None if key is None else self._written("key", self._key, key)
        value_bytes = None if value is None else self._written("value", self._value, value)
        self._pipe(RawRecord(key_bytes, value_bytes, timestamp_ms, headers))

    def _tick(self) -> int:
        now_ms = self._now_ms
        self._now_ms += self._advance_ms
        return now_ms

    def _written(self, what: str, serde: Serde[Any], given: Any) -> bytes:
        try:
            return serde.serialize(given)
        except SerializationError as error:
            raise SerializationError(
                f"topic '{self._topic}' has {serde.name} as its {what}: {error}",
                hint=f"write what the topology reads, or create_input_topic(..., {what}=...)",
            ) from error

    def pipe_raw(
        self, key: bytes | None, value: bytes | None, *, timestamp_ms: int | None = None, headers: Headers = ()
    ) -> None:
        """Writes bytes as they are, for records that do not decode."""
        if timestamp_ms is None:
            timestamp_ms = self._tick()
        self._pipe(RawRecord(key, value, timestamp_ms, headers))

    def pipe_record(self, record: TestRecord[K, V]) -> None:
        """Writes one record with its timestamp and headers."""
        self.pipe_input(record.key, record.value, timestamp_ms=record.timestamp_ms, headers=record.headers)

    def pipe_record_list(self, records: Iterable[TestRecord[K, V]]) -> None:
        """Writes records one after the other."""
        for record in records:
            self.pipe_record(record)

    def pipe_value(self, value: V | None, *, timestamp_ms: int | None = None, at: datetime | None = None) -> None:
        """Writes one value without a key."""
        self.pipe_input(None, value, timestamp_ms=timestamp_ms, at=at)

    def pipe_key_value_list(
        self,
        pairs: Iterable[tuple[K | None, V | None]],
        *,
        start: datetime | None = None,
        advance: timedelta = timedelta(0),
    ) -> None:
        """Writes `(key, value)` pairs.

        Args:
            pairs: The records.
            start: The time of the first one; None: the topic's clock, for all of them.
            advance: From one record to the next, if there is a `start`.
        """
        start_ms = None if start is None else instant_ms(start, "start=")
        advance_ms = milliseconds(advance, "advance=")
        for number, (key, value) in enumerate(pairs):
            self.pipe_input(key, value, timestamp_ms=None if start_ms is None else start_ms + number * advance_ms)

    def pipe_value_list(
        self, values: Iterable[V | None], *, start: datetime | None = None, advance: timedelta = timedelta(0)
    ) -> None:
        """Writes values without a key; see `pipe_key_value_list`."""
        self.pipe_key_value_list(((None, value) for value in values), start=start, advance=advance)


class TestOutputTopic(Hinted, Generic[K, V]):
    """Reads what the topology wrote; made by `TopologyTestDriver.create_output_topic`. Every record is read once.

    A notebook shows the records that have not been read yet, which does not read them.
    """

    __test__ = False
    _other_names: ClassVar[dict[str, str]] = {
        "read_records": "read_records_to_list()",
        "read_values": "read_values_to_list()",
        "read_key_values": "read_key_values_to_list()",
    }

    def __init__(self, topic: str, records: Sequence[RawRecord], key: Serde[K], value: Serde[V]) -> None:
        self._topic = topic
        self._records = records
        self._key = key
        self._value = value
        self._position = 0

    def __repr__(self) -> str:
        name = typed_name("TestOutputTopic", self._key, self._value)
        return f"{name} '{self._topic}': {self.queue_size} records to read, {self._position} read"

    def _repr_html_(self) -> str:
        unread = map(self._decoded, islice(self._records, self._position, None))
        rows = ((record.key, record.value, record.time) for record in unread)
        return html_table(repr(self), ("key", "value", "time"), rows)

    @property
    def queue_size(self) -> int:
        """Number of records not read yet."""
        return len(self._records) - self._position

    @property
    def is_empty(self) -> bool:
        """Whether everything has been read."""
        return self.queue_size == 0

    def read_record(self) -> TestRecord[K, V]:
        """The next record with its timestamp and headers.

        Raises:
            LookupError: Everything has been read.
        """
        if self.is_empty:
            raise LookupError(
                f"no record left in topic '{self._topic}'; {self._position} have been read.\n"
                "  Hint: the operator may have dropped the record, or its window is still open; see driver.metrics."
            )
        raw = self._records[self._position]
        self._position += 1
        return self._decoded(raw)

    def _decoded(self, raw: RawRecord) -> TestRecord[K, V]:
        key = None if raw.key is None else self._key.deserialize(raw.key)
        value = None if raw.value is None else self._value.deserialize(raw.value)
        return TestRecord(key, value, raw.timestamp_ms, raw.headers)

    def read_key_value(self) -> tuple[K | None, V | None]:
        """Key and value of the next record."""
        record = self.read_record()
        return record.key, record.value

    def read_value(self) -> V | None:
        """The value of the next record."""
        return self.read_record().value

    def read_records_to_list(self) -> list[TestRecord[K, V]]:
        """All records not read yet."""
        return [self.read_record() for _ in range(self.queue_size)]

    def read_key_values_to_list(self) -> list[tuple[K | None, V | None]]:
        """Keys and values of all records not read yet."""
        return [(record.key, record.value) for record in self.read_records_to_list()]

    def read_key_values_to_map(self) -> dict[K, V | None]:
        """The last value per key of all records not read yet.

        Raises:
            ValueError: A record has no key.
        """
        latest: dict[K, V | None] = {}
        for key, value in self.read_key_values_to_list():
            if key is None:
                raise ValueError(
                    f"a record of topic '{self._topic}' has no key; read_key_values_to_list() keeps such records"
                )
            latest[key] = value
        return latest

    def read_values_to_list(self) -> list[V | None]:
        """Values of all records not read yet."""
        return [record.value for record in self.read_records_to_list()]
