"""The driver's side of the tables: commits the files that tasks wrote, exactly once.

The driver is the only committer of its tables. It reads each table's log once, at `open`, and continues in memory. The
log is the truth; anything else on disk may vanish. A batch is one commit per table, marked with the batch id under the
application id `pipeline/table/step/query`, so a batch that runs again is recognised and skipped.

A batch id alone is not enough: under a checkpoint that was rewound it stands for other records. So each commit of a
batch also says which intent it carries out, and a batch is skipped only if its intent is the same.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from deltaworks import files
from deltaworks.clock import ticks_s, wall_ms
from deltaworks.errors import IntentError, TableError
from deltaworks.faults import reach
from deltaworks.lakehouse import archive, layout, page_index
from deltaworks.lakehouse.cuts import Cut, CutWriter
from deltaworks.lakehouse.housekeeping import Housekeeping
from deltaworks.lakehouse.layout import PageName
from deltaworks.lakehouse.log import Commit, DeltaLog
from deltaworks.lakehouse.old_versions import OldVersions
from deltaworks.lakehouse.page_index import PageChange, PageList, PageListWriter
from deltaworks.lakehouse.retained import RetainedFiles
from deltaworks.lakehouse.retention import KeptCuts, Retention
from deltaworks.lakehouse.schema import Role, TableSchema, changelog_name, plan_schemas
from deltaworks.lakehouse.snapshot_rounds import SnapshotRounds
from deltaworks.lakehouse.snapshots import Snapshot, SnapshotRefresh
from deltaworks.lakehouse.trash import Trash
from deltaworks.lakehouse.writes import TableWrite
from deltaworks.object_path import ObjectPath
from deltaworks.topology.nodes.sinks import DeltaSink

_AT_ONCE = 8
"""Commits to different tables of an object store that are made at the same time."""
_log = logging.getLogger(__name__)
_SET_BACK = (
    "was an older copy of the checkpoint restored? Restore the one that was there, or a copy of checkpoint and "
    "tables of the same time; or rebuild state and tables: deltaworks replay <pipeline> --hand-over"
)


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """How long files that are no longer needed stay on disk."""

    retention: Retention = field(default_factory=Retention)
    """How long versions can be read."""
    keep_retained_ms: int = 7 * 24 * 60 * 60_000
    """What a publication has replaced stays this long, so that it can be rolled back."""
    keep_trash_ms: int = 7 * 24 * 60 * 60_000
    """Files that no log names stay this long, and files that others have removed, once a driver has seen it."""

    @property
    def properties(self) -> dict[str, str]:
        """The options as properties of a Delta table."""
        return {"delta.checkpointInterval": "1000", **self.retention.properties}


@dataclass(frozen=True)
class TableCommit:
    """The effect of `commit` on one table."""

    table: str
    batch_id: int
    version: int
    skipped: bool
    """The batch was already there."""
    changed_rows: int
    seconds: float
    begun_s: float = 0.0
    """When it began, in ticks."""


@dataclass
class OpenTable:
    """One physical table as the driver knows it."""

    schema: TableSchema
    log: DeltaLog
    app_id: str
    tag: str
    control: Path
    """The folder with what tasks are told; see `page_index`."""
    housekeeping: Housekeeping
    kept: RetainedFiles
    pages: dict[int, PageListWriter] = field(default_factory=dict)
    """The page lists of a windowed table, per task."""


@dataclass(frozen=True)
class _Moment:
    """All tables but snapshots, between two batches."""

    batch_id: int
    at_ms: int
    versions: dict[str, int]


class TableCommitter:
    """Commits the batches of one query to its tables.

    Args:
        root: folder of all tables.
        application: name of the pipeline.
        query_id: identity of the checkpoint; a table belongs to one.
        tables: the Delta sinks of all stages.
        dead_letter_table: the table of records that were set aside.
        archives: the tables of the records that were read.
        options: how long replaced files and log files stay.
    """

    def __init__(
        self,
        root: Path,
        application: str,
        query_id: str,
        tables: Sequence[DeltaSink],
        dead_letter_table: str | None = None,
        *,
        archives: Sequence[str] = (),
        options: TableOptions | None = None,
    ) -> None:
        self.root, self.application = root, application
        self._query_id = query_id
        self._schemas = plan_schemas(tables, dead_letter_table, archives, pipeline=application)
        self._options = options or TableOptions()
        self.tables: dict[str, OpenTable] = {}
        """Open tables by name, once `open` was called."""
        self._snapshots: dict[str, Snapshot] = {}
        """Snapshots by the name of the changelog."""
        self._rounds: SnapshotRounds[_Moment] = SnapshotRounds((), self._moment)
        self._batch_id: int | None = None
        """The last batch in the tables; None: they may hold parts of another one."""
        self._cuts = CutWriter(root, application)
        self._kept_cuts = KeptCuts(root, application, self._options.retention)
        self._cut: Cut | None = None
        self._background = ThreadPoolExecutor(max_workers=1, thread_name_prefix="delta-housekeeping")
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="delta-commit")
        """For commits that wait for an object store."""

    def open(
        self,
        generation: int,
        *,
        uncommitted: Collection[str] = (),
        admitted: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """Creates missing tables, reads the logs, tells tasks about pages.

        Args:
            generation: generation of the pipeline; older ones can no longer commit.
            uncommitted: paths of files that tasks have written and that the next commit will name.
            admitted: cuts are written within it, since they have no version; it raises if a newer generation has begun.

        Raises:
            FencedError: a newer generation has opened the tables.
            TableError: a table has other columns, or belongs to another checkpoint.
        """
        self.tables = {schema.name: self._open(schema, generation, uncommitted) for schema in self._schemas}
        self._admitted = admitted
        self._snapshots = {}
        for table in self.tables.values():
            if table.schema.role is Role.SNAPSHOT:
                changelog = self.tables[changelog_name(table.schema.name)]
                source = (changelog.schema, changelog.log, changelog.app_id)
                apps = (table.app_id, self._app(table.schema.name, layout.AS_OF_MS))
                snapshot = Snapshot(self.root, table.schema, table.log, apps, source, table.tag, self._background)
                self._snapshots[changelog.schema.name] = snapshot
        self._rounds = SnapshotRounds(list(self._snapshots.values()), self._moment)

    def commit(
        self,
        batch_id: int,
        writes: Iterable[TableWrite],
        *,
        intent: int | None = None,
        digest: str = "",
        known: int = -1,
        topics: Mapping[str, str] | None = None,
        provenance: Mapping[str, object] | None = None,
    ) -> list[TableCommit]:
        """Commits what the tasks of a batch wrote: one table after the other, in an object store several at once.

        Args:
            batch_id: id of the batch.
            writes: writes of all its tasks.
            intent: number that stands for the batch's intent; None: it has none, as in a replay.
            digest: digest of the intent, for readers of the table's history.
            known: batches up to this one may be in the tables already, because the caller has compared them with
                their intents.
            topics: ids of the topics that were read, for archives.
            provenance: what else the table's history says of the batch, such as its code and its offsets.

        Returns:
            One entry for each table that the batch changes.

        Raises:
            FencedError: a newer generation has taken over.
            IntentError: a table holds another batch under this id, or later batches that nobody knows; nothing was
                committed.
            TableError: another writer has committed to one of the tables, or an archive holds another topic.
            TransientError: a file that a task has written is missing.
        """
        by_table: dict[str, list[TableWrite]] = defaultdict(list)
        for write in writes:
            by_table[write.table].append(write)
        for table in self.tables.values():  # even without writes: tasks leave out what they see is there
            self._check_intent(table, batch_id, intent, known)
            self._check_topics(table, by_table.get(table.schema.name, ()), topics or {})
        self._make_durable(batch_id, by_table)
        self._batch_id = None
        metadata = {**self._metadata(batch_id, digest), **(provenance or {})}
        changed = [table for name, table in self.tables.items() if name in by_table]

        def commit(table: OpenTable) -> TableCommit:
            return self._commit(table, batch_id, by_table[table.schema.name], intent, metadata, topics or {})

        if isinstance(self.root, ObjectPath):
            begun = [self._threads.submit(commit, table) for table in changed]
            wait(begun)  # before one of them raises: whoever tries again must not meet the others
            committed = [each.result() for each in begun]
        else:  # on a disk, they are faster one after the other
            committed = [commit(table) for table in changed]
        self._batch_id = batch_id
        return committed

    def replace(self, table: str, commit: Commit) -> int:
        """Commits a change that belongs to no batch, such as a publication; drops background work on the old files.

        Returns:
            The version.

        Raises:
            FencedError, TableError: see `commit`.
        """
        entry = self.tables[table]
        version = entry.log.commit(commit)
        for changelog, snapshot in self._snapshots.items():
            if table in (changelog, snapshot.table):
                snapshot.replaced()
        self._rounds.forget()
        entry.housekeeping.after_commit(commit.added, commit.removed)
        return version

    def snapshot(self, table: str) -> Snapshot:
        """The snapshot of a KTable, by its own name."""
        return next(snapshot for snapshot in self._snapshots.values() if snapshot.table == table)

    def refresh_snapshots(self, *, force: bool = False, eager: bool = False) -> list[SnapshotRefresh]:
        """Brings the snapshots of KTables up to date with their changelogs, if they are due.

        Rows are computed in the background and committed by a later call.

        Args:
            force: refresh every snapshot that is behind, and wait for it.
            eager: refresh every snapshot that is behind, even if it is not due.

        Returns:
            The snapshots that were committed by this call.
        """
        refreshed = self._rounds.refresh(force=force, eager=eager)
        for done in refreshed:
            self.tables[done.table].housekeeping.after_commit([])
        return refreshed

    def settled(self, batch_id: int) -> None:
        """Says that a batch was the last one before this committer; without it, tables may hold parts of a later one.

        Args:
            batch_id: the last batch of the record; -1: there was none.
        """
        if all(held <= batch_id for held, _ in self.committed().values()):
            self._batch_id = batch_id

    def publish_cut(self) -> Cut | None:
        """Writes which versions of the tables belong together, for readers; to be called between batches.

        A driver that wakes up late must not take readers back to an earlier batch.

        Where snapshots of KTables are behind, it is the tables as of the batch that they show.

        Returns:
            What was written; None: the tables have not gone on.

        Raises:
            FencedError: a newer generation has taken over.
        """
        moment = self._rounds.shown if self.stale_snapshots else self._moment()
        if moment is None or self._batch_id is None:
            return None
        shown = {snapshot.table: self.tables[snapshot.table].log.version for snapshot in self._snapshots.values()}
        cut = Cut(
            pipeline=self.application,
            query=self._query_id,
            batch_id=moment.batch_id,
            at_ms=moment.at_ms,
            tables=moment.versions | shown,
        )
        if self._cut is not None and (self._cut.batch_id, self._cut.tables) == (cut.batch_id, cut.tables):
            return None
        self._cut = cut
        for table in self.tables.values():
            table.housekeeping.shown_ms = cut.at_ms
        with self._admitted():
            self._cuts.write(cut)
        return cut

    def _moment(self) -> _Moment | None:
        """What the tables show now; None: perhaps only a part of a batch."""
        if self._batch_id is None:
            return None
        others = {
            name: table.log.version for name, table in self.tables.items() if table.schema.role is not Role.SNAPSHOT
        }
        return _Moment(self._batch_id, wall_ms(), others)

    @property
    def stale_snapshots(self) -> list[str]:
        """Tables of KTables that are behind their changelogs."""
        return [snapshot.table for snapshot in self._snapshots.values() if snapshot.stale]

    def settle(self) -> None:
        """Waits for background work; later calls commit its results."""
        self._background.submit(int).result()

    def close(self) -> None:
        """Waits for work in progress. Data is not lost without it."""
        for table in self.tables.values():
            table.housekeeping.close()
        self._cuts.close()
        self._background.shutdown()
        self._threads.shutdown()

    def committed_batch(self, table: str) -> int | None:
        """The last batch that changed a table."""
        entry = self.tables[table]
        return entry.log.transaction_version(entry.app_id)

    def committed(self) -> dict[str, tuple[int, int | None]]:
        """Table -> the last batch that changed it, and the number of its intent (None: it had none).

        Omits tables without a batch, and snapshots, which follow their changelogs.
        """
        found = {}
        for name, table in self.tables.items():
            batch_id = table.log.transaction_version(table.app_id)
            if batch_id is not None and table.schema.role is not Role.SNAPSHOT:
                found[name] = batch_id, table.log.transaction_version(self._app(name, layout.INTENT))
        return found

    def already_committed(self, log: DeltaLog, app_id: str, batch_id: int) -> bool:
        """Whether a table holds a batch."""
        version = log.transaction_version(app_id)
        return version is not None and version >= batch_id

    def _make_durable(self, batch_id: int, writes: Mapping[str, Sequence[TableWrite]]) -> None:
        """Syncs all files that tasks have written, side by side, before a commit names them."""
        paths = []
        for name, table in self.tables.items():
            if name in writes and not self.already_committed(table.log, table.app_id, batch_id):
                added = [new for write in writes[name] for new in write.added]
                table.log.check_files(added)
                paths += [table.log.path / new.path for new in added]
        files.sync(paths)

    def _check_intent(self, table: OpenTable, batch_id: int, intent: int | None, known: int) -> None:
        name, held = table.schema.name, table.log.transaction_version(table.app_id)
        if held is None or held < batch_id or table.schema.role is Role.SNAPSHOT:
            return
        if held > batch_id and held > known:
            raise IntentError(
                f"Delta table '{name}' holds batch {held} of pipeline '{self.application}', but batch {batch_id} is to "
                "be committed: the checkpoint was rewound, and its batches no longer mean what is in the table.",
                hint=_SET_BACK,
            )
        committed = table.log.transaction_version(self._app(name, layout.INTENT))
        if held == batch_id and intent is not None and committed != intent:
            raise IntentError(
                f"Delta table '{name}' holds batch {batch_id} of pipeline '{self.application}' with intent "
                f"{committed}, but the batch that is to be committed has intent {intent}: other records.",
                hint=_SET_BACK,
            )

    def _app(self, table: str, step: str) -> str:
        return layout.app_id(self.application, table, step, self._query_id)

    def _open(self, schema: TableSchema, generation: int, uncommitted: Collection[str]) -> OpenTable:
        log = DeltaLog.create_or_open(
            self.root, schema, query_id=self._query_id, properties=self._options.properties, may_lack=True
        )
        log.fence(self._app(schema.name, layout.GENERATION), generation)
        if added := log.add_columns(schema):
            _log.info("Delta table '%s' has the new columns %s.", schema.name, ", ".join(added))
        log.describe(schema, self._options.properties)
        step = layout.SNAPSHOT if schema.role is Role.SNAPSHOT else layout.ROWS
        tag = layout.query_tag(self._query_id)
        control = page_index.open_for(log.path, tag).control
        if schema.role is Role.ARCHIVE:
            page_index.publish_held(control, archive.spans_of(log.transactions))
        kept = RetainedFiles(log.path, keep_ms=self._options.keep_retained_ms)
        housekeeping = Housekeeping(
            self.root,
            schema,
            log,
            tag,
            self._background,
            old=OldVersions(log.path, self._kept_cuts, tag, uncommitted),
            keep_ms=round(self._options.retention.versions.total_seconds() * 1000),
            kept=kept,
            keep_trash_ms=self._options.keep_trash_ms,
        )
        table = OpenTable(schema, log, self._app(schema.name, step), tag, control, housekeeping, kept)
        table.pages = {task: PageListWriter(control, task, pages) for task, pages in self._page_lists(table).items()}
        return table

    def _page_lists(self, table: OpenTable) -> dict[int, PageList]:
        """The open pages of every task, from the log."""
        batch_id = table.log.transaction_version(table.app_id)
        lists: dict[int, PageList] = defaultdict(lambda: PageList(-1 if batch_id is None else batch_id))
        for path in sorted(filter(layout.is_page, table.log.files)):
            lists[PageName.of(path).task].paths.append(path)
        for task, before_ms in table.log.closed_ms.items():
            lists[task].closed_before_ms = before_ms
        return lists

    def _commit(
        self,
        table: OpenTable,
        batch_id: int,
        writes: Sequence[TableWrite],
        intent: int | None,
        metadata: Mapping[str, object],
        topics: Mapping[str, str],
    ) -> TableCommit:
        begun = ticks_s()
        log, name = table.log, table.schema.name
        rows = sum(write.changed_rows for write in writes)
        reach(f"delta.before_commit:{name}")
        if self.already_committed(log, table.app_id, batch_id):
            self._discard(table, writes)
            return TableCommit(name, batch_id, log.version, True, rows, ticks_s() - begun, begun)
        closed = {write.task: write.closed_before_ms for write in writes if write.closed_before_ms is not None}
        commit = Commit(
            added=[new for write in writes for new in write.added],
            removed=[path for write in writes for path in write.removed],
            transactions={
                table.app_id: batch_id,
                **({} if intent is None else {self._app(name, layout.INTENT): intent}),
                **{self._app(name, layout.closed_step(task)): before_ms for task, before_ms in closed.items()},
                **self._spans(table, writes, topics),
            },
            parameters={"queryId": self._query_id, "epochId": str(batch_id), "outputMode": "Update"},
            metadata=metadata,
        )
        version = log.commit(commit, checked=True)  # by `_make_durable`
        reach(f"delta.after_commit:{name}")
        if table.schema.role is Role.WINDOWED:
            reach("delta.before_pages")
            for write in writes:
                self._change_pages(table, batch_id, write)
        table.housekeeping.after_commit(commit.added)
        return TableCommit(name, batch_id, version, False, rows, ticks_s() - begun, begun)

    def _metadata(self, batch_id: int, digest: str) -> dict[str, object]:
        intent = {"intent": digest} if digest else {}
        return {"pipeline": self.application, "batchId": batch_id, **intent}

    def _check_topics(self, table: OpenTable, writes: Sequence[TableWrite], topics: Mapping[str, str]) -> None:
        """Refuses a second topic of a name: an archive holds only one."""
        for topic in sorted({span.topic for write in writes for span in write.spans} & topics.keys()):
            if not archive.is_of(table.log.transactions, topic, topics[topic]):
                raise TableError(
                    f"The archive at {table.log.path} holds records of a topic '{topic}' that was deleted; the one "
                    "that is read now has other records at the same offsets.",
                    hint=f"move the folder {table.log.path} away and start the stream again, which begins another one",
                )

    def _spans(self, table: OpenTable, writes: Sequence[TableWrite], topics: Mapping[str, str]) -> dict[str, int]:
        """What an archive holds once this batch is in it, and of which topics."""
        if table.schema.role is not Role.ARCHIVE:
            return {}
        read = {span.topic for write in writes for span in write.spans} & topics.keys()
        new = {topic: topics[topic] for topic in read if not archive.is_told(table.log.transactions, topic)}
        steps = archive.grown_spans(table.log.steps, writes) | archive.topic_steps(new)
        return {self._app(table.schema.name, step): version for step, version in steps.items()}

    def _change_pages(self, table: OpenTable, batch_id: int, write: TableWrite) -> None:
        if (pages := table.pages.get(write.task)) is None:
            pages = table.pages[write.task] = PageListWriter(table.control, write.task, PageList())
        closed = write.closed_before_ms if write.closed_before_ms is not None else pages.pages.closed_before_ms
        added = [new.path for new in write.added if layout.is_page(new.path)]
        pages.change(PageChange(batch_id, closed, list(write.removed), added))

    def _discard(self, table: OpenTable, writes: Iterable[TableWrite]) -> None:
        """Moves files of a batch that ran again, though the table already held it, to the trash."""
        known = set(table.log.files) | {path for _, path in table.log.tombstones}
        paths = [new.path for write in writes for new in write.added if new.path not in known]
        Trash(table.log.path).put(paths, wall_ms())
