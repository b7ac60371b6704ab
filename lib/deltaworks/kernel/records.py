"""The kernel's interface: records in, records and table rows out.

Inside a task, keys and values are decoded; here they are the bytes of Kafka.
The hosts (test driver, streaming, replay) fill `RecordBatch` objects and hand a `Collector` to each task.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import msgspec

from deltaworks.topology.records import Coordinates, Headers
from deltaworks.topology.sinks import SinkRecord

__all__ = [
    "Collector",
    "Coordinates",
    "DeadLetter",
    "Headers",
    "PartitionedCollector",
    "RecordBatch",
    "Rows",
    "SinkRecords",
]


class RecordBatch(msgspec.Struct, frozen=True, array_like=True):
    """Consecutive records of one topic-partition in offset order, held in columns of equal length.

    After an exchange, `topic` is the name of the exchange and `partition` the upstream task.
    """

    topic: str
    partition: int
    offsets: list[int]
    timestamps_ms: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[Headers] | None = None
    """None when no record of the batch has a header."""

    @property
    def headers_of_each(self) -> list[Headers]:
        """The headers of every record; empty where it has none."""
        return self.headers or [()] * len(self.offsets)


class DeadLetter(msgspec.Struct, frozen=True):
    """A record, as it was read, that could not be decoded or on which a function raised."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    source: Coordinates
    """The topic, partition and offset of the record."""
    error_class: str
    """Name of the exception's class, with its module unless it is one of Python's."""
    message: str
    operator: str
    """Name of the node that failed."""
    stacktrace: str


class Rows(Protocol):
    """Takes the rows of one sink. Their shape depends on the sink:

    - an append-only table: `(key, value, timestamp_ms, source)`, `source` being the `Coordinates` of the record
    - the changelog and snapshot of a KTable: the same, once per update; value None deletes the key
    - the windows of a KTable: `(key, value, timestamp_ms, start_ms, end_ms)`, the times as in Kafka Streams; value None
      removes the window
    - a sink of the author's own: `(key, value, timestamp_ms, headers)`, and the record that it comes from as a dead
      letter without an error, if the sink may refuse records
    """

    def add(self, row: tuple[Any, ...]) -> None:
        """A row, in the order of processing."""

    def close_windows(self, before_ms: int) -> None:
        """At commit: every window of this task whose `end_ms < before_ms` will never change again."""
        raise AssertionError("a sink without windows closes none")


class SinkRecords(Rows):
    """The rows of an author's sink as records, in a list."""

    def __init__(self, records: list[SinkRecord[Any, Any]] | None = None) -> None:
        self.records = [] if records is None else records

    def add(self, row: tuple[Any, ...]) -> None:
        self.records.append(SinkRecord(*row))


class Collector(Protocol):
    """Receives what a task produces; a host implements it once for all its tasks."""

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Headers,
        partition_key: bytes | None = None,
    ) -> None:
        """A record for an output topic; Kafka's murmur2 of `partition_key` (None: of the key) chooses the partition."""

    def exchange(
        self, exchange: str, partition: int, key: bytes | None, value: bytes | None, timestamp_ms: int, headers: Headers
    ) -> None:
        """A record for task `partition` of the stage that reads `exchange`."""

    def rows(self, sink: str) -> Rows:
        """Takes the rows of a Delta table or of an author's sink, which has the name of its node; asked for once."""

    def dead_letter(self, letter: DeadLetter) -> None:
        """A record that was set aside by the error policy."""


@runtime_checkable
class PartitionedCollector(Protocol):
    """A host's further methods, if its pipelines may choose the partitions of an output topic themselves."""

    def partitions(self, topic: str) -> int:
        """Number of partitions of an output topic."""

    def send_to(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Headers,
    ) -> None:
        """A record for one partition of an output topic."""
