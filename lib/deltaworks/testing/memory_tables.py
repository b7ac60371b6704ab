"""The content of a pipeline's Delta tables, in memory.

`rows` has the objects of the topology, `to_dicts` the cells that readers of the Delta table find in its columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, assert_never

from deltaworks.kernel.records import Coordinates, Rows
from deltaworks.serdes.windowed import Windowed
from deltaworks.testing.columns import appended, changed, latest, windows
from deltaworks.testing.shown import LIMIT, entries, html_table, items
from deltaworks.topology.nodes.sinks import DeltaSink, TableKind


@dataclass(frozen=True)
class Row:
    """A row of an append-only table, or an update in a changelog."""

    key: Any
    value: Any
    """None in a changelog if the key was deleted."""
    timestamp_ms: int
    source: Coordinates
    """The record that caused it."""


@dataclass(repr=False)
class AppendTable:
    """A stream written with `to_delta`, with every record."""

    rows: list[Row] = field(default_factory=list)
    sink: DeltaSink | None = field(default=None, compare=False)
    """What the topology says about the table: its name and types."""

    def to_dicts(self, *columns: str) -> list[dict[str, Any]]:
        """Column -> cell of each row, oldest first, as readers of the Delta table see them.

        Args:
            columns: Only these, in this order; none: all.

        Raises:
            KeyError: There is no such column.
        """
        return _picked(appended(_known(self.sink), self.rows), columns)

    def __repr__(self) -> str:
        return f"{_title(self.sink, 'AppendTable')}, {len(self.rows)} rows: {items(row.value for row in self.rows)}"

    def _repr_html_(self) -> str:
        return _html(self.sink, "AppendTable", len(self.rows), appended(_known(self.sink), self.rows[: LIMIT + 1]))


@dataclass(repr=False)
class KeyedTable:
    """A table written with `to_delta`: the snapshot `<table>`, and `<table>_changelog`."""

    rows: dict[Any, Any] = field(default_factory=dict)
    """Key -> value."""
    changes: list[Row] = field(default_factory=list)
    """Every update, oldest first."""
    sink: DeltaSink | None = field(default=None, compare=False)
    """What the topology says about the table: its name and types."""

    def to_dicts(self, *columns: str) -> list[dict[str, Any]]:
        """Column -> cell of each row of the snapshot; see `AppendTable.to_dicts`. There is no `batch_id` in a test."""
        return _picked(latest(_known(self.sink), self._latest()), columns)

    def changes_to_dicts(self, *columns: str) -> list[dict[str, Any]]:
        """Column -> cell of each row of the changelog, oldest first; see `to_dicts`."""
        return _picked(changed(_known(self.sink), self.changes), columns)

    def _latest(self) -> Iterator[Row]:
        """The last update of each key that has a row."""
        last = {row.key: row for row in self.changes}
        return (last[key] for key in self.rows)

    def __repr__(self) -> str:
        counted = f"{len(self.rows)} rows, {len(self.changes)} changes"
        return f"{_title(self.sink, 'KeyedTable')}, {counted}: {entries(self.rows.items())}"

    def _repr_html_(self) -> str:
        shown = list(islice(self._latest(), LIMIT + 1))
        return _html(self.sink, "KeyedTable", len(self.rows), latest(_known(self.sink), shown))


@dataclass(repr=False)
class WindowTable:
    """A windowed table written with `to_delta`: one row per key and window."""

    rows: dict[Windowed[Any], Any] = field(default_factory=dict)
    timestamps_ms: dict[Windowed[Any], int] = field(default_factory=dict)
    final_before_ms: int = 0
    """Windows whose `end_ms` is below this never change again."""
    sink: DeltaSink | None = field(default=None, compare=False)
    """What the topology says about the table: its name and types."""

    def is_final(self, window: Windowed[Any]) -> bool:
        """Whether no record can change this row any more."""
        return window.end_ms < self.final_before_ms

    @property
    def final_rows(self) -> dict[Windowed[Any], Any]:
        """The rows that never change again."""
        return {window: value for window, value in self.rows.items() if self.is_final(window)}

    def to_dicts(self, *columns: str) -> list[dict[str, Any]]:
        """Column -> cell of each row; see `AppendTable.to_dicts`."""
        return _picked(windows(_known(self.sink), self._described(self.rows)), columns)

    def _described(self, some: Iterable[Windowed[Any]]) -> list[tuple[Windowed[Any], Any, int, bool]]:
        return [(each, self.rows[each], self.timestamps_ms[each], self.is_final(each)) for each in some]

    def __repr__(self) -> str:
        return f"{_title(self.sink, 'WindowTable')}, {len(self.rows)} rows: {entries(self.rows.items())}"

    def _repr_html_(self) -> str:
        shown = self._described(islice(self.rows, LIMIT + 1))
        return _html(self.sink, "WindowTable", len(self.rows), windows(_known(self.sink), shown))


Table = AppendTable | KeyedTable | WindowTable


class TablesInMemory:
    """The tables of a plan, for all its tasks."""

    def __init__(self, sinks: tuple[DeltaSink, ...]) -> None:
        self._rows = {sink.name: _rows(sink) for sink in sinks}
        self.by_name: Mapping[str, Table] = {sink.table: self._rows[sink.name].table for sink in sinks}

    def __contains__(self, sink: str) -> bool:
        return sink in self._rows

    def rows(self, sink: str) -> Rows:
        """Takes the rows of one sink; see `Collector.rows`."""
        return self._rows[sink]


class _Appended(Rows):
    def __init__(self, sink: DeltaSink) -> None:
        self.table = AppendTable(sink=sink)

    def add(self, row: tuple[Any, ...]) -> None:
        self.table.rows.append(Row(*row))


class _Changed(Rows):
    def __init__(self, sink: DeltaSink) -> None:
        self.table = KeyedTable(sink=sink)

    def add(self, row: tuple[Any, ...]) -> None:
        key, value, _, _ = row
        self.table.changes.append(Row(*row))
        if value is None:
            self.table.rows.pop(key, None)
        else:
            self.table.rows[key] = value


class _Windowed(Rows):
    def __init__(self, sink: DeltaSink) -> None:
        self.table = WindowTable(sink=sink)

    def add(self, row: tuple[Any, ...]) -> None:
        key, value, timestamp_ms, start_ms, end_ms = row
        window = Windowed(key, start_ms, end_ms)
        if value is None:
            self.table.rows.pop(window, None)
            self.table.timestamps_ms.pop(window, None)
        else:
            self.table.rows[window] = value
            self.table.timestamps_ms[window] = timestamp_ms

    def close_windows(self, before_ms: int) -> None:
        self.table.final_before_ms = before_ms


def _rows(sink: DeltaSink) -> _Appended | _Changed | _Windowed:
    match sink.kind:
        case TableKind.APPEND:
            return _Appended(sink)
        case TableKind.CHANGELOG:
            return _Changed(sink)
        case TableKind.WINDOWED:
            return _Windowed(sink)
        case _:
            assert_never(sink.kind)


def _known(sink: DeltaSink | None) -> DeltaSink:
    if sink is None:
        raise ValueError("a table that no topology writes has no columns; driver.table(...) returns one that has")
    return sink


def _title(sink: DeltaSink | None, kind: str) -> str:
    return kind if sink is None else f"{kind} '{sink.table}'"


def _html(sink: DeltaSink | None, kind: str, count: int, rows: Sequence[Mapping[str, Any]]) -> str:
    columns = list(rows[0]) if rows else []
    return html_table(f"{_title(sink, kind)}, {count} rows", columns, (list(row.values()) for row in rows))


def _picked(rows: list[dict[str, Any]], columns: Sequence[str]) -> list[dict[str, Any]]:
    if not columns or not rows:
        return rows
    for column in columns:
        if column not in rows[0]:
            raise KeyError(f"the table has no column '{column}'; it has: {', '.join(rows[0])}")
    return [{column: row[column] for column in columns} for row in rows]
