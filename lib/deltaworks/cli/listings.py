"""The documents that listings print with `--json`, one per command, for scripts.

Later versions may add fields. Times are ISO 8601 in UTC; a field that does not apply is null.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Self

import msgspec

from deltaworks.cli.console import plain
from deltaworks.control.incidents import KINDS, runbook

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from deltaworks.batch.running import DayResult
    from deltaworks.catalogue.entries import Entry as Listed
    from deltaworks.catalogue.verdicts import Checked
    from deltaworks.connect.answers import Offset
    from deltaworks.connect.answers import Status as ConnectorStatus
    from deltaworks.connect.checks import Problem
    from deltaworks.connect.planning import Change as ConnectorChange
    from deltaworks.connect.planning import Plan as ConnectorPlan
    from deltaworks.connect.states import States
    from deltaworks.connectors.dead_letters import Count as SinkCount
    from deltaworks.connectors.dead_letters import Letter as SinkLetter
    from deltaworks.connectors.overview import Connectors as ConnectorsSeen
    from deltaworks.connectors.overview import ConnectorStatus as ConnectorSeen
    from deltaworks.connectors.resends import Resend as SinkResend
    from deltaworks.control.erasures import Erasure
    from deltaworks.control.incidents import Incident
    from deltaworks.control.model import Deployment, Overview, PipelineStatus
    from deltaworks.control.resends import Resend
    from deltaworks.control.set_aside import Entry
    from deltaworks.doctor import Finding
    from deltaworks.erase.erasing import Found
    from deltaworks.explain.explaining import Explanation, Input
    from deltaworks.lakehouse.catalog import TableInfo
    from deltaworks.lakehouse.dead_letters import Failure
    from deltaworks.lakehouse.dead_letters import Failures as Counted
    from deltaworks.lakehouse.publish.corrections import KeptCorrections
    from deltaworks.lakehouse.publish.ownership import Handover
    from deltaworks.lakehouse.publish.publication import Publication
    from deltaworks.lakehouse.publish.sink_changes import KeptSinks
    from deltaworks.lakehouse.publish.stale_sinks import StaleSink
    from deltaworks.lakehouse.retention import Pin
    from deltaworks.quality import Verdict
    from deltaworks.queries import AsOf, StoreMetadata, StoreStats
    from deltaworks.replay.model import ReplayPlan, ReplayState
    from deltaworks.rescale.rescaling import Change, Rescaled
    from deltaworks.stack.lifecycle import Status as Process


class _Document(msgspec.Struct, frozen=True, kw_only=True):
    @classmethod
    def _from(cls, source: object, **others: object) -> Self:
        """The document with the attributes of an object that its fields name, and with `others`."""
        names = (name for name in cls.__struct_fields__ if name not in others)
        return cls(**{name: getattr(source, name) for name in names}, **others)


class TableListed(_Document, frozen=True, kw_only=True):
    """A Delta table at its latest version."""

    name: str
    path: str
    rows: int
    files: int
    size_bytes: int
    version: int
    committed_at: datetime | None
    batch_id: int | None
    """The last batch that it holds; null: none yet, or no pipeline wrote it."""
    as_of: datetime | None
    """Snapshots of KTables: the time as of which they are right."""

    @classmethod
    def of(cls, table: TableInfo) -> TableListed:
        return cls._from(table, path=str(table.path))


class VerdictListed(_Document, frozen=True, kw_only=True):
    """The last check of a table."""

    at: datetime
    run_id: str
    outcomes: dict[str, int]
    """Outcome -> number of checks with it."""
    verdict: str
    """`passed`, `warning`, or `failed`: more than a warning failed, or a check could not run."""

    @classmethod
    def of(cls, checked: Checked | None) -> VerdictListed | None:
        return None if checked is None else cls._from(checked)


class TableOverview(TableListed, frozen=True, kw_only=True):
    """A Delta table among others: what it is, and how fresh and how right it is."""

    description: str | None
    kind: str | None
    """null: neither a pipeline nor a batch job wrote the table."""
    grain: str | None
    """What one row is."""
    key: tuple[str, ...]
    """Columns of the key."""
    pipeline: str | None
    fresh_as_of: datetime | None
    """The time as of which readers see it: of the cut of its pipeline, or else of its last commit."""
    checked: VerdictListed | None

    @classmethod
    def of_entry(cls, entry: Listed) -> TableOverview:
        table = entry.table
        listed = TableListed.of(table.info)
        return cls(
            **{name: getattr(listed, name) for name in listed.__struct_fields__},
            description=table.description,
            kind=table.kind,
            grain=table.grain,
            key=table.key,
            pipeline=table.pipeline,
            fresh_as_of=entry.as_of,
            checked=VerdictListed.of(entry.checked),
        )


class Tables(_Document, frozen=True, kw_only=True):
    """`deltaworks tables --json`"""

    tables: list[TableOverview]


class ColumnListed(_Document, frozen=True, kw_only=True):
    """A column of a table."""

    name: str
    type: str
    """In Delta's notation."""
    meaning: str | None
    is_key: bool


class PinListed(_Document, frozen=True, kw_only=True):
    """Tables of a pipeline as of one batch that stay readable."""

    name: str
    pipeline: str
    at: datetime
    """When the tables were so."""
    batch_id: int
    tables: dict[str, int]
    """Table -> its version."""
    pinned_at: datetime
    by: str
    reason: str

    @classmethod
    def of(cls, pin: Pin) -> PinListed:
        cut = pin.cut
        return cls._from(pin, pipeline=cut.pipeline, at=cut.at, batch_id=cut.batch_id, tables=cut.tables)


class Pins(_Document, frozen=True, kw_only=True):
    """`deltaworks tables pins --json`"""

    pins: list[PinListed]


class Erasable(_Document, frozen=True, kw_only=True):
    """`deltaworks erase NAME --dry-run --json`"""

    pipeline: str
    tables: dict[str, int]
    """Table -> rows that would go."""
    columns: dict[str, list[str]]
    """Table -> the columns that name the person."""
    older: dict[str, int]
    """Table -> rows in files that only older versions, publications or the trash have."""
    texts: int
    """Lines of logs, and texts in documents."""
    left: list[str]
    """Where the data would stay."""

    @classmethod
    def of(cls, pipeline: str, found: Found) -> Erasable:
        return cls._from(found, pipeline=pipeline)


class ErasureListed(_Document, frozen=True, kw_only=True):
    """`deltaworks erase NAME --json`"""

    id: str
    pipeline: str
    requested_by: str
    reason: str
    begun_at: datetime
    done_at: datetime | None
    """null: it was not completed."""
    taken: dict[str, int]
    """Place -> rows, entries of stores or lines that were deleted there."""
    left: list[str]
    """Where the data stayed."""

    @classmethod
    def of(cls, erasure: Erasure) -> ErasureListed:
        done_at = None if erasure.done_ms is None else instant(erasure.done_ms)
        return cls._from(erasure, begun_at=erasure.begun_at, done_at=done_at)


class Erasures(_Document, frozen=True, kw_only=True):
    """`deltaworks erasures --json`"""

    erasures: list[ErasureListed]


class RescaleListed(_Document, frozen=True, kw_only=True):
    """`deltaworks rescale NAME --json`"""

    pipeline: str
    partitions: dict[str, tuple[int, int]]
    """Topic -> partitions that the stream reads, before and after; those that differ."""
    tasks: tuple[tuple[int, int], ...]
    """Of each stage, before and after."""
    shards: tuple[int, int]
    """Cores that a stage can use, before and after."""
    partitioners: dict[str, str]
    """Topic -> how its producers place keys, where that decides."""
    checkpoint: str | None
    """The new checkpoint; null: nothing was done."""
    first_batch: int | None
    """The first batch with the new tasks; null: nothing was done."""

    @classmethod
    def of(cls, pipeline: str, change: Change, done: Rescaled | None = None) -> RescaleListed:
        return cls._from(
            change,
            pipeline=pipeline,
            checkpoint=None if done is None else done.checkpoint,
            first_batch=None if done is None else done.first_batch,
        )


class TableShown(_Document, frozen=True, kw_only=True):
    """`deltaworks tables show NAME --json`"""

    table: TableListed
    description: str | None
    kind: str | None
    """null: no pipeline wrote the table."""
    grain: str | None
    """What one row is."""
    note: str | None
    """Which rows may still change, and what to heed in a query."""
    as_of_means: str | None
    """What the time means as of which readers see the table."""
    pipeline: str | None
    code: str | None
    """The code that the pipeline runs, as `deltaworks status NAME` shows it."""
    columns: list[ColumnListed]
    partitioned_by: tuple[str, ...]
    shown_batch_id: int | None
    """The batch as of which readers see all tables of the pipeline."""
    shown_at: datetime | None
    lag_records: int | None
    """Records in the source topics that no table shows yet."""
    offsets: dict[str, dict[str, int]]
    """Topic -> partition -> next offset after the last batch."""
    checked: VerdictListed | None
    example: str

    @classmethod
    def of(cls, entry: Listed) -> TableShown:
        found, beat = entry.table, entry.beat
        return cls._from(
            found,
            table=TableListed.of(found.info),
            columns=[ColumnListed._from(column) for column in found.columns],
            as_of_means=found.as_of,
            shown_batch_id=None if found.cut is None else found.cut.batch_id,
            shown_at=None if found.cut is None else found.cut.at,
            lag_records=None if beat is None else beat.lag_records,
            offsets={} if beat is None else beat.next_offsets,
            code=entry.code,
            checked=VerdictListed.of(entry.checked),
        )


class PipelineListed(_Document, frozen=True, kw_only=True):
    """A pipeline: what it should do, and what it does."""

    name: str
    desired: str | None
    """`running` or `stopped`; null: nobody has deployed it."""
    state: str
    generation: int
    for_seconds: float | None
    """How long it has been in this state."""
    batch_id: int | None
    lag_records: int | None
    lag_seconds: float | None
    records_per_second: float | None
    """Rate over the last minute; null: it does not run."""
    restarts: int
    reason: str | None
    incidents: int
    """The number of its open incidents."""

    @classmethod
    def of(cls, pipeline: PipelineStatus) -> PipelineListed:
        seen, beat = pipeline.seen, pipeline.seen.heartbeat
        return cls(
            name=pipeline.name,
            desired=pipeline.desired,
            state=seen.state,
            generation=seen.generation,
            for_seconds=pipeline.for_s,
            batch_id=None if beat is None else beat.batch_id,
            lag_records=None if beat is None else beat.lag_records,
            lag_seconds=None if beat is None else beat.lag_seconds,
            records_per_second=beat.records_per_second if beat and seen.state in ("running", "draining") else None,
            restarts=pipeline.restarts,
            reason=pipeline.reason,
            incidents=pipeline.incidents,
        )


class IncidentListed(_Document, frozen=True, kw_only=True):
    """An incident of a pipeline or of the home."""

    id: int
    pipeline: str | None
    """null: the whole home."""
    kind: str
    what: str
    cause: str | None
    advice: str
    """The first thing to do."""
    runbook: str
    """The section of the documentation: an address if the settings have one of the site."""
    opened_at: datetime
    ended_at: datetime | None
    """null: it is open."""
    how: str | None
    """How it has ended."""

    @classmethod
    def of(cls, incident: Incident, docs_url: str | None) -> IncidentListed:
        return cls(
            id=incident.id,
            pipeline=incident.pipeline or None,
            kind=incident.kind,
            what=incident.what,
            cause=incident.cause,
            advice=incident.advice,
            runbook=runbook(docs_url, KINDS[incident.kind].anchor),
            opened_at=incident.opened_at,
            ended_at=incident.ended_at,
            how=incident.how,
        )


class Incidents(_Document, frozen=True, kw_only=True):
    """`deltaworks incidents --json`"""

    incidents: list[IncidentListed]
    """Latest first."""


class DeploymentListed(_Document, frozen=True, kw_only=True):
    """A deployment of a pipeline."""

    pipeline: str
    generation: int
    state: str
    requested_by: str
    requested_at: datetime
    exit_code: int | None
    reason: str | None

    @classmethod
    def of(cls, deployment: Deployment) -> DeploymentListed:
        return cls._from(deployment)


class ProcessListed(_Document, frozen=True, kw_only=True):
    """A process of this home."""

    name: str
    state: str
    pid: int
    memory_mb: int
    ports: tuple[int, ...]
    log: str

    @classmethod
    def of(cls, process: Process) -> ProcessListed:
        return cls._from(process)


class ConnectorOverview(_Document, frozen=True, kw_only=True):
    """A connector of the project: what it should do, and what it does."""

    name: str
    desired: str | None
    """`running`, `paused` or `stopped`; null: nobody has deployed it, or the registry does not answer."""
    state: str
    """In the words of Kafka Connect; `MISSING`: it does not have it, `UNKNOWN`: it does not answer."""
    tasks: int
    running_tasks: int
    failed_tasks: int
    restarts: int
    reason: str | None
    """In one line."""
    differs: bool | None
    """Whether it is there, and not as its file says; null: that is not known."""
    dead_letters: int | None
    """How many its topic of dead letters holds; null: it has none, or Kafka has not said so soon."""
    lag_records: int | None
    """Of a sink: records of its topics that it has not committed; null: that is not known."""
    lag_bytes: int | None
    """Of a source of PostgreSQL: what it has not confirmed of the database's log; null: that is not known."""
    incidents: int
    """The number of its open incidents."""

    @classmethod
    def of(cls, connector: ConnectorSeen) -> ConnectorOverview:
        return cls._from(connector)


class SinkListed(_Document, frozen=True, kw_only=True):
    """A sink that a publication has left behind the tables."""

    pipeline: str
    sink: str
    state: str
    """`stale`, or `waiting` for corrections."""
    since: datetime
    action: str
    """What has left it so: `publish`, `rollback`, `hand-over`, `undone hand-over`."""
    run_id: str
    why: str

    @classmethod
    def of(cls, pipeline: str, mark: StaleSink) -> SinkListed:
        return cls(
            pipeline=pipeline,
            sink=mark.sink,
            state="stale",
            since=instant(mark.since_ms),
            action=mark.action,
            run_id=mark.run_id,
            why=mark.why,
        )

    @classmethod
    def waiting(cls, pipeline: str, kept: KeptSinks) -> list[SinkListed]:
        """The sinks that wait for what a publication or a rollback has changed."""
        return [
            cls(
                pipeline=pipeline,
                sink=sink,
                state="waiting",
                since=instant(kept.released_ms or 0),
                action=kept.action,
                run_id=kept.run_id,
                why="it is not corrected yet",
            )
            for sink in kept.waiting
        ]


class Status(_Document, frozen=True, kw_only=True):
    """`deltaworks status --json`"""

    pipelines: list[PipelineListed]
    deployments: list[DeploymentListed]
    """The last ones of the pipeline that was asked for."""
    processes: list[ProcessListed]
    registry_problem: str | None
    """Why this is only what this host knows; null: the registry has answered."""
    connectors: list[ConnectorOverview]
    """Of Kafka Connect, as the project has files of them."""
    connect_problem: str | None
    """Why Kafka Connect says nothing; null: it has answered, or there is nothing to ask."""
    sinks: list[SinkListed] = []
    """Those that a publication has left behind the tables."""

    @classmethod
    def of(
        cls,
        seen: Overview,
        processes: list[Process],
        connectors: ConnectorsSeen | None = None,
        sinks: Sequence[SinkListed] = (),
    ) -> Status:
        return cls(
            pipelines=list(map(PipelineListed.of, seen.pipelines)),
            deployments=list(map(DeploymentListed.of, seen.deployments)),
            processes=list(map(ProcessListed.of, processes)),
            registry_problem=seen.registry_problem,
            connectors=[] if connectors is None else list(map(ConnectorOverview.of, connectors.connectors)),
            connect_problem=None if connectors is None else connectors.problem,
            sinks=list(sinks),
        )


class Sinks(_Document, frozen=True, kw_only=True):
    """`deltaworks sinks --json`"""

    sinks: list[SinkListed]


class CheckListed(_Document, frozen=True, kw_only=True):
    """A check of a table, with its outcome."""

    table: str
    expectation: str
    expects: str
    why: str
    severity: str
    outcome: str
    rows: int | None
    unexpected: int | None
    observed: str | None
    error: str | None
    sample: list[dict[str, Any]]
    """The first unexpected rows."""

    @classmethod
    def of(cls, verdict: Verdict) -> CheckListed:
        return cls._from(verdict, outcome=verdict.outcome.value, sample=plain(verdict.sample))


class Quality(_Document, frozen=True, kw_only=True):
    """`deltaworks quality NAME --json`"""

    pipeline: str
    run_id: str
    passed: bool
    """Whether the exit code is 0."""
    checks: list[CheckListed]


class BatchDay(_Document, frozen=True, kw_only=True):
    """A day of a batch job."""

    day: date
    rows: int
    version: int | None
    """The version of the table that has the rows; null: a check failed, and the table has those of before."""
    checks: list[CheckListed]

    @classmethod
    def of(cls, result: DayResult) -> BatchDay:
        return cls._from(result, checks=list(map(CheckListed.of, result.verdicts)))


class Batch(_Document, frozen=True, kw_only=True):
    """`deltaworks batch NAME --json`"""

    job: str
    run_id: str
    passed: bool
    """Whether the exit code is 0."""
    days: list[BatchDay]
    """Those that were computed; a day that does not pass ends the run."""


class ReplayListed(_Document, frozen=True, kw_only=True):
    """A replay that has not ended."""

    run_id: str
    pipeline: str
    since: datetime
    done: str | None
    """The last phase that is done."""
    gate_passed: bool | None
    differences: int | None
    error: str | None

    @classmethod
    def of(cls, plan: ReplayPlan, state: ReplayState) -> ReplayListed:
        return cls(
            run_id=plan.run_id,
            pipeline=plan.request.pipeline,
            since=instant(plan.created_ms),
            done=state.done[-1] if state.done else None,
            gate_passed=state.passed,
            differences=state.differences,
            error=state.error,
        )


class CorrectionsListed(_Document, frozen=True, kw_only=True):
    """Rows that consumers of Kafka are told about."""

    action: str
    """`publish` or `rollback`."""
    topic: str
    rows: int
    sent: datetime | None
    """Null: not all of them are sent yet."""

    @classmethod
    def of(cls, kept: KeptCorrections) -> CorrectionsListed:
        sent = None if kept.sent_ms is None else instant(kept.sent_ms)
        return cls(action=kept.action, topic=kept.topic, rows=kept.count, sent=sent)


class ChangeListed(_Document, frozen=True, kw_only=True):
    """A publication, or a handover, of a replay's tables."""

    run_id: str
    pipeline: str
    state: str
    tables: list[str]
    begun: datetime
    reason: str
    requested_by: str
    approved_by: str | None
    corrections: list[CorrectionsListed]

    @classmethod
    def of(cls, change: Publication | Handover, corrections: Sequence[KeptCorrections] = ()) -> ChangeListed:
        return cls(
            run_id=change.request.run_id,
            pipeline=change.request.pipeline,
            state=change.state,
            tables=sorted(change.tables),
            begun=instant(change.begun_ms),
            reason=change.request.reason,
            requested_by=change.request.requested_by,
            approved_by=change.request.approved_by,
            corrections=list(map(CorrectionsListed.of, corrections)),
        )


class Replays(_Document, frozen=True, kw_only=True):
    """`deltaworks replays --json`"""

    unfinished: list[ReplayListed]
    publications: list[ChangeListed]
    handovers: list[ChangeListed]


class RecordListed(_Document, frozen=True, kw_only=True):
    """A record that was set aside."""

    record: str
    """`TOPIC-PARTITION@OFFSET`"""
    at: datetime
    by: str
    reason: str

    @classmethod
    def of(cls, entry: Entry) -> RecordListed:
        return cls(record=entry.record.name, at=instant(entry.at_ms), by=entry.by, reason=entry.reason)


class SetAside(_Document, frozen=True, kw_only=True):
    """`deltaworks set-aside NAME --list --json`"""

    pipeline: str
    records: list[RecordListed]


class SettingListed(_Document, frozen=True, kw_only=True):
    """A setting that holds."""

    name: str
    """Its key in `deltaworks.toml`."""
    variable: str
    value: str | None
    """`***` instead of a secret; null: it is not set."""
    origin: str | None
    """The variable, or the key and its file; null: the default."""


class Config(_Document, frozen=True, kw_only=True):
    """`deltaworks config show --json`"""

    project: str
    file: str | None
    """The `deltaworks.toml` of the project; null: there is none."""
    environment: str | None
    settings: list[SettingListed]


class FindingListed(_Document, frozen=True, kw_only=True):
    """What a check of `doctor` has found."""

    name: str
    outcome: str
    """`ok`, `warning`, `failed` or `skipped`."""
    found: str
    hint: str | None
    """The remedy; null: none is known, or none is needed."""

    @classmethod
    def of(cls, finding: Finding) -> FindingListed:
        return cls._from(finding)


class Doctor(_Document, frozen=True, kw_only=True):
    """`deltaworks doctor --json`"""

    checks: list[FindingListed]


class ChangedIn(_Document, frozen=True, kw_only=True):
    """A batch that changed a row."""

    batch: int
    at: datetime
    """Time of the batch."""
    code: str | None
    """Digest of the code that ran it; null: it is no longer known."""
    values: dict[str, Any]
    """The columns of the value after it; empty if the row was deleted."""


class InputListed(_Document, frozen=True, kw_only=True):
    """A record that a row comes from. Key and value are text, or `{"base64": ...}`."""

    topic: str
    partition: int
    offset: int
    timestamp: datetime | None
    """null: no calendar has it."""
    timestamp_ms: int
    batch: int
    """The batch that processed it."""
    key: Any
    value: Any
    role: str
    """`wrote`: the row was written when it was processed; `closed`: it closed the window; `needed`: without it, the row
    is another."""

    @classmethod
    def of(cls, each: Input) -> InputListed:
        from deltaworks.testing.cases import written

        record = each.record
        return cls._from(
            record, timestamp=_instant_or_none(record.timestamp_ms), key=written(record.key),
            value=written(record.value), role=each.role,
        )  # fmt: skip


class Queried(_Document, frozen=True, kw_only=True):
    """`deltaworks query NAME STORE --json`"""

    pipeline: str
    store: str
    kind: str
    rows: list[dict[str, Any]]
    """Key, value and times; which ones depends on the kind."""
    next: str | None
    """Where the next page begins, for `--after`; null: this is the last one."""
    batch: int
    """The batch as of which the rows are."""
    at: datetime
    """The time of the batch."""
    offsets: dict[str, dict[str, int]]
    """Topic -> partition -> the next offset after the batch."""

    @classmethod
    def of(
        cls, pipeline: str, store: str, kind: str, rows: list[dict[str, Any]], as_of: AsOf, rest: str | None
    ) -> Queried:
        return cls(
            pipeline=pipeline, store=store, kind=kind, rows=[plain(row) for row in rows], next=rest,
            batch=as_of.batch, at=instant(as_of.time_ms), offsets=as_of.offsets,
        )  # fmt: skip


class StoreListed(_Document, frozen=True, kw_only=True):
    """A store of a stream."""

    store: str
    kind: str
    key: str
    value: str
    tasks: int
    """0: it is whole on every machine."""
    entries: int
    size_bytes: int
    oldest: datetime | None
    newest: datetime | None
    batch: int


class Stores(_Document, frozen=True, kw_only=True):
    """`deltaworks store stats NAME --json`"""

    pipeline: str
    stores: list[StoreListed]

    @classmethod
    def of(cls, pipeline: str, found: Sequence[tuple[StoreMetadata, StoreStats]]) -> Stores:
        stores = [
            StoreListed(
                store=what.store, kind=what.kind, key=what.key, value=what.value, tasks=what.tasks,
                entries=size.entries, size_bytes=size.size_bytes,
                oldest=None if size.oldest_ms is None else instant(size.oldest_ms),
                newest=None if size.newest_ms is None else instant(size.newest_ms), batch=size.as_of.batch,
            )
            for what, size in found
        ]  # fmt: skip
        return cls(pipeline=pipeline, stores=stores)


class Explained(_Document, frozen=True, kw_only=True):
    """`deltaworks explain TABLE --json`"""

    pipeline: str
    table: str
    row: dict[str, Any]
    changes: list[ChangedIn]
    """Newest first."""
    changes_in_all: int
    inputs: list[InputListed]
    """In the order of processing."""
    reproduced: bool
    """Whether these records, run alone in the test driver, give the row."""
    found: dict[str, Any] | None
    """The row that they give; null: none."""
    is_minimal: bool
    """Whether each record is needed."""
    masked: bool
    masking_changes: list[str]
    """Columns that differ because secret fields were replaced."""
    first_batch: int
    records_read: int
    notes: list[str]
    files: list[str]
    """The files of the test."""

    @classmethod
    def of(cls, explained: Explanation, files: Sequence[Path]) -> Explained:
        return cls._from(
            explained,
            changes=[ChangedIn._from(each) for each in explained.changes],
            inputs=[InputListed.of(each) for each in explained.inputs],
            masking_changes=list(explained.masking_changes),
            notes=list(explained.notes),
            files=[str(file) for file in files],
        )


class FailuresListed(_Document, frozen=True, kw_only=True):
    """The dead letters of one operator with one class of error."""

    operator: str
    error_class: str
    count: int
    first: datetime
    """The earliest timestamp of their records."""
    last: datetime
    example: str
    """TOPIC-PARTITION@OFFSET of the record with the latest timestamp."""
    message: str
    """Its error."""


class Failures(_Document, frozen=True, kw_only=True):
    """`deltaworks dead-letters list NAME --json`"""

    pipeline: str
    table: str
    failures: list[FailuresListed]
    """The most frequent first."""

    @classmethod
    def of(cls, pipeline: str, table: str, counts: Sequence[Counted]) -> Failures:
        listed = [FailuresListed._from(each, example=each.example.name) for each in counts]
        return cls(pipeline=pipeline, table=table, failures=listed)


class HeaderListed(_Document, frozen=True, kw_only=True):
    """A header of a record. Its value is text, `{"base64": ...}` or null."""

    name: str
    value: Any


class DeadLetterListed(_Document, frozen=True, kw_only=True):
    """A record that failed in an operator. Key and value are text, `{"base64": ...}` or null."""

    record: str
    """TOPIC-PARTITION@OFFSET."""
    timestamp: datetime
    key: Any
    value: Any
    headers: list[HeaderListed]
    operator: str
    error_class: str
    message: str
    stacktrace: str

    @classmethod
    def of(cls, failure: Failure) -> DeadLetterListed:
        from deltaworks.testing.cases import written

        return cls._from(
            failure,
            record=failure.record.name,
            key=written(failure.key),
            value=written(failure.value),
            headers=[HeaderListed(name=name, value=written(value)) for name, value in failure.headers],
        )


class DeadLetters(_Document, frozen=True, kw_only=True):
    """`deltaworks dead-letters list NAME --records --json`, and that of `show`"""

    pipeline: str
    table: str
    records: list[DeadLetterListed]

    @classmethod
    def of(cls, pipeline: str, table: str, found: Sequence[Failure]) -> DeadLetters:
        return cls(pipeline=pipeline, table=table, records=list(map(DeadLetterListed.of, found)))


class ResentListed(_Document, frozen=True, kw_only=True):
    """Dead letters of one operator with one class of error."""

    operator: str
    error_class: str
    count: int
    again: int
    """How many of them had been sent again before, and failed again."""
    stays: str | None
    """Why they are not sent; null: they are."""


class Resent(_Document, frozen=True, kw_only=True):
    """`deltaworks dead-letters resend NAME --json`"""

    pipeline: str
    planned: int
    """How many could be sent."""
    sent: int
    """How many were; less if somebody sent them meanwhile, 0 in a dry run."""
    groups: list[ResentListed]
    readers: list[str]
    """Other pipelines that read the topics, and skip the records."""

    @classmethod
    def of(cls, planned: Resend, readers: list[str], sent: int) -> Resent:
        return cls(
            pipeline=planned.pipeline,
            planned=planned.count,
            sent=sent,
            groups=[ResentListed._from(each) for each in planned.groups],
            readers=readers,
        )


class SettingChanged(_Document, frozen=True, kw_only=True):
    """A setting of a connector that the cluster and the project do not have alike. Secrets are masked."""

    setting: str
    before: str | None
    """In the cluster; null: not there."""
    after: str | None
    """In the project; null: not there."""


class ConnectorPlanned(_Document, frozen=True, kw_only=True):
    """A connector of the project or of the cluster."""

    name: str
    change: str
    """`new`, `changed`, `unchanged`, or `unknown`: only the cluster has it."""
    settings: list[SettingChanged]

    @classmethod
    def of(cls, change: ConnectorChange) -> ConnectorPlanned:
        settings = [SettingChanged._from(each) for each in change.settings]
        return cls._from(change, change=change.kind, settings=settings)


class ConnectorProblem(_Document, frozen=True, kw_only=True):
    """What is wrong with a connector."""

    connector: str
    setting: str | None
    """null: the connector as a whole."""
    what: str

    @classmethod
    def of(cls, problem: Problem) -> ConnectorProblem:
        return cls._from(problem)


class ConnectorsPlanned(_Document, frozen=True, kw_only=True):
    """`deltaworks connect plan --json`"""

    url: str
    connectors: list[ConnectorPlanned]
    problems: list[ConnectorProblem]
    """Why nothing can be applied."""
    notes: list[ConnectorProblem]

    @classmethod
    def of(cls, plan: ConnectorPlan) -> ConnectorsPlanned:
        return cls._from(
            plan,
            connectors=list(map(ConnectorPlanned.of, plan.changes)),
            problems=list(map(ConnectorProblem.of, plan.problems)),
            notes=list(map(ConnectorProblem.of, plan.notes)),
        )


class ConnectorTaskListed(_Document, frozen=True, kw_only=True):
    """A task of a connector."""

    id: int
    state: str
    """In the words of Kafka Connect: `RUNNING`, `FAILED`, `PAUSED`, `UNASSIGNED`, `RESTARTING`."""
    worker: str
    error: str | None
    """What has ended it, in one line."""


class ConnectorListed(_Document, frozen=True, kw_only=True):
    """A connector of a cluster."""

    name: str
    type: str
    """`source`, `sink`, or `unknown`."""
    state: str
    """As that of a task; also `STOPPED`."""
    worker: str
    error: str | None
    tasks: list[ConnectorTaskListed]
    dead_letters: int | None
    """How many its topic of dead letters holds; null: it has none, or Kafka has not said so soon."""
    lag_records: int | None
    """Of a sink: records of its topics that it has not committed; null: that is not known."""
    lag_bytes: int | None
    """Of a source of PostgreSQL: what it has not confirmed of the database's log; null: that is not known."""
    slot: str | None
    """What is wrong with its replication slot, and the way out; null: nothing, or nothing that is known."""

    @classmethod
    def of(
        cls,
        status: ConnectorStatus,
        dead_letters: int | None,
        slot: str | None,
        lag_records: int | None,
        lag_bytes: int | None,
    ) -> ConnectorListed:
        from deltaworks.connect.states import why

        own = status.connector
        tasks = [
            ConnectorTaskListed(id=task.id, state=task.state, worker=task.worker_id, error=why(task.trace))
            for task in status.tasks
        ]
        return cls._from(
            status,
            state=own.state,
            worker=own.worker_id,
            error=why(own.trace),
            tasks=tasks,
            dead_letters=dead_letters,
            slot=slot,
            lag_records=lag_records,
            lag_bytes=lag_bytes,
        )


class Connectors(_Document, frozen=True, kw_only=True):
    """`deltaworks connect status --json`"""

    url: str
    connectors: list[ConnectorListed]
    total_tasks: int
    failed_tasks: int

    @classmethod
    def of(
        cls,
        found: States,
        dead_letters: Mapping[str, int],
        slots: Mapping[str, str],
        lag_records: Mapping[str, int],
        lag_bytes: Mapping[str, int | None],
    ) -> Connectors:
        listed = [
            ConnectorListed.of(
                each,
                dead_letters.get(each.name),
                slots.get(each.name),
                lag_records.get(each.name),
                lag_bytes.get(each.name),
            )
            for each in found.connectors
        ]
        return cls._from(found, connectors=listed, total_tasks=len(found.tasks), failed_tasks=len(found.failed_tasks))


class OffsetListed(_Document, frozen=True, kw_only=True):
    """How far a connector is in one of its partitions, in its own words."""

    partition: dict[str, Any]
    offset: dict[str, Any] | None


class ConnectorOffsets(_Document, frozen=True, kw_only=True):
    """`deltaworks connect offsets NAME --json`"""

    connector: str
    offsets: list[OffsetListed]

    @classmethod
    def of(cls, name: str, found: Sequence[Offset]) -> ConnectorOffsets:
        return cls(connector=name, offsets=[OffsetListed._from(each) for each in found])


class SinkLettersCounted(_Document, frozen=True, kw_only=True):
    """The dead letters of a sink."""

    connector: str
    topic: str
    total: int
    """All that the topic holds, of whichever connectors."""
    recent: int
    """Those of them whose record has a time within the last 24 hours."""
    exists: bool
    """Whether the topic is there: Kafka Connect makes it when the first task starts."""


class SinkLetterListed(_Document, frozen=True, kw_only=True):
    """A record that failed in a sink. Key and value are text, `{"base64": ...}` or null."""

    letter: str
    """TOPIC-PARTITION@OFFSET in the topic of dead letters."""
    record: str | None
    """TOPIC-PARTITION@OFFSET of the record that failed; null: the letter does not say that."""
    timestamp: datetime | None
    """Of the record."""
    key: Any
    value: Any
    headers: list[HeaderListed]
    """Those of the record."""
    again: bool
    """Whether it had been sent again before, and failed again."""
    stage: str
    """What Kafka Connect did with it: `VALUE_CONVERTER`, `TRANSFORMATION`, `TASK_PUT`, ..."""
    executor: str
    """The class that did so."""
    error_class: str
    message: str
    stacktrace: str

    @classmethod
    def of(cls, letter: SinkLetter) -> SinkLetterListed:
        from deltaworks.testing.cases import written

        return cls._from(
            letter,
            letter=letter.at.name,
            record=None if letter.record is None else letter.record.name,
            key=written(letter.key),
            value=written(letter.value),
            headers=[HeaderListed(name=name, value=written(value)) for name, value in letter.headers],
        )


class SinkLetters(_Document, frozen=True, kw_only=True):
    """`deltaworks connect dead-letters --json`"""

    url: str
    counts: list[SinkLettersCounted]
    letters: list[SinkLetterListed]
    """The newest ones of the connector that was asked for."""

    @classmethod
    def of(cls, url: str, counts: Sequence[SinkCount], letters: Sequence[SinkLetter]) -> SinkLetters:
        return cls(
            url=url,
            counts=[SinkLettersCounted._from(each) for each in counts],
            letters=list(map(SinkLetterListed.of, letters)),
        )


class SinkResentListed(_Document, frozen=True, kw_only=True):
    """Dead letters of a sink with one class of error."""

    stage: str
    error_class: str
    count: int
    again: int
    """How many of them had been sent again before, and failed again."""
    stays: str | None
    """Why they are not sent; null: they are."""


class SinkResent(_Document, frozen=True, kw_only=True):
    """`deltaworks connect resend NAME --json`"""

    connector: str
    topic: str
    """Of the dead letters."""
    topics: list[str]
    """Where records go."""
    planned: int
    """How many could be sent."""
    sent: int
    """How many were; less if somebody sent them meanwhile, 0 in a dry run."""
    groups: list[SinkResentListed]

    @classmethod
    def of(cls, planned: SinkResend, sent: int) -> SinkResent:
        groups = [SinkResentListed._from(each) for each in planned.groups]
        return cls._from(planned, planned=planned.count, sent=sent, groups=groups)


DOCUMENTS = (
    Tables,
    TableShown,
    Pins,
    Queried,
    Stores,
    Explained,
    Erasable,
    ErasureListed,
    Erasures,
    RescaleListed,
    Status,
    Incidents,
    Quality,
    Batch,
    Replays,
    SetAside,
    Failures,
    DeadLetters,
    Resent,
    Config,
    Doctor,
    ConnectorsPlanned,
    Connectors,
    ConnectorOffsets,
    SinkLetters,
    SinkResent,
    Sinks,
)


def _instant_or_none(time_ms: int) -> datetime | None:
    try:
        return instant(time_ms)
    except (ValueError, OverflowError, OSError):
        return None


def instant(time_ms: int) -> datetime:
    """Milliseconds since 1970 as a time in UTC."""
    return datetime.fromtimestamp(time_ms / 1000, UTC)
