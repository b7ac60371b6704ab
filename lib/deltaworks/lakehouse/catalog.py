"""Lists tables, and runs SQL over them, for any reader.

Reading needs no driver and no lock: the tables of a pipeline are opened as of one batch (`cuts`), and their files stay
as long as `TableOptions.keep_replaced_ms` says.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
from deltalake import DeltaTable

from deltaworks.errors import ConfigurationError, TableError
from deltaworks.lakehouse import cuts, layout
from deltaworks.lakehouse.log import DeltaLog
from deltaworks.lakehouse.reading import dataset
from deltaworks.lakehouse.sandbox import Limits, Sandbox


@dataclass(frozen=True)
class TableInfo:
    """One table at its latest version."""

    name: str
    path: Path
    version: int
    rows: int
    files: int
    size_bytes: int
    committed_at: datetime | None
    """Time of the latest version."""
    batch_id: int | None
    """The last batch that it holds; None: no batch yet, or not written by a pipeline."""
    as_of: datetime | None
    """Snapshots of KTables: the time as of which the snapshot is right."""


def table_names(root: Path) -> list[str]:
    """The Delta tables below `root`, in order."""
    if not root.is_dir():
        return []
    return sorted(path.name for path in root.iterdir() if (path / layout.LOG_FOLDER).is_dir())


def tables(root: Path) -> list[TableInfo]:
    """All Delta tables below `root`."""
    return [table(root, name) for name in table_names(root)]


def table(root: Path, name: str) -> TableInfo:
    """One table.

    Raises:
        TableError: there is no such table.
    """
    return info_of(log_of(root, name))


def info_of(log: DeltaLog) -> TableInfo:
    """What the log of a table says about it."""
    commit = log.path / layout.LOG_FOLDER / f"{log.version:020d}.json"
    steps = log.steps
    as_of_ms = steps.get(layout.AS_OF_MS)
    return TableInfo(
        log.path.name,
        log.path,
        log.version,
        sum(entry.rows for entry in log.files.values()),
        len(log.files),
        sum(entry.size_bytes for entry in log.files.values()),
        datetime.fromtimestamp(commit.stat().st_mtime, UTC) if commit.exists() else None,
        steps.get(layout.ROWS, steps.get(layout.SNAPSHOT)),
        None if as_of_ms is None else datetime.fromtimestamp(as_of_ms / 1000, UTC),
    )


def duckdb_connection(root: Path, *, database: str = ":memory:") -> duckdb.DuckDBPyConnection:
    """A DuckDB connection with every table below `root` as a view; for trusted code.

    The tables of a pipeline are those of one batch.
    Timestamps are shown in UTC. The views push columns and filters down to the files. DuckDB may do what the process
    may do: run other people's SQL in a `sandbox`.
    """
    connection = duckdb.connect(database)
    connection.execute("SET TimeZone = 'UTC'")
    add_views(connection, root)
    return connection


def add_views(connection: duckdb.DuckDBPyConnection, root: Path) -> None:
    """Adds every table below `root` as a view of this connection, those of a pipeline as of one batch."""
    shown = Shown(root)
    for name in table_names(root):
        connection.register(name, dataset(root / name, shown.table(name)))


class Shown:
    """The tables below a folder as readers see them.

    Args:
        root: the folder of the tables.
        at: a time; None: now.
    """

    def __init__(self, root: Path, at: datetime | None = None) -> None:
        self._root = root
        found = [cuts.latest(root, name) if at is None else cuts.as_of(root, name, at) for name in cuts.pipelines(root)]
        self._cuts = {table: cut for cut in found if cut is not None for table in cut.tables}

    def table(self, name: str) -> DeltaTable | None:
        """A table as of the cut of its pipeline; None: no cut holds for it."""
        cut = self._cuts.get(name)
        return None if cut is None else cuts.opened(self._root, cut, name)


def sandbox(
    root: Path, limits: Limits, query: str = "", at: datetime | int | None = None, *, latest: bool = False
) -> Sandbox:
    """A sandbox with the tables below `root` as views.

    Args:
        root: the folder of the tables.
        limits: what queries may use.
        query: what will run, if `at` is given: only the tables that it names have to be there at that time.
        at: a time or the number of a version; None: now.
        latest: each table at its own latest version, whatever batch that is, instead of all as of one batch.

    Raises:
        ConfigurationError: a table did not exist at that time, its files of then have been removed, or the query is
            not SQL.
    """
    names = table_names(root)
    shown = None if latest or isinstance(at, int) else Shown(root, at)
    with ExitStack() as stack:
        box = stack.enter_context(Sandbox(limits))
        for name in names if at is None else sorted(box.named(query, names)):
            table = None if shown is None else shown.table(name)
            if at is not None:
                table = _earlier(root / name, at) if table is None else _readable(table, root / name)
            box.add(name, dataset(root / name, table))
        stack.pop_all()
    return box


def time_or_version(text: str) -> datetime | int:
    """What `--at` means: `2026-03-01T12:00`, with a zone or in UTC, or the number of a version.

    Raises:
        ConfigurationError: it is neither.
    """
    if text.isdecimal():
        return int(text)
    try:
        return time_of(text)
    except ConfigurationError:
        raise ConfigurationError(
            f"--at takes a time or a version, but got {text!r}.", hint="--at 2026-03-01T12:00, or --at 12"
        ) from None


def time_of(text: str) -> datetime:
    """A time such as `2026-03-01T12:00`, with a zone or in UTC.

    Raises:
        ConfigurationError: it is none.
    """
    try:
        return in_utc(datetime.fromisoformat(text))
    except ValueError:
        raise ConfigurationError(f"{text!r} is no time.", hint="such as 2026-03-01T12:00") from None


def in_utc(time: datetime) -> datetime:
    """A time without a zone is in UTC."""
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _earlier(path: Path, at: datetime | int) -> DeltaTable:
    """A table as it was, whatever the others were then; all of its files are still there."""
    versions = [(each["version"], _committed(each)) for each in DeltaTable(path).history()]
    if isinstance(at, int):
        chosen = [version for version, _ in versions if version == at]
        then = f"version {at}"
    else:
        chosen = [version for version, time in versions if time is not None and time <= at]
        then = f"a version at {at.isoformat(' ')}"
    if not chosen:
        first, since = versions[-1]
        known = f"from {first} of {since.isoformat(' ', 'seconds') if since else 'an unknown time'} to {versions[0][0]}"
        raise ConfigurationError(f"Table '{path.name}' has not got {then}.", hint=f"its versions are {known}")
    return _readable(DeltaTable(path, version=max(chosen)), path)


def _readable(table: DeltaTable, path: Path) -> DeltaTable:
    """Raises `ConfigurationError` if files of the table are gone."""
    kept = table.metadata().configuration.get("delta.deletedFileRetentionDuration", "interval 7 days")
    if missing := [file for file in table.file_uris() if not Path(file.removeprefix("file://")).exists()]:
        raise ConfigurationError(
            f"Version {table.version()} of table '{path.name}' cannot be read any more: {len(missing)} of its files "
            "are gone.",
            hint=f"choose a later one; files stay for {kept.removeprefix('interval ')} after they were replaced",
        )
    return table


def _committed(commit: dict[str, Any]) -> datetime | None:
    time_ms = commit.get("timestamp")
    return None if time_ms is None else datetime.fromtimestamp(time_ms / 1000, UTC)


def log_of(root: Path, name: str) -> DeltaLog:
    """The log of a table, read.

    Raises:
        TableError: there is no such table.
    """
    if name not in table_names(root):
        known = ", ".join(table_names(root)) or "none yet"
        raise TableError(f"There is no Delta table '{name}' below {root}.", hint=f"tables: {known}")
    log = DeltaLog(root / name)
    log.load()
    return log
