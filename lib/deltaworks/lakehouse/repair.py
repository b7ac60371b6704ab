"""Takes back what other writers have committed to a table of ours: restores rows, columns and properties as our last
commit left them.

One more commit adds again what theirs removed, and removes what theirs added. Removed files are found in place, in the
trash, or among the files that publications keep. The caller holds the lease of the pipeline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deltaworks import files
from deltaworks.errors import TableError
from deltaworks.lakehouse import layout
from deltaworks.lakehouse.log import Commit, DeltaLog
from deltaworks.lakehouse.trash import Trash
from deltaworks.lakehouse.versions import Version
from deltaworks.lakehouse.writes import NewFile
from deltaworks.names import TABLE


@dataclass(frozen=True)
class Repair:
    """What has to be done to one table."""

    name: str
    pipeline: str
    owner: str
    """The query that the table belongs to."""
    foreign: Sequence[Version]
    """Commits of others since our last one, in order; they may be harmless."""
    added: Sequence[NewFile]
    """Files of ours to restore."""
    removed: Sequence[str]
    """Files of theirs to remove; they stay on disk for readers of older versions."""
    definition: dict[str, Any] | None
    """The previous columns and properties; None: they are unchanged."""
    protocol: dict[str, Any] | None
    transactions: dict[str, int]
    """Transactions of ours that another writer has set."""
    lost: Sequence[NewFile]
    """Files of ours that no longer exist anywhere."""

    @property
    def is_needed(self) -> bool:
        changed = self.definition or self.protocol or self.transactions
        return bool(self.added or self.removed or self.lost or changed)

    def check(self) -> None:
        """Raises `TableError` if files are lost."""
        if self.lost:
            rows, batches = sum(file.rows for file in self.lost), [layout.batch_of(file.path) for file in self.lost]
            numbers = sorted(found[0] for found in batches if found is not None)
            span = f", of batches up to {numbers[-1]}" if numbers else ""
            raise TableError(
                f"Delta table '{self.name}' cannot be repaired: {len(self.lost)} of its files, with {rows} rows{span}, "
                f"are gone; the first is {self.lost[0].path}.",
                hint=f"restore them from a backup and repair again; or rebuild the table from the topics: "
                f"deltaworks replay {self.pipeline} --hand-over",
            )


def plan(root: Path, name: str) -> Repair:
    """Plans what would make a table ours again; changes nothing.

    Raises:
        TableError: no pipeline writes the table, or the log no longer says what it was.
    """
    log = _load(root, name)
    foreign, is_complete = log.foreign()
    before = log
    if foreign:
        before = DeltaLog(log.path)
        before.load(up_to=foreign[0].number - 1)
    if not (is_complete or log.is_as_left) or not (before.is_as_left or before.is_untold):
        raise TableError(
            f"The log of the Delta table '{name}' at {log.path} does not say any more what it was before somebody else "
            "changed it.",
            hint=f"restore its _delta_log from a backup; or rebuild the table from the topics: "
            f"deltaworks replay {_pipeline(log)} --hand-over",
        )
    return _difference(log, before, foreign)


def repair(root: Path, name: str, generation: int) -> Repair:
    """Makes a table ours again.

    Args:
        root: folder of all tables.
        name: name of the table.
        generation: generation of the caller; older ones can no longer commit to the table.

    Raises:
        TableError: see `plan`; or files are lost.
    """
    wanted = plan(root, name)
    wanted.check()
    if not wanted.is_needed:
        return wanted
    log = _load(root, name)
    trash = Trash(log.path)
    for file in wanted.added:
        path = log.path / file.path
        if not _is_whole(path, file):
            found = trash.find(file.path, file.size_bytes)
            assert found is not None
            path.unlink(missing_ok=True)
            files.link(found, path)
    files.sync([log.path / file.path for file in wanted.added])
    told = [f"{version.number} {version.info.get('operation')}" for version in wanted.foreign]
    log.commit(
        Commit(
            added=wanted.added,
            removed=wanted.removed,
            transactions=wanted.transactions
            | {layout.app_id(wanted.pipeline, name, layout.GENERATION, wanted.owner): generation},
            operation="REPAIR",
            parameters={"takenBack": ", ".join(told)},
            definition=wanted.definition,
            protocol=wanted.protocol,
        )
    )
    return wanted


def _difference(log: DeltaLog, before: DeltaLog, foreign: Sequence[Version]) -> Repair:
    trash = Trash(log.path)
    wanted = [
        NewFile(path, entry.size_bytes, entry.rows, entry.statistics or "")
        for path, entry in before.files.items()
        if path not in log.files
    ]
    there = [_is_whole(log.path / f.path, f) or trash.find(f.path, f.size_bytes) is not None for f in wanted]
    return Repair(
        name=log.path.name,
        pipeline=_pipeline(log),
        owner=before.owner or "",
        foreign=foreign,
        added=[file for file, is_there in zip(wanted, there, strict=True) if is_there],
        removed=[path for path in log.files if path not in before.files],
        definition=before.definition if _said(before.definition) != _said(log.definition) else None,
        transactions={
            app: before.transactions.get(app, -1)
            for app, version in log.transactions.items()
            if layout.query_of(app) == before.owner and before.transactions.get(app) != version
        },
        protocol=before.protocol if before.protocol != log.protocol else None,
        lost=[file for file, is_there in zip(wanted, there, strict=True) if not is_there],
    )


def _load(root: Path, name: str) -> DeltaLog:
    path = root / TABLE.checked(name, root)
    if not (path / layout.LOG_FOLDER).is_dir():
        raise TableError(f"There is no Delta table '{name}' below {root}.", hint="deltaworks tables lists them")
    log = DeltaLog(path)
    log.load()
    _pipeline(log)
    return log


def _pipeline(log: DeltaLog) -> str:
    """The pipeline of a table, from its transactions."""
    if log.pipeline is not None:
        return log.pipeline
    raise TableError(
        f"The Delta table '{log.path.name}' at {log.path} is not written by a pipeline.",
        hint="only tables that a stream has opened can be repaired",
    )


def _said(definition: dict[str, Any]) -> dict[str, Any]:
    """Leaves out empty fields, as a checkpoint does."""
    return {name: value for name, value in definition.items() if value is not None and name != "format"}


def _is_whole(path: Path, file: NewFile) -> bool:
    return path.is_file() and path.stat().st_size == file.size_bytes
