"""Publishing the tables of a replay under a live stream, and taking it back: one Delta commit per table, exactly once.

Whoever is the only committer of the tables does it, between two batches. A publication is written down before its first
commit, with every file that it removes and adds, and completed after its last one. A crash in between changes nothing
about that: the same call again goes on with the tables that the logs do not have it for.

1. Everything that can refuse is asked, of all tables, before anything is made.
2. The files are made, and what they replace is kept under a second name (`kept`).
3. The record is written.
4. A commit per table: application id `pipeline/table/publication/run`; its version counts the publications of the run.
5. The record is completed.

Snapshots are committed before their changelogs: if the stream goes on in between, a snapshot takes only rows of later
batches from its changelog, and those are the same before and after.

A rollback removes exactly what was added and adds exactly what was removed, in the same five steps. A snapshot, which
the stream has rewritten since, is made from the one that was there before and its changelog.

Not here: what is replaced (`replacement`, `scope`), and who says so (`control.publication`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec
import pyarrow as pa

from deltaworks import formats
from deltaworks.clock import wall_ms
from deltaworks.errors import TableError
from deltaworks.files import replace_file
from deltaworks.lakehouse import layout, parquet, snapshots
from deltaworks.lakehouse.committer import OpenTable, TableCommitter
from deltaworks.lakehouse.log import Commit, FileEntry
from deltaworks.lakehouse.publish import corrections, sink_changes
from deltaworks.lakehouse.publish.change import carry_out, renamed
from deltaworks.lakehouse.publish.corrections import CorrectionsRequest
from deltaworks.lakehouse.publish.kept import Action
from deltaworks.lakehouse.publish.replacement import (
    Replacement,
    Replacing,
    Staging,
    check_days,
    check_reach,
    discard,
    rewritten_snapshot,
)
from deltaworks.lakehouse.publish.scope import Scope
from deltaworks.lakehouse.publish.sink_changes import SinksRequest
from deltaworks.lakehouse.schema import Role, changelog_name
from deltaworks.lakehouse.writes import NewFile
from deltaworks.names import RUN

State = Literal["publishing", "published", "rolling back", "rolled back"]
FORMAT = 1
"""Version of the record of a publication."""
_MS_PER_DAY = 86_400_000


class PublicationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to publish."""

    run_id: str
    """Id of the replay, which is the query id of its staging tables."""
    pipeline: str
    code_version: str
    batches: tuple[int, int]
    """The first and the last one that were processed again."""
    end_offsets: dict[str, dict[str, int]]
    """`{source topic: {partition: next offset}}` after the last batch."""
    from_ms: int | None = None
    """Start of the first UTC day; None: from the beginning."""
    to_ms: int | None = None
    """Start of the UTC day after the last; None: to the end."""
    tables: tuple[str, ...]
    """A changelog brings its snapshot along, and the other way round."""
    reason: str = ""
    requested_by: str
    approved_by: str | None = None
    """Who approved it; None: nobody is recorded."""
    corrections: CorrectionsRequest | None = None
    """Who is told of the rows that change; None: nobody."""
    sinks: SinksRequest | None = None
    """The sinks of the pipeline for other systems; None: it has none."""

    @property
    def scope(self) -> Scope:
        """The rows that are replaced."""
        return Scope(from_ms=self.from_ms, to_ms=self.to_ms, end_offsets=self.end_offsets, last_batch=self.batches[1])


class TablePublication(msgspec.Struct, frozen=True, kw_only=True):
    """What a publication does to one table."""

    version_before: int
    """Delta version."""
    version_after: int | None = None
    """None: not committed yet."""
    rolled_back_version: int | None = None
    """The version that took it back."""
    removed_files: int
    removed_rows: int
    """In these files; rows that stay are in added ones."""
    added_files: int
    added_rows: int


class Publication(msgspec.Struct, frozen=True, kw_only=True):
    """What a run has published."""

    request: PublicationRequest
    state: State
    round: int
    """How often the run has been published, this time included; a rollback comes between."""
    tables: dict[str, TablePublication]
    begun_ms: int
    published_ms: int | None = None
    rolled_back_ms: int | None = None


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """Exactly what a publication removes from a table and adds to it."""

    removed: tuple[NewFile, ...]
    added: tuple[NewFile, ...]
    kept: str
    """Where the removed ones are found again; see `RetainedFiles`."""
    as_of_batch: int = -1
    """The batch that a snapshot showed before."""


class PublicationRecord(Publication, frozen=True, kw_only=True):
    """A publication as it is written down."""

    files: dict[str, Files]
    format: int = FORMAT

    def save(self, publications: Path) -> None:
        """Replaces the file atomically and durably."""
        replace_file(
            _path(publications, self.request.run_id),
            msgspec.json.format(msgspec.json.encode(self), indent=1),
            durable=True,
        )

    def summary(self) -> Publication:
        """Without the files."""
        return Publication(**{name: getattr(self, name) for name in Publication.__struct_fields__})


def publish(
    committer: TableCommitter, staging_root: Path, request: PublicationRequest, publications: Path
) -> Publication:
    """Puts the rows of a replay in the place of production's; the same request again completes it, or finds it done.

    Args:
        committer: of the production tables, open; nobody else commits meanwhile.
        staging_root: folder of the replay's tables; not needed for tables that are published already.
        request: what to publish.
        publications: folder of the records, one file per run.

    Raises:
        TableError: it cannot be published, and why; nothing has changed.
        FencedError: a newer generation of the pipeline has taken over.
    """
    sweep(publications)
    record = _read(publications, request.run_id)
    tables = _tables(committer, request)
    number = _round(committer, record, request, tables)
    if record is not None and record.round < number:
        record = None
    if record is not None:
        request = _with_reach(request, record.request)
    committed = {
        table.schema.name for table in tables if _version(committer, table, layout.PUBLICATION, request) >= number
    }
    pending = [table for table in tables if table.schema.name not in committed]
    staging = Staging(staging_root, request.run_id)
    _check(committer, staging, request, pending)

    begun_ms = record.begun_ms if record is not None else wall_ms()
    made = _make(committer, staging, request, number, pending, record)
    mine = {name: made[name][1] if name in made else record.files[name] for name in _names(tables)}  # type: ignore[union-attr]
    told = {name: _told(made[name]) if name in made else record.tables[name] for name in mine}  # type: ignore[union-attr]

    def write_down() -> PublicationRecord:
        if record is not None and not made:
            return record
        changes = {name: replacement for name, (replacement, _, _) in made.items()}
        _keep_changes(committer, publications, request, "publish", number, changes, mine)
        written = PublicationRecord(
            request=request, state="publishing", round=number, tables=told, begun_ms=begun_ms, files=mine
        )
        written.save(publications)
        return written

    def commit(record: PublicationRecord, name: str) -> None:
        app_id = layout.app_id(committer.application, name, layout.PUBLICATION, request.run_id)
        committer.replace(name, _commit("PUBLISH", made[name][0], {app_id: number}, request))

    def complete(record: PublicationRecord) -> PublicationRecord:
        if record.state == "published":
            return record
        corrections.release(publications, request.run_id, "publish", number)
        sink_changes.release(publications, request.run_id, "publish", number)
        done = {name: _committed(committer, record, name, layout.PUBLICATION) for name in record.tables}
        record = msgspec.structs.replace(record, state="published", tables=done, published_ms=wall_ms())
        record.save(publications)
        return record

    published = carry_out("publish", write_down=write_down, pending=_names(pending), commit=commit, complete=complete)
    return published.summary()


def rollback(committer: TableCommitter, publications: Path, run_id: str) -> Publication:
    """Takes back what a run has published; the same call again completes it, or finds it done.

    Args:
        committer: as for `publish`.
        publications: folder of the records.
        run_id: of the replay.

    Raises:
        TableError: there is no such publication, a later one has replaced some of it, or it is too old; nothing has
            changed.
        FencedError: a newer generation of the pipeline has taken over.
    """
    sweep(publications)
    found = _read(publications, run_id)
    if found is None:
        known = sorted(path.stem for path in publications.glob("*.json"))
        raise TableError(f"Run {run_id} has published nothing.", hint=f"publications: {', '.join(known) or 'none'}")
    request = found.request
    tables = _tables(committer, request)
    pending = [table for table in tables if _in_effect(committer, table, found)]
    _check_rollback(committer, publications, found, pending)

    made = {table.schema.name: _undo(committer, table, found) for table in pending}
    is_told = corrections.KEEPING.is_released(publications, run_id, "publish", found.round)
    is_in_sinks = sink_changes.KEEPING.is_released(publications, run_id, "publish", found.round)

    def write_down() -> PublicationRecord:
        if found.state == "rolled back" or (found.state == "rolling back" and not made):
            return found  # what is kept may be released in part: marks of sinks would be judged by themselves
        reached = msgspec.structs.replace(
            request,
            corrections=request.corrections if is_told else None,
            sinks=request.sinks if is_in_sinks else None,
        )
        _keep_changes(committer, publications, reached, "rollback", found.round, made, found.files)
        written = msgspec.structs.replace(found, state="rolling back")
        written.save(publications)
        return written

    def commit(record: PublicationRecord, name: str) -> None:
        app_id = layout.app_id(committer.application, name, layout.ROLLBACK, run_id)
        committer.replace(name, _commit("ROLLBACK", made[name], {app_id: record.round}, request))

    def complete(record: PublicationRecord) -> PublicationRecord:
        if record.state == "rolled back":
            return record
        corrections.release(publications, run_id, "rollback", record.round)
        sink_changes.release(publications, run_id, "rollback", record.round)
        done = {name: _committed(committer, record, name, layout.ROLLBACK) for name in record.tables}
        record = msgspec.structs.replace(record, state="rolled back", tables=done, rolled_back_ms=wall_ms())
        record.save(publications)
        return record

    record = carry_out("rollback", write_down=write_down, pending=_names(pending), commit=commit, complete=complete)
    for table in tables:
        table.kept.forget(record.files[table.schema.name].kept)
    if not is_told:
        corrections.KEEPING.drop(publications, run_id, "publish", record.round)
    if not is_in_sinks:
        sink_changes.KEEPING.drop(publications, run_id, "publish", record.round)
    return record.summary()


def read(publications: Path, run_id: str) -> Publication | None:
    """What a run has published; None: nothing."""
    record = _read(publications, run_id)
    return None if record is None else record.summary()


def sweep(publications: Path) -> None:
    """Removes rows that earlier publications and rollbacks have left when they were killed; see `Keeping.sweep`.

    Raises:
        TableError: a record cannot be read, so nobody knows what is under way.
    """
    begun = unfinished(publications)
    corrections.KEEPING.sweep(publications, begun)
    sink_changes.KEEPING.sweep(publications, begun)


def _tables(committer: TableCommitter, request: PublicationRequest) -> list[OpenTable]:
    """The tables of a request: snapshots, then the others."""
    known = committer.tables
    if unknown := [name for name in request.tables if name not in known]:
        raise TableError(
            f"Pipeline '{committer.application}' writes no table {', '.join(unknown)}.",
            hint=f"tables: {', '.join(known)}",
        )
    names = set(request.tables)
    for name, table in known.items():
        if table.schema.role is Role.SNAPSHOT and names & {name, changelog_name(name)}:
            names |= {name, changelog_name(name)}
    chosen = [known[name] for name in known if name in names]
    return sorted(chosen, key=lambda table: table.schema.role is not Role.SNAPSHOT)


def _round(
    committer: TableCommitter,
    record: PublicationRecord | None,
    request: PublicationRequest,
    tables: Iterable[OpenTable],
) -> int:
    """How often the run has been published when this is done."""
    run = request.run_id
    if record is None:
        versions = [
            _version(committer, t, step, request) for t in tables for step in (layout.PUBLICATION, layout.ROLLBACK)
        ]
        if max(versions, default=0):
            raise TableError(
                f"Run {run} was published before, and the record of what it has replaced is gone.",
                hint="bring back the file, or publish a new replay",
            )
        return 1
    if record.state == "rolling back":
        raise TableError(
            f"Run {run} is being rolled back.", hint=f"complete that first: deltaworks rollback {run}; then publish"
        )
    if record.state == "rolled back":
        return record.round + 1
    asked = msgspec.structs.replace(request, approved_by=record.request.approved_by)
    if _with_reach(asked, record.request) != record.request:
        raise TableError(
            f"Run {run} was published with another request, or is being published.",
            hint=f"publish with the same request, or deltaworks rollback {run} first",
        )
    return record.round


def _with_reach(request: PublicationRequest, earlier: PublicationRequest) -> PublicationRequest:
    """A request that tells the same consumers and sinks as an earlier one of the run."""
    return msgspec.structs.replace(request, corrections=earlier.corrections, sinks=earlier.sinks)


def _check(
    committer: TableCommitter, staging: Staging, request: PublicationRequest, pending: Iterable[OpenTable]
) -> None:
    """Everything that can refuse; nothing has been made yet."""
    if request.pipeline != committer.application:
        raise TableError(
            f"Run {request.run_id} is a replay of '{request.pipeline}', not of '{committer.application}'.",
            hint=f"publish it into the tables of '{request.pipeline}'",
        )
    for bound_ms in (request.from_ms, request.to_ms):
        if bound_ms is not None and bound_ms % _MS_PER_DAY:
            raise TableError(f"{layout.utc(bound_ms)} is not the beginning of a UTC day.", hint="publish whole days")
    if request.from_ms is not None and request.to_ms is not None and request.from_ms >= request.to_ms:
        raise TableError("The range of days is empty.", hint="its end is the day after the last")
    for table in pending:
        staging.open(table.schema, request.batches[1])
    for table in pending:
        if table.schema.role is Role.WINDOWED:
            check_days(committer.root, table, staging, request.scope)
        elif table.schema.role in (Role.APPEND, Role.DEAD_LETTERS):
            check_reach(committer.root, table, request.scope)


def _make(
    committer: TableCommitter,
    staging: Staging,
    request: PublicationRequest,
    number: int,
    pending: Iterable[OpenTable],
    record: PublicationRecord | None,
) -> dict[str, tuple[Replacement, Files, int]]:
    """Replacement, files and version before of every table that is not committed yet."""
    replacing = Replacing(committer, staging, request.scope)
    made = {}
    now_ms = wall_ms()
    for table in pending:
        name = table.schema.name
        if record is not None:  # of an attempt that did not get so far
            discard(table, record.files[name].added)
        replacement = replacing.make(table)
        kept = table.kept.keep(request.run_id, number, now_ms, (file.path for file in replacement.removed))
        as_of = committer.snapshot(name).as_of_batch if table.schema.role is Role.SNAPSHOT else -1
        files = Files(removed=tuple(replacement.removed), added=tuple(replacement.added), kept=kept, as_of_batch=as_of)
        made[name] = replacement, files, table.log.version
    return made


def _keep_changes(
    committer: TableCommitter,
    publications: Path,
    request: PublicationRequest,
    action: Action,
    number: int,
    changes: Mapping[str, Replacement],
    tables: Iterable[str],
) -> None:
    """Writes down what consumers of Kafka will be told, and what sinks will lose and get, before the tables show it."""
    name = request.run_id, action, number
    if request.corrections is not None:
        from deltaworks.lakehouse.publish import corrected_rows  # its DuckDB is of no use to other drivers

        corrected_rows.keep(committer, publications, request.corrections, request.scope, name, changes)
    if request.sinks is not None:
        sink_changes.keep(committer, publications, request.sinks, request.scope, name, changes, tables)


def _told(made: tuple[Replacement, Files, int]) -> TablePublication:
    replacement, _, version = made
    return TablePublication(
        version_before=version,
        removed_files=len(replacement.removed),
        removed_rows=sum(file.rows for file in replacement.removed),
        added_files=len(replacement.added),
        added_rows=sum(file.rows for file in replacement.added),
    )


def _commit(operation: str, made: Replacement, marks: Mapping[str, int], request: PublicationRequest) -> Commit:
    first, last = request.batches
    return Commit(
        added=made.added,
        removed=[file.path for file in made.removed],
        transactions={**made.transactions, **marks},
        operation=operation,
        parameters={"run": request.run_id, "mode": "Overwrite"},
        metadata={
            "pipeline": request.pipeline,
            "run": request.run_id,
            "codeVersion": request.code_version,
            "batches": [first, last],
            "endOffsets": request.end_offsets,
            "fromMs": request.from_ms,
            "toMs": request.to_ms,
            "reason": request.reason,
            "requestedBy": request.requested_by,
            "approvedBy": request.approved_by,
        },
    )


def _check_rollback(
    committer: TableCommitter, publications: Path, record: PublicationRecord, pending: Iterable[OpenTable]
) -> None:
    run = record.request.run_id
    others = [other for other in _all(publications) if other.request.run_id != run]
    for table in pending:
        name, files = table.schema.name, record.files[table.schema.name]
        gone = {file.path for file in files.added if file.path not in table.log.files}
        if table.schema.role is Role.SNAPSHOT:
            gone = set()  # the stream rewrites it
        for other in others:
            if _is_later(committer, table, other, record, gone):
                raise TableError(
                    f"Run {other.request.run_id} has replaced some of what run {run} published in table '{name}'.",
                    hint=f"deltaworks rollback {other.request.run_id} first",
                )
        if gone:
            raise TableError(
                f"{min(gone)}, which run {run} added to table '{name}', was removed by somebody else.",
                hint="look at the table's history; what the replay published cannot be told from the rest any more",
            )
        if lost := table.kept.missing(files.kept, (file.path for file in files.removed)):
            raise TableError(
                f"Run {run} cannot be rolled back any more: {lost[0]}, which it removed from table '{name}', is gone.",
                hint="publish a new replay, with the code of before",
            )


def _undo(committer: TableCommitter, table: OpenTable, record: PublicationRecord) -> Replacement:
    files = record.files[table.schema.name]
    if table.schema.role is Role.SNAPSHOT:
        return _undo_snapshot(committer, table, record)
    table.kept.restore(files.kept, (file.path for file in files.removed))
    return Replacement(list(files.added), list(files.removed))


def _undo_snapshot(committer: TableCommitter, table: OpenTable, record: PublicationRecord) -> Replacement:
    """What was there before, and the changelog as it will be."""
    files = record.files[table.schema.name]
    kept = [table.kept.path(files.kept, file.path) for file in files.removed]
    held = parquet.read_all(committer.root, table.schema, kept)
    changelog = committer.tables[changelog_name(table.schema.name)]
    entries = dict(changelog.log.files)
    places: dict[str, str] = {}
    if _in_effect(committer, changelog, record):
        theirs = record.files[changelog.schema.name]
        for file in theirs.added:
            del entries[file.path]
        for file in theirs.removed:
            entries[file.path] = FileEntry(file.size_bytes, file.statistics)
            places[file.path] = changelog.kept.path(theirs.kept, file.path)
    news = [places.get(path, path) for path in snapshots.news(entries, files.as_of_batch)]
    rows: pa.Table = parquet.read_all(committer.root, changelog.schema, news)
    return rewritten_snapshot(committer, table, held, rows, files.as_of_batch, record.request.batches[1])


def _is_later(
    committer: TableCommitter, table: OpenTable, other: PublicationRecord, record: PublicationRecord, gone: set[str]
) -> bool:
    """Whether another publication that stands has come after one, over some of the same rows or files."""
    name = table.schema.name
    if name not in other.tables or not _in_effect(committer, table, other):
        return False
    if other.tables[name].version_before < record.tables[name].version_before:
        return False
    if any(file.path in gone for file in other.files[name].removed):
        return True
    if table.schema.role in (Role.CHANGELOG, Role.SNAPSHOT):
        return True
    mine, theirs = record.request, other.request
    before = theirs.to_ms is not None and mine.from_ms is not None and theirs.to_ms <= mine.from_ms
    after = theirs.from_ms is not None and mine.to_ms is not None and mine.to_ms <= theirs.from_ms
    return not before and not after


def _in_effect(committer: TableCommitter, table: OpenTable, record: PublicationRecord) -> bool:
    """Whether a table holds what the record says, by its log."""
    published = _version(committer, table, layout.PUBLICATION, record.request)
    return published >= record.round > _version(committer, table, layout.ROLLBACK, record.request)


def _version(committer: TableCommitter, table: OpenTable, step: str, request: PublicationRequest) -> int:
    """How often a run was published in a table, or rolled back."""
    app_id = layout.app_id(committer.application, table.schema.name, step, request.run_id)
    return table.log.transaction_version(app_id) or 0


def _committed(committer: TableCommitter, record: PublicationRecord, name: str, step: str) -> TablePublication:
    """What the record says about a table, with the Delta version of its commit."""
    table, told = committer.tables[name], record.tables[name]
    app_id = layout.app_id(committer.application, name, step, record.request.run_id)
    if table.log.transaction_version(app_id) != record.round:
        return told
    if step == layout.PUBLICATION:
        return msgspec.structs.replace(told, version_after=table.log.find(app_id, record.round, told.version_before))
    since = told.version_before if told.version_after is None else told.version_after
    return msgspec.structs.replace(told, rolled_back_version=table.log.find(app_id, record.round, since))


def _all(publications: Path) -> Iterator[PublicationRecord]:
    for path in sorted(publications.glob("*.json")):
        if (record := _decoded(path)) is not None:
            yield record


def unfinished(publications: Path) -> list[str]:
    """Runs whose publication or rollback was begun and not completed."""
    return [record.request.run_id for record in _all(publications) if record.state in ("publishing", "rolling back")]


def rewrite(publications: Path, named: Callable[[str, NewFile], NewFile]) -> None:
    """Lets all records name other files, after files of the tables were rewritten.

    Args:
        publications: folder of the records.
        named: from a table and a file of it to the file that a record has to name.
    """
    for record in _all(publications):
        files = {table: renamed(each, partial(named, table)) for table, each in record.files.items()}
        if files != record.files:
            msgspec.structs.replace(record, files=files).save(publications)


def _read(publications: Path, run_id: str) -> PublicationRecord | None:
    return _decoded(_path(publications, run_id))


def _decoded(path: Path) -> PublicationRecord | None:
    return formats.read(
        path,
        PublicationRecord,
        FORMAT,
        f"The record of a publication {path}",
        damaged="bring the file back from a copy of the folder; without it, nothing can be published or rolled back",
        error=TableError,
    )


def _path(publications: Path, run_id: str) -> Path:
    return publications / f"{RUN.checked(run_id, publications)}.json"


def _names(tables: Iterable[OpenTable]) -> list[str]:
    return [table.schema.name for table in tables]
