"""A broker in memory, for the streaming host's tasks in one process: topics, committed transactions, batch markers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from deltaworks.errors import RecordsGoneError
from deltaworks.kafka.admin import Position
from deltaworks.kafka.control_topic import Marker
from deltaworks.kafka.limits import STOCK_LIMIT
from deltaworks.kafka.ranges import Range
from deltaworks.kafka.transactional import is_committed
from deltaworks.kernel.partitioning import partition_of
from deltaworks.kernel.records import Headers, RecordBatch
from deltaworks.testing.topics import RawRecord


@dataclass
class MemoryKafka:
    """Topics with their partitions; what a transaction has not committed is not there."""

    partitions: dict[str, int] = field(default_factory=dict)
    """Of topics with more than one."""
    records: dict[str, dict[int, list[RawRecord]]] = field(default_factory=dict)
    """Topic -> partition -> its records."""
    sent: dict[str, list[RawRecord]] = field(default_factory=dict)
    """Topic -> the part of its records that tasks have written."""
    markers: dict[tuple[str, int, int], Marker] = field(default_factory=dict)
    """`(query, stage, task)` -> the last batch that it has committed."""
    limits: dict[str, int] = field(default_factory=dict)
    """How large a record of a topic may be, if not as on a stock broker."""
    missing: set[str] = field(default_factory=set)
    """Topics that do not exist; all others do."""
    removed: dict[tuple[str, int], int] = field(default_factory=dict)
    """Topic and partition -> the first offset that retention has left."""
    made: dict[str, int] = field(default_factory=dict)
    """How often a topic was recreated."""

    def recreate(self, topic: str) -> None:
        """Deletes a topic, and makes one of its name."""
        self.records.pop(topic, None)
        self.removed = {at: offset for at, offset in self.removed.items() if at[0] != topic}
        self.made[topic] = self.made.get(topic, 0) + 1

    def ids(self, topics: Collection[str]) -> dict[str, str]:
        """Of topics that exist."""
        return {topic: f"{topic}-{self.made.get(topic, 0)}" for topic in topics if topic not in self.missing}

    def count(self, topic: str) -> int:
        """How many partitions a topic has."""
        return self.partitions.get(topic, 1)

    def write(self, topic: str, record: RawRecord, partition: int | None = None) -> None:
        """Appends a record; without a partition, by Kafka's murmur2 of its key."""
        if partition is None:
            partition = partition_of(record.key or b"", self.count(topic))
        self.records.setdefault(topic, {}).setdefault(partition, []).append(record)

    def read(self, topic: str) -> list[tuple[int, int, RawRecord]]:
        """`(partition, offset, record)` of every record."""
        parts = self.records.get(topic, {})
        return [(p, offset, record) for p in sorted(parts) for offset, record in enumerate(parts[p])]

    def end(self, topic: str, partition: int) -> int:
        """The next offset."""
        return len(self.records.get(topic, {}).get(partition, ()))

    def reader(self) -> MemoryReader:
        return MemoryReader(self)

    def clients(self, query: str) -> MemoryClients:
        """What the tasks of a query have."""
        return MemoryClients(self, query)


@dataclass(frozen=True)
class MemoryClients:
    """`Clients` of a query."""

    kafka: MemoryKafka
    query: str

    def reader(self) -> MemoryReader:
        return self.kafka.reader()

    def sink(self, stage: int, task: int) -> MemorySink:
        return MemorySink(self.kafka, (self.query, stage, task))


class MemoryReader:
    """The counterpart of `RangeReader`."""

    def __init__(self, kafka: MemoryKafka) -> None:
        self._kafka = kafka

    def read(self, ranges: Sequence[Range]) -> Iterator[list[RecordBatch]]:
        batches = [self._batch(each) for each in ranges if each.stop > each.start]
        if batches:
            yield batches

    def beginning(self, topic: str, partition: int) -> int:
        return self._kafka.removed.get((topic, partition), 0)

    def close(self) -> None: ...

    def _batch(self, wanted: Range) -> RecordBatch:
        if wanted.start < self.beginning(wanted.topic, wanted.partition):
            raise RecordsGoneError(f"{wanted.topic}-{wanted.partition} [{wanted.start}, {wanted.stop}): out of range")
        records = self._kafka.records[wanted.topic][wanted.partition][wanted.start : wanted.stop]
        headers = [record.headers for record in records]
        return RecordBatch(
            wanted.topic,
            wanted.partition,
            list(range(wanted.start, wanted.stop)),
            [record.timestamp_ms for record in records],
            [record.key for record in records],
            [record.value for record in records],
            headers if any(headers) else None,
        )


@dataclass
class MemoryBroker:
    """The counterpart of `replay.begin.Broker`."""

    kafka: MemoryKafka
    thinned: frozenset[str] = frozenset()
    """Topics that it compacts."""
    removed_when_ms: int | None = None
    """How old records are when they are removed; None: somebody removes them, at any time."""

    def partition_counts(self) -> Mapping[str, int]:
        return self.kafka.partitions

    def compacted(self, topics: Collection[str]) -> Collection[str]:
        return self.thinned.intersection(topics)

    def begin_offsets(self, topics: Collection[str]) -> Mapping[Position, int]:
        return {position: self.kafka.removed.get(position, 0) for position in self._positions(topics)}

    def offsets_at(self, topics: Collection[str], timestamp_ms: int) -> Mapping[Position, int]:
        return {position: self._first_at(*position, timestamp_ms) for position in self._positions(topics)}

    def record_limits(self, topics: Collection[str]) -> Mapping[str, int]:
        return {topic: self.kafka.limits.get(topic, STOCK_LIMIT) for topic in topics if topic not in self.kafka.missing}

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        return self.kafka.ids(topics)

    def kept_ms(self, topics: Collection[str]) -> Mapping[str, int | None]:
        return dict.fromkeys(topics, self.removed_when_ms)

    def _positions(self, topics: Collection[str]) -> list[Position]:
        return [(topic, partition) for topic in topics for partition in range(self.kafka.count(topic))]

    def _first_at(self, topic: str, partition: int, timestamp_ms: int) -> int:
        end = self.kafka.end(topic, partition)
        records = self.kafka.records.get(topic, {}).get(partition, [])
        there = range(self.kafka.removed.get((topic, partition), 0), end)
        return next((offset for offset in there if records[offset].timestamp_ms >= timestamp_ms), end)


class MemorySink:
    """The counterpart of `TransactionalSink`."""

    def __init__(self, kafka: MemoryKafka, task: tuple[str, int, int]) -> None:
        self._kafka, self._task = kafka, task
        self._marker = Marker(batch=-1, intent="")
        self._sent: list[tuple[str, int, RawRecord]] = []

    def begin(self, batch_id: int, intent: str = "", known: int = -1) -> bool:
        self._marker = Marker(batch=batch_id, intent=intent)
        self._sent = []
        return not is_committed(self._kafka.markers.get(self._task), batch_id, intent, known, str(self._task))

    def committed(self) -> Marker | None:
        return self._kafka.markers.get(self._task)

    def limit(self, topic: str) -> int | None:
        return None if topic in self._kafka.missing else self._kafka.limits.get(topic, STOCK_LIMIT)

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Headers = (),
        partition_key: bytes | None = None,
        partition: int | None = None,
    ) -> None:
        if partition is None:
            decides = key if partition_key is None else partition_key
            partition = partition_of(decides or b"", self._kafka.count(topic))
        self._sent.append((topic, partition, RawRecord(key, value, timestamp_ms, headers)))

    def partitions(self, topic: str) -> int:
        return self._kafka.count(topic)

    def commit(self) -> None:
        for topic, partition, record in self._sent:
            self._kafka.write(topic, record, partition)
            self._kafka.sent.setdefault(topic, []).append(record)
        self._kafka.markers[self._task] = self._marker
        self._sent = []

    def abort(self) -> None:
        self._sent = []

    def close(self) -> None:
        self.abort()
