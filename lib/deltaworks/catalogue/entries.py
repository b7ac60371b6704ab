"""Describes each table: what it is, how fresh it is, which code writes it, and what its last check has found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from deltaworks.catalogue.verdicts import Checked, last_checks
from deltaworks.control import heartbeat, retention
from deltaworks.control.heartbeat import Heartbeat
from deltaworks.control.paths import PipelinePaths
from deltaworks.lakehouse import described
from deltaworks.lakehouse.described import TableDescribed
from deltaworks.settings import Settings


@dataclass(frozen=True)
class Entry:
    """A table."""

    table: TableDescribed
    beat: Heartbeat | None
    """Of its pipeline; None: it has none."""
    code: str | None
    """The code that the pipeline runs; None: not known, or not from an archive."""
    checked: Checked | None
    """None: nobody has checked it."""

    @property
    def as_of(self) -> datetime | None:
        """The time of the cut; for a table that no pipeline writes, of its last commit. None: no batch yet."""
        if self.table.cut is not None:
            return self.table.cut.at
        return self.table.info.committed_at if self.table.pipeline is None else None


def entry(settings: Settings, name: str) -> Entry:
    """What is known of a table.

    Raises:
        TableError: there is no such table.
    """
    (found,) = _entries(settings, [described.described(settings.tables, name)])
    return found


def entries(settings: Settings) -> list[Entry]:
    """All tables of a home, in the order of their names."""
    return _entries(settings, described.all_described(settings.tables))


def _entries(settings: Settings, tables: Iterable[TableDescribed]) -> list[Entry]:
    checks = last_checks(settings.tables)
    pipelines: dict[str | None, tuple[Heartbeat | None, str | None]] = {None: (None, None)}
    found = []
    for table in tables:
        if table.pipeline is not None and table.pipeline not in pipelines:
            pipelines[table.pipeline] = _pipeline(settings, table.pipeline)
        beat, code = pipelines[table.pipeline]
        found.append(Entry(table, beat, code, checks.get(table.name)))
    return found


def _pipeline(settings: Settings, name: str) -> tuple[Heartbeat | None, str | None]:
    paths = PipelinePaths.of(settings, name)
    beat = heartbeat.read(paths.heartbeat)
    return beat, None if beat is None else retention.code_of(paths, beat.generation)
