"""What the publication of a replay does with a pipeline's sinks for other systems.

A sink is *corrected* if rows of a Delta table say which of its documents or rows have changed: the sink and the table
are of one table of the topology. Any other is marked *stale*, and here is why.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from deltaworks.errors import TableError
from deltaworks.topology.columns import DecimalDigits
from deltaworks.topology.external import EXTERNAL, FileFolder, JdbcTable, SearchIndex
from deltaworks.topology.nodes import AnyNode, CustomSink, DeltaSink
from deltaworks.topology.nodes.sinks import TableKind
from deltaworks.topology.row_objects import RowObjects
from deltaworks.topology.table_columns import author_columns


@dataclass(frozen=True)
class PublishedSink:
    """A sink, and what becomes of it."""

    node: CustomSink
    table: DeltaSink | None
    """The table with the same rows; None: there is none."""
    why: str | None
    """Why it is stale, to follow "but"; None: rows of the table correct it."""

    @property
    def is_wanted(self) -> bool:
        """Whether its author says that it has to be corrected."""
        return isinstance(self.node.sink, SearchIndex | JdbcTable) and self.node.sink.on_publish == "correct"


def at_publish(nodes: Iterable[AnyNode]) -> Sequence[PublishedSink]:
    """The sinks for other systems among the nodes of a topology."""
    given = list(nodes)
    tables = {(node.parents, node.kind): node for node in given if isinstance(node, DeltaSink)}
    return [
        _of(node, tables.get((node.parents, node.kind)))
        for node in given
        if isinstance(node, CustomSink) and isinstance(node.sink, EXTERNAL)
    ]


def _of(node: CustomSink, table: DeltaSink | None) -> PublishedSink:
    sink = node.sink
    if isinstance(sink, FileFolder):
        return PublishedSink(node, table, "files are never changed")
    assert isinstance(sink, SearchIndex | JdbcTable)
    if sink.on_publish == "stale":
        return PublishedSink(node, table, "its author says on_publish='stale'")
    if isinstance(sink, JdbcTable) and sink.mode != "upsert":
        return PublishedSink(node, table, "its rows have no key that says which of them is wrong")
    if node.kind is TableKind.APPEND:
        return PublishedSink(node, table, "it gets a stream, and only a table knows the newest value of a key")
    if table is None:
        return PublishedSink(node, None, "no to_delta(...) writes the rows of the same table")
    return PublishedSink(node, table, _misfit(sink, table))


def _misfit(sink: SearchIndex | JdbcTable, table: DeltaSink) -> str | None:
    """Why the cells of a table do not say what a sink has to hold; None: they do."""
    try:
        if isinstance(sink, JdbcTable):
            mine, theirs = (_key_types(rows) for rows in (sink.rows, table))
            if mine != theirs:
                return f"its key has other columns than that of table '{table.table}'"
        elif column := RowObjects(table).ambiguous:
            return f"null in column '{column}' of table '{table.table}' may be None or UNSET"
    except TableError as error:  # reported with the table itself
        return f"the columns of table '{table.table}' are not known: {error.message}"
    return None


def _key_types(rows: DeltaSink) -> Sequence[object]:
    """What the columns of a key hold: one has all of it as JSON unless several are named. Any decimals fit together."""
    found = (column.type for column in author_columns(rows).key)
    return [DecimalDigits if isinstance(each, DecimalDigits) else each for each in found]


def cell_names(rows: DeltaSink, table: DeltaSink) -> dict[str, str]:
    """Columns of key and value of rows, and the columns of a table of the same types that have their cells.

    Their keys have to have the same columns, whatever these are called.

    Raises:
        TableError: a column cannot have its name.
    """
    mine, theirs = author_columns(rows), author_columns(table)
    found = {column.name: other.name for column, other in zip(mine.key, theirs.key, strict=True)}
    there = {column.field: column.name for column in theirs.value} | {
        of_value.field: of_key.name for of_key, of_value in theirs.shared
    }
    return found | {column.name: there[column.field] for column in mine.value}
