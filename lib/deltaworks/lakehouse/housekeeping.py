"""Table maintenance that no batch waits for: merging small files, checkpoints, deleting what no version needs.

A background thread reads and writes files; the driver commits the result after a later batch, because only one thread
commits. A crash loses nothing but the work.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path

from deltaworks.clock import cautious_ms, wall_ms
from deltaworks.faults import reach
from deltaworks.lakehouse import checkpoints, layout, parquet, row_origins
from deltaworks.lakehouse.compaction import SmallFiles
from deltaworks.lakehouse.log import Commit, DeltaLog, OvertakenError
from deltaworks.lakehouse.old_versions import OldVersions, Survey
from deltaworks.lakehouse.retained import RetainedFiles
from deltaworks.lakehouse.schema import Role, TableSchema
from deltaworks.lakehouse.trash import Trash
from deltaworks.lakehouse.writes import NewFile

_SURVEY_MS = 5 * 60_000
_EXPIRE_AT_ONCE = 2_000
"""Files that may be deleted after one commit."""


class Housekeeping:
    """Keeps one table in order.

    Args:
        root: folder of all tables.
        schema: columns of the table.
        log: its log.
        tag: tag of the query, for file names.
        background: runs slow work.
        old: looks after old versions.
        keep_ms: how long every version can be read.
        kept: the files that publications have removed.
        keep_trash_ms: how long files that no log names stay in the trash.
    """

    def __init__(
        self,
        root: Path,
        schema: TableSchema,
        log: DeltaLog,
        tag: str,
        background: Executor,
        *,
        old: OldVersions,
        keep_ms: int,
        kept: RetainedFiles,
        keep_trash_ms: int,
    ) -> None:
        self._root, self._schema, self._log, self._tag = root, schema, log, tag
        self._background, self._kept = background, kept
        self._old, self._keep_ms = old, keep_ms
        self._surveying: Future[Survey | None] | None = None
        self._survey: Survey | None = None
        """The last one; the files of the versions that it dropped are deleted."""
        self._surveys_at_ms = 0
        self._trash, self._keep_trash_ms = Trash(log.path), keep_trash_ms
        self._small = SmallFiles()
        for path, entry in log.files.items():
            self._small.add(path, entry.size_bytes)
        self._group: list[str] = []
        """What is being merged."""
        self.shown_ms: int | None = None
        """Readers are told to open the table as it was then; None: as it is."""
        self._merging: Future[NewFile] | None = None
        self._checkpoint: Future[Path] | None = None

    def after_commit(self, added: Sequence[NewFile], removed: Iterable[str] = ()) -> None:
        """Does the maintenance that is due; `added` and `removed` are the files of the last commit."""
        for path in removed:
            self._small.remove(path)
        for new in added:
            self._small.add(new.path, new.size_bytes)
        if self._merging is None or self._merging.done():
            self._finish_merge()
            if (group := self._full_group()) is not None:
                for path in group:
                    self._small.remove(path)
                self._group, self._merging = (
                    group,
                    self._background.submit(self._merge, {path: self._log.files[path].rows for path in group}),
                )
        self.tidy()
        if self._log.checkpoint_due() and (self._checkpoint is None or self._checkpoint.done()):
            self._finish_checkpoint()
            self._log.checkpoint_begins()
            self._checkpoint = self._background.submit(checkpoints.write, self._log.path, self._log.state())

    def close(self) -> None:
        """Waits for work in progress."""
        self._finish_merge()
        self._finish_checkpoint()

    def tidy(self) -> None:
        """Deletes what nobody needs, as the last survey says; begins the next survey when it is due."""
        now_ms = cautious_ms()
        shown_ms = now_ms if self.shown_ms is None else min(now_ms, self.shown_ms)
        self._kept.expire(now_ms)
        if self._surveying is not None and self._surveying.done():
            found, self._surveying = self._surveying.result(), None
            if found is not None:
                self._survey = found
                if found.unneeded or found.strays:
                    in_use = self._log.files.keys() | {path for _, path in self._log.tombstones}
                    self._log.delete(found.unneeded - in_use)
                    self._trash.put(found.strays - in_use, wall_ms())
        if self._survey is not None:
            self._log.expire(self._survey.cutoff_ms, self._survey.kept, limit=_EXPIRE_AT_ONCE)
        if self._surveying is None and now_ms >= self._surveys_at_ms:
            self._surveys_at_ms = now_ms + min(_SURVEY_MS, self._keep_ms // 10)
            self._trash.expire(now_ms - self._keep_trash_ms)
            self._surveying = self._background.submit(self._old.survey, shown_ms - self._keep_ms, now_ms, self._survey)

    def _full_group(self) -> list[str] | None:
        """Leaves out small files that another writer has rewritten; they are no longer ours to merge."""
        while (group := self._small.full_group()) is not None:
            gone = [path for path in group if path not in self._log.files]
            if not gone:
                return group
            for path in gone:
                self._small.remove(path)
        return None

    def _merge(self, counted: dict[str, int]) -> NewFile:
        """Merges files (path -> rows); runs in the background."""
        group = list(counted)
        rows = parquet.read_all(self._root, self._schema, group)
        batches = None
        if self._schema.role in (Role.APPEND, Role.DEAD_LETTERS, Role.WINDOWED):
            parts = [row_origins.of_file(self._root, self._schema, path, count) for path, count in counted.items()]
            known = [part for part in parts if part is not None]
            if len(known) == len(parts):
                rows, batches = row_origins.in_order(rows, known)
        folder = group[0].rpartition("/")[0]
        first = layout.batch_of(group[0])
        name = layout.part_name("merged", first[0] if first else 0, 0, self._tag)
        merged = parquet.write(self._root, self._schema, f"{folder}/{name}" if folder else name, rows, batches)
        parquet.sync(self._root, self._schema.name, [merged])
        return merged

    def _finish_merge(self) -> None:
        if self._merging is None:
            return
        merging, self._merging = self._merging, None
        if not all(path in self._log.files for path in self._group):
            self._drop_merge(merging)
            return
        file = merging.result()
        reach(f"delta.before_merge:{self._schema.name}")
        try:
            self._log.commit(
                Commit(
                    added=[file],
                    removed=self._group,
                    data_change=False,
                    operation="OPTIMIZE",
                    metadata=self._log.user_metadata,  # whoever looks back finds the batch in this version, too
                )
            )
        except OvertakenError:
            self._drop_merge(merging)
            return
        self._small.add(file.path, file.size_bytes)

    def _drop_merge(self, merging: Future[NewFile]) -> None:
        """Drops a merge if some of its files were removed meanwhile by others: their rows must not come back."""
        if merging.exception() is None:
            (self._log.path / merging.result().path).unlink(missing_ok=True)
        for path in self._group:
            if (entry := self._log.files.get(path)) is not None:
                self._small.add(path, entry.size_bytes)

    def _finish_checkpoint(self) -> None:
        if self._checkpoint is not None:
            checkpoint, self._checkpoint = self._checkpoint, None
            checkpoint.result()
