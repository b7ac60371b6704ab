"""Documents of a search index are corrected after a publication: with versions between the stream's own.

A correction has the version of the last batch that is committed, in the newest generation of the stream. So it replaces
what any batch up to that has written, whoever ran it, and what the stream writes later stays, or replaces it. Written
again, it is the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from deltaworks.serdes.windowed import Windowed
from deltaworks.sinks.row_changes import RowChanges
from deltaworks.sinks.rows import WINDOW
from deltaworks.sinks.search import SearchWriter
from deltaworks.topology.external import SearchIndex
from deltaworks.topology.nodes.sinks import DeltaSink, TableKind
from deltaworks.topology.row_objects import RowObjects
from deltaworks.topology.sinks import SinkBatch, SinkRecord, SinkTask

_TIME = "timestamp"


class SearchCorrections:
    """Corrects the index of one sink.

    Args:
        sink: its settings.
        table: the Delta table that has the rows.
        task: the pipeline, the sink, and the newest generation of the stream.
    """

    def __init__(self, sink: SearchIndex, table: DeltaSink, task: SinkTask) -> None:
        self._writer = SearchWriter(sink, task, newer_stays=True)
        self._objects = RowObjects(table)
        self._is_windowed = table.kind is TableKind.WINDOWED

    def correct(self, batch: int, part: RowChanges) -> list[str]:
        """Writes documents and deletes others; returns why the index refuses some.

        Args:
            batch: the last one that is committed.
            part: the rows; none of a key that the stream has updated since they were compared.

        Raises:
            SinkError: the servers do not take them.
        """
        records = [*self._records(part.gone, is_gone=True), *self._records(part.now)]
        return [each.reason for each in self._writer.write(SinkBatch(batch, ""), records)]

    def close(self) -> None:
        self._writer.close()

    def _records(self, rows: pa.Table, *, is_gone: bool = False) -> Iterator[SinkRecord[Any, Any]]:
        names = rows.column_names
        columns = [rows[name].combine_chunks() for name in names]
        cells = [
            column.to_pylist(maps_as_pydicts="strict") if pa.types.is_nested(column.type) else column.to_pylist()
            for column in columns
        ]
        times = {name: _times_ms(rows[name]) for name in (_TIME, *(WINDOW if self._is_windowed else ()))}
        for number, row in enumerate(zip(*cells, strict=True)):
            of_row = dict(zip(names, row, strict=True))
            key = self._objects.key(of_row)
            if self._is_windowed:
                key = Windowed(key, *(times[name][number] for name in WINDOW))
            yield SinkRecord(key, None if is_gone else self._objects.value(of_row), times[_TIME][number], ())


def _times_ms(column: pa.ChunkedArray) -> list[int]:
    return [time // 1000 for time in column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()]
