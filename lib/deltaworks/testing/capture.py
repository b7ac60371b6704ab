"""A collector that keeps the output of tasks in memory."""

from __future__ import annotations

from typing import Any

from deltaworks.kernel.errors import dead_letter_record
from deltaworks.kernel.records import DeadLetter, Headers, Rows, SinkRecords
from deltaworks.testing.memory_tables import TablesInMemory
from deltaworks.testing.topics import RawRecord
from deltaworks.topology.sinks import SinkRecord


class Topics:
    """Every topic of a topology under test, exchanges included: its records, oldest first."""

    def __init__(self) -> None:
        self.records: dict[str, list[RawRecord]] = {}

    def of(self, topic: str) -> list[RawRecord]:
        return self.records.setdefault(topic, [])


class Capture:
    """The collector of the test driver: exchanges are topics, tables are dictionaries, dead letters are a list."""

    def __init__(self, topics: Topics, tables: TablesInMemory, dead_letter_topic: str | None) -> None:
        self.dead_letters: list[DeadLetter] = []
        self.sinks: dict[str, list[SinkRecord[Any, Any]]] = {}
        self.written = Topics()
        """The records that the topology has sent, without those that a test has put into topics."""
        self._topics = topics
        self._dead_letter_topic = dead_letter_topic
        self._tables = tables

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Headers,
        partition_key: bytes | None = None,
    ) -> None:
        record = RawRecord(key, value, timestamp_ms, headers)
        self.written.of(topic).append(record)
        self._topics.of(topic).append(record)

    def partitions(self, topic: str) -> int:
        return 1

    def send_to(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Headers,
    ) -> None:
        self.send(topic, key, value, timestamp_ms, headers)

    def exchange(
        self, exchange: str, partition: int, key: bytes | None, value: bytes | None, timestamp_ms: int, headers: Headers
    ) -> None:
        self._topics.of(exchange).append(RawRecord(key, value, timestamp_ms, headers))

    def rows(self, sink: str) -> Rows:
        return self._tables.rows(sink) if sink in self._tables else SinkRecords(self.sinks.setdefault(sink, []))

    def dead_letter(self, letter: DeadLetter) -> None:
        self.dead_letters.append(letter)
        if self._dead_letter_topic is not None:
            key, value, headers = dead_letter_record(letter)
            self.send(self._dead_letter_topic, key, value, letter.timestamp_ms, headers)
