"""Renders the page of `deltaworks dev`: rates, the last rows of the tables, dead letters, errors."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from deltaworks.cli.console import cell_text, first_line
from deltaworks.control.edited import Verdict
from deltaworks.control.heartbeat import Heartbeat
from deltaworks.errors import TableError
from deltaworks.kernel.errors import ERROR_HEADER
from deltaworks.settings import Settings

ROWS, LETTERS = 5, 3
"""The most that are shown of a table, and of all dead letters."""
_WIDEST = 40
_AROUND = 6
"""Lines of the page that are not rows."""


@dataclass(frozen=True)
class Rows:
    """The last rows of a table."""

    version: int
    count: int
    columns: tuple[str, ...] = ()
    cells: tuple[tuple[Any, ...], ...] = ()


@dataclass
class Screen:
    """Everything on it."""

    name: str
    log: Path
    event: str = ""
    """What happened last."""
    problem: str = ""
    """What is wrong with the code or the stream."""
    code: Verdict | None = None
    """About the code that runs."""
    beat: Heartbeat | None = None
    """The last heartbeat of the running driver."""
    rows: dict[str, Rows] = field(default_factory=dict)
    letters: list[str] = field(default_factory=list)
    """The last dead letters, a line each."""
    _seen_letters: int = 0

    def read(self, settings: Settings) -> None:
        """Reads what has changed."""
        if self.code is None:
            return
        found = {table: _read(settings.tables, table, self.rows.get(table)) for table in self.code.tables}
        self.rows = {table: rows for table, rows in found.items() if rows is not None}
        count = self.beat.dead_letters if self.beat is not None else 0
        if count and count != self._seen_letters:
            self.letters = _last_letters(settings, self.name, self.code)
            self._seen_letters = count


def screen(state: Screen, height: int) -> RenderableType:
    """The page.

    Args:
        state: what is on it.
        height: the lines that the terminal has.
    """
    parts: list[RenderableType] = [Text.assemble((state.name, "bold"), f"  {summary(state)}"), Text(state.event, "dim")]
    if state.problem:
        parts += [Text(state.problem, "red")]
    if state.letters:
        parts += [
            Text("dead letters", "bold"),
            *(Text(line, no_wrap=True, overflow="ellipsis") for line in state.letters),
        ]
    left = height - _AROUND - len(state.letters) - len(state.problem.splitlines())
    shown = max(1, min(ROWS, left // (len(state.rows) or 1) - 2))
    parts += [_table(name, rows, shown) for name, rows in state.rows.items()]
    parts += [Text(f"log: {state.log}; Ctrl-C ends", "dim")]
    return Group(*parts)


def summary(state: Screen) -> str:
    """One line about the stream."""
    beat = state.beat
    if beat is None:
        return "does not run" if state.problem else "starts"
    rows = ", ".join(f"{name} {rows.count:,}" for name, rows in state.rows.items())
    facts = [
        f"{beat.state}, batch {beat.batch_id}" if beat.batch_id is not None else beat.state,
        f"{beat.records_per_second:,.0f} records/s",
        "" if beat.lag_records is None else f"lag {beat.lag_records:,}",
        f"dead letters {beat.dead_letters:,}" if beat.dead_letters else "",
        f"late {beat.late_records:,}" if beat.late_records else "",
        f"rows: {rows}" if rows else "",
    ]
    return " | ".join(fact for fact in facts if fact)


def _table(name: str, rows: Rows, shown: int) -> Table:
    title = f"{name}: {rows.count:,} rows, the last {min(shown, len(rows.cells))}"
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for column in rows.columns:
        table.add_column(column, overflow="ellipsis", no_wrap=True, max_width=_WIDEST)
    for row in rows.cells[:shown]:
        table.add_row(*(Text(first_line(cell_text(cell))) for cell in row))
    return table


def _read(root: Path, name: str, before: Rows | None) -> Rows | None:
    """The last rows of a table, by the time of their records; None: it does not exist yet."""
    from deltaworks.lakehouse import catalog

    try:
        info = catalog.table(root, name)
    except TableError:
        return None
    if before is not None and before.version == info.version:
        return before
    columns, cells = _last_rows(root / name, "timestamp", ROWS)
    return Rows(info.version, info.rows, columns, cells)


def _last_rows(table: Path, by: str, count: int) -> tuple[tuple[str, ...], tuple[tuple[Any, ...], ...]]:
    import duckdb

    from deltaworks.lakehouse.reading import dataset

    rows = dataset(table)
    with closing(duckdb.connect()) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("rows_", rows)
        columns = tuple(rows.schema.names)
        order = f"ORDER BY {by} DESC" if by in columns else ""
        return columns, tuple(connection.execute(f"SELECT * FROM rows_ {order} LIMIT {count}").fetchall())


def _last_letters(settings: Settings, pipeline: str, code: Verdict) -> list[str]:
    """Where each record is from, and what was wrong with it."""
    if code.dead_letter_table is not None:
        columns, rows = _last_rows(settings.tables / code.dead_letter_table, "batch_id", LETTERS)
        named = (dict(zip(columns, row, strict=True)) for row in rows)
        return [
            first_line(f"{row['topic']}-{row['partition']}@{row['offset']}: {row['error_class']}: {row['message']}")
            for row in named
        ]
    return [] if code.dead_letter_topic is None else _of_topic(settings, pipeline, code.dead_letter_topic)


def _of_topic(settings: Settings, pipeline: str, topic: str) -> list[str]:
    from deltaworks.kafka import admin
    from deltaworks.kafka.ranges import Range
    from deltaworks.runtime.consumer import RangeReader

    cluster = settings.cluster_of(pipeline)
    lines: list[tuple[int, str]] = []
    with closing(RangeReader(cluster, pipeline)) as reader:
        for (name, partition), end in admin.end_offsets(cluster, [topic]).items():
            wanted = Range(name, partition, max(0, end - LETTERS), end)
            for batch in (batch for batches in reader.read([wanted]) for batch in batches):
                letters = (_letter(dict(headers)) for headers in batch.headers_of_each)
                lines += zip(batch.timestamps_ms, letters, strict=True)
    return [line for _, line in sorted(lines)[-LETTERS:]]


def _letter(headers: dict[str, bytes | None]) -> str:
    def header(name: str) -> str:
        return (headers.get(ERROR_HEADER + name) or b"").decode(errors="replace")

    return first_line(
        f"{header('topic')}-{header('partition')}@{header('offset')}: {header('exception')}: {header('message')}"
    )
