"""Where the records and rows of a task go: one Kafka transaction, Parquet files, batches for the next stage."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from deltaworks.dsl.pipeline import Pipeline
from deltaworks.errors import ProductionError, SetAsideError
from deltaworks.faults import reach
from deltaworks.kafka.ranges import Range
from deltaworks.kernel.errors import class_name, dead_letter_record
from deltaworks.kernel.exchanges import ExchangeOutput
from deltaworks.kernel.records import Coordinates, DeadLetter, Headers, RecordBatch
from deltaworks.kernel.sizes import record_size, shortened
from deltaworks.lakehouse.archive import ArchiveWriter
from deltaworks.lakehouse.task_tables import TaskTables
from deltaworks.lakehouse.writes import Span, TableWrite
from deltaworks.runtime.sinks import TaskSinks
from deltaworks.topology.plan import Plan
from deltaworks.topology.sinks import SinkBatch

_SET_ASIDE = class_name(SetAsideError("of any record"))
_log = logging.getLogger(__name__)


class Sink(Protocol):
    """Writes records to Kafka, in one transaction per batch; see `TransactionalSink`."""

    def begin(self, batch_id: int, intent: str = "", known: int = -1) -> bool:
        """False: the batch is already committed."""

    def limit(self, topic: str) -> int | None:
        """How large a record of a topic may be; None: there is no such topic."""

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
        """How many a topic has."""

    def commit(self) -> None:
        """Makes the records visible, all or none."""

    def abort(self) -> None:
        """Drops them."""

    def close(self) -> None:
        """Lets go of the connection."""


_SURELY_MORE = 1_000
"""Bytes around a record without headers, generously."""


class TaskCollector:
    """`PartitionedCollector` of one task; `begin` and `finish` (or `abort`) bracket a batch, or several of a replay."""

    def __init__(
        self,
        pipeline: Pipeline,
        plan: Plan,
        tables_root: Path,
        stage: int,
        task: int,
        connect: Callable[[], Sink],
        sinks: TaskSinks,
    ) -> None:
        """
        Args:
            pipeline: says where dead letters go.
            plan: the stages; an exchange leads to the one that reads it.
            tables_root: folder of all tables.
            stage: of the task.
            task: its number.
            connect: makes the producer; called when the task writes its first record.
            sinks: those of the author's own.
        """
        self._connect = connect
        self._sinks = sinks
        self._sink: Sink | None = None
        self._dead_letter_topic = pipeline.dead_letter_topic
        self._has_dead_letter_table = pipeline.dead_letter_table is not None
        self._stage, self._task = stage, task
        self._readers = {exchange: s.index for s in plan.stages for exchange in s.exchanges_in}
        self._tables = TaskTables(
            tables_root, plan.stages[stage].tables, pipeline.dead_letter_table, stage=stage, task=task
        )
        self._archive = ArchiveWriter(tables_root, pipeline.archives(plan).table, task=task)
        self._exchanges = ExchangeOutput(task, -1)
        self._batch_id, self._intent, self._known = -1, "", -1
        self._open = False
        self._fits: dict[str, int] = {}
        """Topic -> how many bytes of key and value certainly fit, if there are no headers."""
        self.sent = 0
        self.skipping = False

    def begin(self, batch_id: int, intent: str = "", known: int = -1) -> None:
        """
        Args:
            batch_id: of the batch.
            intent: digest of what it means.
            known: the last batch that is known to be committed as this stream means it.
        """
        self._batch_id, self._intent, self._known = batch_id, intent, known
        self._open = False
        self.sent = 0
        self.skipping = False
        self._sinks.begin(SinkBatch(batch_id, intent), known)
        self._tables.begin(batch_id)
        self._archive.begin(batch_id)
        self._exchanges = ExchangeOutput(self._task, batch_id)

    def step(self, batch_id: int) -> None:
        """What follows is of this batch, one of several that are finished together."""
        self._tables.step(batch_id)
        self._exchanges = ExchangeOutput(self._task, batch_id)

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Headers,
        partition_key: bytes | None = None,
    ) -> None:
        # What is skipped is checked too: the same record fails, whichever attempt wrote the others.
        if headers or (len(key) if key else 0) + (len(value) if value else 0) > self._fits.get(topic, -1):
            self._check(topic, key, value, headers)
        if not self._open:
            self._begin_transaction()
        self.sent += 1
        if not self.skipping:
            self._sink.send(topic, key, value, timestamp_ms, headers, partition_key)  # type: ignore[union-attr]

    def partitions(self, topic: str) -> int:
        self._limit(topic)
        return self._connected().partitions(topic)

    def send_to(
        self, topic: str, partition: int, key: bytes | None, value: bytes | None, timestamp_ms: int, headers: Headers
    ) -> None:
        self._check(topic, key, value, headers)
        if not self._open:
            self._begin_transaction()
        self.sent += 1
        if not self.skipping:
            self._connected().send(topic, key, value, timestamp_ms, headers, partition=partition)

    def exchange(
        self, exchange: str, partition: int, key: bytes | None, value: bytes | None, timestamp_ms: int, headers: Headers
    ) -> None:
        self._exchanges.add(exchange, partition, key, value, timestamp_ms, headers)

    def to_sink(self, sink: str, key: object, value: object, timestamp_ms: int, headers: Headers) -> None:
        self._sinks.add(sink, key, value, timestamp_ms, headers)

    def append_row(self, table: str, key: object, value: object, timestamp_ms: int, source: Coordinates) -> None:
        self._tables.append_row(table, key, value, timestamp_ms, source)

    def change_row(self, table: str, key: object, value: object | None, timestamp_ms: int, source: Coordinates) -> None:
        self._tables.change_row(table, key, value, timestamp_ms, source)

    def window_row(
        self, table: str, key: object, start_ms: int, end_ms: int, value: object | None, timestamp_ms: int
    ) -> None:
        self._tables.window_row(table, key, start_ms, end_ms, value, timestamp_ms)

    def close_windows(self, table: str, before_ms: int) -> None:
        self._tables.close_windows(table, before_ms)

    def dead_letter(self, letter: DeadLetter) -> None:
        if self._has_dead_letter_table:
            self._tables.dead_letter(letter)
        if self._dead_letter_topic is not None:
            key, value, headers = shortened(*dead_letter_record(letter), self._limit(self._dead_letter_topic))
            self.send(self._dead_letter_topic, key, value, max(letter.timestamp_ms, 0), headers)
        elif not self._has_dead_letter_table and letter.error_class == _SET_ASIDE:
            _log.warning("%s was set aside; the pipeline keeps no dead letters", letter.source.name)

    def archived(self, ranges: Sequence[Range], portions: Iterable[list[RecordBatch]]) -> Iterator[list[RecordBatch]]:
        """The portions of what was read, kept besides if the pipeline has an archive."""
        for each in ranges:
            self._archive.has_read(Span(each.topic, each.partition, each.start, each.stop))
        for portion in portions:
            for batch in portion:
                self._archive.add(batch)
            yield portion

    def finish(self) -> list[TableWrite]:
        """Writes the Parquet files, then commits the transaction, then the sinks of the author's own."""
        writes = [*self._tables.finish(), *self._archive.finish()]
        reach("task.tables_written")
        self._sinks.prepare()
        if self._open and not self.skipping:
            assert self._sink is not None
            self._sink.commit()
        self._open = False
        self._sinks.commit()
        return writes

    def abort(self) -> None:
        if self._open and not self.skipping and self._sink is not None:
            self._sink.abort()
        self._open = False
        self._sinks.abort()

    def close(self) -> None:
        if self._sink is not None:
            self._sink.close()
        self._sinks.close()

    def take_exchanges(self) -> Iterator[tuple[tuple[int, int], RecordBatch]]:
        """`((stage, task), batch)` for every downstream task that gets records, since the last call."""
        for (exchange, downstream), batch in self._exchanges.take().items():
            yield (self._readers[exchange], downstream), batch

    def _begin_transaction(self) -> None:
        self.skipping = not self._connected().begin(self._batch_id, self._intent, self._known)
        self._open = True

    def _check(self, topic: str, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        """Raises `ProductionError` if the topic does not take the record."""
        limit = self._limit(topic)
        self._fits[topic] = limit - _SURELY_MORE
        if (size := record_size(key, value, headers)) > limit:
            raise ProductionError(
                f"A record of {size:,} bytes is too large for topic '{topic}', which takes {limit:,}.",
                hint="max.message.bytes of the topic, or message.max.bytes of the broker, says how large it may be",
                limit=limit,
            )

    def _limit(self, topic: str) -> int:
        limit = self._connected().limit(topic)
        if limit is None:
            raise ProductionError(
                f"There is no topic {topic!r} to write to.",
                hint="create it, or list it in the pipeline's `topics`; a computed name may be wrong",
            )
        return limit

    def _connected(self) -> Sink:
        if self._sink is None:
            self._sink = self._connect()
        return self._sink
