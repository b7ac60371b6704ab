"""The replacement of one table by a publish: which files it removes, and which it adds; made but not committed here.

| table | goes | comes |
|---|---|---|
| windowed | the files of the days | those of staging |
| append, dead letters | rows of the time range and of the batches up to the replay's last one | likewise |
| changelog | rows of the batches up to the replay's last one | all files of staging |
| snapshot | all files | the changelog of the replay and the later batches of production, reduced |

A file that loses some rows is replaced by one with the others. Files of staging come in as second links to the same
data, under new names with the tag of production's query, because its cleanup goes by that tag. The next driver's start
removes files that were made and not committed.

For the order of commits and the record of them see `publication`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from deltaworks.clock import wall_ms
from deltaworks.errors import TableError
from deltaworks.files import link_all
from deltaworks.lakehouse import layout, parquet, row_origins, snapshots
from deltaworks.lakehouse.committer import OpenTable, TableCommitter
from deltaworks.lakehouse.log import DeltaLog, FileEntry
from deltaworks.lakehouse.publish.scope import LETTER_SOURCE, ROW_SOURCE, Scope, open_days
from deltaworks.lakehouse.publish.windows import Bounds, day_of, early_windows, later_windows
from deltaworks.lakehouse.schema import Role, TableSchema, changelog_name
from deltaworks.lakehouse.trash import Trash
from deltaworks.lakehouse.writes import NewFile


@dataclass(frozen=True)
class Replacement:
    """The replacement of one table, before its commit."""

    removed: list[NewFile] = field(default_factory=list)
    added: list[NewFile] = field(default_factory=list)
    transactions: dict[str, int] = field(default_factory=dict)
    """For a snapshot: the batch and the time that it shows."""


class Staging:
    """The tables of one replay.

    Args:
        root: folder of the staging tables.
        query_id: the query that the replay has written them as.
    """

    def __init__(self, root: Path, query_id: str) -> None:
        self.root, self._query_id = root, query_id
        self._logs: dict[str, DeltaLog] = {}

    def open(self, schema: TableSchema, last_batch: int) -> None:
        """Reads the log of a table.

        Raises:
            TableError: there is no such table, it has other columns or another owner, or it holds later batches.
        """
        path = self.root / schema.name
        if not (path / layout.LOG_FOLDER).is_dir():
            raise TableError(
                f"Run {self._query_id} has no staging table '{schema.name}' below {self.root}.",
                hint="run the replay with the code that is to be published, then publish again",
            )
        log = DeltaLog(path)
        log.load()
        if log.owner != self._query_id:
            raise TableError(
                f"Staging table '{schema.name}' below {self.root} is that of run {log.owner}, not of run "
                f"{self._query_id}.",
                hint="each run needs a separate folder",
            )
        log.check(schema, self._query_id)
        held = log.steps.get(layout.ROWS, -1)
        if held > last_batch:
            raise TableError(
                f"Staging table '{schema.name}' of run {self._query_id} holds batch {held}, but batches up to "
                f"{last_batch} were to be published.",
                hint="publish with the last batch that the replay has processed",
            )
        self._logs[schema.name] = log

    def log(self, table: str) -> DeltaLog:
        """The log of an opened table."""
        return self._logs[table]


def check_days(root: Path, table: OpenTable, staging: Staging, scope: Scope) -> None:
    """Checks that the days of a windowed table can be replaced.

    Args:
        root: folder of the production tables.
        table: the table of production.
        staging: tables of the replay, opened.
        scope: what the replay stands for.

    Raises:
        TableError: a day has windows that may still change, or that the replay has not read to their end.
    """
    name = table.schema.name
    for place, log in (("production", table.log), ("the replay", staging.log(name))):
        if days := sorted(day for day in open_days(log.files) if scope.holds_day(day)):
            raise TableError(
                f"{days[0]} of table '{name}' is not complete: {place} has windows of that day that may still change.",
                hint=f"publish the days before {days[0]}, or wait until they are closed",
            )
    staged = staging.log(name)
    for path in filter(lambda path: scope.holds_day(day_of(path)), table.log.files):
        _require_ours(name, path)
    for day, end_ms in later_windows(root, table.schema, table.log, staged, scope):
        raise TableError(
            f"{day} of table '{name}' has windows in production, up to {layout.utc(end_ms)}, that were closed after "
            f"batch {scope.last_batch}; the replay ends with it and may not know them.",
            hint="replay again, up to a later batch",
        )
    for day, end_ms in early_windows(table.log, staged, scope):
        raise TableError(
            f"{day} of table '{name}' has windows in the replay, up to {layout.utc(end_ms)}, to which production may "
            "still write.",
            hint="publish when the stream has closed them",
        )


def check_reach(root: Path, table: OpenTable, scope: Scope) -> None:
    """Checks that the rows of an append-only table can be told apart from those that were published before.

    Raises:
        TableError: an earlier publication covers later batches, and the rows of a replay do not name the batch exactly.
            Or another writer has written a file, whose rows do not name it at all.
    """
    for path, entry in table.log.files.items():
        if Bounds.of(entry).overlaps(scope):
            _require_ours(table.schema.name, path)
        if not path.startswith(f"{layout.PUBLISHED}-") or not Bounds.of(entry).overlaps(scope):
            continue
        last = max((batch for batch, _ in row_origins.of_file(root, table.schema, path, entry.rows) or ()), default=-1)
        if last > scope.last_batch:
            raise TableError(
                f"Table '{table.schema.name}' holds rows of batch {last} that another replay has published; "
                f"this one ends with batch {scope.last_batch}.",
                hint="roll that one back first, or replay up to a later batch",
            )


def _require_ours(table: str, path: str) -> None:
    """Requires a file of ours: only these say which batches wrote their rows."""
    if layout.batch_of(path) is None:
        raise TableError(
            f"{path} of table '{table}' was written by somebody else (an OPTIMIZE?), so nobody knows which batches its "
            "rows belong to, and what a replay of days may replace.",
            hint="publish other days, or hand the stream over to a replay of all: deltaworks replay <pipeline> "
            "--hand-over",
        )


class Replacing:
    """Makes the files of one publish.

    Args:
        committer: of the production tables.
        staging: tables of the replay, opened.
        scope: what the replay stands for.
    """

    def __init__(self, committer: TableCommitter, staging: Staging, scope: Scope) -> None:
        self._committer, self._staging, self._scope = committer, staging, scope
        self._links: list[tuple[Path, Path]] = []
        """Files of staging, and what they are called in production."""

    def make(self, table: OpenTable) -> Replacement:
        """Makes the files of one table on disk, and what has to be committed."""
        match table.schema.role:
            case Role.WINDOWED:
                made = self._whole_days(table)
            case Role.APPEND | Role.DEAD_LETTERS | Role.CHANGELOG:
                made = self._rows(table)
            case Role.SNAPSHOT:
                made = self._snapshot(table)
            case role:
                raise TableError(
                    f"'{table.schema.name}' is a table of {role.value}, which a replay reads and does not replace.",
                    hint="publish the tables that the pipeline computes",
                )
        link_all(self._links)
        self._links.clear()
        parquet.sync(self._committer.root, table.schema.name, made.added)
        return made

    def _whole_days(self, table: OpenTable) -> Replacement:
        made = Replacement()
        for path, entry in table.log.files.items():
            if self._scope.holds_day(day_of(path)):
                made.removed.append(as_file(path, entry))
        for path, entry in self._staging.log(table.schema.name).files.items():
            if self._scope.holds_day(day_of(path)):
                made.added.append(self._link(table, path, entry))
        return made

    def _rows(self, table: OpenTable) -> Replacement:
        made = Replacement()
        root, schema = self._committer.root, table.schema
        for path, entry in table.log.files.items():
            mask = self._mask(root, schema, path, entry)
            if not pc.any(mask).as_py():
                continue
            made.removed.append(as_file(path, entry))
            if not pc.all(mask).as_py():
                made.added.append(self._write(table, layout.REMAINING, (root, path, entry), pc.invert(mask)))
        root = self._staging.root
        for path, entry in self._staging.log(schema.name).files.items():
            mask = self._mask(root, schema, path, entry)
            if pc.all(mask).as_py():
                made.added.append(self._link(table, path, entry))
            elif pc.any(mask).as_py():
                made.added.append(self._write(table, layout.PUBLISHED, (root, path, entry), mask))
        return made

    def _mask(self, root: Path, schema: TableSchema, path: str, entry: FileEntry) -> pa.Array | pa.ChunkedArray:
        """Which rows of a file are in the scope; reads the file only if the log does not decide it for all rows."""
        bounds, last = Bounds.of(entry), self._scope.last_batch
        if schema.role is Role.CHANGELOG:
            if bounds.lowest("batch_id") > last or bounds.highest("batch_id") <= last:
                return pa.repeat(bounds.lowest("batch_id") <= last, entry.rows)
            return self._scope.mask(schema, parquet.read(root, schema, path, ["batch_id"]))
        if not bounds.overlaps(self._scope):
            return pa.repeat(False, entry.rows)
        if (written := row_origins.of_file(root, schema, path, entry.rows)) is None:
            return self._scope.mask(schema, parquet.read(root, schema, path, _columns_of_scope(schema)))
        replayed = row_origins.rows_up_to(written, last)
        is_replayed = pa.concat_arrays([pa.repeat(True, replayed), pa.repeat(False, entry.rows - replayed)])
        if replayed == 0 or bounds.lies_within(self._scope):
            return is_replayed
        times = parquet.read(root, schema, path, ["timestamp"]).column("timestamp")
        return pc.and_(self._scope.is_in_time(times), pa.chunked_array([is_replayed]))

    def _snapshot(self, table: OpenTable) -> Replacement:
        """Starts from the replay's own snapshot, which is its changelog up to some batch."""
        schema, changelog = table.schema, self._committer.tables[changelog_name(table.schema.name)]
        staged, last = self._staging.log(schema.name), self._scope.last_batch
        as_of = staged.steps.get(layout.SNAPSHOT, -1)
        held = parquet.read_all(self._staging.root, schema, list(staged.files))
        news = snapshots.news(self._staging.log(changelog.schema.name).files, as_of)
        later = snapshots.news(changelog.log.files, last)
        rows = parquet.read_all(self._committer.root, changelog.schema, later)
        parts = [
            parquet.read_all(self._staging.root, changelog.schema, news),
            rows.filter(pc.greater(rows.column("batch_id"), last)),
        ]
        return rewritten_snapshot(self._committer, table, held, pa.concat_tables(parts), as_of, last)

    def _link(self, table: OpenTable, path: str, entry: FileEntry) -> NewFile:
        new = _renamed(layout.PUBLISHED, path, table.tag)
        self._links.append((self._staging.root / table.schema.name / path, table.log.path / new))
        return as_file(new, entry)

    def _write(
        self, table: OpenTable, kind: str, source: tuple[Path, str, FileEntry], mask: pa.Array | pa.ChunkedArray
    ) -> NewFile:
        """Writes some rows of a file to a new file."""
        root, path, entry = source
        rows = parquet.read(root, table.schema, path).filter(mask)
        written = None
        if table.schema.role is not Role.CHANGELOG:  # whose rows say it themselves
            whole = row_origins.of_file(root, table.schema, path, entry.rows)
            written = None if whole is None else row_origins.chosen(whole, mask)
        return parquet.write(self._committer.root, table.schema, _renamed(kind, path, table.tag), rows, written)


def rewritten_snapshot(
    committer: TableCommitter, table: OpenTable, held: pa.Table, news: pa.Table, as_of_batch: int, last_batch: int
) -> Replacement:
    """Rewrites all files of a snapshot.

    Args:
        committer: of the tables.
        table: the snapshot.
        held: rows as of `as_of_batch`.
        news: later rows of the changelog, in the order of files.
        as_of_batch: -1: `held` is empty.
        last_batch: last batch of the publication; the snapshot shows it, or a later one that its changelog holds.
    """
    snapshot = committer.snapshot(table.schema.name)
    held_batch = committer.committed_batch(snapshot.changelog)
    target = max(last_batch, snapshot.as_of_batch, -1 if held_batch is None else held_batch)
    files = snapshot.write(held, news, as_of_batch, target)
    removed = [as_file(path, entry) for path, entry in table.log.files.items()]
    return Replacement(removed, files, snapshot.transactions(target, wall_ms()))


def as_file(path: str, entry: FileEntry) -> NewFile:
    """A file of a table in the form in which it can be added."""
    return NewFile(path, entry.size_bytes, entry.rows, entry.statistics or "")


def discard(table: OpenTable, files: Iterable[NewFile]) -> None:
    """Moves files that were made and not committed to the trash."""
    Trash(table.log.path).put((file.path for file in files if file.path not in table.log.files), wall_ms())


def _ms(text: object) -> int:
    return round(datetime.fromisoformat(str(text)).timestamp() * 1000)


def _renamed(kind: str, path: str, tag: str) -> str:
    """The name of another kind of file, in the same place and for the same batch as `path`."""
    folder, _, _ = path.rpartition("/")
    found = layout.batch_of(path)
    name = layout.part_name(kind, found[0] if found else 0, 0, tag)
    return f"{folder}/{name}" if folder else name


def _columns_of_scope(schema: TableSchema) -> list[str]:
    return ["timestamp", *(LETTER_SOURCE if schema.role is Role.DEAD_LETTERS else ROW_SOURCE)]
