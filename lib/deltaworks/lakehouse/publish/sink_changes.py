"""What a publication or a rollback changes in sinks for other systems, from before its first commit until it is there.

As `corrections` for consumers of Kafka, kept in `publications/sinks` (`kept`). What is released is carried out by
whoever comes to do it (`control.sink_corrections`), once per sink.

A sink that cannot be corrected is marked when the rest is released (`stale_sinks`). A rollback takes that mark away; if
somebody has taken it away before, having written the sink anew, the rollback is what makes it stale.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec
import pyarrow as pa

from deltaworks import files
from deltaworks.clock import wall_ms
from deltaworks.faults import reach
from deltaworks.lakehouse.committer import TableCommitter
from deltaworks.lakehouse.publish import stale_sinks
from deltaworks.lakehouse.publish.corrections import TableCorrections
from deltaworks.lakehouse.publish.kept import Action, Keeping, remove_rows, rows_of
from deltaworks.lakehouse.publish.replacement import Replacement
from deltaworks.lakehouse.publish.scope import Scope
from deltaworks.lakehouse.reading import parquet_file
from deltaworks.lakehouse.schema import Role, changelog_name

FORMAT = 1
"""Version of what is kept."""
TRANSACTION_ROWS = 10_000
"""Rows that a sink gets at once."""


class OtherSink(msgspec.Struct, frozen=True, kw_only=True):
    """A sink that is not corrected."""

    table: str | None
    """The table with the same rows: if none of them change, the sink is not stale. None: there is none."""
    why: str


class SinksRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The sinks of a pipeline."""

    corrected: dict[str, str]
    """Sink -> the table whose rows correct it."""
    stale: dict[str, OtherSink]
    same_batches: bool = True
    """The replay ran the recorded batches; see `CorrectionsRequest`."""


class TableRows(TableCorrections, frozen=True, kw_only=True):
    """The rows of one table that differ."""

    as_of_batch: int
    """The last batch of the stream that they know."""


class KeptSinks(msgspec.Struct, frozen=True, kw_only=True):
    """What one publication, or one rollback, changes in sinks."""

    run_id: str
    action: Action
    round: int
    """How often the run has been published, this time included."""
    tables: dict[str, TableRows]
    corrected: dict[str, str]
    """Sink -> the table whose rows correct it."""
    stale: dict[str, str]
    """Sink -> why it is stale once all tables show the rest."""
    fresh: tuple[str, ...] = ()
    """Sinks that are no longer stale then."""
    per_transaction: int = TRANSACTION_ROWS
    made_ms: int
    released_ms: int | None = None
    """When all tables showed it; None: not yet."""
    done_ms: dict[str, int] = {}
    """Sink -> when it was corrected, or given up."""
    format: int = FORMAT

    @property
    def needed(self) -> frozenset[str]:
        """The tables whose rows correct sinks, still."""
        return frozenset(self.corrected.values()) if self.released_ms is None or self.waiting else frozenset()

    @property
    def name(self) -> str:
        """Identifies them among all of a pipeline."""
        return f"{self.run_id}/{self.action}-{self.round}"

    @property
    def digest(self) -> str:
        """Identifies what is changed."""
        return hashlib.sha256(msgspec.json.encode(msgspec.structs.replace(self, done_ms={}))).hexdigest()

    @property
    def waiting(self) -> tuple[str, ...]:
        """The sinks that are not corrected yet."""
        if self.released_ms is None:
            return ()
        return tuple(sink for sink in self.corrected if sink not in self.done_ms)

    def transactions(self, sink: str) -> int:
        """In how many transactions a sink is corrected."""
        return -(-self.tables[self.corrected[sink]].rows // self.per_transaction)


KEEPING = Keeping("sinks", KeptSinks, FORMAT, "What a publication changes in sinks", "which sinks are corrected")


def keep(
    committer: TableCommitter,
    publications: Path,
    request: SinksRequest,
    scope: Scope,
    name: tuple[str, Action, int],
    changes: Mapping[str, Replacement],
    published: Iterable[str],
) -> None:
    """Writes down what sinks lose and get; tables that an earlier attempt has committed stay as it left them.

    Args:
        committer: of the tables, which do not show it yet.
        publications: folder of the records of publications.
        request: the sinks.
        scope: of the replay.
        name: run, action and round.
        changes: what will be committed.
        published: all tables of the publication, those that are committed, too.
    """
    from deltaworks.lakehouse.publish import corrected_rows  # its DuckDB is of no use to other drivers

    run_id, action, number = name
    folder = KEEPING.folder_of(publications, run_id, action, number)
    earlier = KEEPING.read(folder)
    if earlier is not None and earlier.released_ms is not None:
        return
    reached = set(published)
    corrected = {sink: table for sink, table in request.corrected.items() if table in reached}
    others = {sink: other for sink, other in request.stale.items() if other.table is None or other.table in reached}
    tables = {} if earlier is None else dict(earlier.tables)
    for table in sorted({*corrected.values(), *filter(None, (other.table for other in others.values()))}):
        if table in changes:
            target = rows_of(folder, table)
            found = corrected_rows.compare(committer, table, changes, scope, target, same_batches=request.same_batches)
            as_of = committer.committed_batch(_source(committer, table))
            tables[table] = TableRows(**msgspec.structs.asdict(found), as_of_batch=-1 if as_of is None else as_of)
    of_corrected = set(corrected.values())
    files.sync([rows_of(folder, table) for table in of_corrected if tables[table].rows])
    remove_rows(folder, [*(tables.keys() - of_corrected)])  # only their number matters
    stale = {sink: other.why for sink, other in others.items() if other.table is None or tables[other.table].rows}
    fresh: tuple[str, ...] = ()
    if action == "rollback":
        fresh = tuple(sink for sink in stale if stale_sinks.is_marked(publications, sink, run_id))
        stale = {sink: why for sink, why in stale.items() if sink not in fresh}
    KEEPING.save(
        folder,
        KeptSinks(
            run_id=run_id,
            action=action,
            round=number,
            tables=tables,
            corrected=corrected,
            stale=stale,
            fresh=fresh,
            per_transaction=TRANSACTION_ROWS,
            made_ms=wall_ms(),
        ),
    )


def release(publications: Path, run_id: str, action: Action, number: int) -> None:
    """Lets sinks be corrected, and marks the others: all tables show it."""
    folder = KEEPING.folder_of(publications, run_id, action, number)
    kept = KEEPING.read(folder)
    if kept is None or kept.released_ms is not None:
        return
    for sink, why in kept.stale.items():
        stale_sinks.mark(publications, sink, run_id, action, why)
        reach("sinks.marked")
    for sink in kept.fresh:
        stale_sinks.unmark(publications, sink, run_id)
    KEEPING.save(folder, msgspec.structs.replace(kept, released_ms=wall_ms()))


def waiting(publications: Path) -> list[KeptSinks]:
    """What is released and not carried out, in the order in which the tables have shown it."""
    return [kept for kept in KEEPING.all_of(publications) if kept.waiting]


def note_done(publications: Path, kept: KeptSinks, sink: str) -> KeptSinks:
    """Notes that a sink is corrected, or given up; the rows are not needed any more once all are."""
    folder = KEEPING.place_of(publications, kept)
    noted = msgspec.structs.replace(kept, done_ms=kept.done_ms | {sink: wall_ms()})
    KEEPING.save(folder, noted)
    if not noted.waiting:
        remove_rows(folder, [*kept.tables])
    return noted


def rows(publications: Path, kept: KeptSinks, sink: str, transaction: int) -> Iterator[tuple[pa.Table, pa.Table]]:
    """The rows of one transaction, in parts; the same ones each time.

    Returns:
        Rows that are there now, and rows that are no more, with the columns of the table.
    """
    table = kept.corrected[sink]
    told, first = kept.tables[table], transaction * kept.per_transaction
    last = min(first + kept.per_transaction, told.rows)
    place = rows_of(KEEPING.place_of(publications, kept), table)
    with parquet_file(place) as file:
        groups, at = [], 0
        for number in range(file.metadata.num_row_groups):
            end = at + file.metadata.row_group(number).num_rows
            if at < last and first < end:
                groups.append((number, at))
            at = end
        at = groups[0][1] if groups else 0
        numbers = [number for number, _ in groups]  # not those before: each transaction would read all of them again
        for batch in file.iter_batches(kept.per_transaction, row_groups=numbers, use_threads=False):
            begin, end = max(first, at), min(last, at + batch.num_rows)
            if begin < end:
                yield _sides(told, batch.slice(begin - at, end - begin))
            at += batch.num_rows


def _sides(told: TableRows, batch: pa.RecordBatch) -> tuple[pa.Table, pa.Table]:
    rows = pa.Table.from_batches([batch])
    now = rows.filter(rows["in_after"])
    gone = rows.filter(pa.compute.and_not(rows["in_before"], rows["in_after"]))
    return (
        pa.table({name: now[f"a{number}"] for number, name in enumerate(told.columns)}),
        pa.table({name: gone[f"b{number}"] for number, name in enumerate(told.columns)}),
    )


def _source(committer: TableCommitter, table: str) -> str:
    is_snapshot = committer.tables[table].schema.role is Role.SNAPSHOT
    return changelog_name(table) if is_snapshot else table
