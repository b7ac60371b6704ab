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

"key" and "value" stand for the columns of the author (`topology/table_columns.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property

import pyarrow as pa

from deltaworks.errors import TableError
from deltaworks.lakehouse.columns import TIMESTAMP, ArrowColumn, arrow_column
from deltaworks.topology.nodes.sinks import DeltaSink, TableKind
from deltaworks.topology.table_columns import OURS, WINDOW_DATE, author_columns, comments


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
    key: tuple[ArrowColumn, ...] = ()
    value: tuple[ArrowColumn, ...] = ()
    between: tuple[tuple[str, pa.DataType], ...] = ()
    """Our own columns between key and value."""
    rest: tuple[tuple[str, pa.DataType], ...]
    """Our own columns after the value."""
    partition_by: tuple[str, ...] = ()
    statistics: tuple[str, ...]
    """Columns with min, max and null count in the log; readers use them to skip files."""
    description: str | None = field(default=None, compare=False)
    """What the table is."""
    sink: DeltaSink | None = field(default=None, compare=False, repr=False)
    """The sink that writes the table; it knows what the columns mean."""
    pipeline: str | None = field(default=None, compare=False)
    """The pipeline that writes the table; None: not told."""

    @cached_property
    def arrow(self) -> pa.Schema:
        """All columns as readers see them."""
        key = [(column.name, column.type) for column in self.key]
        value = [(column.name, column.type) for column in self.value]
        return pa.schema([*key, *self.between, *value, *self.rest])

    @cached_property
    def comments(self) -> dict[str, str]:
        """Column -> what it means, for those of which it is known."""
        found = COMMENTS_OF_RECORDS if self.sink is None else comments(self.sink)
        return {name: found[name] for name in self.arrow.names if name in found}

    @property
    def commented(self) -> pa.Schema:
        """All columns with their comments."""
        return commented(self.arrow, self.comments)

    @cached_property
    def file(self) -> pa.Schema:
        """The columns of a data file: all except the partition columns."""
        return pa.schema([field for field in self.arrow if field.name not in self.partition_by])

    @cached_property
    def key_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.key)


def commented(schema: pa.Schema, told: Mapping[str, str]) -> pa.Schema:
    """The schema with comments for the columns that `told` has."""
    return pa.schema(
        [each.with_metadata({"comment": told[each.name]}) if each.name in told else each for each in schema]
    )


_TYPES = {
    "timestamp": TIMESTAMP,
    "source_topic": pa.string(),
    "source_partition": pa.int32(),
    "source_offset": pa.int64(),
    "op": pa.string(),
    "batch_id": pa.int64(),
    "window_start": TIMESTAMP,
    "window_end": TIMESTAMP,
    "is_final": pa.bool_(),
    WINDOW_DATE: pa.date32(),
}
_STATISTICS = {
    TableKind.APPEND: ("timestamp", "source_partition", "source_offset"),
    TableKind.CHANGELOG: ("timestamp", "source_partition", "source_offset", "batch_id"),
    TableKind.WINDOWED: ("window_start", "window_end", "timestamp"),
}
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


COMMENTS_OF_RECORDS = {
    "key": "Key of the record, as its bytes were in Kafka; null: it has none.",
    "value": "Value of the record, as its bytes were in Kafka; null: it has none.",
    "headers": "Headers of the record, in their order; a name may occur more than once.",
    "topic": "Topic that the record was read from.",
    "partition": "Partition that the record was read from.",
    "offset": "Offset of the record in its partition.",
    "timestamp": "Timestamp of the record.",
    "timestamp_ms": "Exact timestamp in milliseconds, where `timestamp` can only hold the nearest one; else null.",
    "date": "UTC date of the timestamp, by which the table is partitioned.",
    "error_class": "Class of the error.",
    "message": "Message of the error.",
    "operator": "Operator that failed on the record, as `describe()` names it.",
    "stacktrace": "Where in the code the error was raised.",
}
"""Column of a dead letter or an archived record -> what it means."""


def changelog_name(table: str) -> str:
    """The table with every update of a KTable whose snapshot is `table`."""
    return f"{table}_changelog"


def schemas(sink: DeltaSink) -> tuple[TableSchema, ...]:
    """The physical tables of a sink, first the one with the rows that tasks write.

    Raises:
        TableError: a column cannot have its name.
    """
    match sink.kind:
        case TableKind.APPEND:
            return (_table(sink, sink.table, Role.APPEND),)
        case TableKind.CHANGELOG:
            changelog = _table(sink, changelog_name(sink.table), Role.CHANGELOG)
            rest = tuple(column for column in changelog.rest if column[0] != "op")
            updates = None if sink.doc is None else f"{sink.doc} (every update)"
            return (
                replace(changelog, description=updates),
                replace(changelog, name=sink.table, role=Role.SNAPSHOT, rest=rest),
            )
        case TableKind.WINDOWED:
            return (replace(_table(sink, sink.table, Role.WINDOWED), partition_by=(WINDOW_DATE,)),)


def dead_letter_schema(table: str) -> TableSchema:
    """The table of records that were set aside."""
    return TableSchema(
        name=table,
        role=Role.DEAD_LETTERS,
        rest=DEAD_LETTER,
        statistics=("topic", "partition", "offset", "timestamp"),
        description="Records that could not be processed, as they were read, and what was wrong with each of them.",
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
        description="Records of Kafka as they were read, for replays of what Kafka has removed since.",
    )


def plan_schemas(
    sinks: Sequence[DeltaSink],
    dead_letter_table: str | None,
    archives: Sequence[str] = (),
    *,
    pipeline: str | None = None,
) -> tuple[TableSchema, ...]:
    """Every physical table of a plan; `pipeline` is its name, for readers of the tables.

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
    return tuple(replace(table, pipeline=pipeline) for table in tables)


def _table(sink: DeltaSink, name: str, role: Role) -> TableSchema:
    columns, ours = author_columns(sink), OURS[sink.kind]
    key = tuple(map(arrow_column, columns.key))
    comparable = tuple(column.name for column in key if _is_comparable(column.type))
    return TableSchema(
        name=name,
        role=role,
        key=key,
        between=tuple((column, _TYPES[column]) for column in ours.between),
        value=tuple(map(arrow_column, columns.value)),
        rest=tuple((column, _TYPES[column]) for column in ours.after),
        statistics=(*comparable, *_STATISTICS[sink.kind]),
        description=sink.doc,
        sink=sink,
    )


def _is_comparable(kind: pa.DataType) -> bool:
    """Whether a column's bounds can be plain JSON in the log."""
    return bool(pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_date(kind))
