"""Explains a row: the batches that changed it, the records that went into it, and a case that makes it again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from deltaworks.control import batches, set_aside
from deltaworks.control.batches import BatchRecord
from deltaworks.control.intents import Intents
from deltaworks.control.paths import PipelinePaths
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.errors import ConfigurationError, DeltaworksError, StreamsError, TableError
from deltaworks.explain import question as questions
from deltaworks.explain.candidates import Candidates, accumulates, holds_back
from deltaworks.explain.masking import Mask, has_secrets
from deltaworks.explain.question import FoundRow, Question
from deltaworks.explain.reading import Reading, begins_at, plan_reading
from deltaworks.explain.reduction import Attempts, Reduced, Way, case_record, reduced
from deltaworks.explain.tracing import InputRecord, Trace, TracedBatch, Write, depends_on_clock, trace
from deltaworks.files import files_in
from deltaworks.lakehouse import catalog
from deltaworks.lakehouse.archive_reader import ArchiveReader
from deltaworks.lakehouse.schema import Role
from deltaworks.replay import same_tasks
from deltaworks.replay.begin import Broker, begun_later
from deltaworks.replay.model import ReplayPlan, ReplayRequest
from deltaworks.replay.plan import make_plan
from deltaworks.runtime.forgetting import forgetting
from deltaworks.runtime.global_tables import Reader
from deltaworks.runtime.history import History
from deltaworks.settings import Settings
from deltaworks.testing.cases import Clock, RecordedCase, compared_columns, plain_cell, plain_row
from deltaworks.topology.archives import Archives
from deltaworks.topology.columns import LAST_MS
from deltaworks.topology.nodes import CallOut
from deltaworks.topology.plan import Plan

MAX_RECORDS = 200_000
MAX_CHANGES = 10
_HIDDEN = "(hidden)"

InputRole = Literal["wrote", "closed", "needed"]


@dataclass(frozen=True)
class Change:
    """A batch that changed the row."""

    batch: int
    at: datetime
    """The time of the batch."""
    code: str | None
    """Digest of the code that ran it; None: it is no longer known."""
    values: dict[str, Any]
    """The columns of the value after it; empty if the row was deleted."""


@dataclass(frozen=True)
class Input:
    """A record of the case."""

    record: InputRecord
    role: InputRole


@dataclass(frozen=True)
class Explanation:
    """Where a row came from."""

    pipeline: str
    table: str
    row: dict[str, Any]
    changes: tuple[Change, ...]
    """Newest first; the first one wrote the row as it is."""
    inputs: tuple[Input, ...]
    """In the order of processing."""
    case: RecordedCase
    reproduced: bool
    """Whether the case, run alone in the test driver, gives the row."""
    found: dict[str, Any] | None
    """What the case gives; None: no row."""
    is_minimal: bool
    masked: bool
    """Whether secret fields were replaced."""
    masking_changes: tuple[str, ...]
    """Columns that differ because of the replacements, so that the case does not give the row of the table."""
    changes_in_all: int
    """How many batches changed the row; `changes` may have only the newest."""
    first_batch: int
    """The first batch that was read."""
    records_read: int
    notes: tuple[str, ...] = field(default=())
    """What a reader has to know, such as what was not read."""

    @property
    def differing(self) -> dict[str, tuple[Any, Any]]:
        """Column -> the cell of the table, the cell of the case."""
        found = self.found or {}
        return {name: (cell, found.get(name)) for name, cell in self.row.items() if found.get(name) != cell}


def explain(
    settings: Settings,
    pipeline: Pipeline,
    asked: Question,
    *,
    broker: Broker | None = None,
    connect: Callable[[ReplayPlan], Reader] | None = None,
    max_records: int = MAX_RECORDS,
    max_changes: int = MAX_CHANGES,
    report: Callable[[str], None] = lambda line: None,
) -> Explanation:
    """Explains a row; writes nothing.

    Args:
        settings: where the pipeline keeps its files.
        pipeline: with the code to run.
        asked: the row.
        broker: answers questions about topics; None: the cluster of the pipeline.
        connect: makes the reader of the records; None: Kafka and the archives.
        max_records: how many records to read.
        max_changes: how many batches that changed the row are named.
        report: takes lines of progress.

    Raises:
        TableError: there is no such row, or its records are gone.
        ConfigurationError: the question does not fit the table, or the pipeline never ran.
        KafkaReadError: the broker did not answer.
    """
    paths = PipelinePaths.of(settings, pipeline.name)
    pipeline = set_aside.applied(paths, pipeline)
    plan = pipeline.plan()
    _require_no_call_outs(plan)
    found = questions.find(settings.tables, pipeline, plan, asked)
    row = _Row(found, plan)
    records = list(batches.read(paths.batches))
    replay = _replay_plan(settings, pipeline, row, records, broker)
    reader = (connect or (lambda plan: history(settings, pipeline, plan)()))(replay)
    try:
        archive = ArchiveReader(settings.tables, Archives.of(plan), replay.topics.get)
        reading = plan_reading(
            records,
            plan,
            replay,
            begins_at(reader, archive, replay.gone),
            last_batch=row.last_batch(records),
            max_records=max_records,
        )
        report(f"processing {reading.records:,} records again")
        traced = _traced(pipeline, plan, replay, reading.read(reader), row)
    finally:
        reader.close()
    writes = row.writes(traced)
    if not writes:
        raise _nothing_wrote(row, reading, pipeline)
    report("looking for the records that give the row")
    candidates = Candidates(traced, row.core(traced, writes), row.closing(traced, writes[-1]))
    empty = _with_clock(row.case, candidates, replay.partitions)
    attempts = Attempts(pipeline, plan, traced.records, empty, _ways(plan, pipeline))
    small = reduced(candidates, attempts)
    notes = [
        *reading.notes,
        *replay.notes[1 if replay.needs_all else 0 :],
        *row.notes(writes[-1], reproduced=small.reproduced),
    ]
    inputs = tuple(_input(traced.records[number], number, candidates) for number in small.records)
    explained = Explanation(
        pipeline=pipeline.name,
        table=asked.table,
        row=small.case.row,
        changes=tuple(_changes(row, traced, writes, paths, max_changes)),
        inputs=inputs,
        case=small.case,
        reproduced=small.reproduced,
        found=small.found,
        is_minimal=small.is_minimal,
        masked=False,
        masking_changes=(),
        changes_in_all=len({traced.steps[write.step].batch for write in writes}),
        first_batch=reading.batches[0][0].batch,
        records_read=len(traced.records),
        notes=tuple(notes),
    )
    if not has_secrets(pipeline, plan):
        return explained
    report("replacing what is secret")
    mask = Mask(pipeline, plan)
    hidden = [mask.record(record) for record in traced.records]
    masked = _masked_values(
        _masked_row(row, mask), lambda again: _traced(pipeline, plan, replay, reading.again(hidden), again)
    )
    return _masked(explained, small, mask, attempts, _Masked(masked, row.independent(traced, writes, masked)))


def written_in(settings: Settings, pipeline: Pipeline, asked: Question) -> int | None:
    """The batch that wrote a row, as far as the table says it; runs no code of the pipeline.

    Raises:
        TableError: there is no such row.
        ConfigurationError: the question does not fit the table.
    """
    plan = pipeline.plan()
    if not questions.is_written(pipeline, plan, asked.table):
        return catalog.table(settings.tables, asked.table).batch_id
    row = _Row(questions.find(settings.tables, pipeline, plan, asked), plan)
    return row.batch(list(batches.read(PipelinePaths.of(settings, pipeline.name).batches)))


def _require_no_call_outs(plan: Plan) -> None:
    """Raises `ConfigurationError` if operators ask other systems: a part of the records would ask something else."""
    if asking := [node.name for node in plan.nodes if isinstance(node, CallOut)]:
        raise ConfigurationError(
            f"Rows of this pipeline cannot be explained yet: {', '.join(asking)} asks another system.",
            hint="a replay has the recorded answers: deltaworks replay",
        )


def _traced(pipeline: Pipeline, plan: Plan, replay: ReplayPlan, batches: Iterable[TracedBatch], row: _Row) -> Trace:
    try:
        return trace(
            pipeline,
            replay.partitions,
            batches,
            row.found.sink.name,
            row.is_watched,
            sink_partitions=replay.sink_partitions,
            done=row.is_closed,
        )
    except StreamsError as error:
        if not has_secrets(pipeline, plan):
            raise
        raise TableError(
            f"A record failed in operator {error.position.operator if error.position else 'unknown'}. "
            "Its error is not shown, as it may have secret fields in it.",
            hint="the records are processed with the current code; --as-deployed runs that of the row",
        ) from None


def history(settings: Settings, pipeline: Pipeline, plan: ReplayPlan) -> Callable[[], Reader]:
    """Reads Kafka and the archives of a pipeline, without persons whose data was erased."""
    known = History(
        settings.cluster_of(pipeline.name),
        settings.tables,
        Archives.of(pipeline.plan()),
        compacted=frozenset(plan.compacted),
        gone=frozenset(plan.gone),
        topics=plan.topics,
    )
    return forgetting(known, PipelinePaths.of(settings, pipeline.name), pipeline.plan())


def code_in(settings: Settings, pipeline: str, batch: int) -> str | None:
    """`code_of` for a pipeline of a home."""
    return code_of(PipelinePaths.of(settings, pipeline), batch)


def code_of(paths: PipelinePaths, batch: int) -> str | None:
    """The digest of the code that ran a batch; None: its intent is no longer kept, or it ran from no archive."""
    for checkpoint in (paths.current, paths.first, *paths.made_checkpoints()):
        if (intent := Intents(files_in(checkpoint.intents)).get(batch)) is not None:
            return intent.code or None
    return None


@dataclass(frozen=True)
class _Row:
    """The row that is explained, as the kernel knows it."""

    found: FoundRow
    plan: Plan
    _known: dict[Any, bool] = field(default_factory=dict)

    @property
    def case(self) -> RecordedCase:
        """The case without records."""
        found = self.found
        from_topic = questions.comes_from_a_topic(self.plan, found.row)
        columns = compared_columns(found.schema, with_source=from_topic)
        return RecordedCase(
            pipeline=self.plan.name,
            table=found.schema.name,
            identity={name: plain_cell(found.row[name]) for name in found.identity},
            row=plain_row(found.row, columns),
            records=(),
        )

    @property
    def is_windowed(self) -> bool:
        return self.found.schema.role is Role.WINDOWED

    @property
    def begin_ms(self) -> int | None:
        """The time with which records begin that matter for sure; None: they may be of any age."""
        match self.found.schema.role:
            case Role.WINDOWED:
                return _ms(self.found.row["window_start"])
            case Role.APPEND:
                return _ms(self.found.row["timestamp"])
            case _:
                return None

    def last_batch(self, records: Sequence[BatchRecord]) -> int:
        """The last batch that can have written the row."""
        if (batch := self.batch(records)) is not None:
            return batch
        last = records[-1].batch
        return last if self.found.last_batch is None else min(self.found.last_batch, last)

    def batch(self, records: Sequence[BatchRecord]) -> int | None:
        """The batch that wrote the row; None: the row does not say it."""
        row = self.found.row
        if "batch_id" in row:
            return int(row["batch_id"])
        named = "source_offset" in row and questions.comes_from_a_topic(self.plan, row)
        if named and not holds_back(self.plan, self.found.sink):
            for record in reversed(records):
                start, stop = record.offsets.get(row["source_topic"], {}).get(str(row["source_partition"]), (0, 0))
                if start <= row["source_offset"] < stop:
                    return record.batch
        return None

    def is_watched(self, row: tuple[Any, ...]) -> bool:
        """Whether a written row may be this one, see `kernel.records.Rows`."""
        if self.is_windowed:
            start, end = _ms(self.found.row["window_start"]), _ms(self.found.row["window_end"])
            if (min(row[3], LAST_MS), min(row[4], LAST_MS)) != (start, end):
                return False
        try:
            if (known := self._known.get(row[0])) is None:
                known = self._known[row[0]] = self._has_key(row[0])
        except TypeError:  # not hashable
            return self._has_key(row[0])
        return known

    def is_closed(self, traced: Trace) -> bool:
        """Whether nothing can change the row any more."""
        if not self.is_windowed or not self.found.row["is_final"] or not traced.writes:
            return False
        return self.closing(traced, traced.writes[-1]) is not None

    def writes(self, traced: Trace) -> list[Write]:
        """The writes of the row, up to the one that left it as it is; deletions too."""
        writes = traced.writes
        if self.found.schema.role in (Role.WINDOWED, Role.SNAPSHOT):
            return writes if writes and writes[-1].row[1] is not None else []
        if (last := self._last(writes, traced)) is None:
            return self._named(traced)
        return writes[: last + 1] if self.found.schema.role is Role.CHANGELOG else [writes[last]]

    def _named(self, traced: Trace) -> list[Write]:
        """The record that the row names, in the place of a write that only the stream has.

        With record caches, an operator that holds records back gets fewer of them than in the trace, and may let others
        out.
        """
        steps = [step for record, own in traced.own.items() if self._is_source(traced.records[record]) for step in own]
        return [Write(max(steps), ())] if steps else []

    def _is_source(self, record: InputRecord) -> bool:
        """Whether the row names a record as its source."""
        row = self.found.row
        named = "source_topic" in row and questions.comes_from_a_topic(self.plan, row)
        return named and record.place == (row["source_topic"], row["source_partition"], row["source_offset"])

    def _last(self, writes: Sequence[Write], traced: Trace) -> int | None:
        """The write of this row of an append-only table or a changelog.

        With a record cache, a stream writes the last of several updates, perhaps with the time of another one or in a
        later batch; and other code gives other values. So the one that is most alike is taken.
        """
        batch = self.found.row.get("batch_id")

        def likeness(number: int) -> tuple[bool, int, bool, bool, int]:
            write = writes[number]
            in_batch = batch is None or traced.steps[write.step].batch == batch
            values = self._has_values(write)
            return values and in_batch, self._likeness(write), values, in_batch, number

        best = max(range(len(writes)), key=likeness, default=None)
        return best if best is not None and any(likeness(best)[:3]) else None

    def core(self, traced: Trace, writes: Sequence[Write]) -> tuple[int, ...]:
        """The steps that wrote what the row has, in the stream."""
        last = self._forwarded(traced, writes[-1])
        if not accumulates(self.plan, self.found.sink):
            return (last,)
        since = max((number for number, write in enumerate(writes[:-1]) if write.row[1] is None), default=-1)
        return tuple(dict.fromkeys([*(write.step for write in writes[since + 1 :]), last]))

    def _forwarded(self, traced: Trace, last: Write) -> int:
        """The step of the record with which the stream forwarded the last write.

        With a record cache this is the record that touched the entry last in its batch, which the row names. It need
        not have changed anything: a second deletion only gives the first another time and another source.
        """
        if not last.row:
            return last.step
        task, batch = traced.steps[last.step].task, traced.steps[last.step].batch
        named = [
            step
            for record, own in traced.own.items()
            if traced.records[record].batch == batch and self._is_source(traced.records[record])
            for step in own
            if traced.steps[step].task == task
        ]
        return last.step if last.step in named else max(named, default=last.step)

    def closing(self, traced: Trace, last: Write) -> int | None:
        """The step after which a window was final."""
        if not self.is_windowed or not self.found.row["is_final"]:
            return None
        task = traced.steps[last.step].task
        for step, before_ms in traced.closings:
            if before_ms > last.row[4] and traced.steps[step].task == task:
                return step
        return None

    def values(self, write: Write) -> dict[str, Any]:
        """The columns of the value that a write has left; of one that only the stream has, those of the row."""
        if not write.row:
            return {column.name: plain_cell(self.found.row[column.name]) for column in self.found.schema.value}
        if write.row[1] is None:
            return {}
        return {column.name: plain_cell(column.array([write.row[1]])[0].as_py()) for column in self.found.schema.value}

    def independent(
        self, traced: Trace, writes: Sequence[Write], masked: Mapping[int, Mapping[str, Any]]
    ) -> frozenset[str]:
        """The columns that are the same in every batch if records are masked; ours are."""
        schema = self.found.schema
        ours = set(schema.arrow.names) - {column.name for column in (*schema.key, *schema.value)}
        values = {traced.steps[write.step].batch: self.values(write) for write in writes}
        same = {
            column.name
            for column in schema.value
            if all(
                masked.get(batch, {}).get(column.name, _HIDDEN) == each.get(column.name, _HIDDEN)
                for batch, each in values.items()
            )
        }
        return frozenset(ours | same) if masked else frozenset(ours)

    def notes(self, last: Write, *, reproduced: bool) -> list[str]:
        """Whether the recorded batches give what the table has."""
        if not last.row:
            return [] if reproduced else ["record by record, the batches do not write this row with this code"]
        told = {column.name: plain_cell(self.found.row[column.name]) for column in self.found.schema.value}
        if last.row[1] is None or self.values(last) == told:
            return []
        return ["the batches that were read give another row than the table has, with this code"]

    def _has_key(self, key: Any) -> bool:
        columns = self.found.schema.key
        return all(column.array([key])[0].as_py() == self.found.row[column.name] for column in columns)

    def _likeness(self, write: Write) -> int:
        """How much a write is this row, beside its values: its time, then its record."""
        row, (_, _, timestamp_ms, source) = self.found.row, write.row
        place = (row["source_topic"], row["source_partition"], row["source_offset"])
        same_time = min(timestamp_ms, LAST_MS) == _ms(row["timestamp"])
        return 2 * int(same_time) + int((source.topic, source.partition, source.offset) == place)

    def _has_values(self, write: Write) -> bool:
        if write.row[1] is None:
            return bool(self.found.row.get("op") == "delete")
        row = self.found.row
        return self.values(write) == {column.name: plain_cell(row[column.name]) for column in self.found.schema.value}


def _ways(plan: Plan, pipeline: Pipeline) -> tuple[Way, ...]:
    """How cases are run: in the test driver if that gives the row, else as the stream ran them."""
    clocks: tuple[Clock, ...] = ("still", "after", "before") if depends_on_clock(plan, pipeline) else ("still",)
    return (*(("driver", clock) for clock in clocks), ("recorded", "before"))


def _with_clock(case: RecordedCase, candidates: Candidates, partitions: Mapping[str, int]) -> RecordedCase:
    """The case whose clock begins when the task of the row began, and ends when the row was as it is."""
    steps = candidates.trace.steps
    ends = [*candidates.writes, *([] if candidates.closing is None else [candidates.closing])]
    task = steps[candidates.writes[-1]].task
    since_ms = next(step.wall_ms for step in steps if step.task == task)
    until_ms = max(steps[number].wall_ms for number in ends)
    return msgspec.structs.replace(case, since_ms=since_ms, until_ms=until_ms, partitions=dict(partitions))


def _replay_plan(
    settings: Settings, pipeline: Pipeline, row: _Row, records: Sequence[BatchRecord], broker: Broker | None
) -> ReplayPlan:
    """The plan of a replay that would make the row again."""
    broker = Broker(settings.cluster_of(pipeline.name)) if broker is None else broker
    request = ReplayRequest(pipeline=pipeline.name, tables=(row.found.schema.name,), requested_by="")
    plan = make_plan(settings, pipeline, request, broker)
    archive = ArchiveReader(settings.tables, Archives.of(row.plan), plan.topics.get)
    begun = begun_later(plan, pipeline, row.begin_ms, lambda: iter(records), broker, archive)
    same_tasks.require(begun)
    return begun


def _changes(row: _Row, traced: Trace, writes: Sequence[Write], paths: PipelinePaths, limit: int) -> list[Change]:
    """The last write of each batch, newest first."""
    last = {traced.steps[write.step].batch: write for write in writes}
    found = []
    for batch in sorted(last, reverse=True)[:limit]:
        at = datetime.fromtimestamp(traced.steps[last[batch].step].wall_ms / 1000, UTC)
        found.append(Change(batch, at, code_of(paths, batch), row.values(last[batch])))
    return found


def _input(record: InputRecord, number: int, candidates: Candidates) -> Input:
    role: InputRole = "wrote" if number in candidates.core else "closed" if number in candidates.closers else "needed"
    return Input(record, role)


def _nothing_wrote(row: _Row, reading: Reading, pipeline: Pipeline) -> TableError:
    table = row.found.schema.name
    if reading.gone:
        return TableError(
            f"The records that made this row of '{table}' are older than what can still be read: "
            f"{'; '.join(reading.notes)}.",
            hint="Pipeline(archive=True) keeps the records that are read from now on",
        )
    if reading.limit is not None:
        return TableError(
            f"None of the records that were read has written this row of '{table}': {reading.limit}.",
            hint="--max-records with a larger number",
        )
    return TableError(
        f"The batches of pipeline '{pipeline.name}', run with this code, do not write this row of '{table}'.",
        hint="the code that wrote it is another one, or does not give the same for the same records",
    )


@dataclass(frozen=True)
class _Masked:
    """What the batches give if all records are masked."""

    values: Mapping[int, Mapping[str, Any]]
    """Batch -> the columns of the value after it."""
    independent: frozenset[str]
    """The columns for which the replacements make no difference, in any batch."""


def _masked(explained: Explanation, small: Reduced, mask: Mask, attempts: Attempts, masked: _Masked) -> Explanation:
    """The explanation with replacements for what is secret; what it shows is made of masked records."""
    inputs = tuple(Input(mask.record(each.record), each.role) for each in explained.inputs)
    case = msgspec.structs.replace(small.case, records=tuple(case_record(each.record) for each in inputs))
    found = None
    for identity in (mask.row(case.identity), case.identity):
        if found is None:
            case = msgspec.structs.replace(case, identity=identity)
            found = attempts.run(case)
    differing = tuple(case.row) if found is None else tuple(_told_by_secrets(explained.found, found, mask))
    if found is not None and explained.reproduced:
        row = found
    else:
        shown = masked.independent - set(differing if found is not None else ())
        keys = {name: cell for name, cell in (found or {}).items() if name in case.identity}
        row = {name: keys.get(name, cell if name in shown else _HIDDEN) for name, cell in case.row.items()}
    identity = {name: row.get(name, _HIDDEN) for name in case.identity}
    changes = tuple(
        replace(each, values={name: masked.values.get(each.batch, {}).get(name, _HIDDEN) for name in each.values})
        for each in explained.changes
    )
    return replace(
        explained,
        row=row,
        changes=changes,
        inputs=inputs,
        case=msgspec.structs.replace(case, identity=identity, row=row),
        found=found,
        masked=True,
        masking_changes=differing if explained.reproduced else (),
    )


def _masked_row(row: _Row, mask: Mask) -> _Row:
    """The row to watch for if records are masked; its key may be one that is replaced."""
    masked = {name: mask.cell(cell) for name, cell in row.found.row.items() if name in row.found.schema.key_names}
    return _Row(replace(row.found, row={**row.found.row, **masked}), row.plan)


def _masked_values(row: _Row, traced: Callable[[_Row], Trace]) -> dict[int, dict[str, Any]]:
    """Batch -> the columns of the value after it."""
    try:
        found = traced(row)
    except DeltaworksError:  # a function may not take the replacements; then no value is shown
        return {}
    return {found.steps[write.step].batch: row.values(write) for write in row.writes(found)}


def _told_by_secrets(found: Mapping[str, Any] | None, masked: Mapping[str, Any] | None, mask: Mask) -> list[str]:
    """The columns that the replacements change; a cell that they leave as it is has nothing of a secret."""
    if found is None or masked is None:
        return list(found or masked or ())
    return [name for name, cell in found.items() if masked[name] not in (cell, mask.cell(cell))]


def _ms(time: datetime) -> int:
    return (time - datetime.fromtimestamp(0, UTC)) // (datetime.resolution * 1000)
