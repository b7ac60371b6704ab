"""The Kafka topics that a task writes: one transaction per batch; a committed batch is not written again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from deltaworks import clock
from deltaworks.errors import ProductionError
from deltaworks.kernel.records import Headers
from deltaworks.kernel.sizes import record_size
from deltaworks.lakehouse.writes import TableWrite
from deltaworks.topology.sinks import SinkBatch

_SURELY_MORE = 1_000
"""A generous bound on the bytes around a record without headers."""


class TransactionalProducer(Protocol):
    """Writes records to Kafka, in one transaction per batch; see `TransactionalSink`."""

    def begin(self, batch_id: int, intent: str = "", known: int = -1) -> bool:
        """False: the batch is already committed."""

    def limit(self, topic: str) -> int | None:
        """The largest record that a topic takes, in bytes; None: there is no such topic."""

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
        """Queues a record."""

    def partitions(self, topic: str) -> int:
        """The number of partitions of a topic."""

    def commit(self) -> None:
        """Makes the records visible, all or none."""

    def abort(self) -> None:
        """Drops them."""

    def close(self) -> None:
        """Closes the connection."""


class KafkaSink:
    """`TaskSink` of all topics of one task.

    Args:
        connect: makes the producer when the task writes its first record.
    """

    def __init__(self, connect: Callable[[], TransactionalProducer]) -> None:
        self._connect = connect
        self._producer: TransactionalProducer | None = None
        self._batch, self._known = SinkBatch(-1, ""), -1
        self._open = False
        self._fits: dict[str, int] = {}
        """Topic -> bytes of key and value that certainly fit if there are no headers."""
        self.sent = 0
        """Records of the batch so far."""
        self.skipping = False
        """Whether the batch is already committed, so that its records are only counted."""
        self.transaction_s = 0.0
        """How long the commit of the batch took."""

    def begin(self, batch: SinkBatch, known: int) -> None:
        self._batch, self._known = batch, known
        self._open = False
        self.sent = 0
        self.skipping = False
        self.transaction_s = 0.0

    def step(self, batch_id: int) -> None: ...

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Headers,
        partition_key: bytes | None = None,
    ) -> None:
        """Queues a record; see `Collector.send`.

        Raises:
            ProductionError: the topic does not take it.
        """
        # Skipped records are checked too: the same record must fail in every attempt.
        if headers or (len(key) if key else 0) + (len(value) if value else 0) > self._fits.get(topic, -1):
            self._check(topic, key, value, headers)
        if not self._open:
            self._begin_transaction()
        self.sent += 1
        if not self.skipping:
            self._producer.send(topic, key, value, timestamp_ms, headers, partition_key)  # type: ignore[union-attr]

    def send_to(
        self, topic: str, partition: int, key: bytes | None, value: bytes | None, timestamp_ms: int, headers: Headers
    ) -> None:
        """Queues a record for one partition; see `PartitionedCollector.send_to`."""
        self._check(topic, key, value, headers)
        if not self._open:
            self._begin_transaction()
        self.sent += 1
        if not self.skipping:
            self._connected().send(topic, key, value, timestamp_ms, headers, partition=partition)

    def partitions(self, topic: str) -> int:
        """The number of partitions of a topic."""
        self.limit(topic)
        return self._connected().partitions(topic)

    def limit(self, topic: str) -> int:
        """The largest record that a topic takes, in bytes.

        Raises:
            ProductionError: there is no such topic.
        """
        limit = self._connected().limit(topic)
        if limit is None:
            raise ProductionError(
                f"There is no topic {topic!r} to write to.",
                hint="create it, or list it in the pipeline's `topics`; a computed name may be wrong",
            )
        return limit

    def prepare(self) -> list[TableWrite]:
        return []

    def commit(self) -> None:
        if self._open and not self.skipping:
            begun_s = clock.ticks_s()
            self._connected().commit()
            self.transaction_s = clock.ticks_s() - begun_s
        self._open = False

    def abort(self) -> None:
        if self._open and not self.skipping and self._producer is not None:
            self._producer.abort()
        self._open = False

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()

    def _begin_transaction(self) -> None:
        self.skipping = not self._connected().begin(self._batch.batch, self._batch.intent, self._known)
        self._open = True

    def _check(self, topic: str, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        limit = self.limit(topic)
        self._fits[topic] = limit - _SURELY_MORE
        if (size := record_size(key, value, headers)) > limit:
            raise ProductionError(
                f"A record of {size:,} bytes is too large for topic '{topic}', which takes {limit:,}.",
                hint="max.message.bytes of the topic, or message.max.bytes of the broker, says how large it may be",
                limit=limit,
            )

    def _connected(self) -> TransactionalProducer:
        if self._producer is None:
            self._producer = self._connect()
        return self._producer
