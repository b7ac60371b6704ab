"""The files of a snapshot: each has a range of keys, and a refresh rewrites only those that a changed key falls into.

A plain Delta table has one row per key only if a file that holds the old row of a key is written again. So the cost of
a change is that of a file. Where few keys change, files are small: about as many rows as cost as much as the file
itself (opening, footer, names in the log). Where so many keys change that most small files would be written, files are
large, because those cost less per row. A file is divided or becomes one with its neighbours when it is written anyway.

Files of another layout (earlier versions, an OPTIMIZE of somebody else) do not say which keys they hold: then all are
replaced.
"""

from __future__ import annotations

import functools
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from deltaworks.lakehouse import key_positions, layout, parquet
from deltaworks.lakehouse.layout import RangeName
from deltaworks.lakehouse.schema import TableSchema
from deltaworks.lakehouse.writes import NewFile

RANGE_ROWS = 1024
"""The most rows of a file, in a table of up to a million rows; four times the rows of the table double it."""
LARGE_ROWS = 65_536
"""The most rows of a file in whose range many keys change."""
DENSE_ROWS = 1600
"""Reading and writing so many rows costs as much as a file does: more changes than one per so many rows are many."""
_MIN_CHANGES = 8
"""Fewer changes say nothing about how many there are per row."""
_TABLE_ROWS = 1_000_000
_ROW_BYTES = 1024
"""A file holds fewer rows if they are larger than this on average, in memory."""
_GROUP_BYTES = 32 << 20
"""So much of the files is in memory at a time."""


@dataclass
class RangeChanges:
    """The effect of one refresh on the files of a snapshot."""

    rows: int
    """Of the table."""
    added: list[NewFile] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Source:
    """A file that exists; or all of them together, if they are of another layout."""

    start: bytes
    rows: int
    paths: tuple[str, ...] = ()
    is_misplaced: bool = False


@dataclass(frozen=True)
class _Touched:
    """A source with the changes that fall into it."""

    index: int
    source: _Source
    rows: pa.Table
    changes: pa.Table


@dataclass
class _Rewritten:
    """Rows of one or several neighbouring sources after their changes."""

    sources: list[_Source]
    last: int
    """Index of the last source."""
    rows: pa.Table
    changes: int
    is_changed: bool


def latest(rows: pa.Table, schema: TableSchema) -> pa.Table:
    """The last row per key of a changelog's rows, which are in the order of files; rows of deleted keys too."""
    rows = rows.sort_by([("batch_id", "ascending")])
    last = _grouped(rows.select(schema.key_names)).column("number_max").sort()
    return rows if len(last) == rows.num_rows else rows.take(last)


def largest(table_rows: int) -> int:
    """The most rows of a file in a table of so many rows."""
    rows = RANGE_ROWS
    while table_rows >= 4 * _TABLE_ROWS:
        rows, table_rows = rows * 2, table_rows // 4
    return rows


class RangeWriter:
    """Applies changes to the files of a snapshot; others make the new files part of the table.

    Args:
        root: folder of all tables.
        schema: columns of the snapshot.
        tag: tag of the query, for names.
        batch_id: the batch that the snapshot shows then, for names.
    """

    def __init__(self, root: Path, schema: TableSchema, *, tag: str, batch_id: int) -> None:
        self._root, self._schema, self._tag, self._batch_id = root, schema, tag, batch_id
        self._limit = RANGE_ROWS

    def apply(self, files: Iterable[str], changes: pa.Table) -> RangeChanges:
        """Reads and writes the files that change; the new ones are not yet durable.

        Args:
            files: paths of all files of the snapshot.
            changes: at most one row per key, with the column `op`.
        """
        sources = self._sources(files)
        rows = sum(source.rows for source in sources)
        self._limit = largest(rows + changes.num_rows)
        done = RangeChanges(rows)
        run: list[_Rewritten] = []
        for rewritten in self._rewritten(sources, self._route(sources, changes)):
            if run and (run[-1].last + 1 != rewritten.last or sum(e.rows.num_rows for e in run) >= LARGE_ROWS):
                self._write_run(run, done)
                run = []
            run.append(rewritten)
        if run:
            self._write_run(run, done, is_last=run[-1].last == len(sources) - 1)
        return done

    def write(self, held: pa.Table, changes: pa.Table) -> RangeChanges:
        """Writes all files of a snapshot anew.

        Args:
            held: rows of the snapshot before.
            changes: as for `apply`.
        """
        self._limit = largest(held.num_rows + changes.num_rows)
        done = RangeChanges(held.num_rows)
        everything = _Source(b"", held.num_rows, is_misplaced=True)
        for rewritten in self._merged([_Touched(0, everything, held, changes)]):
            self._write(rewritten, done, self._limit)
        return done

    def _sources(self, files: Iterable[str]) -> list[_Source]:
        """The files in the order of their ranges; never none."""
        paths = list(files)
        ranges = [found for path in paths if (found := RangeName.of(path)) is not None]
        ranges.sort(key=lambda each: each.start)
        starts = {each.start for each in ranges}
        if paths and len(starts) == len(paths):
            return [_Source(each.start, each.rows, (each.path,)) for each in ranges]
        rows = sum(parquet.count(self._root, self._schema, path) for path in paths)
        return [_Source(b"", rows, tuple(paths), is_misplaced=bool(paths))]

    def _route(self, sources: Sequence[_Source], changes: pa.Table) -> dict[int, pa.Table]:
        """The changes of each file that is read; those that may become one with a neighbour bring it along."""
        if len(sources) == 1:
            return {0: changes} if changes.num_rows or sources[0].is_misplaced else {}
        starts = [source.start for source in sources]
        found = key_positions.positions(changes.select(self._schema.key_names))
        places = [max(0, bisect_right(starts, position) - 1) for position in found]
        order = sorted(range(len(places)), key=places.__getitem__)
        changes = changes.take(pa.array(order, pa.int64())).combine_chunks()
        touched: dict[int, pa.Table] = {}
        begin = 0
        for index, count in sorted(Counter(places).items()):
            touched[index] = changes.slice(begin, count)
            begin += count
        for index, mine in list(touched.items()):
            left = sources[index].rows - (pc.sum(pc.equal(mine.column("op"), "delete")).as_py() or 0)
            if left < self._limit // 4 and (neighbour := self._neighbour(sources, index, left)) is not None:
                touched.setdefault(neighbour, changes.slice(0, 0))
        return dict(sorted(touched.items()))

    def _neighbour(self, sources: Sequence[_Source], index: int, left: int) -> int | None:
        """The smaller neighbour of a file with so many rows left, if both may become one."""
        beside = [each for each in (index - 1, index + 1) if 0 <= each < len(sources)]
        smaller = min(beside, key=lambda each: sources[each].rows)
        return smaller if left + sources[smaller].rows <= self._limit // 2 else None

    def _rewritten(self, sources: Sequence[_Source], touched: Mapping[int, pa.Table]) -> Iterator[_Rewritten]:
        """The touched files after their changes, in order; a group of them is in memory at a time."""
        group: list[_Touched] = []
        size_bytes = 0
        for index, changes in touched.items():
            rows = parquet.read_all(self._root, self._schema, sources[index].paths)
            group.append(_Touched(index, sources[index], rows, changes))
            size_bytes += rows.nbytes
            if size_bytes >= _GROUP_BYTES:
                yield from self._merged(group)
                group, size_bytes = [], 0
        if group:
            yield from self._merged(group)

    def _merged(self, group: Sequence[_Touched]) -> Iterator[_Rewritten]:
        """New rows replace old ones in place; new keys come last."""
        old = pa.concat_tables([each.rows for each in group])
        new = pa.concat_tables([each.changes for each in group])
        chosen = _Choice(old, new, self._schema.key_names)
        numbers, parts = array("q"), []
        for each in group:
            part, is_changed = chosen.next(each.rows.num_rows, each.changes.num_rows)
            numbers.extend(part)
            parts.append((each, len(part), is_changed or each.source.is_misplaced))
        rows = pa.concat_tables([old, new.select(old.column_names)]).combine_chunks()
        rows = rows.take(pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)]))
        begin = 0
        for each, count, is_changed in parts:
            yield _Rewritten([each.source], each.index, rows.slice(begin, count), each.changes.num_rows, is_changed)
            begin += count

    def _write_run(self, run: Sequence[_Rewritten], done: RangeChanges, *, is_last: bool = False) -> None:
        """Writes neighbours: as one large file if many of their keys change."""
        rows, changes = sum(each.rows.num_rows for each in run), sum(each.changes for each in run)
        is_new = any(each.is_misplaced or not each.paths for rewritten in run for each in rewritten.sources)
        if changes >= _MIN_CHANGES and changes * DENSE_ROWS >= rows and not is_new:
            self._write(functools.reduce(_joined, run), done, LARGE_ROWS, is_last=is_last)
            return
        pending: list[_Rewritten] = []
        for each in run:
            if pending and self._joinable(pending[-1], each):
                each = _joined(pending.pop(), each)
            pending.append(each)
        for each in pending:
            is_rare = 2 * each.changes * DENSE_ROWS < each.rows.num_rows
            was_large = any(source.rows > self._limit for source in each.sources)
            limit = LARGE_ROWS if was_large and not is_rare and not is_new else self._limit
            self._write(each, done, limit, is_last=is_last and each is pending[-1])

    def _joinable(self, left: _Rewritten, right: _Rewritten) -> bool:
        rows, size_bytes = (sum(getattr(each.rows, name) for each in (left, right)) for name in ("num_rows", "nbytes"))
        return bool(2 * rows <= self._limit and 2 * size_bytes <= self._limit * _ROW_BYTES)

    def _write(self, range_: _Rewritten, done: RangeChanges, limit: int, *, is_last: bool = True) -> None:
        if not range_.is_changed:
            return
        before, rows = sum(source.rows for source in range_.sources), range_.rows
        done.removed += [path for source in range_.sources for path in source.paths]
        done.rows += rows.num_rows - before
        for start, part in self._divided(range_.sources[0].start, rows, limit, is_last=is_last):
            name = layout.range_name(start, part.num_rows, self._batch_id, self._tag)
            done.added.append(parquet.write(self._root, self._schema, name, part))

    def _divided(self, start: bytes, rows: pa.Table, limit: int, *, is_last: bool) -> Iterator[tuple[bytes, pa.Table]]:
        """One or several files; keys at one position stay together.

        Keys that grow come at the end: the last file leaves files behind that are three quarters full, others are
        divided evenly.
        """
        count = rows.num_rows
        limit = max(1, min(limit, limit * _ROW_BYTES * count // max(1, rows.nbytes)))
        if count <= limit:
            if count:
                yield start, rows
            return
        order, found = key_positions.order(rows.select(self._schema.key_names))
        fill = max(1, limit * 3 // 4)
        size = fill if is_last else -(-count // -(-count // fill))
        begin = 0
        while begin < count:
            end = min(count, begin + size)
            while end < count and found[order[end].as_py()] == found[order[end - 1].as_py()]:
                end += 1
            yield start, rows.take(order.slice(begin, end - begin))
            if end < count:
                left, right = (found[order[number].as_py()].as_py() for number in (end - 1, end))
                start = key_positions.separator(left, right)
            begin = end


class _Choice:
    """Which rows remain of old rows, one per key, and their changes, at most one per key; numbered in this order."""

    def __init__(self, old: pa.Table, new: pa.Table, key: Sequence[str]) -> None:
        self._slots = array("q", range(old.num_rows))
        """The number of the row that takes the place of an old one; -1: none."""
        self._is_added = bytearray(pc.not_equal(new.column("op"), "delete").cast(pa.uint8()).to_pylist())
        self._has_effect = self._is_added[:]
        self._old, self._new, self._total = 0, 0, old.num_rows
        similar = pc.indices_nonzero(_similar(old, new, key))
        grouped = _grouped(pa.concat_tables([old.select(key).take(similar), new.select(key)]))
        numbers = similar.to_pylist()
        both = pc.and_(
            pc.less(grouped.column("number_min"), len(numbers)),
            pc.greater_equal(grouped.column("number_max"), len(numbers)),
        )
        grouped = grouped.filter(both)
        for low, high in zip(
            grouped.column("number_min").to_pylist(), grouped.column("number_max").to_pylist(), strict=True
        ):
            change = high - len(numbers)
            self._slots[numbers[low]] = old.num_rows + change if self._is_added[change] else -1
            self._is_added[change], self._has_effect[change] = 0, 1

    def next(self, old: int, new: int) -> tuple[array[int], bool]:
        """The rows that remain of the next old rows and changes; and whether they differ from the old ones."""
        part = self._slots[self._old : self._old + old]
        if -1 in part:
            part = array("q", (slot for slot in part if slot >= 0))
        end = self._new + new
        part.extend(self._total + number for number in range(self._new, end) if self._is_added[number])
        is_changed = 1 in self._has_effect[self._new : end]
        self._old, self._new = self._old + old, end
        return part, is_changed


def _joined(left: _Rewritten, right: _Rewritten) -> _Rewritten:
    rows = pa.concat_tables([left.rows, right.rows])
    return _Rewritten([*left.sources, *right.sources], right.last, rows, left.changes + right.changes, is_changed=True)


def _similar(old: pa.Table, new: pa.Table, key: Sequence[str]) -> pa.ChunkedArray:
    """Which old rows may have a key of the new ones; a quick look at each column, before keys are compared."""
    masks = [pc.is_in(old.column(name), value_set=new.column(name).combine_chunks()) for name in key]
    return functools.reduce(pc.and_, masks)


def _grouped(keys: pa.Table) -> pa.Table:
    """The lowest and the highest row number of each key: `number_min`, `number_max`."""
    names = [str(index) for index in range(keys.num_columns)]
    numbered = keys.rename_columns(names).append_column("number", pa.array(range(keys.num_rows), pa.int64()))
    return numbered.group_by(names).aggregate([("number", "min"), ("number", "max")])
