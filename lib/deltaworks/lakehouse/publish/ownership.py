"""Tables that go over from one query to another, with what a replay has made of them; and back: a commit per table.

```
before   owner: the old query     its files
after    owner: the replay's run  the files of staging, under the same names; the transactions of staging
undone   owner: the old query     the files of before
```

The query that follows opens the tables and finds what it would have written itself: its batches, its snapshot, its
open pages. The one before finds another owner and refuses, so there is no moment at which both can write; one that is
still at work somewhere meets the mark of a newer generation. An archive only gets another owner: what was read does
not depend on code.

What is to be done is written down before the first commit and completed after the last one, as for a publication.
Whoever calls holds the lease of the pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec

from deltaworks import files, formats
from deltaworks.clock import wall_ms
from deltaworks.errors import TableError
from deltaworks.files import replace_file
from deltaworks.lakehouse import layout
from deltaworks.lakehouse.committer import TableOptions
from deltaworks.lakehouse.log import Commit, DeltaLog
from deltaworks.lakehouse.old_versions import named, strays_in
from deltaworks.lakehouse.publish.change import carry_out, renamed
from deltaworks.lakehouse.publish.replacement import Staging, as_file
from deltaworks.lakehouse.retained import RetainedFiles
from deltaworks.lakehouse.schema import Role, TableSchema
from deltaworks.lakehouse.trash import Trash
from deltaworks.lakehouse.writes import NewFile

State = Literal["handing over", "handed over", "undoing", "undone"]
_HANDED_OVER, _UNDONE = 1, 2
FORMAT = 1
"""Version of the record of a handover."""


class HandoverRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Who follows whom, and why."""

    run_id: str
    """Id of the replay, which is the query that follows."""
    predecessor: str
    """The query that the tables belong to."""
    pipeline: str
    code_version: str
    last_batch: int
    """The last one that is in the tables of the replay."""
    end_offsets: dict[str, dict[str, int]]
    reason: str = ""
    requested_by: str
    approved_by: str | None = None
    """Who approved it; None: nobody is recorded."""


class TableHandover(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of one table."""

    version_before: int
    removed: tuple[NewFile, ...]
    added: tuple[NewFile, ...]
    kept: str
    """Where the removed files are found again; see `RetainedFiles`."""
    definition: dict[str, Any]
    """Columns and properties of before."""
    is_archive: bool


class Handover(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a handover, in one file."""

    request: HandoverRequest
    state: State
    tables: dict[str, TableHandover]
    begun_ms: int
    handed_over_ms: int | None = None
    undone_ms: int | None = None
    format: int = FORMAT


def hand_over(
    root: Path,
    staging_root: Path,
    schemas: Sequence[TableSchema],
    request: HandoverRequest,
    record: Path,
    generation: int,
) -> Handover:
    """Makes the tables those of a replay; the same request again completes it, or finds it done.

    Args:
        root: folder of the production tables.
        staging_root: folder of the replay's tables.
        schemas: of all tables of the new code, archives too.
        request: who follows whom.
        record: file to write down what is done.
        generation: of the caller; older ones cannot commit to the tables any more.

    Raises:
        TableError: a table is not as it must be, and why; nothing has changed.
    """
    done = read(record)
    if done is not None and done.state == "handed over":
        return done
    require_not_undone(done)
    staging = Staging(staging_root, request.run_id)
    for schema in schemas:
        if schema.role is not Role.ARCHIVE:
            staging.open(schema, request.last_batch)
    logs = {schema.name: _open(root, schema, request) for schema in schemas if _is_there(root, schema)}
    pending = [schema for schema in schemas if schema.name in logs and _mark(logs[schema.name], request) < _HANDED_OVER]

    def write_down() -> Handover:
        tables = {} if done is None else dict(done.tables)
        tables |= {schema.name: _prepare(root, schema, logs[schema.name], staging, request) for schema in pending}
        begun_ms = wall_ms() if done is None else done.begun_ms
        written = Handover(request=request, state="handing over", tables=tables, begun_ms=begun_ms)
        _save(record, written)
        return written

    def commit(written: Handover, name: str) -> None:
        log, table = logs[name], written.tables[name]
        staged = None if table.is_archive else staging.log(name)
        log.commit(
            Commit(
                added=table.added,
                removed=[file.path for file in table.removed],
                transactions=_transactions(staged)
                | {
                    _app(request, name, layout.HANDOVER, request.run_id): _HANDED_OVER,
                    _app(request, name, layout.GENERATION, request.predecessor): generation,
                },
                operation="HAND OVER",
                parameters={"run": request.run_id, "mode": "Overwrite"},
                metadata=_metadata(request),
                definition=log.owned_by(request.run_id, like=staged),
            )
        )

    def complete(written: Handover) -> Handover:
        written = msgspec.structs.replace(written, state="handed over", handed_over_ms=wall_ms())
        _save(record, written)
        return written

    names = [schema.name for schema in pending]
    return carry_out("handover", write_down=write_down, pending=names, commit=commit, complete=complete)


def undo(root: Path, record: Path, generation: int) -> Handover:
    """Makes the tables again those of the query before; the same call again completes it, or finds it done.

    What the query that followed has written since goes; what an archive holds stays.

    Raises:
        TableError: there was no such handover, or it is too old; nothing has changed.
    """
    found = read(record)
    if found is None:
        raise TableError(f"There is no record of a hand-over at {record}.", hint="deltaworks replays lists what can be")
    if found.state == "undone":
        return found
    request, tables = found.request, found.tables
    logs = {name: _load(root / name) for name in tables}
    pending = [name for name in tables if _mark(logs[name], request) == _HANDED_OVER]
    for name in pending:
        logs[name].require_ours(None)
        if logs[name].owner != request.run_id:
            raise TableError(
                f"Delta table '{name}' has gone over from run {request.run_id} to query {logs[name].owner} since.",
                hint="undo that hand-over first",
            )
        if lost := _kept(root / name).missing(tables[name].kept, (file.path for file in tables[name].removed)):
            raise TableError(
                f"The hand-over to run {request.run_id} cannot be undone any more: {lost[0]}, which was part of table "
                f"'{name}' before, is gone.",
                hint="hand over to a new replay, with the code of before",
            )

    def write_down() -> Handover:
        written = msgspec.structs.replace(found, state="undoing")
        _save(record, written)
        return written

    def commit(written: Handover, name: str) -> None:
        log, table = logs[name], tables[name]
        _kept(root / name).restore(table.kept, (file.path for file in table.removed))
        log.commit(
            Commit(
                added=table.removed,
                removed=[] if table.is_archive else list(log.files),
                transactions={
                    _app(request, name, layout.HANDOVER, request.run_id): _UNDONE,
                    _app(request, name, layout.GENERATION, request.run_id): generation,
                },
                operation="UNDO HAND OVER",
                parameters={"run": request.run_id, "mode": "Overwrite"},
                metadata=_metadata(request),
                definition=table.definition,
            )
        )

    def complete(written: Handover) -> Handover:
        written = msgspec.structs.replace(written, state="undone", undone_ms=wall_ms())
        _save(record, written)
        return written

    told = carry_out("undo_handover", write_down=write_down, pending=pending, commit=commit, complete=complete)
    for name, table in tables.items():
        if table.kept:  # nothing was taken away from the others
            _kept(root / name).forget(table.kept)
    return told


def require_not_undone(done: Handover | None) -> None:
    """Raises `TableError` if a handover was undone: the query that followed never runs again."""
    if done is not None and done.state in ("undoing", "undone"):
        raise TableError(
            f"The hand-over to run {done.request.run_id} was undone, so its tables are not what they were.",
            hint=f"deltaworks discard {done.request.run_id}, make another replay, and hand over to that",
        )


def require_settled(handovers: Path) -> None:
    """Raises `TableError` if a handover below the folder was begun and not completed."""
    for _, told in records(handovers):
        if told.state in ("handed over", "undone"):
            continue
        run = told.request.run_id
        back = f"deltaworks rollback {run}"
        raise TableError(
            f"A hand-over of {told.request.pipeline!r} to run {run} was interrupted while {told.state}.",
            hint=f"deltaworks replay {told.request.pipeline} --resume {run} completes it, {back} takes it back"
            if told.state == "handing over"
            else f"{back} completes it",
        )


def abandon(root: Path, tables: Iterable[str], run_id: str) -> None:
    """Deletes files of a replay that were brought into the tables and not committed."""
    for path in (root / name for name in tables):
        if (path / layout.LOG_FOLDER).is_dir():
            Trash(path).put(strays_in(path, layout.query_tag(run_id)) - named(path), wall_ms())


def read(record: Path) -> Handover | None:
    """What was written down; None: nothing."""
    return formats.read(
        record,
        Handover,
        FORMAT,
        f"The record of a handover {record}",
        damaged="bring the file back from a copy of the folder",
        error=TableError,
    )


def unfinished(handovers: Path) -> list[str]:
    """Runs to which a handover, or the undoing of one, was begun and not completed."""
    return [told.request.run_id for _, told in records(handovers) if told.state in ("handing over", "undoing")]


def rewrite(handovers: Path, named: Callable[[str, NewFile], NewFile]) -> None:
    """Lets all records name other files, after files of the tables were rewritten.

    Args:
        handovers: folder of the records.
        named: from a table and a file of it to the file that a record has to name.
    """
    for record, told in records(handovers):
        tables = {table: renamed(each, partial(named, table)) for table, each in told.tables.items()}
        if tables != told.tables:
            _save(record, msgspec.structs.replace(told, tables=tables))


def records(handovers: Path) -> list[tuple[Path, Handover]]:
    """All records of a pipeline, each with its file."""
    found = ((record, read(record)) for record in sorted(handovers.glob("*.json")))
    return [(record, told) for record, told in found if told is not None]


def _is_there(root: Path, schema: TableSchema) -> bool:
    """The archive of a topic that was not archived is made by who writes it first."""
    return schema.role is not Role.ARCHIVE or (root / schema.name / layout.LOG_FOLDER).is_dir()


def _open(root: Path, schema: TableSchema, request: HandoverRequest) -> DeltaLog:
    """A production table; one that only the new code has is made, empty."""
    path = root / schema.name
    if not (path / layout.LOG_FOLDER).is_dir():
        properties = TableOptions().properties
        return DeltaLog.create_or_open(root, schema, query_id=request.predecessor, properties=properties)
    log = _load(path)
    log.require_ours(None if log.owner == request.run_id else schema)
    if log.owner not in (request.predecessor, request.run_id):
        raise TableError(
            f"Delta table '{schema.name}' at {path} belongs to query {log.owner}, not to {request.predecessor}, which "
            "the replay has processed again.",
            hint="a table has one pipeline; give one of them another name",
        )
    return log


def _load(path: Path) -> DeltaLog:
    log = DeltaLog(path)
    log.load()
    return log


def _prepare(
    root: Path, schema: TableSchema, log: DeltaLog, staging: Staging, request: HandoverRequest
) -> TableHandover:
    """Brings the files of staging into the table's folder, and keeps those that are there."""
    removed: list[NewFile] = []
    added: list[NewFile] = []
    kept = ""
    if schema.role is not Role.ARCHIVE:
        removed = [as_file(path, entry) for path, entry in log.files.items()]
        staged = staging.log(schema.name).files
        added = [as_file(path, entry) for path, entry in staged.items()]
        files.link_all(
            (staging.root / schema.name / path, log.path / path)
            for path in staged
            if not (log.path / path).exists()  # of an attempt that was interrupted
        )
        files.sync([log.path / file.path for file in added])
        kept = _kept(log.path).keep(request.run_id, _HANDED_OVER, wall_ms(), (file.path for file in removed))
    return TableHandover(
        version_before=log.version,
        removed=tuple(removed),
        added=tuple(added),
        kept=kept,
        definition=log.definition,
        is_archive=schema.role is Role.ARCHIVE,
    )


def _transactions(staged: DeltaLog | None) -> dict[str, int]:
    """What the replay has committed, except its generations: the query that follows goes on after it."""
    if staged is None:
        return {}
    theirs = staged.transactions.items()
    return {app: version for app, version in theirs if layout.step_of(app) != layout.GENERATION}


def _mark(log: DeltaLog, request: HandoverRequest) -> int:
    return log.transactions.get(_app(request, log.path.name, layout.HANDOVER, request.run_id), 0)


def _app(request: HandoverRequest, table: str, step: str, query_id: str) -> str:
    return layout.app_id(request.pipeline, table, step, query_id)


def _metadata(request: HandoverRequest) -> Mapping[str, Any]:
    return {
        "pipeline": request.pipeline,
        "run": request.run_id,
        "codeVersion": request.code_version,
        "lastBatch": request.last_batch,
        "endOffsets": request.end_offsets,
        "reason": request.reason,
        "requestedBy": request.requested_by,
        "approvedBy": request.approved_by,
    }


def _kept(table: Path) -> RetainedFiles:
    return RetainedFiles(table, keep_ms=TableOptions().keep_retained_ms)


def _save(record: Path, told: Handover) -> None:
    replace_file(record, msgspec.json.format(msgspec.json.encode(told), indent=1), durable=True)
