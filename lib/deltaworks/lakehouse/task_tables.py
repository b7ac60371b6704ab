"""The table rows of one task and commit: collected as objects, written as Parquet at the end.

The driver makes the files part of the tables (`committer`). A batch may be run again with the same rows: files of an
attempt that was not committed are never seen by anyone. A stream commits each batch, a replay several together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deltaworks.errors import TableError
from deltaworks.faults import reach
from deltaworks.files import side_by_side
from deltaworks.kernel.records import Coordinates, DeadLetter, Rows
from deltaworks.kernel.stores.mutability import is_immutable
from deltaworks.lakehouse import layout, page_index, parquet
from deltaworks.lakehouse.columns import TIMESTAMP, ArrowColumn
from deltaworks.lakehouse.page_index import PageListReader
from deltaworks.lakehouse.pages import (
    PAGE_ROWS,
    ChangedRows,
    Identity,
    PageWriter,
    Position,
    any_closes,
    late_change,
    position_of,
)
from deltaworks.lakehouse.schema import DEAD_LETTER, TableSchema, dead_letter_schema, schemas
from deltaworks.lakehouse.writes import NewFile, TableWrite
from deltaworks.topology.columns import LAST_MS
from deltaworks.topology.nodes.sinks import DeltaSink, TableKind

_PART_ROWS = 10_000
"""Rows become columns, which take less room, when there are so many of them."""


class TaskTables:
    """Takes the table rows of one task, batch after batch.

    Args:
        root: folder of all tables.
        tables: the Delta sinks of the task's stage.
        dead_letter_table: where records go that were set aside.
        stage: part of the identity of the task.
        task: number of the task within its stage; unique per table.
        page_rows: rows of a page of open windows at most.
    """

    def __init__(
        self,
        root: Path,
        tables: Sequence[DeltaSink],
        dead_letter_table: str | None,
        *,
        stage: int,
        task: int,
        page_rows: int = PAGE_ROWS,
    ) -> None:
        self._root, self._stage, self._task = root, stage, task
        self._writers: dict[str, _AppendWriter | _ChangeWriter | _WindowWriter] = {}
        for sink in tables:
            schema = schemas(sink)[0]
            match sink.kind:
                case TableKind.APPEND:
                    self._writers[sink.table] = _AppendWriter(root, schema, sink, task)
                case TableKind.CHANGELOG:
                    self._writers[sink.table] = _ChangeWriter(root, schema, sink, task)
                case TableKind.WINDOWED:
                    self._writers[sink.table] = _WindowWriter(root, schema, task, page_rows)
        self._letters: _DeadLetterWriter | None = None
        if dead_letter_table is not None:
            self._letters = _DeadLetterWriter(root, dead_letter_schema(dead_letter_table), task)
        self._commit_id = -1

    def begin(self, commit_id: int) -> None:
        """Starts a batch; rows of one that was not finished are forgotten."""
        self._commit_id = commit_id
        for writer in self._all():
            writer.clear()
            writer.step(commit_id)

    def step(self, batch_id: int) -> None:
        """The rows that follow are of this batch, one of several that are committed together as `commit_id`."""
        for writer in self._all():
            writer.step(batch_id)

    def rows(self, table: str) -> Rows:
        """Takes the rows of one table; see `Collector.rows`."""
        return self._writers[table]

    def dead_letter(self, letter: DeadLetter) -> None:
        """A record that was set aside."""
        assert self._letters is not None, "a dead letter, but the pipeline names no table for it"
        self._letters.rows.append(letter)

    def finish(self) -> list[TableWrite]:
        """Writes the files of the batch; the driver makes them durable, all side by side, before it commits them.

        Returns:
            One entry for each table that changes.

        Raises:
            TableError: a cell does not fit its column, or a final window changes.
        """
        reach("delta.before_parquet")
        with side_by_side():
            writes = [write for writer in self._all() if (write := writer.write(self._commit_id)) is not None]
        reach("delta.after_parquet")
        return writes

    def _all(self) -> Iterable[_AppendWriter | _ChangeWriter | _WindowWriter | _DeadLetterWriter]:
        yield from self._writers.values()
        if self._letters is not None:
            yield self._letters


class _AppendWriter(Rows):
    """Rows of a stream.

    Rows of a type that can change become columns with each step: whoever made one may change it for a later one.
    """

    def __init__(self, root: Path, schema: TableSchema, sink: DeltaSink, task: int) -> None:
        self._root, self._schema, self._task = root, schema, task
        self._can_change = not (is_immutable(sink.key) and is_immutable(sink.value))
        self.clear()

    def add(self, row: tuple[Any, ...]) -> None:
        self.rows.append(row)

    def clear(self) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self._parts: list[pa.Table] = []
        self._batch_id = -1

    def step(self, batch_id: int) -> None:
        if self._can_change or len(self.rows) >= _PART_ROWS:
            self._take_rows()
        self._batch_id = batch_id

    def write(self, commit_id: int) -> TableWrite | None:
        self._take_rows()
        if not self._parts:
            return None
        return _append(self._root, self._schema, self._task, commit_id, pa.concat_tables(self._parts))

    def _take_rows(self) -> None:
        if self.rows:
            self._parts.append(pa.table(self._columns(), schema=self._schema.file))
            self.rows = []

    def _columns(self) -> list[pa.Array]:
        keys, values, timestamps, sources = zip(*self.rows, strict=True)
        return [*self._user_cells(keys, values), _times(timestamps), *_sources(sources)]

    def _user_cells(self, keys: Sequence[Any], values: Sequence[Any]) -> list[pa.Array]:
        return [*_cells(self._schema, self._schema.key, keys), *_cells(self._schema, self._schema.value, values)]


class _ChangeWriter(_AppendWriter):
    """Updates of a KTable."""

    def clear(self) -> None:
        super().clear()
        self._batches: list[tuple[int, int]] = []
        """Batch, and how many of `rows` were there before it."""

    def step(self, batch_id: int) -> None:
        super().step(batch_id)
        if self._batches and self._batches[-1][1] == len(self.rows):
            self._batches.pop()  # it had no rows
        self._batches.append((batch_id, len(self.rows)))

    def _take_rows(self) -> None:
        super()._take_rows()
        self._batches = [(batch_id, 0) for batch_id, _ in self._batches[-1:]]

    def _columns(self) -> list[pa.Array]:
        keys, values, timestamps, sources = zip(*self.rows, strict=True)
        operations = ["delete" if value is None else "upsert" for value in values]
        return [
            *self._user_cells(keys, values),
            pa.array(operations, pa.string()),
            _times(timestamps),
            *_sources(sources),
            self._batch_ids(),
        ]

    def _batch_ids(self) -> pa.Array:
        ends = [*(begin for _, begin in self._batches[1:]), len(self.rows)]
        return pa.concat_arrays(
            pa.repeat(pa.scalar(batch_id, pa.int64()), end - begin)
            for (batch_id, begin), end in zip(self._batches, ends, strict=True)
        )


class _DeadLetterWriter:
    """Records that were set aside."""

    def __init__(self, root: Path, schema: TableSchema, task: int) -> None:
        self._root, self._schema, self._task = root, schema, task
        self.rows: list[DeadLetter] = []

    def clear(self) -> None:
        self.rows = []

    def step(self, batch_id: int) -> None: ...

    def write(self, commit_id: int) -> TableWrite | None:
        if not self.rows:
            return None
        columns: list[list[Any]] = [
            [letter.key for letter in self.rows],
            [letter.value for letter in self.rows],
            [[{"name": name, "value": value} for name, value in letter.headers] for letter in self.rows],
            [letter.source.topic for letter in self.rows],
            [letter.source.partition for letter in self.rows],
            [letter.source.offset for letter in self.rows],
            [min(letter.timestamp_ms, LAST_MS) * 1000 for letter in self.rows],
            [letter.error_class for letter in self.rows],
            [letter.message for letter in self.rows],
            [letter.operator for letter in self.rows],
            [letter.stacktrace for letter in self.rows],
        ]
        arrays = [pa.array(cells, kind) for cells, (_, kind) in zip(columns, DEAD_LETTER, strict=True)]
        return _append(self._root, self._schema, self._task, commit_id, pa.table(arrays, schema=self._schema.file))


class _WindowWriter(Rows):
    """Windows of a windowed KTable."""

    def __init__(self, root: Path, schema: TableSchema, task: int, page_rows: int) -> None:
        self._root, self._schema, self._task, self._page_rows = root, schema, task, page_rows
        self._pages = PageListReader(task)
        self.clear()

    def clear(self) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.closed_before_ms = -1
        self._steps: list[tuple[int, int, int]] = []
        """Batch, how many of `rows` were there before it, which windows were closed before it."""

    def add(self, row: tuple[Any, ...]) -> None:
        self.rows.append(row)

    def close_windows(self, before_ms: int) -> None:
        self.closed_before_ms = max(before_ms, self.closed_before_ms)

    def step(self, batch_id: int) -> None:
        self._steps.append((batch_id, len(self.rows), self.closed_before_ms))

    def write(self, commit_id: int) -> TableWrite | None:
        if not self.rows and self.closed_before_ms < 0:
            return None
        driver = page_index.driver_of(self._root / self._schema.name)
        pages = self._pages.read(driver.control)
        if pages.batch_id >= commit_id:
            return None
        closes = self.closed_before_ms if self.closed_before_ms > pages.closed_before_ms else None
        if not self.rows and (closes is None or not any_closes(pages.paths, closes)):
            return None
        self._check(pages.closed_before_ms)
        rows = self._changed()
        writer = PageWriter(
            self._root, self._schema, task=self._task, batch_id=commit_id, tag=driver.tag, page_rows=self._page_rows
        )
        changes = writer.apply(pages.paths, rows, closes)
        count = rows.upserts.num_rows + len(rows.deletes)
        return TableWrite(self._schema.name, self._task, tuple(changes.added), tuple(changes.removed), closes, count)

    def _changed(self) -> ChangedRows:
        """The last row per key and window, in order of position."""
        if not self.rows:
            return ChangedRows(self._schema.file.empty_table(), [], [], [])
        keys, values, timestamps, starts, ends = zip(*self.rows, strict=True)
        key_columns = _cells(self._schema, self._schema.key, keys)
        if max(ends) > LAST_MS:
            ends = tuple(min(end, LAST_MS) for end in ends)
        identities = list(zip(*(column.to_pylist() for column in key_columns), starts, ends, strict=True))
        upserts: list[tuple[Position, int]] = []
        deletes: list[tuple[Position, Identity]] = []
        for identity, number in {identity: number for number, identity in enumerate(identities)}.items():
            if values[number] is None:
                deletes.append((position_of(identity), identity))
            else:
                upserts.append((position_of(identity), number))
        upserts.sort()
        numbers = [number for _, number in upserts]
        chosen = pa.array(numbers, pa.int64())
        columns = [
            *(column.take(chosen) for column in key_columns),
            _times([starts[number] for number in numbers]),
            _times([ends[number] for number in numbers]),
            *_cells(self._schema, self._schema.value, [values[number] for number in numbers]),
            _times([timestamps[number] for number in numbers]),
            pa.repeat(pa.scalar(False), len(numbers)),
        ]
        rows = pa.table(columns, schema=self._schema.file)
        return ChangedRows(rows, [place for place, _ in upserts], [identities[number] for number in numbers], deletes)

    def _check(self, closed_before_ms: int) -> None:
        """A window that an earlier batch closed must not change."""
        ends_ms = [row[4] for row in self.rows]
        stops = [*(begin for _, begin, _ in self._steps[1:]), len(ends_ms)]
        for (batch_id, begin, closed_ms), stop in zip(self._steps, stops, strict=True):
            limit_ms = max(closed_ms, closed_before_ms)
            if begin < stop and min(ends_ms[begin:stop]) < limit_ms:
                key, _, _, start_ms, end_ms = next(row for row in self.rows[begin:stop] if row[4] < limit_ms)
                cells = (column[0].as_py() for column in _cells(self._schema, self._schema.key, [key]))
                raise late_change(self._schema.name, self._task, (*cells, start_ms, end_ms), batch_id)


def _append(root: Path, schema: TableSchema, task: int, commit_id: int, rows: pa.Table) -> TableWrite:
    path = layout.part_name("part", commit_id, task, page_index.driver_of(root / schema.name).tag)
    file: NewFile = parquet.write(root, schema, path, rows)
    return TableWrite(schema.name, task, (file,), changed_rows=rows.num_rows)


def _cells(schema: TableSchema, columns: Sequence[ArrowColumn], objects: Sequence[Any]) -> list[pa.Array]:
    try:
        return [column.array(objects) for column in columns]
    except TableError as error:
        raise TableError(f"Table '{schema.name}': {error.message}", hint=error.hint) from error


def _times(times_ms: Sequence[int]) -> pa.Array:
    """Times after the year 9999, which no table can hold, are shown as its end."""
    times = pc.min_element_wise(pa.array(times_ms, pa.int64()), LAST_MS)
    return pc.multiply(times, 1000).cast(TIMESTAMP)


def _sources(sources: Sequence[Coordinates]) -> list[pa.Array]:
    return [
        pa.array([source.topic for source in sources], pa.string()),
        pa.array([source.partition for source in sources], pa.int32()),
        pa.array([source.offset for source in sources], pa.int64()),
    ]
