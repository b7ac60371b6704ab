"""Which UTC days of a pipeline's tables are closed, and who tells others so.

A day of a table closes at a cut that holds every record that was in the source topics `DELAY` after the day's end, if
no window of the day may change any more. Both are facts of the stream, not of a clock alone: a stream that stands still
or lags closes no day, and neither does a windowed table whose stream time has not passed the day. Records that arrive
later still count for their day, but nobody is told; a replay that publishes the day tells of it.

The days of a table close one after the other. At the first look, the last day that is over closes; those before count
as closed, and nobody is told of them.

*The mark* is a file beside the checkpoint. It has the last closed day of each table, by name, so a table that was made
anew has no day twice. Who is to tell of a day *claims* it there, durably and under a lock, before telling. Whoever
looks at the same time finds it claimed. The same claimant gets its days again, so a task that is retried tells of them
after all; and if a claimant has failed for good, the next one takes over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import msgspec

from deltaworks import formats
from deltaworks.control import heartbeat
from deltaworks.control.paths import PipelinePaths
from deltaworks.files import alone, replace_file
from deltaworks.lakehouse import cuts
from deltaworks.lakehouse.cuts import Cut
from deltaworks.lakehouse.publish.scope import open_days
from deltaworks.settings import Settings

FORMAT = 1
DELAY = timedelta(minutes=5)
"""A record is expected in its topic this long after the time that it has."""
_DAY = timedelta(days=1)
Told = Callable[[str], bool | None]
"""Whether a claimant has told of its days; None: it still may."""


@dataclass(frozen=True)
class ClosedDays:
    """Days of a table that the caller is to tell of."""

    table: str
    days: tuple[date, ...]
    cut: Cut
    """The tables, in which the days are closed."""


class _Table(msgspec.Struct, kw_only=True):
    through: date
    """The last closed day."""
    claims: dict[date, str] = {}
    """Day -> who is to tell of it; without the days of which it is known that they were told."""


class _Mark(msgspec.Struct, kw_only=True):
    format: int = FORMAT
    tables: dict[str, _Table] = {}


def through(settings: Settings, pipeline: str) -> dict[str, date]:
    """The last closed day of each table of a pipeline; empty: nobody has looked yet.

    Raises:
        IncompatibleCheckpointError: the mark cannot be read.
    """
    mark = _read(PipelinePaths.of(settings, pipeline).closed_days)
    return {name: table.through for name, table in mark.tables.items()}


def claim(
    settings: Settings, pipeline: str, claimant: str, told: Told = lambda _: None, *, delay: timedelta = DELAY
) -> list[ClosedDays]:
    """Closes the days that are due, and claims those of which nobody has told.

    Args:
        settings: name the home.
        pipeline: its name; its code is not needed.
        claimant: who will tell; the same one gets what it has claimed before.
        told: whether another claimant has told.
        delay: how long after the end of a day its records may reach the topics.

    Returns:
        The days by table, earliest first; tables without a day are left out.

    Raises:
        IncompatibleCheckpointError: the mark cannot be read.
    """
    path = PipelinePaths.of(settings, pipeline).closed_days
    if (found := complete_until(settings, pipeline)) is None:
        return []
    cut, until = found
    over = (until - delay).date() - _DAY
    with alone(path.with_suffix(".lock")):
        mark = _read(path)
        before = msgspec.json.encode(mark)
        for name in cut.tables:
            _close(settings.tables, cut, name, mark.tables.setdefault(name, _Table(through=over - _DAY)), over)
        mine = {name: _claim(mark.tables[name], claimant, told) for name in sorted(cut.tables)}
        if (after := msgspec.json.encode(mark)) != before:
            replace_file(path, msgspec.json.format(after, indent=1), durable=True)
    return [ClosedDays(name, tuple(days), cut) for name, days in mine.items() if days]


def complete_until(settings: Settings, pipeline: str) -> tuple[Cut, datetime] | None:
    """The newest cut, and a moment: what was in the source topics then is in the cut. None: that is not known."""
    beat = heartbeat.read(PipelinePaths.of(settings, pipeline).heartbeat)
    cut = cuts.latest(settings.tables, pipeline)  # read after the heartbeat, so that it can only be later
    if beat is None or cut is None or beat.lag_seconds is None or beat.batch_id is None:
        return None
    if cut.query != beat.query_id or cut.batch_id < beat.batch_id:
        return None
    return cut, datetime.fromtimestamp(beat.at - beat.lag_seconds, UTC)


def _close(root: Path, cut: Cut, name: str, table: _Table, over: date) -> None:
    """Closes the days that can be, up to the last one that is over; nobody has claimed them yet."""
    if table.through >= over or (still_open := _open_days(root, cut, name)) is None:
        return
    for day in _days(table.through + _DAY, over):
        if day in still_open:
            return
        table.through, table.claims[day] = day, ""


def _claim(table: _Table, claimant: str, told: Told) -> list[date]:
    """Claims what is left to tell, and forgets what was told; the days that are the claimant's now."""
    others = {each for each in table.claims.values() if each not in ("", claimant)}
    known = {each: told(each) for each in others}
    for day, each in list(table.claims.items()):
        if known.get(each):
            del table.claims[day]
        elif each not in known or known[each] is False:
            table.claims[day] = claimant
    return sorted(day for day, each in table.claims.items() if each == claimant)


def _open_days(root: Path, cut: Cut, name: str) -> set[date] | None:
    """The days of a table with windows that may change at a cut; None: the table is not that of the cut any more."""
    if (table := cuts.opened(root, cut, name)) is None:
        return None
    inside = (uri.rpartition(f"/{name}/")[2] for uri in table.file_uris())
    return {date.fromisoformat(day) for day in open_days(inside)}


def _days(first: date, last: date) -> Iterator[date]:
    for number in range((last - first).days + 1):
        yield first + number * _DAY


def _read(path: Path) -> _Mark:
    what = f"{path}, which says how far days are closed,"
    other = "move it away: the last day that is over closes again, and others are told once more"
    return formats.read(path, _Mark, FORMAT, what, other=other) or _Mark()
