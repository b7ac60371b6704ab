"""Lists tables, and runs SQL over them, for any reader.

Reading needs no driver and no lock: the tables of a pipeline are opened as of one batch (`cuts`), and their files stay
as long as `retention` says.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import duckdb
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from deltaworks.errors import ConfigurationError, TableError
from deltaworks.lakehouse import cuts, layout, retention, versions
from deltaworks.lakehouse.cuts import Cut
from deltaworks.lakehouse.log import DeltaLog
from deltaworks.lakehouse.reading import dataset, delta_table
from deltaworks.lakehouse.sandbox import Limits, Sandbox
from deltaworks.names import PIN


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
    commit = log.path / layout.LOG_FOLDER / versions.file_name(log.version)
    steps = log.steps
    as_of_ms = steps.get(layout.AS_OF_MS)
    return TableInfo(
        log.path.name,
        log.path,
        log.version,
        sum(entry.rows for entry in log.files.values()),
        len(log.files),
        sum(entry.size_bytes for entry in log.files.values()),
        _written(commit),
        steps.get(layout.ROWS, steps.get(layout.SNAPSHOT)),
        None if as_of_ms is None else datetime.fromtimestamp(as_of_ms / 1000, UTC),
    )


def _written(file: Path) -> datetime | None:
    with suppress(FileNotFoundError):
        return datetime.fromtimestamp(file.stat().st_mtime, UTC)
    return None


def duckdb_connection(
    root: Path, *, names: Collection[str] | None = None, database: str = ":memory:"
) -> duckdb.DuckDBPyConnection:
    """A DuckDB connection with the tables below `root` as views, or only with those of `names`; for trusted code.

    The tables of a pipeline are those of one batch.
    Timestamps are shown in UTC. The views push columns and filters down to the files. DuckDB may do what the process
    may do: run other people's SQL in a `sandbox`.
    """
    connection = duckdb.connect(database)
    connection.execute("SET TimeZone = 'UTC'")
    add_views(connection, root, names)
    return connection


def add_views(connection: duckdb.DuckDBPyConnection, root: Path, names: Collection[str] | None = None) -> None:
    """Adds tables below `root`, or all, as views of this connection, those of a pipeline as of one batch."""
    shown = Shown(root)
    for name in table_names(root) if names is None else names:
        connection.register(name, dataset(root / name, shown.table(name)))


class Shown:
    """The tables below a folder as readers see them.

    Args:
        root: the folder of the tables.
        at: a time or the name of a pin; None: now.
    """

    def __init__(self, root: Path, at: datetime | str | None = None) -> None:
        self._root = root
        if isinstance(at, str):
            found: list[Cut | None] = list(retention.pinned(root, at).values())
        else:
            names = cuts.pipelines(root)
            found = [cuts.latest(root, name) if at is None else cuts.as_of(root, name, at) for name in names]
        self._cuts = {table: cut for cut in found if cut is not None for table in cut.tables}

    def table(self, name: str) -> DeltaTable | None:
        """A table as of the cut of its pipeline; None: no cut holds for it."""
        cut = self._cuts.get(name)
        return None if cut is None else cuts.opened(self._root, cut, name)

    def earlier(self, name: str) -> DeltaTable | None:
        """The same, with all of its files.

        Raises:
            ConfigurationError: it cannot be read any more.
        """
        cut = self._cuts.get(name)
        return None if cut is None else cuts.readable(self._root, cut, name)


def sandbox(
    root: Path, limits: Limits, query: str = "", at: datetime | int | str | None = None, *, latest: bool = False
) -> Sandbox:
    """A sandbox with the tables below `root` as views.

    Args:
        root: the folder of the tables.
        limits: what queries may use.
        query: what will run, if `at` is given: only the tables that it names have to be there at that time.
        at: a time, the number of a version or the name of a pin; None: now.
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
            box.add(name, dataset(root / name, _opened(root / name, shown, at)))
        stack.pop_all()
    return box


def _opened(path: Path, shown: Shown | None, at: datetime | int | str | None) -> DeltaTable | None:
    """A table as readers see it; None: as it is."""
    if at is None:
        return None if shown is None else shown.table(path.name)
    table = None if shown is None else shown.earlier(path.name)
    if table is None and isinstance(at, str):
        raise ConfigurationError(f"The pin '{at}' does not keep the table '{path.name}'.", hint="leave it out")
    return _earlier(path, at) if table is None and not isinstance(at, str) else table


def moment(text: str) -> datetime | int | str:
    """What `--at` means: `2026-03-01T12:00`, with a zone or in UTC, the number of a version, or the name of a pin.

    Raises:
        ConfigurationError: it is none of them.
    """
    if text.isdecimal():
        return int(text)
    try:
        return time_of(text)
    except ConfigurationError:
        if PIN.allows(text):
            return text
        raise ConfigurationError(
            f"--at takes a time, a version or a pin, but got {text!r}.",
            hint="--at 2026-03-01T12:00, --at 12, or one of deltaworks tables pins",
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
    log = path / layout.LOG_FOLDER
    known = versions.numbers(log)
    if isinstance(at, int):
        found = at if at in known and _is_whole(log, at) else None
    else:
        found = next((each for each in reversed(known) if (time := _committed(log, each)) and time <= at), None)
    if found is None:
        then = f"version {at}" if isinstance(at, int) else f"a version at {at.isoformat(' ')}"
        raise ConfigurationError(f"Table '{path.name}' has not got {then}.", hint=_span(log, known))
    try:
        table = delta_table(path, version=found)
        gone = cuts.missing(path, table)
    except DeltaError as error:
        raise ConfigurationError(
            f"Version {found} of table '{path.name}' cannot be read any more: {error}.", hint=_span(log, known)
        ) from None
    if gone:
        kept = table.metadata().configuration.get("delta.deletedFileRetentionDuration", "interval 7 days")
        raise ConfigurationError(
            f"Version {found} of table '{path.name}' cannot be read any more: {len(gone)} of its files are gone.",
            hint=f"choose a later one; the table looks back for {kept.removeprefix('interval ')} at most",
        )
    return table


def _span(log: Path, known: Sequence[int]) -> str:
    """The versions of a log, for a hint."""
    if not known:
        return "its versions are not known"
    since = _committed(log, known[0])
    when = since.isoformat(" ", "seconds") if since else "an unknown time"
    return f"its versions are from {known[0]} of {when} to {known[-1]}"


def _is_whole(log: Path, version: int) -> bool:
    with suppress(versions.TornError):
        return versions.read(log, version) is not None
    return False


def _committed(log: Path, version: int) -> datetime | None:
    """When a version was committed, as it says; delta-rs numbers versions wrongly if some before are gone."""
    with suppress(versions.TornError):
        found = versions.read(log, version)
        if found is not None and isinstance(time_ms := found.info.get("timestamp"), int):
            return datetime.fromtimestamp(time_ms / 1000, UTC)
    return None


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
