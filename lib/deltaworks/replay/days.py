"""Which days a replay publishes: whole UTC days of window starts whose windows are all closed.

A session belongs to the day in which it begins. If it crossed the border of the range, one half would be published
while the other stays in production. So the range grows until no session of production or of the replay crosses its
borders.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import duckdb

from deltaworks.dsl.pipeline import Pipeline
from deltaworks.errors import TableError
from deltaworks.lakehouse import layout
from deltaworks.lakehouse.layout import PageName
from deltaworks.lakehouse.log import DeltaLog
from deltaworks.lakehouse.reading import dataset
from deltaworks.lakehouse.schema import Role, TableSchema, plan_schemas
from deltaworks.replay.model import ReplayPlan, begin_of, day_of
from deltaworks.replay.plan import DAY_MS
from deltaworks.topology.nodes.aggregates import SessionAggregate

MAX_GROWTH_DAYS = 31
"""A range that would have to grow by more is refused."""


class NoCompleteDayError(TableError):
    """There is nothing to publish yet."""


def publishable(
    roots: Collection[Path],
    windowed: Collection[str],
    sessions: Collection[str],
    from_ms: int | None,
    to_ms: int | None,
    *,
    complete: bool = False,
) -> tuple[int | None, int | None]:
    """The range of days, extended if sessions cross its borders.

    Args:
        roots: folders of the production tables and of the staging tables.
        windowed: windowed tables that will be published.
        sessions: the windowed tables whose windows are sessions.
        from_ms: the first day; None: from the beginning.
        to_ms: the day after the last; None: as far as days are complete.
        complete: if requested days are not complete, the range ends before them.

    Raises:
        TableError: requested days have windows that are still open, or the range would grow too far.
        NoCompleteDayError: with `complete`, no requested day is complete.
    """
    tables = [(root, name) for root in roots for name in windowed]
    open_days = {(root, name): _first_open_day(root / name) for root, name in tables}
    first_open = min((day for day in open_days.values() if day is not None), default=None)
    if complete and to_ms is not None and first_open is not None:
        to_ms = min(to_ms, first_open)
    if to_ms is not None and first_open is not None and first_open < to_ms:
        late = sorted({name for (_, name), day in open_days.items() if day is not None and day < to_ms})
        raise TableError(
            f"{day_of(first_open)} is not complete: {', '.join(late)} still has windows that may change.",
            hint=f"--to {day_of(first_open)} publishes the days before it",
        )
    end = to_ms if to_ms is not None else first_open
    with _opened(roots, sessions) as (connection, count):
        begin = None if from_ms is None else _grown(connection, count, from_ms, "min(window_start)")
        while end is not None and to_ms is not None:
            grown = _grown(connection, count, end, "max(window_end)")
            if complete and first_open is not None and grown > first_open:
                end = _grown(connection, count, end, "min(window_start)")
                break
            if first_open is not None and grown > first_open:
                raise TableError(
                    f"Sessions that cross midnight connect the day before {day_of(end)} with {day_of(first_open)}, "
                    "which is not complete.",
                    hint=f"publish later, or an earlier --to than {day_of(to_ms)}",
                )
            if grown == end:
                break
            end = grown
    if complete and begin is not None and end is not None and end <= begin:
        raise NoCompleteDayError(
            f"None of the days from {day_of(begin)} on is complete: windows or sessions may still change.",
            hint="they are once the stream has read records that are late enough to close them",
        )
    return begin, end


def widened(
    roots: Collection[Path], sessions: Collection[str], days: tuple[int, int], within: tuple[int | None, int | None]
) -> tuple[int | None, int | None]:
    """The smallest range around some days that cuts no session, within a range that `publishable` has returned.

    Args:
        roots: see `publishable`.
        sessions: see `publishable`.
        days: the first day, and the one after the last.
        within: likewise; None: no bound.
    """
    first, last = within
    with _opened(roots, sessions) as (connection, count):
        begin = days[0] if days[0] == first else _grown(connection, count, days[0], "min(window_start)")
        end = days[1]
        while end != last and (grown := _grown(connection, count, end, "max(window_end)")) != end:
            end = grown
    return begin if first is None else max(begin, first), end if last is None else min(end, last)


def require_some(
    roots: Collection[Path], windowed: Collection[str], chosen: Collection[str], to_ms: int | None
) -> None:
    """Raises `TableError` if the range ends before the first day with windows.

    Args:
        roots: see `publishable`.
        windowed: see `publishable`.
        chosen: all tables that will be published.
        to_ms: the day after the last.
    """
    tables = [root / name for root in roots for name in windowed if (root / name / layout.LOG_FOLDER).is_dir()]
    firsts = [day for table in tables if (day := _first_day(table)) is not None]
    if to_ms is None or not firsts or to_ms > min(firsts):
        return
    late = sorted({table.name for table in tables if (_first_open_day(table) or to_ms) <= min(firsts)})
    others = [name for name in chosen if name not in late]
    raise TableError(
        f"There is no day to publish: {', '.join(late)} has windows of {day_of(min(firsts))} that may still change.",
        hint="publish the other tables: " + " ".join(f"--table {name}" for name in others)
        if others
        else "publish when they are closed",
    )


def published_tables(pipeline: Pipeline, plan: ReplayPlan) -> list[TableSchema]:
    """The tables that a replay publishes."""
    schemas = plan_schemas(pipeline.plan().tables, pipeline.dead_letters.table)
    return [schema for schema in schemas if schema.name in plan.tables]


def windowed_tables(schemas: list[TableSchema]) -> list[str]:
    """The names of the tables of windows."""
    return [schema.name for schema in schemas if schema.role is Role.WINDOWED]


def session_tables(pipeline: Pipeline, schemas: list[TableSchema]) -> set[str]:
    """The names of the tables whose windows are sessions."""
    plan = pipeline.plan()
    by_sessions = {node.name for node in plan.nodes if isinstance(node, SessionAggregate)}
    return {schema.name for schema in schemas} & {sink.table for sink in plan.tables if sink.window_node in by_sessions}


def _first_day(table: Path) -> int | None:
    """The first day (ms) with windows."""
    log = DeltaLog(table)
    log.load()
    days = min((layout.partition_of(path)["window_date"] for path in log.files), default=None)
    return None if days is None else begin_of(days)


def _first_open_day(table: Path) -> int | None:
    """The first day (ms) with windows that may still change."""
    if not (table / layout.LOG_FOLDER).is_dir():
        return None
    log = DeltaLog(table)
    log.load()
    pages = map(PageName.of, filter(layout.is_page, log.files))
    return min((page.start_ms // DAY_MS * DAY_MS for page in pages), default=None)


@contextmanager
def _opened(roots: Collection[Path], sessions: Collection[str]) -> Iterator[tuple[duckdb.DuckDBPyConnection, int]]:
    """A connection that has the tables of sessions as t0, t1, ..., and how many there are."""
    found = [(root, name) for root in roots for name in sessions if (root / name / layout.LOG_FOLDER).is_dir()]
    with duckdb.connect() as connection:
        for number, (root, name) in enumerate(found):
            connection.register(f"t{number}", dataset(root / name))
        yield connection, len(found)


def _grown(connection: duckdb.DuckDBPyConnection, tables: int, border_ms: int, reaches: str) -> int:
    """The border, moved to the next day border that no session crosses."""
    start = border_ms
    while True:
        border = datetime.fromtimestamp(border_ms / 1000, UTC)
        crossing: list[datetime] = []
        for number in range(tables):
            row = connection.execute(
                f"SELECT {reaches} FROM t{number} WHERE window_start < $1 AND window_end >= $1", [border]
            ).fetchone()
            crossing += [row[0]] if row is not None and row[0] is not None else []
        if not crossing:
            return border_ms
        times_ms = [int(time.timestamp() * 1000) for time in crossing]
        if reaches.startswith("min"):
            border_ms = min(times_ms) // DAY_MS * DAY_MS
        else:
            border_ms = (max(times_ms) // DAY_MS + 1) * DAY_MS
        if abs(border_ms - start) > MAX_GROWTH_DAYS * DAY_MS:
            raise TableError(
                f"Sessions that cross {day_of(start)} reach over more than {MAX_GROWTH_DAYS} days.",
                hint="choose a border at which there was silence, or publish without --from",
            )
