"""Days of a windowed table that production and a replay do not know equally far, although all windows are final.

A replay ends with a batch; production goes on. A day of a table may have no open window in either, as only some windows
have rows, such as those that pass a filter, and still get rows from later batches. What the two have closed per task
tells.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from deltaworks.lakehouse import layout, row_origins
from deltaworks.lakehouse.log import DeltaLog, FileEntry
from deltaworks.lakehouse.publish.scope import Scope
from deltaworks.lakehouse.schema import TableSchema

NEVER, ALWAYS = -1, 1 << 62
"""Times up to which windows are closed."""


def later_windows(
    root: Path, schema: TableSchema, production: DeltaLog, staged: DeltaLog, scope: Scope, unknown_ms: int = NEVER
) -> Iterator[tuple[str, int]]:
    """Day and end (ms) of windows that a later batch has closed, and the replay perhaps never opened.

    Args:
        root: folder of the production tables.
        schema: of the table.
        production: its log there.
        staged: its log in the replay.
        scope: what the replay stands for.
        unknown_ms: up to when a task that has written nothing there counts as closed.
    """
    for path, entry in _of_days(production, scope):
        written = row_origins.of_file(root, schema, path, entry.rows)
        end_ms = Bounds.of(entry).window_end_ms
        is_later = written is not None and row_origins.rows_up_to(written, scope.last_batch) < entry.rows
        if is_later and end_ms >= _all_closed_ms(path, staged.closed_ms, production.closed_ms, unknown_ms):
            yield day_of(path), end_ms


def early_windows(
    production: DeltaLog, staged: DeltaLog, scope: Scope, unknown_ms: int = NEVER
) -> Iterator[tuple[str, int]]:
    """Day and end (ms) of windows that the replay has closed, but the stream may not have; see `later_windows`."""
    for path, entry in _of_days(staged, scope):
        end_ms = Bounds.of(entry).window_end_ms
        if end_ms >= _all_closed_ms(path, production.closed_ms, staged.closed_ms, unknown_ms):
            yield day_of(path), end_ms


def day_of(path: str) -> str:
    """The UTC date of the windows of a file."""
    return layout.partition_of(path)["window_date"]


def _of_days(log: DeltaLog, scope: Scope) -> Iterator[tuple[str, FileEntry]]:
    return ((path, entry) for path, entry in log.files.items() if scope.holds_day(day_of(path)))


def _all_closed_ms(path: str, closed_ms: Mapping[int, int], of_file: Mapping[int, int], unknown_ms: int) -> int:
    """The time up to which windows of a file are closed on the other side too, where `closed_ms` comes from."""
    task = layout.task_of(path)
    tasks = of_file if task is None else [task]
    return min((closed_ms.get(task, unknown_ms) for task in tasks), default=unknown_ms)


@dataclass(frozen=True)
class Bounds:
    """What the log says about the rows of a file."""

    lows: dict[str, object]
    highs: dict[str, object]

    @classmethod
    def of(cls, entry: FileEntry) -> Bounds:
        statistics = json.loads(entry.statistics or "{}")
        return cls(statistics.get("minValues", {}), statistics.get("maxValues", {}))

    def lowest(self, column: str) -> int:
        """The lower bound of a column; a very low number if unknown."""
        return int(str(self.lows.get(column, -(1 << 62))))

    def highest(self, column: str) -> int:
        """The upper bound of a column; a very high number if unknown."""
        return int(str(self.highs.get(column, 1 << 62)))

    @property
    def window_end_ms(self) -> int:
        """The latest end of a window; a very late one if unknown."""
        return _ms(self.highs["window_end"]) if "window_end" in self.highs else 1 << 62

    def overlaps(self, scope: Scope) -> bool:
        """Whether a row may lie in the time range."""
        low, high = self.lows.get("timestamp"), self.highs.get("timestamp")
        if low is None or high is None:
            return True
        ends_before = scope.from_ms is not None and _ms(high) < scope.from_ms
        return not ends_before and (scope.to_ms is None or _ms(low) < scope.to_ms)

    def lies_within(self, scope: Scope) -> bool:
        """Whether every row lies in the time range."""
        low, high = self.lows.get("timestamp"), self.highs.get("timestamp")
        if low is None or high is None:
            return False
        begins = scope.from_ms is None or scope.from_ms <= _ms(low)
        return begins and (scope.to_ms is None or _ms(high) < scope.to_ms)


def _ms(text: object) -> int:
    return round(datetime.fromisoformat(str(text)).timestamp() * 1000)
