"""The Delta tables and the archive that a task writes: files of the batch, which the driver commits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from deltaworks.faults import reach
from deltaworks.kafka.ranges import Range
from deltaworks.kernel.records import DeadLetter, RecordBatch, Rows
from deltaworks.lakehouse.archive import ArchiveWriter
from deltaworks.lakehouse.task_tables import TaskTables
from deltaworks.lakehouse.writes import Span, TableWrite
from deltaworks.topology.sinks import SinkBatch


class TableSink:
    """`TaskSink` of all tables of one task.

    The task itself commits and aborts nothing. The driver adds the files to their tables, in one commit per table with
    the number of the batch, and recognises a batch by that number. Readers do not see files that no commit names.
    """

    def __init__(self, tables: TaskTables, archive: ArchiveWriter) -> None:
        self._tables, self._archive = tables, archive

    def begin(self, batch: SinkBatch, known: int) -> None:
        self._tables.begin(batch.batch)
        self._archive.begin(batch.batch)

    def step(self, batch_id: int) -> None:
        self._tables.step(batch_id)

    def rows(self, table: str) -> Rows:
        """Accepts the rows of one table."""
        return self._tables.rows(table)

    def dead_letter(self, letter: DeadLetter) -> None:
        """Adds a record to the table of dead letters."""
        self._tables.dead_letter(letter)

    def archived(self, ranges: Sequence[Range], portions: Iterable[list[RecordBatch]]) -> Iterator[list[RecordBatch]]:
        """Passes on the portions that were read, and archives them if the pipeline has an archive."""
        for each in ranges:
            self._archive.has_read(Span(each.topic, each.partition, each.start, each.stop))
        for portion in portions:
            for batch in portion:
                self._archive.add(batch)
            yield portion

    def prepare(self) -> list[TableWrite]:
        writes = [*self._tables.finish(), *self._archive.finish()]
        reach("task.tables_written")
        return writes

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...
