"""The rows that a publication or a rollback changes: before and after.

They follow from the files that the commit of a table removes and adds, so they are exactly those that production loses
and gets, and are written to a file before that commit. For what becomes of them see `corrections`.

| table | before and after |
|---|---|
| windowed, append | the files that are removed, and those that are added; rows that stay cancel out |
| snapshot | the changelog as it was and as it will be, reduced: an update of a later batch wins on both sides |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from deltaworks import files
from deltaworks.clock import wall_ms
from deltaworks.lakehouse import layout
from deltaworks.lakehouse.committer import OpenTable, TableCommitter
from deltaworks.lakehouse.publish import corrections
from deltaworks.lakehouse.publish.comparison import MEMORY_MB, slices_of
from deltaworks.lakehouse.publish.corrections import CorrectionsRequest, KeptCorrections, TableCorrections
from deltaworks.lakehouse.publish.differences import Differences, Side, engine
from deltaworks.lakehouse.publish.kept import Action, rows_of
from deltaworks.lakehouse.publish.replacement import Replacement
from deltaworks.lakehouse.publish.scope import Scope
from deltaworks.lakehouse.publish.windows import day_of
from deltaworks.lakehouse.reading import parquet_file
from deltaworks.lakehouse.schema import Role, changelog_name

_READ_ROWS = 4_096
_SPECIAL = {float("inf"): "Infinity", float("-inf"): "-Infinity"}


class Change(msgspec.Struct, frozen=True):
    """A row that has changed."""

    table: str
    key: dict[str, Any]
    """The cells that say which row it is."""
    before: dict[str, Any] | None
    after: dict[str, Any] | None


def keep(
    committer: TableCommitter,
    publications: Path,
    request: CorrectionsRequest,
    scope: Scope,
    name: tuple[str, Action, int],
    changes: Mapping[str, Replacement],
) -> None:
    """Writes down what tables lose and get; tables that an earlier attempt has committed stay as it left them.

    Args:
        committer: of the tables, which do not show it yet.
        publications: folder of the records of publications.
        request: who is told of what.
        scope: of the replay.
        name: run, action and round.
        changes: what will be committed.
    """
    run_id, action, number = name
    folder = corrections.KEEPING.folder_of(publications, run_id, action, number)
    earlier = corrections.KEEPING.read(folder)
    if earlier is not None and earlier.released_ms is not None:
        return
    tables = {} if earlier is None else dict(earlier.tables)
    for table in request.tables:
        if table in changes:
            target = rows_of(folder, table)
            tables[table] = compare(committer, table, changes, scope, target, same_batches=request.same_batches)
    files.sync([rows_of(folder, table) for table, told in tables.items() if told.rows])
    corrections.KEEPING.save(
        folder,
        KeptCorrections(
            run_id=run_id, action=action, round=number, topic=request.topic, tables=tables, made_ms=wall_ms()
        ),
    )


def changes_of(publications: Path, kept: KeptCorrections, transaction: int) -> Iterator[Change]:
    """The rows of one transaction; the same ones each time."""
    first = transaction * kept.per_transaction
    folder = corrections.KEEPING.place_of(publications, kept)
    rows = _changes(folder, kept, first)
    yield from islice(rows, kept.per_transaction)


def _changes(folder: Path, kept: KeptCorrections, first: int) -> Iterator[Change]:
    """All rows from a number on, in the order of the files."""
    for table, told in kept.tables.items():
        if first >= told.rows:
            first -= told.rows
            continue
        with parquet_file(rows_of(folder, table)) as file:
            for batch in file.iter_batches(_READ_ROWS, use_threads=False):
                if first >= batch.num_rows:
                    first -= batch.num_rows
                    continue
                yield from _of_batch(table, told, batch.slice(first))
                first = 0


def _of_batch(table: str, told: TableCorrections, batch: pa.RecordBatch) -> Iterator[Change]:
    sides = {}
    for side, name in (("b", "in_before"), ("a", "in_after")):
        cells = [_cells(batch.column(f"{side}{number}")) for number in range(len(told.columns))]
        there = batch.column(name).to_pylist()
        sides[side] = [
            dict(zip(told.columns, row, strict=True)) if is_there else None
            for is_there, row in zip(there, zip(*cells, strict=True), strict=True)
        ]
    for before, after in zip(sides["b"], sides["a"], strict=True):
        row = before if after is None else after
        assert row is not None
        yield Change(table, {name: row[name] for name in told.identity}, before, after)


def _cells(column: pa.Array) -> list[Any]:
    convert = _conversion(column.type)
    cells: list[Any] = column.to_pylist()
    return cells if convert is None else [None if cell is None else convert(cell) for cell in cells]


def _conversion(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """What JSON needs: entries of maps by name, and numbers that are not finite as text; None: nothing."""
    if pa.types.is_floating(kind):
        return lambda cell: "NaN" if cell != cell else _SPECIAL.get(cell, cell)
    if pa.types.is_map(kind):
        item = _conversion(kind.item_type) or (lambda cell: cell)
        return lambda cell: {name: None if part is None else item(part) for name, part in cell}
    if pa.types.is_list(kind):
        part = _conversion(kind.value_type)
        return None if part is None else lambda cell: [None if each is None else part(each) for each in cell]
    if pa.types.is_struct(kind):
        parts = {field.name: convert for field in kind if (convert := _conversion(field.type)) is not None}
        return (lambda cell: cell | {n: parts[n](cell[n]) for n in parts if cell[n] is not None}) if parts else None
    return None


def compare(
    committer: TableCommitter,
    name: str,
    changes: Mapping[str, Replacement],
    scope: Scope,
    target: Path,
    *,
    same_batches: bool,
) -> TableCorrections:
    """Writes the rows that a table loses and gets to a file; see `read` for what is in it.

    Args:
        committer: of the tables, which do not show it yet.
        name: the table.
        changes: what will be committed.
        scope: of the replay.
        target: the file; not durable yet.
        same_batches: the replay has run the recorded batches.
    """
    table = committer.tables[name]
    schema, source, change = table.schema, table, changes[name]
    if schema.role is Role.SNAPSHOT:
        source = committer.tables[changelog_name(name)]
        change = changes.get(source.schema.name, Replacement())
        now = set(source.log.files)
        removed = now
        added = now.difference(file.path for file in change.removed).union(file.path for file in change.added)
    else:
        removed, added = {file.path for file in change.removed}, {file.path for file in change.added}
    files.make_folder(target.parent)
    with engine(MEMORY_MB) as duck:
        differences = Differences(duck, schema, source.schema, scope, same_batches=same_batches)
        columns = [str(cell.column) for cell in differences.cells]
        with files.written_here(target) as written:
            rows = differences.write(_slices(source, change, removed, added), written)
    return TableCorrections(
        rows=rows,
        columns=tuple(columns),
        identity=tuple(str(cell.column) for cell in differences.cells if cell.is_identity),
    )


def _slices(
    source: OpenTable, change: Replacement, removed: Collection[str], added: Collection[str]
) -> list[tuple[Side, Side]]:
    """Both sides, of windowed tables some days at a time."""
    if source.schema.role is not Role.WINDOWED:
        return [(_side(source, removed), _side(source, added))]
    rows: Counter[str] = Counter()
    for file in (*change.removed, *change.added):
        rows[day_of(file.path)] += file.rows
    return [
        (
            _side(source, [path for path in removed if day_of(path) in days]),
            _side(source, [path for path in added if day_of(path) in days]),
        )
        for days in slices_of(rows)
    ]


def _side(source: OpenTable, paths: Collection[str]) -> Side:
    ordered = sorted(paths, key=lambda path: (layout.batch_of(path) or (-1, ""), path))
    columns = frozenset(source.schema.file.names)
    added = frozenset(source.log.added_columns)
    return Side([source.log.path / path for path in ordered], columns, added, "TRUE")
