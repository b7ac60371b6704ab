"""Open windows of one task, kept in pages: files that a batch can replace without touching the rest of the table.

A page is a Parquet file with at most `PAGE_ROWS` rows: consecutive in the order (date, window start, hash of the key),
from the position in its name to the next page's. A batch routes each changed row to its page by binary search over the
names, then reads, changes and rewrites the touched pages. A page whose windows are all closed becomes part of a final
file. So a batch costs what it changes and closes, whatever the table holds.

The driver's `committer` knows which pages exist, and tells tasks through `page_index`.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deltaworks.errors import TableError
from deltaworks.lakehouse import layout, parquet
from deltaworks.lakehouse.columns import TIMESTAMP
from deltaworks.lakehouse.layout import PageName, page_day
from deltaworks.lakehouse.schema import TableSchema
from deltaworks.lakehouse.writes import NewFile

PAGE_ROWS = 4096
"""Reading and writing a page of this size costs about as much per file as per row."""
_NEVER = layout.closes_text((1 << 63) - 1)
"""The closing time in the name of pages that were left without an open window."""

Identity = tuple[Any, ...]
"""Key cells, window start and window end (ms) of a row."""
Position = tuple[int, int]
"""Window start (ms) and hash of the key: the order of rows, within a task, by which pages are cut."""


@dataclass
class PageChanges:
    """The changes of one batch to the pages of a task."""

    added: list[NewFile] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ChangedRows:
    """The last state of every row that a batch changed."""

    upserts: pa.Table
    """Rows in order of position, in the columns of a data file; `is_final` not yet true."""
    positions: list[Position]
    identities: list[Identity]
    """The identities of `upserts`, in the same order as `positions`."""
    deletes: list[tuple[Position, Identity]]


@dataclass
class _Touched:
    """The changes for one page, or for a date without pages."""

    day: str
    page: int | None
    begin: int
    """Upserts from here."""
    end: int
    deletes: list[Identity] = field(default_factory=list)


@dataclass
class _Rewritten:
    """Rows of one or several neighbouring pages after the batch."""

    day: str
    position: Position
    rows: pa.Table


class PageWriter:
    """Applies one batch of one task to the pages of one table."""

    def __init__(
        self, root: Path, schema: TableSchema, *, task: int, batch_id: int, tag: str, page_rows: int = PAGE_ROWS
    ) -> None:
        self._root, self._schema = root, schema
        self._task, self._batch_id, self._tag, self._page_rows = task, batch_id, tag, page_rows

    def apply(self, pages: Sequence[str], rows: ChangedRows, closed_before_ms: int | None) -> PageChanges:
        """Reads the touched pages among `pages` (sorted), writes their successors and final files.

        Args:
            pages: paths of the task's pages.
            rows: the changes of the batch.
            closed_before_ms: windows that end before become final; None: none do.

        Raises:
            TableError: the batch changes a window that is final.
        """
        changes = PageChanges()
        final: dict[str, list[pa.Table]] = defaultdict(list)
        pending: _Rewritten | None = None
        previous: int | None = None
        route = self._route(pages, rows, closed_before_ms)
        paths = (pages[touched.page] for touched in route if touched.page is not None)
        held = parquet.read_each(self._root, self._schema, paths)
        for touched in route:
            old = None if touched.page is None else next(held)
            rewritten = self._rewrite(pages, touched, old, rows, closed_before_ms)
            if touched.page is not None:
                changes.removed.append(pages[touched.page])
            if not rewritten.rows.num_rows:
                continue
            if _is_closed(rewritten.rows):
                final[touched.day].append(rewritten.rows)
                continue
            adjacent = previous is not None and touched.page == previous + 1
            if pending is not None and adjacent and self._joinable(pending, rewritten):
                pending.rows = pa.concat_tables([pending.rows, rewritten.rows])
            else:
                if pending is not None:
                    changes.added += self._write(pending, final, is_last=False)
                pending = rewritten
            previous = touched.page
            if touched.page is None or _is_last_of_day(pages, touched.page):
                changes.added += self._write(pending, final, is_last=True)
                pending = None
        if pending is not None:
            changes.added += self._write(pending, final, is_last=False)
        for day, tables in final.items():
            changes.added.append(self._write_final(day, pa.concat_tables(tables)))
        return changes

    def _route(self, pages: Sequence[str], rows: ChangedRows, closed_before_ms: int | None) -> list[_Touched]:
        """Touched pages in order: rows and pages are sorted, so each page gets consecutive rows."""
        touched: dict[tuple[str, int], _Touched] = {}
        begin = 0
        while begin < len(rows.positions):
            day, page, limit = self._find(pages, rows.positions[begin])
            end = bisect_left(rows.positions, limit, lo=begin + 1)
            place = (day, -1 if page is None else page)
            if place in touched:
                touched[place].end = end
            else:
                touched[place] = _Touched(day, page, begin, end)
            begin = end
        for position, identity in rows.deletes:
            day, page, _ = self._find(pages, position)
            if page is not None:
                touched.setdefault((day, page), _Touched(day, page, 0, 0)).deletes.append(identity)
        if closed_before_ms is not None:
            for page in _closing(pages, closed_before_ms):
                touched.setdefault((page_day(pages[page]), page), _Touched(page_day(pages[page]), page, 0, 0))
        return [touched[place] for place in sorted(touched)]

    def _find(self, pages: Sequence[str], position: Position) -> tuple[str, int | None, Position]:
        """The page of a position, and where the next page begins. A date's first page takes all earlier positions."""
        day = layout.window_day(position[0])
        index = bisect_right(pages, layout.page_position(day, self._task, *position) + "~") - 1
        if not _is_of(pages, index, day) and _is_of(pages, index + 1, day):
            index += 1
        end_of_day = layout.day_end_ms(position[0]), 0
        if not _is_of(pages, index, day):
            return day, None, end_of_day
        return day, index, end_of_day if _is_last_of_day(pages, index) else PageName.of(pages[index + 1]).position

    def _rewrite(
        self,
        pages: Sequence[str],
        touched: _Touched,
        old: pa.Table | None,
        changed: ChangedRows,
        closed_before_ms: int | None,
    ) -> _Rewritten:
        new = changed.upserts.slice(touched.begin, touched.end - touched.begin)
        positions = changed.positions[touched.begin : touched.begin + 1] if new.num_rows else []
        rows = new
        if touched.page is not None and old is not None:
            identities = {*changed.identities[touched.begin : touched.end], *touched.deletes}
            if identities:
                old = old.filter(self._keep(old, identities))
            rows = pa.concat_tables([old, new]) if new.num_rows else old
            positions.append(PageName.of(pages[touched.page]).position)
        if closed_before_ms is not None:
            rows = _close(rows, closed_before_ms)
        return _Rewritten(touched.day, min(positions), rows)

    def _keep(self, old: pa.Table, changed: set[Identity]) -> pa.Array:
        """Mask of the rows that do not change."""
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

    def _joinable(self, left: _Rewritten, right: _Rewritten) -> bool:
        return left.day == right.day and left.rows.num_rows + right.rows.num_rows <= self._page_rows // 2

    def _write(self, page: _Rewritten, final: dict[str, list[pa.Table]], *, is_last: bool) -> list[NewFile]:
        """Writes one or several pages; a part whose windows are all closed goes to `final`."""
        if page.rows.num_rows <= self._page_rows:
            return [self._write_page(page.day, page.position, page.rows)]
        positions = [position_of(identity) for identity in identities(page.rows, self._schema)]
        order = sorted(range(len(positions)), key=positions.__getitem__)
        rows = page.rows.take(pa.array(order, pa.int64()))
        starts = [0, *_cuts([positions[number] for number in order], self._page_rows, is_last=is_last)]
        written = []
        for begin, end in zip(starts, [*starts[1:], len(order)], strict=True):
            part = rows.slice(begin, end - begin)
            if _is_closed(part):
                final[page.day].append(part)
                continue
            position = positions[order[begin]] if begin else page.position
            written.append(self._write_page(page.day, position, part))
        return written

    def _write_page(self, day: str, position: Position, rows: pa.Table) -> NewFile:
        is_open = rows.filter(pc.invert(rows.column("is_final")))
        closes_ms = _lowest_ms(is_open.column("window_end"))
        path = layout.page_path(day, self._task, *position, closes_ms, rows.num_rows, self._batch_id, self._tag)
        return parquet.write(self._root, self._schema, path, rows)

    def _write_final(self, day: str, rows: pa.Table) -> NewFile:
        sorted_rows = rows.sort_by([("window_start", "ascending")])
        name = layout.part_name("final", self._batch_id, self._task, self._tag)
        return parquet.write(self._root, self._schema, f"window_date={day}/{name}", sorted_rows)


def any_closes(pages: Sequence[str], before_ms: int) -> bool:
    """Whether a page holds an open window that ends before a time."""
    return bool(_closing(pages, before_ms))


def identities(rows: pa.Table, schema: TableSchema) -> list[Identity]:
    """Key cells, window start and window end (ms) of every row."""
    columns = [rows.column(name).to_pylist() for name in schema.key_names]
    for name in ("window_start", "window_end"):
        columns.append([micros // 1000 for micros in rows.column(name).cast(pa.int64()).to_pylist()])
    return list(zip(*columns, strict=True))


def position_of(identity: Identity) -> Position:
    """The position of a row; the same in every process."""
    cells = identity[:-2]
    text = cells[0] if len(cells) == 1 and isinstance(cells[0], str) else repr(cells)
    return identity[-2], zlib.crc32(text.encode("utf-8", "surrogatepass"))


def late_change(table: str, task: int, identity: Identity, batch_id: int) -> TableError:
    """The error for a change to a window that is final."""
    *key, start_ms, end_ms = identity
    return TableError(
        f"Batch {batch_id} changes a window of table '{table}' that was final already: key {key}, "
        f"[{layout.utc(start_ms)}, {layout.utc(end_ms)}], task {task}.",
        hint="an operator wrote to a window after it said that the window is closed; please report this",
    )


def _close(rows: pa.Table, before_ms: int) -> pa.Table:
    index = rows.schema.get_field_index("is_final")
    limit = pa.scalar(before_ms * 1000, pa.int64()).cast(TIMESTAMP)
    closed = pc.or_(rows.column(index), pc.less(rows.column("window_end"), limit))
    return rows.set_column(index, rows.schema.field(index), closed)


def _is_closed(rows: pa.Table) -> bool:
    return bool(pc.all(rows.column("is_final")).as_py())


def _closing(pages: Sequence[str], before_ms: int) -> list[int]:
    limit = layout.closes_text(before_ms)
    return [number for number, path in enumerate(pages) if not limit <= layout.page_closes(path) < _NEVER]


def _lowest_ms(column: pa.ChunkedArray) -> int:
    return int(pc.min(column).cast(pa.int64()).as_py()) // 1000


def _is_of(pages: Sequence[str], index: int, day: str) -> bool:
    return 0 <= index < len(pages) and page_day(pages[index]) == day


def _is_last_of_day(pages: Sequence[str], index: int) -> bool:
    return index + 1 == len(pages) or page_day(pages[index + 1]) != page_day(pages[index])


def _cuts(positions: Sequence[Position], page_rows: int, *, is_last: bool) -> list[int]:
    """Where to split sorted rows into pages; rows at one position stay together.

    New windows come at the end: the last page of a date splits into pages that are three quarters full, other pages
    split evenly.
    """
    count, fill = len(positions), max(1, page_rows * 3 // 4)
    size = fill if is_last else -(-count // -(-count // fill))
    cuts: list[int] = []
    for wanted in range(size, count, size):
        cut = max(wanted, cuts[-1] + 1 if cuts else 1)
        while cut < count and positions[cut] == positions[cut - 1]:
            cut += 1
        if cut < count:
            cuts.append(cut)
    return cuts
