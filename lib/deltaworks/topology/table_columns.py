"""The columns of a sink's Delta table: the author's, our own beside them, and what all of them mean.

A key or value that is an object gives one column per field; any other gives a single one, `key` or `value` unless the
author names it. Where nothing is named, a field whose name is taken is called `value_<name>`. Where the author names a
column of the key like a field of the value, they share it: a record in which they differ is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from deltaworks.errors import TableError
from deltaworks.names import COLUMN
from deltaworks.topology.columns import TypedColumn, flat_columns, key_columns, record_class
from deltaworks.topology.docs import doc_of, texts_below
from deltaworks.topology.nodes.sinks import DeltaSink, TableKind

WINDOW_DATE = "window_date"
SOURCE = ("source_topic", "source_partition", "source_offset")


@dataclass(frozen=True)
class OurColumns:
    """Names of our own columns."""

    between: tuple[str, ...] = ()
    """Between key and value."""
    after: tuple[str, ...] = ()


OURS: Mapping[TableKind, OurColumns] = {
    TableKind.APPEND: OurColumns(after=("timestamp", *SOURCE)),
    TableKind.CHANGELOG: OurColumns(after=("op", "timestamp", *SOURCE, "batch_id")),
    TableKind.WINDOWED: OurColumns(("window_start", "window_end"), ("timestamp", "is_final", WINDOW_DATE)),
}
COMMENTS: Mapping[str, str] = {
    "timestamp": "Event time of the row: the timestamp of its record.",
    "source_topic": "Topic of the record that the row comes from; `...-repartition` is an exchange in the pipeline.",
    "source_partition": "Partition of that record.",
    "source_offset": "Offset of that record; behind an exchange it is unique only together with the key.",
    "op": "`upsert`: this is now the row of the key; `delete`: the key has no row any more.",
    "batch_id": "Micro-batch of the stream that wrote the update.",
    "window_start": "Start of the window, inclusive; of a session, the time of its first record.",
    "window_end": "End of the window, exclusive; of a session, the time of its last record.",
    "is_final": "Whether the row can no longer change, because every further record would be too late for its window.",
    WINDOW_DATE: "UTC date of window_start, by which the table is partitioned.",
}
"""What our own columns mean."""
_OF_WINDOWS = {"timestamp": "Timestamp of the newest record in the window."}


@dataclass(frozen=True)
class AuthorColumns:
    """The columns of key and value, under the names that they have in the table."""

    key: tuple[TypedColumn, ...]
    value: tuple[TypedColumn, ...]
    shared: tuple[tuple[TypedColumn, TypedColumn], ...]
    """Columns of the key that are fields of the value too: of the key, of the value."""


def author_columns(sink: DeltaSink) -> AuthorColumns:
    """The columns of key and value.

    Raises:
        TableError: a name is not valid, is taken, or names something else than one column.
    """
    ours = {*OURS[sink.kind].between, *OURS[sink.kind].after}
    key, value = _key(sink), _value(sink)
    if sink.key_name is None:
        key = _prefixed(key, ours, "key", sink.table)
    else:
        _check_names(key, ours, "key", sink.table)
    shared = () if sink.key_name is None else tuple(_shared(key, value, sink.table))
    taken = ours | {column.name.lower() for column in key}
    of_both = {column.name for _, column in shared}
    if sink.value_name is None:
        value = _prefixed([column for column in value if column.name not in of_both], taken, "value", sink.table)
    else:
        _check_names(value, taken, "value", sink.table)
    return AuthorColumns(tuple(key), tuple(value), shared)


def comments(sink: DeltaSink) -> dict[str, str]:
    """Column -> what it means; columns of which nothing is known are left out."""
    columns = author_columns(sink)
    of_key = dict(documented(sink.key, columns.key))
    of_value = dict(documented(sink.value, [*columns.value, *(column for _, column in columns.shared)]))
    ours = {name: COMMENTS[name] for name in (*OURS[sink.kind].between, *OURS[sink.kind].after)}
    return ours | (_OF_WINDOWS if sink.kind is TableKind.WINDOWED else {}) | of_value | of_key | dict(sink.column_docs)


def documented(kind: Any, columns: Iterable[TypedColumn]) -> Iterable[tuple[str, str]]:
    """Each column of a type with what it means, where the type says it."""
    below = {} if (fields := record_class(kind)) is None else texts_below(fields)
    for column in columns:
        if text := doc_of(column.hint) or below.get(column.field or ""):
            yield column.name, text


def _key(sink: DeltaSink) -> list[TypedColumn]:
    names = sink.key_name
    columns = key_columns(sink.key, items=isinstance(names, tuple))
    if names is None:
        return columns
    fields = record_class(sink.key)
    each = tuple(column.name for column in columns)
    if isinstance(names, str):
        if fields is not None:
            raise TableError(
                f"to_delta('{sink.table}'): key='{names}' names one column, but the key is of {fields.__name__}, whose "
                f"fields are columns: {', '.join(each)}.",
                hint=f"leave key= out, or name each of them: key={each!r}",
            )
        names = (names,)
    if len(names) != len(columns):
        has = f" ({', '.join(each)})" if fields is not None else ""
        raise TableError(
            f"to_delta('{sink.table}'): key= has {len(names)} names, but the key has {len(columns)} column"
            f"{'' if len(columns) == 1 else 's'}{has}.",
            hint=f"key={each!r}" if fields is not None else "give each column one name",
        )
    return [replace(column, name=name) for column, name in zip(columns, names, strict=True)]


def _value(sink: DeltaSink) -> list[TypedColumn]:
    columns = flat_columns(sink.value, sink.value_name or "value")
    if sink.value_name is not None and (fields := record_class(sink.value)) is not None:
        raise TableError(
            f"to_delta('{sink.table}'): value='{sink.value_name}' names one column, but the value is of "
            f"{fields.__name__}, whose fields are columns: {', '.join(column.name for column in columns)}.",
            hint="leave value= out; the names of the fields are those of the columns",
        )
    return columns


def _check_names(columns: Sequence[TypedColumn], taken: set[str], argument: str, table: str) -> None:
    """Names that the author has given are used as they are."""
    taken = set(taken)
    for name in (column.name for column in columns):
        if not COLUMN.allows(name):
            raise TableError(f"to_delta('{table}'): {name!r} cannot be {COLUMN.what}.", hint=f"use {COLUMN.valid}")
        if name.lower() in taken:
            raise TableError(
                f"to_delta('{table}'): {argument}='{name}' names a column that the table has already "
                "(Delta ignores the case of letters).",
                hint=f"choose another name, such as {argument}='{argument}_{name}'",
            )
        taken.add(name.lower())


def _prefixed(columns: Sequence[TypedColumn], taken: set[str], prefix: str, table: str) -> list[TypedColumn]:
    """Names of fields that are taken get a prefix; names that still clash are an error."""
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
    return result


def _shared(
    key: Sequence[TypedColumn], value: Sequence[TypedColumn], table: str
) -> Iterable[tuple[TypedColumn, TypedColumn]]:
    fields = {column.name.lower(): column for column in value if column.field is not None}
    for column in key:
        if (field := fields.get(column.name.lower())) is None:
            continue
        if (field.name, field.type) != (column.name, column.type):
            raise TableError(
                f"to_delta('{table}'): the key and a field of the value would be the column '{column.name}', but they "
                "are of other types, or differ in the case of letters.",
                hint=f"give the key a column of its own, such as key='key_{column.name}'",
            )
        yield column, field
