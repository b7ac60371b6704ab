"""Parquet files of a table, with the statistics that Delta needs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from deltaworks import files
from deltaworks.lakehouse.reading import parquet_file
from deltaworks.lakehouse.schema import TableSchema
from deltaworks.lakehouse.writes import NewFile

_MAX_TEXT = 64
_HIGHEST_CHARACTER = "\U0010ffff"
_ORIGINS = b"deltaworks.batches"


def write(
    root: Path, schema: TableSchema, path: str, rows: pa.Table, origins: Sequence[tuple[int, int]] | None = None
) -> NewFile:
    """Writes `rows` to `path` inside the table; the name must be new. `sync` makes the file durable.

    Args:
        root: folder of all tables.
        schema: schema of the table.
        path: path of the file inside the table.
        rows: columns of a data file.
        origins: the batches that wrote the rows, for the footer; see `origins`.
    """
    buffer = pa.BufferOutputStream()
    texts = [field.name for field in schema.file if pa.types.is_string(field.type)]
    if origins is not None:
        rows = rows.replace_schema_metadata({_ORIGINS: json.dumps([list(run) for run in origins])})
    pq.write_table(rows, buffer, compression="zstd", use_dictionary=texts, column_encoding=_encodings(schema))
    data = buffer.getvalue()
    files.write_new(root / schema.name / path, data)
    return NewFile(path, data.size, rows.num_rows, statistics(rows, schema.statistics))


def sync(root: Path, table: str, written: Iterable[NewFile]) -> None:
    """Makes files durable, side by side; required before anything names them.

    Raises:
        FileNotFoundError: a file does not exist.
    """
    files.sync([root / table / file.path for file in written])


def read(root: Path, schema: TableSchema, path: str, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of one file, with all columns or some."""
    (rows,) = read_each(root, schema, [path], columns)
    return rows


def read_each(
    root: Path, schema: TableSchema, paths: Iterable[str], columns: Sequence[str] | None = None
) -> Iterator[pa.Table]:
    """The rows of several files, one after the other; see `read`."""
    for data in files.contents(root / schema.name / path for path in paths):
        with pq.ParquetFile(pa.BufferReader(data)) as file:
            rows = file.read(columns=columns, use_threads=False).replace_schema_metadata(None)
            yield completed(rows, schema, columns)


def completed(rows: pa.Table, schema: TableSchema, columns: Sequence[str] | None = None) -> pa.Table:
    """Rows of a file with null in the columns that were added to the table later.

    Args:
        rows: of a data file.
        schema: of the table.
        columns: those that are wanted; None: all.
    """
    wanted = schema.file.names if columns is None else columns
    if len(rows.column_names) == len(wanted):
        return rows
    there = set(rows.column_names)
    return pa.table(
        [
            rows.column(name) if name in there else pa.nulls(rows.num_rows, schema.file.field(name).type)
            for name in wanted
        ],
        names=list(wanted),
    )


def count(root: Path, schema: TableSchema, path: str) -> int:
    """The number of rows of a file, according to its footer."""
    with parquet_file(root / schema.name / path) as file:
        return int(file.metadata.num_rows)


def origins(root: Path, schema: TableSchema, path: str) -> list[tuple[int, int]] | None:
    """The batches that wrote a file's rows, according to its footer; None: it does not say."""
    with parquet_file(root / schema.name / path) as file:
        found = (file.metadata.metadata or {}).get(_ORIGINS)
    return None if found is None else [(batch, rows) for batch, rows in json.loads(found)]


def read_all(root: Path, schema: TableSchema, paths: Sequence[str]) -> pa.Table:
    """The rows of several files, in order."""
    if not paths:
        return schema.file.empty_table()
    return pa.concat_tables(read_each(root, schema, paths))


def statistics(rows: pa.Table, columns: Sequence[str]) -> str:
    """Delta's statistics: number of rows, bounds and null counts of `columns`."""
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name in columns:
        column = rows.column(name)
        nulls[name] = column.null_count
        bounds = pc.min_max(column)
        if nulls[name] < len(column):
            lowest[name], highest[name] = _json(bounds["min"], _cut), _json(bounds["max"], _cut_above)
    return json.dumps({"numRecords": rows.num_rows, "minValues": lowest, "maxValues": highest, "nullCount": nulls})


def _json(bound: pa.Scalar, cut: Callable[[str], str]) -> Any:
    if pa.types.is_timestamp(bound.type):
        return _iso(bound.cast(pa.int64()).as_py())
    value = bound.as_py()
    if isinstance(value, str):
        return cut(value)
    return value.isoformat() if isinstance(value, date) else value


def _cut(text: str) -> str:
    """A short text that is not greater than `text`."""
    return text[:_MAX_TEXT]


def _cut_above(text: str) -> str:
    """A short text that is not less than `text`."""
    if len(text) <= _MAX_TEXT or text[_MAX_TEXT] == _HIGHEST_CHARACTER:
        return text
    return text[:_MAX_TEXT] + _HIGHEST_CHARACTER


def _iso(micros: int) -> str:
    """Delta keeps milliseconds: readers know that the highest value may be up to one more."""
    text: str = pa.scalar(micros // 1000, pa.timestamp("ms")).as_py().isoformat(timespec="milliseconds")
    return text + "Z"


def _encodings(schema: TableSchema) -> dict[str, str]:
    """Encodings for times and counts, which are close together: their differences take less space and time."""
    return {
        field.name: "DELTA_BINARY_PACKED"
        for field in schema.file
        if pa.types.is_timestamp(field.type) or pa.types.is_int64(field.type)
    }
