"""Finds the rows in which two versions of a table differ, with DuckDB, within a memory limit.

1. Equal rows cancel out: both sides are counted by all their columns, one as +1, the other as -1.
2. The rest is paired by identity, the first row of one side with the first of the other: a pair is a changed row.

So duplicate rows count as often as they occur, and only differing rows are sorted and joined. NaN equals NaN, null
equals null, numbers are never rounded, and the order of a map's entries does not matter.

A windowed table is compared some days at a time: the day of a row follows from its window. Other data that does not
fit into memory is spilled. If DuckDB cannot spill it, rows are compared in parts, by a hash of the
identity, each with a separate scan.

| table | identity |
|---|---|
| windowed | key, window |
| snapshot | key |
| append, dead letters | where the record was read, key |
| changelog | likewise, and the number of earlier updates of this record and key |
"""

from __future__ import annotations

import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from itertools import product
from pathlib import Path
from typing import Any, Literal, TypeVar

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from deltaworks.lakehouse.publish.scope import LETTER_SOURCE, ROW_SOURCE, Scope
from deltaworks.lakehouse.reading import LocalCopies
from deltaworks.lakehouse.sandbox import identifier as _quoted
from deltaworks.lakehouse.schema import Role, TableSchema

T = TypeVar("T")
Kind = Literal["changed", "only in production", "only in staging"]
KINDS: tuple[Kind, ...] = ("changed", "only in production", "only in staging")
_MAX_PARTS = 1024
_WRITTEN_ROWS = 16_384
CONDITION: dict[Kind, str] = {
    "changed": "in_before AND in_after",
    "only in production": "in_before AND NOT in_after",
    "only in staging": "in_after AND NOT in_before",
}
"""Which pairs of rows are of a kind, in SQL."""


@dataclass(frozen=True)
class Side:
    """The data of one of the two tables."""

    files: Sequence[Path]
    """Files in the order in which they were written."""
    columns: frozenset[str]
    """Columns that it has; other columns read as null."""
    added: frozenset[str]
    """Those of them that were added later, so that older files lack them."""
    condition: str
    """Its rows in the scope, as SQL on columns, `file_index` (of `files`) and `file_row_number` (from 0)."""


@dataclass(frozen=True)
class Cell:
    """A compared part of a row: `c<number>` in the queries here, since users may give columns any names."""

    column: str | None
    """None: the number of the row among those of one record and key."""
    sql: str
    is_identity: bool


@dataclass
class Found:
    """The differences between the rows of a table, summed over its parts."""

    before: Counter[date] = field(default_factory=Counter)
    """Rows before, by UTC day of the window's start or the row's timestamp."""
    kinds: dict[date, Counter[Kind]] = field(default_factory=lambda: defaultdict(Counter))
    """Rows that differ; a changed row counts on the day that it had before."""
    columns: Counter[str] = field(default_factory=Counter)
    """Number of changed rows in which a column differs; columns that are part of the identity are absent."""
    sums: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Column -> its sum before, and what the rows that differ add to it."""
    samples: list[tuple[Kind, dict[str, Any] | None, dict[str, Any] | None]] = field(default_factory=list)
    """Before and after; of each kind the first rows by identity."""


@contextmanager
def engine(memory_mb: int, folder: Path | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """What compares: a DuckDB of its own.

    Args:
        memory_mb: data that does not fit goes to temporary files.
        folder: their folder; None: the system's.
    """
    with tempfile.TemporaryDirectory(prefix="comparison-", dir=folder) as spilled, duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET memory_limit = ?", [f"{memory_mb}MB"])
        connection.execute("SET temp_directory = ?", [spilled])
        connection.execute("SET preserve_insertion_order = false")
        yield connection


def copies_for(connection: duckdb.DuckDBPyConnection) -> LocalCopies:
    """Copies of files for an `engine`; they go with its temporary files."""
    (spilled,) = connection.sql("SELECT current_setting('temp_directory')").fetchall()[0]
    return LocalCopies(Path(spilled))


class Differences:
    """The differences of one table.

    Args:
        connection: decides where temporary tables spill.
        schema: schema of the table or snapshot.
        source: schema of the files: that of the table, or for a snapshot that of its changelog.
        scope: which rows are compared.
        same_batches: both sides were made from the same micro-batches; otherwise batch ids and offsets behind exchanges
            mean nothing.
        summed: columns of numbers to sum up.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        schema: TableSchema,
        source: TableSchema,
        scope: Scope,
        *,
        same_batches: bool,
        summed: Sequence[str] = (),
    ) -> None:
        self._connection, self._schema, self._source, self._scope = connection, schema, source, scope
        self._same_batches = same_batches
        self._copies = copies_for(connection)
        self.cells = self._cells()
        self._summed = {number: str(cell.column) for number, cell in enumerate(self.cells) if cell.column in summed}

    def find(self, sides: Sequence[tuple[Side, Side]], samples: int, parts: int = 1) -> Found:
        """Compares the two sides.

        Args:
            sides: production and staging, or slices of them: a row of one slice is in no other one.
            samples: how many rows of each kind to keep.
            parts: number of parts at first; more if memory is short.

        Raises:
            duckdb.Error: files cannot be read, or memory is short even for a small part of the rows.
        """
        return _in_parts(lambda parts: self._find(sides, samples, parts), parts)

    def write(self, sides: Sequence[tuple[Side, Side]], target: Path) -> int:
        """Writes the rows that differ to a Parquet file; returns how many there are.

        A row of the file has `in_before`, `in_after` and, per cell, `b<number>` and `a<number>`: before and after.
        Raises like `find`.
        """
        return _in_parts(lambda parts: self._write(sides, target, parts), 1)

    def _write(self, sides: Sequence[tuple[Side, Side]], target: Path, parts: int) -> int:
        rows = 0
        writer: pq.ParquetWriter | None = None
        try:
            for (before, after), part in product(sides, range(parts)):
                self._pair(before, after, part, parts)
                found = self._connection.sql("FROM pairs").to_arrow_reader(_WRITTEN_ROWS)
                writer = writer or pq.ParquetWriter(target, found.schema, compression="zstd")
                for batch in found:
                    writer.write_batch(batch)
                    rows += batch.num_rows
        finally:
            if writer is not None:
                writer.close()
        return rows

    def _find(self, sides: Sequence[tuple[Side, Side]], samples: int, parts: int) -> Found:
        found = Found(columns=Counter(dict.fromkeys(self._counted.values(), 0)))
        self._execute("DROP TABLE IF EXISTS samples")
        for (before, after), part in product(sides, range(parts)):
            self._pair(before, after, part, parts)
            self._count(found)
            self._keep(samples)
        for kind in KINDS:
            found.samples += [(kind, *rows) for rows in self._samples(kind, samples)]
        return found

    def _pair(self, before: Side, after: Side, part: int, parts: int) -> None:
        """Makes the table `pairs` of the differences: before beside after."""
        self._copies.fetch([*before.files, *after.files])
        for name, side in (("before", before), ("after", after)):
            kept = "VIEW"
            rows = self._rows(side, part, parts)
            if self._schema.role is Role.SNAPSHOT:
                kept, rows = "TABLE", self._reduced(side, part, parts)
            self._execute(f"CREATE OR REPLACE TEMP {kept} {name}_rows AS {rows}")
        cells = ", ".join(f"c{number}" for number in range(len(self.cells)))
        self._execute(f"""
            CREATE OR REPLACE TEMP TABLE remainder AS
            SELECT {cells}, sum(side)::BIGINT AS net,
                CASE WHEN net > 0 THEN min(place) FILTER (side = 1) ELSE min(place) FILTER (side = -1) END AS place
            FROM (SELECT *, 1 AS side FROM before_rows UNION ALL SELECT *, -1 AS side FROM after_rows)
            GROUP BY {cells} HAVING net <> 0
        """)
        self._execute(f"""
            CREATE OR REPLACE TEMP TABLE pairs AS
            WITH b AS ({self._numbered("net")}), a AS ({self._numbered("-net")})
            SELECT {", ".join(f"b.c{n} AS b{n}, a.c{n} AS a{n}" for n in range(len(self.cells)))},
                b.number IS NOT NULL AS in_before, a.number IS NOT NULL AS in_after
            FROM b FULL JOIN a ON {" AND ".join(f"b.c{n} IS NOT DISTINCT FROM a.c{n}" for n in self._identity)}
                AND b.number = a.number
        """)

    def _count(self, found: Found) -> None:
        day = _day(f"c{self._time}")
        found.before.update(dict(self._execute(f"SELECT {day} AS day, count(*) FROM before_rows GROUP BY day")))
        day = _day(f"CASE WHEN in_before THEN b{self._time} ELSE a{self._time} END")
        counts = ", ".join(f"count(*) FILTER ({CONDITION[kind]})" for kind in KINDS)
        for row in self._execute(f"SELECT {day} AS day, {counts} FROM pairs GROUP BY day"):
            found.kinds[row[0]].update(dict(zip(KINDS, row[1:], strict=True)))
        if self._counted:
            counts = ", ".join(f"count(*) FILTER (b{number} IS DISTINCT FROM a{number})" for number in self._counted)
            (row,) = self._execute(f"SELECT {counts} FROM pairs WHERE {CONDITION['changed']}")
            found.columns.update(dict(zip(self._counted.values(), row, strict=True)))
        if self._summed:
            totals = ", ".join(_sum(f"c{number}") for number in self._summed)
            (befores,) = self._execute(f"SELECT {totals} FROM before_rows")
            totals = ", ".join(f"{_sum(f'a{number}')} - {_sum(f'b{number}')}" for number in self._summed)
            (changes,) = self._execute(f"SELECT {totals} FROM pairs")
            for column, before, change in zip(self._summed.values(), befores, changes, strict=True):
                earlier = found.sums.get(column, (0.0, 0.0))
                found.sums[column] = (earlier[0] + before, earlier[1] + change)

    def _keep(self, limit: int) -> None:
        self._execute("CREATE TEMP TABLE IF NOT EXISTS samples AS SELECT * FROM pairs LIMIT 0")
        for kind in KINDS:
            self._execute(f"INSERT INTO samples {self._first('pairs', kind, limit)}")

    def _samples(self, kind: Kind, limit: int) -> list[tuple[dict[str, Any] | None, dict[str, Any] | None]]:
        found = self._connection.sql(self._first("samples", kind, limit)).to_arrow_table().to_pylist()
        return [
            (self._row("b", row) if row["in_before"] else None, self._row("a", row) if row["in_after"] else None)
            for row in found
        ]

    def _first(self, table: str, kind: Kind, limit: int) -> str:
        order = ", ".join(f"coalesce(b{n}, a{n})" for n in self._identity)
        return f"(SELECT * FROM {table} WHERE {CONDITION[kind]} ORDER BY {order} LIMIT {limit})"

    def _execute(self, sql: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql).fetchall()

    def _row(self, side: str, row: dict[str, Any]) -> dict[str, Any]:
        return {cell.column: row[f"{side}{n}"] for n, cell in enumerate(self.cells) if cell.column is not None}

    @property
    def _identity(self) -> list[int]:
        return [number for number, cell in enumerate(self.cells) if cell.is_identity]

    @property
    def _counted(self) -> dict[int, str]:
        """The columns in which two rows of one identity may differ."""
        return {number: str(cell.column) for number, cell in enumerate(self.cells) if not cell.is_identity}

    @property
    def _time(self) -> int:
        """The number of the cell that decides the day of a row."""
        wanted = "window_start" if self._schema.role is Role.WINDOWED else "timestamp"
        return next(number for number, cell in enumerate(self.cells) if cell.column == wanted)

    def _cells(self) -> list[Cell]:
        identity = _identity_of(self._schema)
        cells = [
            Cell(field.name, self._value(field), field.name in identity)
            for field in self._schema.arrow
            if field.name not in self._schema.partition_by
        ]
        if self._schema.role is Role.CHANGELOG:
            names = ", ".join(cell.sql for cell in cells if cell.is_identity)
            order = "batch_id, file_index, file_row_number"
            cells.append(Cell(None, f"row_number() OVER (PARTITION BY {names} ORDER BY {order})", True))
        return cells

    def _value(self, field: pa.Field) -> str:
        """The compared form of a column."""
        name = _quoted(field.name)
        ours = {column for column, _ in self._schema.rest}
        if not self._same_batches and field.name in ours:
            letters = self._schema.role is Role.DEAD_LETTERS
            topic, partition, offset = LETTER_SOURCE if letters else ROW_SOURCE
            if field.name in (partition, offset):
                return f"CASE WHEN {self._scope.is_source(topic)} THEN {name} END"
            if field.name == "batch_id":
                return "NULL::BIGINT"
        return unordered(name, field.type)

    def _rows(self, side: Side, part: int, parts: int) -> str:
        place = "(file_index::BIGINT << 32) + file_row_number AS place"
        condition = f"({side.condition}) AND {self._is_in(part, parts)}"
        return f"SELECT {self._chosen}, {place} FROM {self._read(side)} WHERE {condition}"

    def _reduced(self, side: Side, part: int, parts: int) -> str:
        """The last row per key of a changelog."""
        keys = ", ".join(map(_quoted, self._schema.key_names))
        return f"""
            SELECT {self._chosen}, 0::BIGINT AS place FROM (
                SELECT * FROM {self._read(side)}
                WHERE ({side.condition}) AND {self._is_in(part, parts)}
                QUALIFY row_number() OVER (
                    PARTITION BY {keys} ORDER BY batch_id DESC, file_index DESC, file_row_number DESC
                ) = 1
            ) WHERE op <> 'delete'
        """

    @property
    def _chosen(self) -> str:
        return ", ".join(f"{cell.sql} AS c{number}" for number, cell in enumerate(self.cells))

    def _is_in(self, part: int, parts: int) -> str:
        """Whether a row belongs to a part; all rows of one identity belong to the same part."""
        if parts == 1:
            return "TRUE"
        identity = ", ".join(cell.sql for cell in self.cells if cell.is_identity and cell.column is not None)
        return f"hash({identity}) % {parts} = {part}"

    def _read(self, side: Side) -> str:
        """A table with all columns, and the place of each row."""
        there = side.columns if side.files else frozenset()
        columns = ", ".join(
            _quoted(field.name) if field.name in there else f"NULL::{self._type(field.type)} AS {_quoted(field.name)}"
            for field in self._source.file
        )
        if not side.files:
            return f"(SELECT {columns}, 0 AS file_index, 0 AS file_row_number WHERE FALSE)"
        rows = rows_of(self._copies.of(side.files), differing=bool(side.added))
        if side.added:  # perhaps all of these files lack some
            nothing = ", ".join(
                f"NULL::{self._type(field.type)} AS {_quoted(field.name)}"
                for field in self._source.file
                if field.name in side.added
            )
            rows = f"(SELECT {nothing} WHERE FALSE UNION ALL BY NAME SELECT *, file_index, file_row_number FROM {rows})"
        return f"(SELECT {columns}, file_index, file_row_number FROM {rows})"

    def _type(self, kind: pa.DataType) -> str:
        """DuckDB's name for a type."""
        return str(self._connection.from_arrow(pa.table({"c": pa.nulls(0, kind)})).types[0])

    def _numbered(self, times: str) -> str:
        """The remaining rows of one side, each as often as it occurs, numbered per identity."""
        names = ", ".join(f"c{number}" for number in self._identity)
        return f"""
            SELECT *, row_number() OVER (PARTITION BY {names} ORDER BY place) AS number
            FROM (SELECT *, unnest(range({times})) FROM remainder WHERE {times} > 0)
        """


def _in_parts(compare: Callable[[int], T], parts: int) -> T:
    """Compares in so many parts, or in more if memory is short."""
    while True:
        try:
            return compare(parts)
        except duckdb.OutOfMemoryException:
            if parts >= _MAX_PARTS:
                raise
            parts *= 4


def _identity_of(schema: TableSchema) -> set[str]:
    match schema.role:
        case Role.WINDOWED:
            return {*schema.key_names, "window_start", "window_end"}
        case Role.SNAPSHOT:
            return set(schema.key_names)
        case Role.DEAD_LETTERS:
            return {*LETTER_SOURCE, "key"}
        case _:
            return {*schema.key_names, *ROW_SOURCE}


def rows_of(paths: Iterable[Path], *, differing: bool = False) -> str:
    """The rows of files of Parquet, in SQL.

    Args:
        paths: the files.
        differing: some lack columns, in which their rows have null; then all of them are opened first.
    """
    listed = ", ".join(_text(_literal_path(path)) for path in paths)
    return f"read_parquet([{listed}], hive_partitioning = false{', union_by_name = true' if differing else ''})"


def unordered(sql: str, kind: pa.DataType, depth: int = 0) -> str:
    """A column as rows are compared: with the entries of maps sorted by name, at any depth."""
    if not _has_map(kind):
        return sql
    item = f"x{depth}"
    if pa.types.is_map(kind):
        value = unordered(f"{item}.value", kind.item_type, depth + 1)
        entries = f"list_transform(map_entries({sql}), lambda {item}: {{'key': {item}.key, 'value': {value}}})"
        return f"map_from_entries(list_sort({entries}))"
    if pa.types.is_list(kind):
        return f"list_transform({sql}, lambda {item}: {unordered(item, kind.value_type, depth + 1)})"
    parts = [f"{_text(part.name)}: {unordered(f'({sql}).{_quoted(part.name)}', part.type, depth)}" for part in kind]
    return f"CASE WHEN {sql} IS NOT NULL THEN {{{', '.join(parts)}}} END"


def _has_map(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return True
    return any(_has_map(kind.field(number).type) for number in range(kind.num_fields))


def _sum(cell: str) -> str:
    """A sum of doubles that loses little, 0 without rows."""
    return f"coalesce(fsum({cell}::DOUBLE), 0.0)"


def _day(time: str) -> str:
    return f"CAST(timezone('UTC', {time}) AS DATE)"


def _literal_path(path: Path) -> str:
    """A path without wildcards."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in str(path))


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
