"""Open windows of one task, kept in pages: files that a batch can replace without touching the rest of the table.

A page is a Parquet file with at most `PAGE_ROWS` rows: consecutive in the order (date, window start, hash of the key),
from the position in its name to the next page's. A batch routes each changed row to its page by binary search over the
names, reads the pages it touches, changes them and writes them anew. A page whose windows are all closed becomes part
of a final file, and is a page no more. So a batch costs what it changes and closes, whatever the table holds.

Not here: who knows which pages there are (`committer` tells tasks through `control`).
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deltaworks.errors import TableError
from deltaworks.lakehouse import layout, parquet
from deltaworks.lakehouse.columns import TIMESTAMP
from deltaworks.lakehouse.layout import PageName
from deltaworks.lakehouse.schema import TableSchema
from deltaworks.lakehouse.writes import NewFile

PAGE_ROWS = 4096
"""Reading and writing a page of this size costs about as much per file as per row."""
_FILL = PAGE_ROWS * 3 // 4
_NEVER_MS = (1 << 63) - 1

Identity = tuple[Hashable, ...]
"""Key cells, window start and window end (ms) of a row."""


@dataclass
class PageChanges:
    """What becomes of the pages of a task in one batch."""

    added: list[NewFile] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ChangedRows:
    """The last state of every row that a batch changed."""

    upserts: pa.Table
    """In the columns of a data file; `is_final` not yet true."""
    deletes: list[Identity]
    """As `identities` shows them."""


@dataclass
class _Touched:
    """What one page gets."""

    upserts: list[int] = field(default_factory=list)
    deletes: list[Identity] = field(default_factory=list)


@dataclass
class _Rewritten:
    """Rows of one or several neighbouring pages after the batch."""

    day: str
    start_ms: int
    key_hash: int
    rows: pa.Table


class PageWriter:
    """Applies one batch of one task to the pages of one table."""

    def __init__(self, root: Path, schema: TableSchema, task: int, batch_id: int, tag: str) -> None:
        self._root, self._schema = root, schema
        self._task, self._batch_id, self._tag = task, batch_id, tag

    def apply(self, pages: Sequence[str], rows: ChangedRows, closed_before_ms: int | None) -> PageChanges:
        """Reads the touched pages among `pages` (sorted), writes their successors and final files.

        Raises:
            TableError: a change to a window that is final.
        """
        changes = PageChanges()
        final: dict[str, list[pa.Table]] = defaultdict(list)
        pending: _Rewritten | None = None
        previous: int | None = None
        for index, day, touched in self._route(pages, rows, closed_before_ms):
            page = pages[index] if index is not None else None
            rewritten = self._rewrite(page, day, touched, rows.upserts, closed_before_ms)
            if page is not None:
                changes.removed.append(page)
            if not rewritten.rows.num_rows:
                continue
            if pc.all(rewritten.rows.column("is_final")).as_py():
                final[day].append(rewritten.rows)
                continue
            if pending is not None and previous is not None and index == previous + 1 and _joinable(pending, rewritten):
                pending.rows = pa.concat_tables([pending.rows, rewritten.rows])
            else:
                if pending is not None:
                    changes.added += self._write(pending, is_last=False)
                pending = rewritten
            previous = index
            if index is None or _is_last_of_day(pages, index):
                changes.added += self._write(pending, is_last=True)
                pending = None
        if pending is not None:
            changes.added += self._write(pending, is_last=False)
        for day, tables in final.items():
            changes.added.append(self._write_final(day, pa.concat_tables(tables)))
        return changes

    def _route(
        self, pages: Sequence[str], rows: ChangedRows, closed_before_ms: int | None
    ) -> Iterator[tuple[int | None, str, _Touched]]:
        """Touched pages in order; None stands for the first page of a new date."""
        touched: dict[tuple[str, int | None], _Touched] = defaultdict(_Touched)
        for number, identity in enumerate(identities(rows.upserts, self._schema)):
            touched[self._find(pages, identity)].upserts.append(number)
        for identity in rows.deletes:
            place = self._find(pages, identity)
            if place[1] is not None:
                touched[place].deletes.append(identity)
        if closed_before_ms is not None:
            limit = layout.closes_text(closed_before_ms)
            closing = [index for index, path in enumerate(pages) if layout.page_closes(path) < limit]
            touched.update({(_day(pages[i]), i): _Touched() for i in closing if (_day(pages[i]), i) not in touched})
        for place in sorted(touched, key=lambda place: (place[0], -1 if place[1] is None else place[1])):
            yield place[1], place[0], touched[place]

    def _find(self, pages: Sequence[str], identity: Identity) -> tuple[str, int | None]:
        start_ms = identity[-2]
        assert isinstance(start_ms, int)
        day = layout.window_day(start_ms)
        position = layout.page_position(day, self._task, start_ms, key_hash(identity))
        index = bisect_right(pages, position + "~") - 1
        if index >= 0 and _day(pages[index]) == day:
            return day, index
        if index + 1 < len(pages) and _day(pages[index + 1]) == day:
            return day, index + 1
        return day, None

    def _rewrite(
        self, page: str | None, day: str, touched: _Touched, upserts: pa.Table, closed_before_ms: int | None
    ) -> _Rewritten:
        new = upserts.take(pa.array(touched.upserts, pa.int64())) if touched.upserts else upserts.slice(0, 0)
        starts = [_lowest_position(new, self._schema)] if new.num_rows else []
        rows = new
        if page is not None:
            old = parquet.read(self._root, self._schema, page)
            changed = set(identities(new, self._schema)) | set(touched.deletes)
            if changed:
                old = old.filter(self._keep(old, changed))
            rows = pa.concat_tables([old, new]) if new.num_rows else old
            name = PageName(page)
            starts.append((name.start_ms, name.key_hash))
        if closed_before_ms is not None:
            rows = _close(rows, closed_before_ms)
        start_ms, hashed = min(starts)
        return _Rewritten(day, start_ms, hashed, rows)

    def _keep(self, old: pa.Table, changed: set[Identity]) -> pa.Array:
        """Mask of the rows that stay as they are."""
        firsts = pa.array(list({identity[0] for identity in changed}), self._schema.key[0].type)
        candidates = pc.indices_nonzero(pc.is_in(old.column(0), value_set=firsts)).to_pylist()
        keep = [True] * old.num_rows
        some = old.take(pa.array(candidates, pa.int64()))
        final = some.column("is_final").to_pylist()
        for index, identity, is_final in zip(candidates, identities(some, self._schema), final, strict=True):
            if identity in changed:
                if is_final:
                    raise late_change(self._schema.name, self._task, identity, self._batch_id)
                keep[index] = False
        return pa.array(keep)

    def _write(self, page: _Rewritten, *, is_last: bool) -> list[NewFile]:
        if page.rows.num_rows <= PAGE_ROWS:
            return [self._write_page(page.day, page.start_ms, page.key_hash, page.rows)]
        positions = [(key[-2], key_hash(key)) for key in identities(page.rows, self._schema)]
        order = sorted(range(len(positions)), key=positions.__getitem__)
        rows = page.rows.take(pa.array(order, pa.int64()))
        written = []
        cuts = _cuts([positions[index] for index in order], is_last=is_last)
        for begin, end in zip([0, *cuts], [*cuts, len(order)], strict=True):
            start_ms, hashed = positions[order[begin]] if begin else (page.start_ms, page.key_hash)
            assert isinstance(start_ms, int)
            written.append(self._write_page(page.day, start_ms, hashed, rows.slice(begin, end - begin)))
        return written

    def _write_page(self, day: str, start_ms: int, hashed: int, rows: pa.Table) -> NewFile:
        is_open = rows.filter(pc.invert(rows.column("is_final")))
        closes_ms = _lowest_ms(is_open.column("window_end")) if is_open.num_rows else _NEVER_MS
        path = layout.page_path(day, self._task, start_ms, hashed, closes_ms, rows.num_rows, self._batch_id, self._tag)
        return parquet.write(self._root, self._schema, path, rows)

    def _write_final(self, day: str, rows: pa.Table) -> NewFile:
        sorted_rows = rows.sort_by([("window_start", "ascending")])
        name = layout.part_name("final", self._batch_id, self._task, self._tag)
        return parquet.write(self._root, self._schema, f"window_date={day}/{name}", sorted_rows)


def identities(rows: pa.Table, schema: TableSchema) -> list[Identity]:
    """Key cells, window start and window end (ms) of every row."""
    columns = [rows.column(name).to_pylist() for name in schema.key_names]
    for name in ("window_start", "window_end"):
        columns.append([micros // 1000 for micros in rows.column(name).cast(pa.int64()).to_pylist()])
    return list(zip(*columns, strict=True))


def key_hash(identity: Identity) -> int:
    """32 bits of the key's cells, the same in every process."""
    cells = identity[:-2]
    first = cells[0]
    text = first if len(cells) == 1 and isinstance(first, str) else repr(cells)
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))


def late_change(table: str, task: int, identity: Identity, batch_id: int) -> TableError:
    """The error for a change to a window that is final."""
    *key, start_ms, end_ms = identity
    assert isinstance(start_ms, int)
    assert isinstance(end_ms, int)
    return TableError(
        f"Batch {batch_id} changes a window of table '{table}' that was final already: key {key}, "
        f"[{layout.utc(start_ms)}, {layout.utc(end_ms)}], task {task}.",
        hint="an operator wrote to a window after it said that the window is closed; please report this",
    )


def _joinable(left: _Rewritten, right: _Rewritten) -> bool:
    return left.day == right.day and left.rows.num_rows + right.rows.num_rows <= PAGE_ROWS // 2


def _close(rows: pa.Table, before_ms: int) -> pa.Table:
    index = rows.schema.get_field_index("is_final")
    limit = pa.scalar(before_ms * 1000, pa.int64()).cast(TIMESTAMP)
    closed = pc.or_(rows.column(index), pc.less(rows.column("window_end"), limit))
    return rows.set_column(index, rows.schema.field(index), closed)


def _lowest_position(rows: pa.Table, schema: TableSchema) -> tuple[int, int]:
    return min((_int(key[-2]), key_hash(key)) for key in identities(rows, schema))


def _lowest_ms(column: pa.ChunkedArray) -> int:
    return int(pc.min(column).cast(pa.int64()).as_py()) // 1000


def _int(value: Any) -> int:
    assert isinstance(value, int)
    return value


def _day(path: str) -> str:
    return path[12:22]


def _is_last_of_day(pages: Sequence[str], index: int) -> bool:
    return index + 1 == len(pages) or _day(pages[index + 1]) != _day(pages[index])


def _cuts(positions: Sequence[tuple[Any, int]], *, is_last: bool) -> list[int]:
    """Where to split rows into pages; rows at one position stay together.

    New windows come at the end: the last page of a date leaves full pages behind, others split evenly.
    """
    count = len(positions)
    size = _FILL if is_last else -(-count // -(-count // _FILL))
    cuts: list[int] = []
    for wanted in range(size, count, size):
        cut = max(wanted, cuts[-1] + 1 if cuts else 1)
        while cut < count and positions[cut] == positions[cut - 1]:
            cut += 1
        if cut < count:
            cuts.append(cut)
    return sorted(set(cuts))
