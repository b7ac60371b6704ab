"""Records as rows of a database or a file: their columns, as `to_delta` has them, and the cells."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa

from deltaworks.errors import TableError
from deltaworks.lakehouse.columns import TIMESTAMP, ArrowColumn, arrow_column
from deltaworks.serdes.windowed import Windowed
from deltaworks.topology.columns import LAST_MS
from deltaworks.topology.nodes.sinks import DeltaSink, TableKind
from deltaworks.topology.sinks import SinkRecord
from deltaworks.topology.table_columns import AuthorColumns, author_columns

WINDOW = ("window_start", "window_end")


class Rows:
    """The rows of a sink.

    Args:
        node: what its columns derive from.
    """

    def __init__(self, node: DeltaSink) -> None:
        self._node = node
        self.columns: AuthorColumns = author_columns(node)
        self.is_windowed = node.kind is TableKind.WINDOWED

    @property
    def key_names(self) -> tuple[str, ...]:
        """The columns that identify a row."""
        return (*(column.name for column in self.columns.key), *(WINDOW if self.is_windowed else ()))

    @cached_property
    def key(self) -> tuple[ArrowColumn, ...]:
        return tuple(map(arrow_column, self.columns.key))

    @cached_property
    def value(self) -> tuple[ArrowColumn, ...]:
        return tuple(map(arrow_column, self.columns.value))

    def cells(self, records: Sequence[SinkRecord[Any, Any]]) -> list[tuple[str, pa.Array]]:
        """Columns of the key, of its window, and of the value.

        Raises:
            TableError: a cell does not fit, because its object is not of the type that the topology declares.
        """
        keys = [record.key.key if isinstance(record.key, Windowed) else record.key for record in records]
        values = [record.value for record in records]
        try:
            found = [(column.name, column.array(keys)) for column in self.key]
            if self.is_windowed:
                found.append((WINDOW[0], times([record.key.start_ms for record in records])))
                found.append((WINDOW[1], times([record.key.end_ms for record in records])))
            return [*found, *((column.name, column.array(values)) for column in self.value)]
        except TableError as error:
            raise TableError(f"Sink of '{self._node.table}': {error.message}", hint=error.hint) from error


def times(times_ms: Sequence[int]) -> pa.Array:
    """Times after the year 9999 are shown as its end."""
    return pa.array([min(time, LAST_MS) * 1000 for time in times_ms], pa.int64()).cast(TIMESTAMP)
