"""The content of a pipeline's Delta tables, in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, assert_never

from deltaworks.kernel.records import Coordinates, Rows
from deltaworks.serdes.windowed import Windowed
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


@dataclass
class AppendTable:
    """A stream written with `to_delta`, with every record."""

    rows: list[Row] = field(default_factory=list)


@dataclass
class KeyedTable:
    """A table written with `to_delta`: the snapshot `<table>`, and `<table>_changelog`."""

    rows: dict[Any, Any] = field(default_factory=dict)
    """Key -> value."""
    changes: list[Row] = field(default_factory=list)
    """Every update, oldest first."""


@dataclass
class WindowTable:
    """A windowed table written with `to_delta`: one row per key and window."""

    rows: dict[Windowed[Any], Any] = field(default_factory=dict)
    timestamps_ms: dict[Windowed[Any], int] = field(default_factory=dict)
    final_before_ms: int = 0
    """Windows whose `end_ms` is below this never change again."""

    def is_final(self, window: Windowed[Any]) -> bool:
        """Whether no record can change this row any more."""
        return window.end_ms < self.final_before_ms

    @property
    def final_rows(self) -> dict[Windowed[Any], Any]:
        """The rows that never change again."""
        return {window: value for window, value in self.rows.items() if self.is_final(window)}


Table = AppendTable | KeyedTable | WindowTable


class TablesInMemory:
    """The tables of a plan, for all its tasks."""

    def __init__(self, sinks: tuple[DeltaSink, ...]) -> None:
        self._rows = {sink.name: _rows(sink.kind) for sink in sinks}
        self.by_name: Mapping[str, Table] = {sink.table: self._rows[sink.name].table for sink in sinks}

    def __contains__(self, sink: str) -> bool:
        return sink in self._rows

    def rows(self, sink: str) -> Rows:
        """Takes the rows of one sink; see `Collector.rows`."""
        return self._rows[sink]


class _Appended(Rows):
    def __init__(self) -> None:
        self.table = AppendTable()

    def add(self, row: tuple[Any, ...]) -> None:
        self.table.rows.append(Row(*row))


class _Changed(Rows):
    def __init__(self) -> None:
        self.table = KeyedTable()

    def add(self, row: tuple[Any, ...]) -> None:
        key, value, _, _ = row
        self.table.changes.append(Row(*row))
        if value is None:
            self.table.rows.pop(key, None)
        else:
            self.table.rows[key] = value


class _Windowed(Rows):
    def __init__(self) -> None:
        self.table = WindowTable()

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


def _rows(kind: TableKind) -> _Appended | _Changed | _Windowed:
    match kind:
        case TableKind.APPEND:
            return _Appended()
        case TableKind.CHANGELOG:
            return _Changed()
        case TableKind.WINDOWED:
            return _Windowed()
        case _:
            assert_never(kind)
