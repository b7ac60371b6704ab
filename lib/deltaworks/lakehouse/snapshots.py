"""The snapshot of a KTable: the last row per key of its changelog, as of a batch.

A refresh rewrites the files in which a key has changed (`snapshot_files`). A snapshot names the batch and the time up
to which it is right. A crash cannot separate them from the rows, because both are in one commit. `snapshot_rounds`
decides when it is refreshed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from deltaworks.clock import ticks_s, wall_ms
from deltaworks.faults import reach
from deltaworks.lakehouse import layout, parquet
from deltaworks.lakehouse.log import Commit, DeltaLog, FileEntry, OvertakenError
from deltaworks.lakehouse.schema import TableSchema
from deltaworks.lakehouse.snapshot_files import RangeChanges, RangeWriter, latest
from deltaworks.lakehouse.writes import NewFile


@dataclass(frozen=True)
class SnapshotRefresh:
    """What one refresh did."""

    table: str
    as_of_batch: int
    """The snapshot holds this batch and all before it."""
    as_of_ms: int
    """When it was made."""
    rows: int
    """Of the snapshot."""
    seconds: float
    """Time to compute and write the rows."""


@dataclass(frozen=True)
class _Job:
    """The inputs of a new snapshot; their files stay readable while it is made."""

    as_of_batch: int
    target: int
    as_of_ms: int
    held: list[str]
    news: list[str]


@dataclass(frozen=True)
class _Written:
    job: _Job
    changes: RangeChanges
    seconds: float


class Snapshot:
    """Keeps the snapshot of one KTable up to its changelog.

    Args:
        root: folder of all tables.
        schema: columns of the snapshot.
        log: its log.
        apps: application ids under which it keeps the batch and the time (ms) that it shows.
        changelog: columns, log and application id of the changelog.
        tag: tag of the query, for file names.
        background: computes and writes rows.
    """

    def __init__(
        self,
        root: Path,
        schema: TableSchema,
        log: DeltaLog,
        apps: tuple[str, str],
        changelog: tuple[TableSchema, DeltaLog, str],
        tag: str,
        background: Executor,
    ) -> None:
        self._root, self._schema, self._log = root, schema, log
        self._app_id, self._as_of_app_id = apps
        self._changelog_schema, self._changelog, self._changelog_app_id = changelog
        self._tag, self._background = tag, background
        self._writing: Future[_Written] | None = None
        self._epoch = 0
        """Counts how often the history was changed."""
        self._begun = 0
        """The epoch in which the rows that are being written were read."""
        self._last: _Written | None = None
        """The last refresh of this object."""

    @property
    def table(self) -> str:
        """Its name."""
        return self._schema.name

    @property
    def changelog(self) -> str:
        """Name of the changelog table."""
        return self._changelog_schema.name

    @property
    def as_of_batch(self) -> int:
        """The snapshot holds this batch and all before it; -1: it is empty."""
        version = self._log.transaction_version(self._app_id)
        return -1 if version is None else version

    def replaced(self) -> None:
        """Notes that the snapshot or its changelog was replaced: rows that are being written are obsolete."""
        self._epoch += 1

    def write(self, held: pa.Table, news: pa.Table, as_of_batch: int, target: int) -> list[NewFile]:
        """Writes all files of a snapshot, without a commit.

        Args:
            held: rows of the previous snapshot.
            news: rows of the changelog, in the order of files; those between the two batches count.
            as_of_batch: `held` is right as of this batch; -1: it is empty.
            target: the batch that the new snapshot shows.
        """
        written = self._ranges(target).write(held, self._changes(news, as_of_batch, target))
        parquet.sync(self._root, self._schema.name, written.added)
        return written.added

    def transactions(self, as_of_batch: int, as_of_ms: int) -> dict[str, int]:
        """The transactions that record the batch and the time of a snapshot's rows."""
        return {self._app_id: as_of_batch, self._as_of_app_id: as_of_ms}

    @property
    def stale(self) -> bool:
        """Whether the changelog has changes that the snapshot does not show."""
        target = self._changelog.transaction_version(self._changelog_app_id)
        return target is not None and self.as_of_batch < target

    @property
    def expected_s(self) -> float:
        """At most how long a refresh that begins now takes, by the last one; 0: there was none."""
        if self._last is None:
            return 0.0
        entries = self._changelog.files
        changes = sum(entries[path].rows for path in news(entries, self.as_of_batch))
        written = len(self._last.changes.added)
        files = min(changes, len(self._log.files))
        return self._last.seconds * (files / written if files < written else 1.0)

    def begin(self) -> None:
        """Begins to write the rows as of the last batch, in the background."""
        self._begun = self._epoch
        self._writing = self._background.submit(self._write, self._job())

    @property
    def ready(self) -> bool:
        """Whether `finish` would not wait."""
        return self._writing is None or self._writing.done()

    def _job(self) -> _Job:
        target = self._changelog.transaction_version(self._changelog_app_id)
        assert target is not None
        as_of_batch = self.as_of_batch
        return _Job(as_of_batch, target, wall_ms(), list(self._log.files), news(self._changelog.files, as_of_batch))

    def _write(self, job: _Job) -> _Written:
        """Runs in the background: the files that it reads stay, even if others replace them meanwhile."""
        begun = ticks_s()
        news = parquet.read_all(self._root, self._changelog_schema, job.news)
        changes = self._changes(news, job.as_of_batch, job.target)
        written = self._ranges(job.target).apply(job.held, changes)
        parquet.sync(self._root, self._schema.name, written.added)
        reach(f"snapshot.written:{self._schema.name}")
        return _Written(job, written, ticks_s() - begun)

    def finish(self) -> SnapshotRefresh | None:
        """Commits what `begin` has begun; None: it is obsolete, since what it replaces or reads was replaced."""
        assert self._writing is not None
        writing, self._writing = self._writing, None
        if self._begun != self._epoch:
            self._drop(writing)
            return None
        self._last = written = writing.result()
        job = written.job
        reach(f"snapshot.before_commit:{self._schema.name}")
        commit = Commit(
            added=written.changes.added,
            removed=written.changes.removed,
            transactions=self.transactions(job.target, job.as_of_ms),
            operation="MERGE",
            metadata={"asOfBatch": job.target, "asOfMs": job.as_of_ms},
        )
        if not all(path in self._log.files for path in written.changes.removed):
            self._drop(writing)
            return None
        try:
            self._log.commit(commit)
        except OvertakenError:
            self._drop(writing)
            return None
        reach(f"snapshot.after_commit:{self._schema.name}")
        return SnapshotRefresh(self._schema.name, job.target, job.as_of_ms, written.changes.rows, written.seconds)

    def _drop(self, writing: Future[_Written]) -> None:
        """Drops rows whose sources were replaced by a publication or another writer; the next refresh is right."""
        if writing.exception() is None:
            for file in writing.result().changes.added:
                (self._log.path / file.path).unlink(missing_ok=True)

    def _changes(self, news: pa.Table, as_of_batch: int, target: int) -> pa.Table:
        """The last row per key of the batches after one, up to another one."""
        batch_ids = news.column("batch_id")
        wanted = pc.and_(pc.greater(batch_ids, as_of_batch), pc.less_equal(batch_ids, target))
        return latest(news.filter(wanted), self._schema)

    def _ranges(self, target: int) -> RangeWriter:
        return RangeWriter(self._root, self._schema, tag=self._tag, batch_id=target)


def news(changelog: Mapping[str, FileEntry], as_of_batch: int) -> list[str]:
    """Files of a changelog that may hold later batches, oldest first."""
    found = [path for path, entry in changelog.items() if last_batch(entry.statistics) > as_of_batch]
    return sorted(found, key=lambda path: (layout.batch_of(path) or (-1, ""), path))


def last_batch(statistics: str | None) -> int:
    """The last batch in a file of a changelog; a very high one if unknown."""
    return int(json.loads(statistics or "{}").get("maxValues", {}).get("batch_id", 1 << 62))
