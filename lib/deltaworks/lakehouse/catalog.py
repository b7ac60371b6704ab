"""Lists tables, and runs SQL over them, for any reader.

Reading needs no driver and no lock: a table is opened at its latest version, and its files stay as long as
`TableOptions.keep_replaced_ms` says.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import duckdb

from deltaworks.errors import TableError
from deltaworks.lakehouse import layout
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
    log = _log(root, name)
    commit = log.path / layout.LOG_FOLDER / f"{log.version:020d}.json"
    steps = log.steps
    as_of_ms = steps.get(layout.AS_OF_MS)
    return TableInfo(
        name,
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
    """A DuckDB connection with every table below `root` as a view at its current version; for trusted code.

    Timestamps are shown in UTC. The views push columns and filters down to the files. DuckDB may do what the process
    may do: run other people's SQL in a `sandbox`.
    """
    connection = duckdb.connect(database)
    connection.execute("SET TimeZone = 'UTC'")
    add_views(connection, root)
    return connection


def add_views(connection: duckdb.DuckDBPyConnection, root: Path) -> None:
    """Adds every table below `root` as a view of this connection, at its current version."""
    for name in table_names(root):
        connection.register(name, dataset(root / name))


def sandbox(root: Path, limits: Limits) -> Sandbox:
    """A sandbox with every table below `root` as a view, at its current version."""
    box = Sandbox(limits)
    for name in table_names(root):
        box.add(name, dataset(root / name))
    return box


def _log(root: Path, name: str) -> DeltaLog:
    if name not in table_names(root):
        known = ", ".join(table_names(root)) or "none yet"
        raise TableError(f"There is no Delta table '{name}' below {root}.", hint=f"tables: {known}")
    log = DeltaLog(root / name)
    log.load()
    return log
