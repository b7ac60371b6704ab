"""The snapshot of a KTable: the last row per key of its changelog, as of a batch.

A snapshot is rewritten when its changelog has grown by a tenth, so a changed row is copied about ten times at most,
however large the table is. It names the batch and the time up to which it is right; a crash changes nothing about that,
because rows and as-of are one commit.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from deltaworks.faults import reach
from deltaworks.lakehouse import layout, parquet
from deltaworks.lakehouse.log import Commit, DeltaLog
from deltaworks.lakehouse.schema import TableSchema
from deltaworks.lakehouse.writes import NewFile

MIN_GROWTH_ROWS = 10_000
GROWTH = 0.1
FILE_ROWS = 1_000_000


@dataclass(frozen=True)
class SnapshotRefresh:
    """What one refresh did."""

    table: str
    as_of_batch: int
    """The snapshot holds this batch and all before it."""
    as_of_ms: int
    """When it was made."""
    rows: int
    seconds: float


@dataclass(frozen=True)
class _Job:
    """What a new snapshot is made of; files stay readable while it is made."""

    as_of_batch: int
    target: int
    as_of_ms: int
    held: list[str]
    news: list[str]
    begun: float


@dataclass(frozen=True)
class _Written:
    job: _Job
    rows: int
    files: list[NewFile]


class Snapshot:
    """Keeps the snapshot of one KTable up to its changelog.

    Args:
        root: folder of all tables.
        schema: columns of the snapshot.
        log: its log.
        apps: application ids under which it keeps the batch and the time (ms) that it shows.
        changelog: columns, log and application id of the changelog.
        tag: the query, for file names.
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
        self._held_rows = sum(entry.rows for entry in log.files.values())
        self._grown_rows = sum(self._changelog.files[path].rows for path in self._news())

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
        """The snapshot holds this batch and all before it; -1: it holds nothing."""
        version = self._log.transaction_version(self._app_id)
        return -1 if version is None else version

    def grew(self, rows: int) -> None:
        """The changelog has that many more rows."""
        self._grown_rows += rows

    @property
    def stale(self) -> bool:
        """The changelog has changes that the snapshot does not show."""
        target = self._changelog.transaction_version(self._changelog_app_id)
        return target is not None and self.as_of_batch < target

    def refresh(self, *, force: bool = False, eager: bool = False) -> list[SnapshotRefresh]:
        """Commits a snapshot whose rows are ready, and begins a new one if that is due.

        Args:
            force: it is due as soon as anything has changed, and is waited for.
            eager: it is due as soon as anything has changed.
        """
        refreshed = []
        if self._writing is not None and (force or self._writing.done()):
            refreshed.append(self._finish())
        if self._writing is None and self._is_due(force or eager):
            job = self._job()
            self._grown_rows = 0
            self._writing = self._background.submit(self._write, job)
            if force:
                refreshed.append(self._finish())
        return refreshed

    def _is_due(self, eager: bool) -> bool:
        return self.stale and (eager or self._grown_rows >= max(MIN_GROWTH_ROWS, GROWTH * self._held_rows))

    def _job(self) -> _Job:
        target = self._changelog.transaction_version(self._changelog_app_id)
        assert target is not None
        return _Job(self.as_of_batch, target, _now_ms(), list(self._log.files), self._news(), time.perf_counter())

    def _write(self, job: _Job) -> _Written:
        """In the background: the files it reads stay, even if others replace them meanwhile."""
        rows = self._latest(job)
        files = []
        for begin in range(0, rows.num_rows, FILE_ROWS):
            name = layout.part_name("snapshot", job.target, 0, self._tag)
            files.append(parquet.write(self._root, self._schema, name, rows.slice(begin, FILE_ROWS)))
        return _Written(job, rows.num_rows, files)

    def _finish(self) -> SnapshotRefresh:
        assert self._writing is not None
        written, self._writing = self._writing.result(), None
        job = written.job
        reach(f"snapshot.before_commit:{self._schema.name}")
        self._log.commit(
            Commit(
                added=written.files,
                removed=job.held,
                transactions={self._app_id: job.target, self._as_of_app_id: job.as_of_ms},
                operation="WRITE",
                parameters={"mode": "Overwrite"},
                metadata={"asOfBatch": job.target, "asOfMs": job.as_of_ms},
            )
        )
        reach(f"snapshot.after_commit:{self._schema.name}")
        self._held_rows = written.rows
        seconds = time.perf_counter() - job.begun
        return SnapshotRefresh(self._schema.name, job.target, job.as_of_ms, written.rows, seconds)

    def _news(self) -> list[str]:
        """Files of the changelog that hold batches that the snapshot does not, oldest first."""
        as_of = self.as_of_batch
        news = [path for path, entry in self._changelog.files.items() if _last_batch(entry.statistics) > as_of]
        return sorted(news, key=lambda path: (layout.batch_of(path) or (-1, ""), path))

    def _latest(self, job: _Job) -> pa.Table:
        """The last row per key; the order of rows of one key is that of batches, then of the file."""
        held = parquet.read_all(self._root, self._schema, job.held)
        held = held.append_column("op", pa.repeat(pa.scalar("upsert"), held.num_rows))
        news = parquet.read_all(self._root, self._changelog_schema, job.news)
        batch_ids = news.column("batch_id")
        wanted = pc.and_(pc.greater(batch_ids, job.as_of_batch), pc.less_equal(batch_ids, job.target))
        news = news.filter(wanted).select(held.column_names).sort_by([("batch_id", "ascending")])
        rows = pa.concat_tables([held, news])
        numbered = rows.select(self._schema.key_names).append_column(
            "number", pa.array(range(rows.num_rows), pa.int64())
        )
        last = numbered.group_by(list(self._schema.key_names)).aggregate([("number", "max")])
        rows = rows.take(last.column("number_max").sort())
        return rows.filter(pc.not_equal(rows.column("op"), "delete")).drop_columns(["op"])


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _last_batch(statistics: str | None) -> int:
    return int(json.loads(statistics or "{}").get("maxValues", {}).get("batch_id", 1 << 62))
