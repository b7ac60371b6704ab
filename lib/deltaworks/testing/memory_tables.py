"""The content of a pipeline's Delta tables, in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, assert_never

from deltaworks.kernel.records import Coordinates
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
    """The table half of a `Collector`, for all tasks of a plan."""

    def __init__(self, sinks: tuple[DeltaSink, ...]) -> None:
        self._appended: dict[str, AppendTable] = {}
        self._keyed: dict[str, KeyedTable] = {}
        self._windowed: dict[str, WindowTable] = {}
        for sink in sinks:
            match sink.kind:
                case TableKind.APPEND:
                    self._appended[sink.table] = AppendTable()
                case TableKind.CHANGELOG:
                    self._keyed[sink.table] = KeyedTable()
                case TableKind.WINDOWED:
                    self._windowed[sink.table] = WindowTable()
                case _:
                    assert_never(sink.kind)

    @property
    def by_name(self) -> Mapping[str, Table]:
        return {**self._appended, **self._keyed, **self._windowed}

    def append_row(self, table: str, key: object, value: object, timestamp_ms: int, source: Coordinates) -> None:
        self._appended[table].rows.append(Row(key, value, timestamp_ms, source))

    def change_row(self, table: str, key: object, value: object | None, timestamp_ms: int, source: Coordinates) -> None:
        keyed = self._keyed[table]
        keyed.changes.append(Row(key, value, timestamp_ms, source))
        if value is None:
            keyed.rows.pop(key, None)
        else:
            keyed.rows[key] = value

    def window_row(
        self, table: str, key: object, start_ms: int, end_ms: int, value: object | None, timestamp_ms: int
    ) -> None:
        windows, window = self._windowed[table], Windowed(key, start_ms, end_ms)
        if value is None:
            windows.rows.pop(window, None)
            windows.timestamps_ms.pop(window, None)
        else:
            windows.rows[window] = value
            windows.timestamps_ms[window] = timestamp_ms

    def close_windows(self, table: str, before_ms: int) -> None:
        self._windowed[table].final_before_ms = before_ms
