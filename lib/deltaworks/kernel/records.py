"""The kernel's interface: records in, records and table rows out.

Inside a task, keys and values are decoded; here they are the bytes of Kafka.
The hosts (test driver, streaming, replay) fill `RecordBatch` objects and hand a `Collector` to each task.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import msgspec

from deltaworks.topology.records import Coordinates, Headers

__all__ = ["Collector", "Coordinates", "DeadLetter", "Headers", "PartitionedCollector", "RecordBatch", "SinkCollector"]


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


class DeadLetter(msgspec.Struct, frozen=True):
    """A record, as it was read, that could not be decoded or on which a function raised."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    source: Coordinates
    error_class: str
    message: str
    operator: str
    """Name of the node that failed."""
    stacktrace: str


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

    def append_row(self, table: str, key: object, value: object, timestamp_ms: int, source: Coordinates) -> None:
        """A row of an append-only Delta table (a KStream written with `to_delta`)."""

    def change_row(self, table: str, key: object, value: object | None, timestamp_ms: int, source: Coordinates) -> None:
        """An update (`value`) or a delete (None) of one key of a KTable."""

    def window_row(
        self, table: str, key: object, start_ms: int, end_ms: int, value: object | None, timestamp_ms: int
    ) -> None:
        """The current value of one window of a windowed KTable; None removes it. `end_ms` as in Kafka Streams."""

    def close_windows(self, table: str, before_ms: int) -> None:
        """At commit: every window of this task and table whose `end_ms < before_ms` will never change again."""

    def dead_letter(self, letter: DeadLetter) -> None:
        """A record that was set aside by the error policy."""


@runtime_checkable
class SinkCollector(Protocol):
    """A host's further methods, if its pipelines may have authors' sinks."""

    def to_sink(self, sink: str, key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
        """A record for the sink of that name."""


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
