"""Where the output of a task goes: Kafka topics, Delta tables, authors' sinks, and exchanges to later stages."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

from deltaworks.dsl.pipeline import Pipeline
from deltaworks.errors import SetAsideError
from deltaworks.kernel.errors import class_name, dead_letter_record
from deltaworks.kernel.exchanges import ExchangeOutput
from deltaworks.kernel.records import DeadLetter, Headers, RecordBatch, Rows
from deltaworks.kernel.sizes import shortened
from deltaworks.lakehouse.archive import ArchiveWriter
from deltaworks.lakehouse.schema import schemas
from deltaworks.lakehouse.task_tables import TaskTables
from deltaworks.lakehouse.writes import TableWrite
from deltaworks.runtime.kafka_sink import KafkaSink, TransactionalProducer
from deltaworks.runtime.refusals import refuse
from deltaworks.runtime.sinks import AuthorSinks, TaskSink
from deltaworks.runtime.table_sink import TableSink
from deltaworks.topology.plan import Plan
from deltaworks.topology.sinks import SinkBatch
from deltaworks.topology.stages import Stage

_SET_ASIDE = class_name(SetAsideError("of any record"))
_log = logging.getLogger(__name__)


def written_tables(pipeline: Pipeline, plan: Plan, stage: Stage) -> tuple[str, ...]:
    """The tables that a task of a stage may write."""
    letters = pipeline.dead_letters.table
    own = [schemas(sink)[0].name for sink in stage.tables] + ([] if letters is None else [letters])
    return (*own, *pipeline.archives(plan).tables)


class TaskCollector:
    """`PartitionedCollector` of one task; `begin` and `finish` (or `abort`) bracket a batch, or several of a replay."""

    def __init__(
        self,
        pipeline: Pipeline,
        plan: Plan,
        tables_root: Path,
        stage: int,
        task: int,
        connect: Callable[[], TransactionalProducer],
        author_sinks: AuthorSinks,
    ) -> None:
        """
        Args:
            pipeline: says where dead letters go.
            plan: the stages; an exchange leads to the one that reads it.
            tables_root: folder of all tables.
            stage: of the task.
            task: its number.
            connect: makes the producer; called when the task writes its first record.
            author_sinks: the sinks that the author has written.
        """
        tables = plan.stages[stage].tables
        self._kafka = KafkaSink(connect)
        self._tables = TableSink(
            TaskTables(tables_root, tables, pipeline.dead_letters.table, stage=stage, task=task),
            ArchiveWriter(tables_root, pipeline.archives(plan).table, task=task),
        )
        self._author_sinks = author_sinks
        self._sinks: tuple[TaskSink, ...] = (self._tables, self._kafka, author_sinks)
        """In the order in which they commit and abort."""
        self._errors = pipeline.errors
        self.refused = 0
        """How many records of the batch the author's sinks have refused."""
        self._table_of = {sink.name: sink.table for sink in tables}
        self._dead_letter_topic = pipeline.dead_letters.topic
        self._has_dead_letter_table = pipeline.dead_letters.table is not None
        self._task = task
        self._readers = plan.readers
        self._exchanges = ExchangeOutput(task, -1)
        self.send = self._kafka.send
        self.send_to = self._kafka.send_to
        self.partitions = self._kafka.partitions
        self.archived = self._tables.archived

    @property
    def sent(self) -> int:
        """How many records the batch has sent to Kafka."""
        return self._kafka.sent

    @property
    def transaction_s(self) -> float:
        """How many seconds the commit of the batch to Kafka took."""
        return self._kafka.transaction_s

    @property
    def skipping(self) -> bool:
        """Whether Kafka has the batch already."""
        return self._kafka.skipping

    def begin(self, batch_id: int, intent: str = "", known: int = -1) -> None:
        """
        Args:
            batch_id: of the batch.
            intent: digest of what it means.
            known: the last batch that is known to be committed as this stream means it.
        """
        for sink in self._sinks:
            sink.begin(SinkBatch(batch_id, intent), known)
        self.refused = 0
        self._exchanges = ExchangeOutput(self._task, batch_id)

    def step(self, batch_id: int) -> None:
        """Begins a batch, one of several that are finished together."""
        for sink in self._sinks:
            sink.step(batch_id)
        self._exchanges = ExchangeOutput(self._task, batch_id)

    def exchange(
        self, exchange: str, partition: int, key: bytes | None, value: bytes | None, timestamp_ms: int, headers: Headers
    ) -> None:
        self._exchanges.add(exchange, partition, key, value, timestamp_ms, headers)

    def rows(self, sink: str) -> Rows:
        table = self._table_of.get(sink)
        return self._author_sinks.rows(sink) if table is None else self._tables.rows(table)

    def dead_letter(self, letter: DeadLetter) -> None:
        if self._has_dead_letter_table:
            self._tables.dead_letter(letter)
        if self._dead_letter_topic is not None:
            limit = self._kafka.limit(self._dead_letter_topic)
            key, value, headers = shortened(*dead_letter_record(letter), limit)
            self.send(self._dead_letter_topic, key, value, max(letter.timestamp_ms, 0), headers)
        elif not self._has_dead_letter_table and letter.error_class == _SET_ASIDE:
            _log.warning("%s was set aside; the pipeline keeps no dead letters", letter.source.name)

    def finish(self) -> list[TableWrite]:
        """Prepares all sinks, then commits them one after the other.

        The author's sinks prepare first: what they refuse may become dead letters, which go to Kafka or a table.

        Returns:
            The files that the driver commits to the tables.

        Raises:
            StreamsError: a sink refuses a record, and the pipeline says fail.
        """
        self._author_sinks.prepare()
        for refused in self._author_sinks.refused:
            refuse(refused, self._errors, self._task, self)
            self.refused += 1
        writes = [*self._tables.prepare(), *self._kafka.prepare()]
        for sink in self._sinks:
            sink.commit()
        return writes

    def abort(self) -> None:
        for sink in self._sinks:
            sink.abort()

    def close(self) -> None:
        for sink in self._sinks:
            sink.close()

    def take_exchanges(self) -> Iterator[tuple[tuple[int, int], RecordBatch]]:
        """`((stage, task), batch)` for every downstream task that gets records, since the last call."""
        for (exchange, downstream), batch in self._exchanges.take().items():
            yield (self._readers[exchange], downstream), batch
