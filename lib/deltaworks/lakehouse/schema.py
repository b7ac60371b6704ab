"""The Delta tables of a sink: names, columns, partitions.

| kind | table | columns |
|---|---|---|
| append | `<t>` | key, value, `timestamp`, `source_topic`, `source_partition`, `source_offset` |
| changelog | `<t>_changelog` | key, value (null on delete), `op`, `timestamp`, source, `batch_id` |
| changelog | `<t>` | the latest `upsert` per key: the same columns without `op` |
| windowed | `<t>` | key, `window_start`, `window_end`, value, `timestamp`, `is_final`; partitioned by `window_date` |
| dead letters | `<t>` | the record as it was read, where it came from and what went wrong |
| archive | `<t>` | every record as it was read, and where; partitioned by `date` (of its timestamp) and `partition` |

The three source columns say where a record was read; behind an exchange they are unique only together with the key.

A key or value that is an object gives one column per field; any other gives a single column, `key` or `value`.
A field whose name is taken is called `value_<name>`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property

import pyarrow as pa

from deltaworks.errors import TableError
from deltaworks.lakehouse.columns import TIMESTAMP, Column, flat_columns, key_columns
from deltaworks.topology.nodes.sinks import DeltaSink, TableKind

WINDOW_DATE = "window_date"


class Role(Enum):
    """The purpose of a physical table, which decides how it is written."""

    APPEND = "append"
    CHANGELOG = "changelog"
    SNAPSHOT = "snapshot"
    WINDOWED = "windowed"
    DEAD_LETTERS = "dead letters"
    ARCHIVE = "archive"


@dataclass(frozen=True, kw_only=True)
class TableSchema:
    """One physical Delta table."""

    name: str
    role: Role
    key: tuple[Column, ...] = ()
    value: tuple[Column, ...] = ()
    between: tuple[tuple[str, pa.DataType], ...] = ()
    """Our own columns between key and value."""
    rest: tuple[tuple[str, pa.DataType], ...]
    """Our own columns after the value."""
    partition_by: tuple[str, ...] = ()
    statistics: tuple[str, ...]
    """Columns with min, max and null count in the log; readers use them to skip files."""

    @cached_property
    def arrow(self) -> pa.Schema:
        """All columns as readers see them."""
        key = [(column.name, column.type) for column in self.key]
        value = [(column.name, column.type) for column in self.value]
        return pa.schema([*key, *self.between, *value, *self.rest])

    @cached_property
    def file(self) -> pa.Schema:
        """The columns of a data file: all except the partition columns."""
        return pa.schema([field for field in self.arrow if field.name not in self.partition_by])

    @cached_property
    def key_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.key)


SOURCE = (("source_topic", pa.string()), ("source_partition", pa.int32()), ("source_offset", pa.int64()))
_SOURCE_STATISTICS = ("timestamp", "source_partition", "source_offset")
WINDOW = (("window_start", TIMESTAMP), ("window_end", TIMESTAMP))
_RECORD = (
    ("key", pa.binary()),
    ("value", pa.binary()),
    ("headers", pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))),
)
DEAD_LETTER = (
    *_RECORD,
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("timestamp", TIMESTAMP),
    ("error_class", pa.string()),
    ("message", pa.string()),
    ("operator", pa.string()),
    ("stacktrace", pa.string()),
)
ARCHIVE = (
    *_RECORD,
    ("timestamp", TIMESTAMP),
    ("timestamp_ms", pa.int64()),  # the exact time in Kafka, if `timestamp` can only be the nearest one; else null
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("date", pa.date32()),
)


def changelog_name(table: str) -> str:
    """The table with every update of a KTable whose snapshot is `table`."""
    return f"{table}_changelog"


def schemas(sink: DeltaSink) -> tuple[TableSchema, ...]:
    """The physical tables of a sink, first the one with the rows that tasks write.

    Raises:
        TableError: two columns have names that differ only in case.
    """
    match sink.kind:
        case TableKind.APPEND:
            return (_table(sink, sink.table, Role.APPEND, (("timestamp", TIMESTAMP), *SOURCE), _SOURCE_STATISTICS),)
        case TableKind.CHANGELOG:
            tail = (("timestamp", TIMESTAMP), *SOURCE, ("batch_id", pa.int64()))
            changelog = _table(
                sink,
                changelog_name(sink.table),
                Role.CHANGELOG,
                (("op", pa.string()), *tail),
                (*_SOURCE_STATISTICS, "batch_id"),
            )
            return changelog, replace(changelog, name=sink.table, role=Role.SNAPSHOT, rest=tail)
        case TableKind.WINDOWED:
            rest = (("timestamp", TIMESTAMP), ("is_final", pa.bool_()), (WINDOW_DATE, pa.date32()))
            bounds = ("window_start", "window_end", "timestamp")
            table = _table(sink, sink.table, Role.WINDOWED, rest, bounds, between=WINDOW)
            return (replace(table, partition_by=(WINDOW_DATE,)),)


def dead_letter_schema(table: str) -> TableSchema:
    """The table of records that were set aside."""
    return TableSchema(
        name=table, role=Role.DEAD_LETTERS, rest=DEAD_LETTER, statistics=("topic", "partition", "offset", "timestamp")
    )


def archive_schema(table: str) -> TableSchema:
    """The table of the records of a topic, or of the topics that match a pattern.

    It is also partitioned by Kafka partition, so that records of one are read without the others.
    """
    return TableSchema(
        name=table,
        role=Role.ARCHIVE,
        rest=ARCHIVE,
        partition_by=("date", "partition"),
        statistics=("topic", "offset", "timestamp"),
    )


def plan_schemas(
    sinks: Sequence[DeltaSink], dead_letter_table: str | None, archives: Sequence[str] = ()
) -> tuple[TableSchema, ...]:
    """Every physical table of a plan.

    Raises:
        TableError: two sinks would write the same table.
    """
    tables = [table for sink in sinks for table in schemas(sink)]
    if dead_letter_table is not None:
        tables.append(dead_letter_schema(dead_letter_table))
    tables += map(archive_schema, archives)
    names = [table.name for table in tables]
    for name in names:
        if names.count(name) > 1:
            raise TableError(
                f"Two sinks write the Delta table '{name}'.",
                hint=f"give each to_delta() its own name; a KTable also writes '{changelog_name('<name>')}'",
            )
    return tuple(tables)


def _table(
    sink: DeltaSink,
    name: str,
    role: Role,
    rest: tuple[tuple[str, pa.DataType], ...],
    statistics: tuple[str, ...],
    between: tuple[tuple[str, pa.DataType], ...] = (),
) -> TableSchema:
    ours = {column for column, _ in (*between, *rest)}
    key = _renamed(key_columns(sink.key), ours, "key", name)
    value = _renamed(flat_columns(sink.value, "value"), ours | {c.name.lower() for c in key}, "value", name)
    comparable = tuple(column.name for column in key if _is_comparable(column.type))
    return TableSchema(
        name=name,
        role=role,
        key=key,
        between=between,
        value=value,
        rest=rest,
        statistics=(*comparable, *statistics),
    )


def _renamed(columns: list[Column], taken: set[str], prefix: str, table: str) -> tuple[Column, ...]:
    """Field names that are taken get a prefix; names that still clash are an error."""
    taken = set(taken)
    result = []
    for column in columns:
        name = f"{prefix}_{column.name}" if column.name.lower() in taken else column.name
        if name.lower() in taken:
            raise TableError(
                f"Table '{table}' would have two columns named '{name}' (Delta ignores the case of letters).",
                hint="rename one of the fields of the key or value type",
            )
        taken.add(name.lower())
        result.append(replace(column, name=name))
    return tuple(result)


def _is_comparable(kind: pa.DataType) -> bool:
    """Whether a column's bounds can be plain JSON in the log."""
    return bool(pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_date(kind))
