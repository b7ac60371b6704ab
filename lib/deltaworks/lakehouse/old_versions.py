"""The old versions of one table: which of them stay, and what only the others need.

It runs in the background, beside commits, and reads the log on disk. It deletes files of the log only; files with rows
are deleted by the committer, which alone knows what is part of the table now.

Each version that stays (`retention`) gets a checkpoint. A file of the table is needed as long as one of these names it.
A log file is needed as long as a version can be read that it is part of.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from deltaworks import files
from deltaworks.clock import wall_ms
from deltaworks.errors import DeltaworksError, TableError
from deltaworks.lakehouse import checkpoints, layout, versions
from deltaworks.lakehouse.log import DeltaLog
from deltaworks.lakehouse.retention import KeptCuts
from deltaworks.object_path import ObjectPath

_log = logging.getLogger(__name__)
_CLOCKS_DIFFER_S = 15 * 60
"""An object store refuses requests of machines whose clock differs from its own by more."""


@dataclass(frozen=True, kw_only=True)
class Survey:
    """What was found at one moment."""

    cutoff_ms: int
    """Files that were removed before are needed only if `kept` has them."""
    kept: frozenset[str]
    """The files of all versions that stay."""
    unneeded: frozenset[str]
    """Files that versions had which do not stay, unless the table has them now or readers may still use them."""
    dropped: frozenset[int]
    """These versions; their checkpoints are needed until the files are deleted."""
    strays: frozenset[str] = frozenset()
    """Files that attempts of the query have left, and that no version names; the first survey looks for them."""


class OldVersions:
    """Looks after the old versions of one table.

    Args:
        table: its folder.
        kept: the cuts that outlive the others.
        tag: tag of the query, in the names of its files.
        uncommitted: paths of files that a version will name.
    """

    def __init__(self, table: Path, kept: KeptCuts, tag: str, uncommitted: Collection[str] = ()) -> None:
        self._table, self._kept, self._tag = table, kept, tag
        self._uncommitted, self._begun_s, self._swept = frozenset(uncommitted), wall_ms() / 1000, False
        self._folder = table / layout.LOG_FOLDER
        self._versions: frozenset[int] = frozenset()
        """Those that stay."""
        self._files: frozenset[str] = frozenset()
        """The files of `_versions`."""
        self._slim: set[int] = set()
        """Versions whose checkpoint names no removed files."""
        self._times: dict[int, float] = {}
        """When versions with a checkpoint were committed (ms)."""
        self._lost: set[int] = set()
        """Versions that should stay, but cannot be read any more."""

    def survey(self, cutoff_ms: int, now_ms: int, done: Survey | None) -> Survey | None:
        """Looks what is needed no more; deletes files of the log whose versions an earlier survey has dropped.

        Args:
            cutoff_ms: every version since stays.
            now_ms: the time.
            done: an earlier survey, the files of which are deleted.

        Returns:
            None: something cannot be read, so everything stays.
        """
        try:
            return self._survey(cutoff_ms, datetime.fromtimestamp(now_ms / 1000, UTC), done)
        except (DeltaworksError, versions.TornError, OSError, pa.ArrowException) as error:
            _log.warning("old files of table %s stay for now: %s", self._table.name, error)
            return None

    def _survey(self, cutoff_ms: int, now: datetime, done: Survey | None) -> Survey:
        wanted = self._kept.versions(self._table.name, now)
        there = dict(versions.starts(self._folder))
        for version, query in sorted(wanted.items()):
            if version in there or version in self._lost:
                continue
            if (made := self._make(version, query)) is None:
                self._lost.add(version)
            else:
                there[version] = [made]
        stay = frozenset(wanted.keys() & there.keys())
        if stay != self._versions:
            self._files = frozenset().union(*(checkpoints.paths(there[version]) for version in stay))
            self._versions = stay
        first = max(
            (version for version, parts in there.items() if self._time_ms(version, parts) < cutoff_ms), default=0
        )
        if first:
            versions.check_checkpoint(there[first])  # everything since is read from it
        for version in sorted(stay - self._slim):
            if version < first:
                self._slim_down(version, there[version])
        old = frozenset(version for version in there if version < first) - stay
        if done is not None:
            self._forget(first, stay, {version: there[version] for version in old & done.dropped})
            old -= done.dropped
        unneeded = frozenset().union(*(checkpoints.paths(there[version]) for version in old)) - self._files
        strays: set[str] = set() if self._swept else strays_in(self._table, self._tag, self._begun_s)
        self._swept = True
        return Survey(
            cutoff_ms=cutoff_ms,
            kept=self._files,
            unneeded=unneeded,
            dropped=old,
            strays=frozenset(strays - self._files - self._uncommitted),
        )

    def _time_ms(self, version: int, parts: list[Path]) -> float:
        if version not in self._times:
            found = versions.read(self._folder, version)
            told = None if found is None else found.info.get("timestamp")
            written = max(part.stat().st_mtime for part in parts) * 1000
            self._times[version] = told if isinstance(told, int) else written
        return self._times[version]

    def _make(self, version: int, query: str) -> Path | None:
        """Writes the checkpoint of a version; None: it cannot be read any more."""
        log = DeltaLog(self._table)
        try:
            log.load(up_to=version)
        except TableError as error:
            _log.warning("version %d of table %s does not outlive the rest: %s", version, self._table.name, error)
            return None
        if log.version != version or log.owner != query:
            return None  # of a table that was made anew since
        return checkpoints.write(self._table, log.state())

    def _slim_down(self, version: int, parts: list[Path]) -> None:
        """Leaves removed files out of a checkpoint from which no later version is read any more."""
        if checkpoints.has_removed(parts):
            log = DeltaLog(self._table)
            log.load(up_to=version)
            checkpoints.write(self._table, replace(log.state(), removed=()))
        self._slim.add(version)

    def _forget(self, first: int, stay: Iterable[int], dropped: dict[int, list[Path]]) -> None:
        """Deletes the log of versions that do not stay."""
        for parts in dropped.values():
            for part in parts:
                part.unlink(missing_ok=True)
        for version in set(versions.numbers(self._folder)) - set(stay):
            if version < first:
                (self._folder / versions.file_name(version)).unlink(missing_ok=True)


def strays_in(table: Path, tag: str, before_s: float = math.inf) -> set[str]:
    """Files of a table that attempts of a query wrote before a time (s), whether a version names them or not."""
    if isinstance(table, ObjectPath):
        before_s -= _CLOCKS_DIFFER_S
    found = set()
    for path, about in files.walk(table, skip=("_",)):
        written = layout.batch_of(path.name)
        if written is not None and written[1] == tag and about.st_mtime < before_s:
            found.add(path.relative_to(table).as_posix())
    return found


def named(table: Path) -> set[str]:
    """The files that a version names which can still be read, as far as the checkpoints and the log know."""
    log = DeltaLog(table)
    log.load()
    found = set(log.files) | {path for _, path in log.tombstones}
    return found.union(*(checkpoints.paths(parts) for _, parts in versions.starts(table / layout.LOG_FOLDER)))
