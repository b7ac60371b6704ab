"""Corrects the sinks of a pipeline for other systems after a publication or a rollback, exactly once.

The tables come first, as with corrections in a topic (`corrections`): what is changed was written down before their
commits and released after them (`lakehouse.publish.sink_changes`). Whoever publishes, rolls back or maintains a home
carries it out, in the order in which the tables have shown it; what one process has left is done by the next.

The stream goes on meanwhile. What it has updated since the publication is right already, so keys of later batches are
left out; and what it updates while a sink is corrected wins there: by its version in an index, by locks in a database
(`deltaworks.sinks`). A batch that may run again after a crash would bring back old documents, so nothing is done in an
index before the last batch that the rows know is settled.

What the other system refuses for good does not hold up the rest: the sink is marked (`stale_sinks`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import msgspec
import pyarrow as pa

from deltaworks.clock import ticks_s
from deltaworks.control import batches, fence, jobs
from deltaworks.control.checkpoint import CheckpointPlan, stored_plan
from deltaworks.control.paths import PipelinePaths
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.errors import ConfigurationError, ConflictError, DeltaworksError, SinkError, TransientError
from deltaworks.faults import reach
from deltaworks.files import alone, make_folder
from deltaworks.lakehouse import snapshots
from deltaworks.lakehouse.log import DeltaLog
from deltaworks.lakehouse.publish import publication, sink_changes, stale_sinks
from deltaworks.lakehouse.publish.sink_changes import KeptSinks, OtherSink, SinksRequest
from deltaworks.lakehouse.publish.stale_sinks import StaleSink
from deltaworks.lakehouse.reading import parquet_file
from deltaworks.lakehouse.schema import changelog_name, schemas
from deltaworks.settings import Settings
from deltaworks.sinks.row_changes import RowChanges
from deltaworks.topology.external import JdbcTable, SearchIndex
from deltaworks.topology.nodes.sinks import TableKind
from deltaworks.topology.published_sinks import PublishedSink, at_publish
from deltaworks.topology.sinks import SinkTask

_PATIENCE_S, _PAUSE_S = 30.0, 0.2
"""How long it is waited for a batch that is under way."""
_log = logging.getLogger(__name__)


class CorrectedSink(msgspec.Struct, frozen=True, kw_only=True):
    """What was done in one sink."""

    name: str
    """Of the publication or the rollback."""
    sink: str
    rows: int
    """That have changed in its table."""
    refused: int
    """How many of them its system refuses; then it is stale."""


def request_of(pipeline: Pipeline, *, same_batches: bool) -> SinksRequest | None:
    """The sinks of a pipeline for other systems; None: it has none.

    Args:
        pipeline: whose tables are published.
        same_batches: the replay has run the recorded batches.
    """
    found = at_publish(pipeline.plan().nodes)
    if not found:
        return None
    return SinksRequest(
        corrected={each.node.name: each.table.table for each in found if each.table is not None and each.why is None},
        stale={
            each.node.name: OtherSink(table=None if each.table is None else each.table.table, why=each.why)
            for each in found
            if each.why is not None
        },
        same_batches=same_batches,
    )


def correct(settings: Settings, name: str) -> list[CorrectedSink]:
    """Carries out what is released and not done yet, of whichever publication or rollback of a pipeline.

    Args:
        settings: where the pipeline runs.
        name: the pipeline.

    Returns:
        What was done.

    Each sink goes on by itself: one that is down holds up no other. Its own corrections keep their order.

    Raises:
        TransientError: a system does not answer, or the stream has to go on first; all other sinks are corrected, and
            the next call goes on there.
        ConfigurationError: a sink cannot be reached as its settings say; likewise.
    """
    paths = PipelinePaths.of(settings, name)
    if not sink_changes.waiting(paths.publications):
        return []
    nodes = {each.node.name: each for each in at_publish(jobs.load(settings, name).plan().nodes)}
    make_folder(paths.publications)
    done, failed = [], dict[str, DeltaworksError]()
    with alone(paths.publications):
        for kept in sink_changes.waiting(paths.publications):
            for sink in kept.waiting:
                if sink in failed:  # each publication knows the one before
                    continue
                try:
                    done.append(_corrected(settings, paths, name, kept, sink, nodes.get(sink)))
                except DeltaworksError as error:
                    failed[sink] = _waiting(kept, sink, error)
                    _log.warning("sink %s waits for the corrections of %s: %s", sink, kept.name, error.message)
                    continue
                reach("sinks.before_note")
                kept = sink_changes.note_done(paths.publications, kept, sink)
                _log.info("sink %s: %s corrected by %s", sink, f"{done[-1].rows:,} rows", kept.name)
    if failed:
        raise _all_waiting(list(failed.values()))
    return done


def told(settings: Settings, name: str, done: list[CorrectedSink]) -> str:
    """What was done and which sinks are stale, to follow what was done before; empty: nothing, and none."""
    lines = [f", {each.rows:,} rows corrected in sink '{each.sink}'" for each in done]
    marks = dict.fromkeys(each.sink for each in stale(settings, name))
    if marks:
        names = ", ".join(f"'{sink}'" for sink in marks)
        lines.append(f"; stale: {names} (deltaworks sinks {name})")
    return "".join(lines)


def stale(settings: Settings, name: str) -> list[StaleSink]:
    """The marks of a pipeline's sinks, the oldest first."""
    return list(stale_sinks.all_of(PipelinePaths.of(settings, name).publications))


def mark_all(settings: Settings, pipeline: Pipeline, run_id: str, action: str) -> list[str]:
    """Marks all sinks of a pipeline for other systems; returns their names. For changes without exact differences."""
    names = [each.node.name for each in at_publish(pipeline.plan().nodes)]
    for sink in names:
        why = "a hand-over corrects no sinks"
        stale_sinks.mark(PipelinePaths.of(settings, pipeline.name).publications, sink, run_id, action, why)
    return names


def clear(settings: Settings, name: str, sink: str) -> int:
    """Takes all marks of a sink away, once it was written anew; returns how many there were.

    Raises:
        ConfigurationError: the sink has none.
        ConflictError: a publication or a rollback is not finished, which may mark it.
    """
    publications = PipelinePaths.of(settings, name).publications
    if begun := publication.unfinished(publications):
        raise ConflictError(
            f"A publication was interrupted: {', '.join(begun)}.", hint="repeat what was asked for; then this"
        )
    _require_none_waiting(publications, sink)
    found = stale_sinks.clear(publications, sink)
    if not found:
        known = dict.fromkeys(each.sink for each in stale_sinks.all_of(publications))
        raise ConfigurationError(
            f"Sink {sink!r} of '{name}' is not stale.", hint=f"stale sinks: {', '.join(known) or 'none'}"
        )
    return found


def give_up(settings: Settings, name: str, sink: str) -> int:
    """Drops what waits for a sink, and marks it as stale; returns of how many publications and rollbacks.

    Raises:
        ConfigurationError: nothing waits for it.
    """
    publications = PipelinePaths.of(settings, name).publications
    make_folder(publications)
    given_up = 0
    with alone(publications):
        for kept in sink_changes.waiting(publications):
            if sink not in kept.waiting:
                continue
            stale_sinks.mark(publications, sink, kept.run_id, kept.action, "somebody has given up its corrections")
            sink_changes.note_done(publications, kept, sink)
            given_up += 1
    if not given_up:
        raise ConfigurationError(
            f"No corrections wait for sink {sink!r} of '{name}'.", hint=f"deltaworks sinks {name} says what waits"
        )
    return given_up


def _require_none_waiting(publications: Any, sink: str) -> None:
    for kept in sink_changes.waiting(publications):
        if sink in kept.waiting:
            raise ConflictError(
                f"Corrections of {kept.name} wait for sink '{sink}'.",
                hint="run the DAG streams__maintenance, or repeat the publication or the rollback",
            )


def _corrected(
    settings: Settings,
    paths: PipelinePaths,
    name: str,
    kept: KeptSinks,
    sink: str,
    found: PublishedSink | None,
) -> CorrectedSink:
    """Corrects one sink."""
    rows = kept.tables[kept.corrected[sink]].rows
    if found is None or found.table is None or found.why is not None or found.table.table != kept.corrected[sink]:
        why = "the code has no such sink any more, or it is not corrected by the same table"
        stale_sinks.mark(paths.publications, sink, kept.run_id, kept.action, why)
        return CorrectedSink(name=kept.name, sink=sink, rows=0, refused=0)
    refused = _Correcting(settings, paths, name, kept, found).run() if rows else []
    if refused:
        _mark_refused(paths, kept, sink, refused)
    elif kept.action == "rollback" and not stale_sinks.is_marked(paths.publications, sink, kept.run_id, by="rollback"):
        stale_sinks.unmark(paths.publications, sink, kept.run_id)  # it has what it had before the publication
    return CorrectedSink(name=kept.name, sink=sink, rows=rows, refused=len(refused))


def _mark_refused(paths: PipelinePaths, kept: KeptSinks, sink: str, refused: list[str]) -> None:
    rows = kept.tables[kept.corrected[sink]].rows
    why = f"its system refuses {len(refused):,} of {rows:,} rows: {refused[0]}"
    stale_sinks.mark(paths.publications, sink, kept.run_id, kept.action, why)


class _Correcting:
    """Corrects a sink of one publication."""

    def __init__(
        self, settings: Settings, paths: PipelinePaths, name: str, kept: KeptSinks, found: PublishedSink
    ) -> None:
        assert found.table is not None
        self._settings, self._paths, self._name, self._kept = settings, paths, name, kept
        self._sink, self._table = found.node, found.table
        self._as_of = kept.tables[found.table.table].as_of_batch
        self._log: DeltaLog | None = None
        """Of the changelog: loaded once, and then followed."""
        self._updated: set[tuple[Any, ...]] = set()
        self._read: set[str] = set()
        """Files of the changelog whose keys are in `_updated`: they never change."""

    def run(self) -> list[str]:
        """Returns why rows are refused."""
        plan = stored_plan(self._paths.current.plan)
        if plan is None:
            raise ConfigurationError(f"{self._paths.current.plan} is gone.", hint="bring it back from a copy")
        self._updated_since()  # most of it, before a transaction locks rows that the stream waits for
        match self._sink.sink:
            case SearchIndex() as index:
                self._wait_until_settled(plan)  # a database knows which batches it has
                return self._documents(index)
            case JdbcTable() as table:
                return self._rows(table, plan)
            case other:
                raise AssertionError(f"{other} is never corrected")

    def _documents(self, index: SearchIndex) -> list[str]:
        from deltaworks.sinks.search_corrections import SearchCorrections

        task = SinkTask(
            pipeline=self._name,
            sink=self._sink.name,
            task=0,
            checkpoint="",
            generation=fence.read(self._paths.fence),
        )
        refused = []
        with closing(SearchCorrections(index, self._table, task)) as corrections:
            for number in range(self._kept.transactions(self._sink.name)):
                reach("sinks.before_transaction")
                batch = max(self._as_of, batches.last_number(self._paths.batches))  # before what is left out is read
                for part in self._parts(number):
                    refused += corrections.correct(batch, part)
                reach("sinks.after_transaction")
        return refused

    def _rows(self, table: JdbcTable, plan: CheckpointPlan) -> list[str]:
        from deltaworks.sinks.jdbc_corrections import JdbcCorrections

        name, refused = self._sink.name, list[str]()
        opened = JdbcCorrections(
            table,
            self._table,
            pipeline=self._name,
            name=name,
            checkpoint=plan.query_id,
            tasks=max(plan.tasks),  # of any stage: the code of now may have others than the stream that runs
        )
        with closing(opened) as corrections:
            for number in range(self._kept.transactions(name)):
                reach("sinks.before_transaction")
                refused += self._patiently(corrections, number, refused)
                reach("sinks.after_transaction")
        return refused

    def _patiently(self, corrections: Any, number: int, before: list[str]) -> list[str]:
        """Tries again while the stream is in the middle of a batch."""

        def note(refused: list[str]) -> None:
            _mark_refused(self._paths, self._kept, self._sink.name, [*before, *refused])

        until = ticks_s() + _PATIENCE_S
        while True:
            try:
                refused: list[str] = corrections.correct(
                    number,
                    self._kept.digest,
                    lambda: self._parts(number),
                    lambda: batches.last_number(self._paths.batches),
                    note,
                )
            except SinkError:
                if ticks_s() + _PAUSE_S > until:
                    raise
                time.sleep(_PAUSE_S)
            else:
                return refused

    def _parts(self, number: int) -> Iterator[RowChanges]:
        """The rows of a transaction, without those that the stream has updated since."""
        keys, updated = schemas(self._table)[0].key_names, self._updated_since()
        for now, gone in sink_changes.rows(self._paths.publications, self._kept, self._sink.name, number):
            yield RowChanges(_without(now, keys, updated), _without(gone, keys, updated))

    def _updated_since(self) -> set[tuple[Any, ...]]:
        """The keys of batches that the rows do not know. Windows of days that are published are closed."""
        if self._table.kind is not TableKind.CHANGELOG:
            return set()
        if self._log is None:
            self._log = DeltaLog(self._settings.tables / changelog_name(self._table.table))
            self._log.load()
        else:
            self._log.catch_up()
        names = schemas(self._table)[0].key_names
        for path in snapshots.news(self._log.files, self._as_of):
            if path in self._read:
                continue
            with parquet_file(self._log.path / path) as file:
                rows = file.read(columns=[*names, "batch_id"])
            rows = rows.filter(pa.compute.greater(rows["batch_id"], self._as_of))
            self._updated.update(_keys(rows, names))
            self._read.add(path)
        return self._updated

    def _wait_until_settled(self, plan: CheckpointPlan) -> None:
        """A batch that Spark does not know as committed runs again after a crash."""
        until = ticks_s() + _PATIENCE_S
        while not self._is_settled(plan):
            if ticks_s() + _PAUSE_S > until:
                raise SinkError(
                    f"Batch {self._as_of} of the stream is in its tables, but would run again after a crash.",
                    hint=f"if it is stopped, start it: deltaworks deploy {self._name}; then ask again",
                )
            time.sleep(_PAUSE_S)

    def _is_settled(self, plan: CheckpointPlan) -> bool:
        newest = batches.last_number(self._paths.batches)
        if self._as_of < plan.first_batch or newest > self._as_of:
            return True
        spark = self._paths.current.spark / "commits" / str(self._as_of - plan.first_batch)
        return newest == self._as_of and spark.exists()


def _without(rows: pa.Table, names: tuple[str, ...], updated: set[tuple[Any, ...]]) -> pa.Table:
    if not updated:
        return rows
    return rows.filter(pa.array([key not in updated for key in _keys(rows, names)], pa.bool_()))


def _keys(rows: pa.Table, names: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    return zip(*(rows[name].to_pylist() for name in names), strict=True)


def _waiting(kept: KeptSinks, sink: str, error: DeltaworksError) -> DeltaworksError:
    """The same error; says that the tables are done."""
    told = (
        f"The tables show the {kept.action} of run {kept.run_id}, but sink '{sink}' is not corrected yet: "
        f"{error.message}"
    )
    return type(error)(told, hint=error.hint or "ask again: it goes on where it ended")


def _all_waiting(errors: list[DeltaworksError]) -> DeltaworksError:
    """One error for all sinks that wait; one that passes wins, as the next call may find more done."""
    first = next((each for each in errors if isinstance(each, TransientError)), errors[0])
    if len(errors) == 1:
        return first
    others = [each.message for each in errors if each is not first]
    return type(first)("\n  ".join((first.message, *others)), hint=first.hint)
