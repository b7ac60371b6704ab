"""The JSON of the page. What `deltaworks status --json` has too has the same name and number here.

Times are ISO 8601 in UTC; charts have Unix seconds. `of` takes the client: a viewer gets null for what may quote a
record.
"""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from deltaworks import clock
from deltaworks.control import heartbeat
from deltaworks.control.incidents import KINDS, Incident, runbook
from deltaworks.control.model import Deployment, PipelineStatus
from deltaworks.lakehouse.cuts import Cut
from deltaworks.lakehouse.dead_letters import Failure
from deltaworks.lakehouse.described import TableDescribed
from deltaworks.lakehouse.publish.publication import Publication
from deltaworks.replay.model import ReplayPlan, ReplayState
from deltaworks.ui.access import Client
from deltaworks.ui.graph import Graph
from deltaworks.ui.history import History
from deltaworks.ui.told import StoreDescribed

RUNS = ("running", "draining")
"""States of streams that read records."""


class Me(msgspec.Struct, frozen=True, kw_only=True):
    """Who looks, and where else to go."""

    role: str
    airflow: str | None
    """Address of Airflow; null: there is none."""
    docs: str | None
    """Address of the documentation; null: not known."""
    version: str
    """Of deltaworks."""


class StreamListed(msgspec.Struct, frozen=True, kw_only=True):
    """A stream: what it should do, and what it does."""

    name: str
    desired: str | None
    state: str
    generation: int
    for_seconds: float | None
    """How long it has been in this state."""
    batch_id: int | None
    batch_seconds: float | None
    """How long its last batch took."""
    lag_records: int | None
    lag_seconds: float | None
    records_per_second: float | None
    """Rate over the last minute; null: it does not run."""
    state_entries: int | None
    dead_letters: int | None
    """Since its driver started."""
    restarts: int
    incidents: int
    """The number of its open incidents."""
    gave_up: bool
    """Whether nothing restarts it any more."""
    fresh_as_of: datetime | None
    """The time as of which readers see its tables; null: it has none."""
    fresh_seconds: float | None
    """How long ago that was."""
    beat_seconds: float | None
    """The age of its last heartbeat."""
    reason: str | None
    """Why it is so; null for viewers."""

    @classmethod
    def of(cls, pipeline: PipelineStatus, cut: Cut | None, client: Client) -> StreamListed:
        seen, beat = pipeline.seen, pipeline.seen.heartbeat
        return cls(
            name=pipeline.name,
            desired=pipeline.desired,
            state=seen.state,
            generation=seen.generation,
            for_seconds=pipeline.for_s,
            batch_id=None if beat is None else beat.batch_id,
            batch_seconds=None if beat is None or beat.batch_id is None else beat.batch_seconds,
            lag_records=None if beat is None else beat.lag_records,
            lag_seconds=None if beat is None else beat.lag_seconds,
            records_per_second=beat.records_per_second if beat and seen.state in RUNS else None,
            state_entries=None if beat is None else beat.state_entries,
            dead_letters=None if beat is None else beat.dead_letters,
            restarts=pipeline.restarts,
            incidents=pipeline.incidents,
            gave_up=pipeline.gave_up is not None,
            fresh_as_of=None if cut is None else cut.at,
            fresh_seconds=None if cut is None else max(0.0, clock.wall_s() - cut.at_ms / 1000),
            beat_seconds=None if beat is None else heartbeat.age_s(beat),
            reason=pipeline.reason if client.operates else None,
        )


class Streams(msgspec.Struct, frozen=True, kw_only=True):
    """All streams that somebody may see."""

    streams: list[StreamListed]
    registry_problem: str | None
    """Why this is only what this host knows; null: the registry has answered."""


class IncidentListed(msgspec.Struct, frozen=True, kw_only=True):
    """An open incident."""

    kind: str
    title: str
    advice: str
    """The first thing to do."""
    runbook: str
    opened_at: datetime
    what: str | None
    """null for viewers, as is the cause."""
    cause: str | None

    @classmethod
    def of(cls, incident: Incident, docs: str | None, client: Client) -> IncidentListed:
        kind = KINDS[incident.kind]
        return cls(
            kind=incident.kind,
            title=kind.title,
            advice=incident.advice,
            runbook=runbook(docs, kind.anchor),
            opened_at=incident.opened_at,
            what=incident.what if client.operates else None,
            cause=incident.cause if client.operates else None,
        )


class DeploymentListed(msgspec.Struct, frozen=True, kw_only=True):
    """One generation."""

    generation: int
    state: str
    requested_at: datetime
    ended_at: datetime | None
    exit_code: int | None
    requested_by: str | None
    """null for viewers, as is the reason."""
    reason: str | None

    @classmethod
    def of(cls, deployment: Deployment, client: Client) -> DeploymentListed:
        return cls(
            generation=deployment.generation,
            state=deployment.state,
            requested_at=deployment.requested_at,
            ended_at=deployment.ended_at,
            exit_code=deployment.exit_code,
            requested_by=deployment.requested_by if client.operates else None,
            reason=deployment.reason if client.operates else None,
        )


class StreamShown(msgspec.Struct, frozen=True, kw_only=True):
    """One stream, without what takes longer to find out."""

    stream: StreamListed
    log_lines: list[str] | None
    """What its log says of its end; null for viewers."""
    incidents: list[IncidentListed]
    deployments: list[DeploymentListed]
    lag_by_partition: dict[str, dict[str, int]]
    batch_phases: dict[str, float]
    alert_lag_seconds: float | None
    """From which lag on it has an incident."""
    history: History
    registry_problem: str | None


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """The graph of a stream, and the stores that can be asked."""

    graph: Graph
    rates: dict[str, float]
    """Topic -> records per second that the stream reads of it; unknown ones are absent."""
    stores: tuple[StoreDescribed, ...]
    command: str
    """How to read a store, but for its name."""


class TableListed(msgspec.Struct, frozen=True, kw_only=True):
    """A Delta table of a stream."""

    name: str
    kind: str | None
    grain: str | None
    """What one row is."""
    rows: int
    files: int
    size_bytes: int
    version: int
    fresh_as_of: datetime | None

    @classmethod
    def of(cls, table: TableDescribed) -> TableListed:
        info = table.info
        return cls(
            name=table.name,
            kind=table.kind,
            grain=table.grain,
            rows=info.rows,
            files=info.files,
            size_bytes=info.size_bytes,
            version=info.version,
            fresh_as_of=table.cut.at if table.cut is not None else info.committed_at,
        )


class DeadLetterListed(msgspec.Struct, frozen=True, kw_only=True):
    """A record that failed, without the record."""

    record: str
    """`TOPIC-PARTITION@OFFSET`"""
    at: datetime
    operator: str
    error_class: str
    message: str | None
    """null for viewers: it may quote the record."""

    @classmethod
    def of(cls, letter: Failure, client: Client) -> DeadLetterListed:
        return cls(
            record=letter.record.name,
            at=letter.timestamp.replace(tzinfo=UTC) if letter.timestamp.tzinfo is None else letter.timestamp,
            operator=letter.operator,
            error_class=letter.error_class,
            message=letter.message if client.operates else None,
        )


class DeadLetters(msgspec.Struct, frozen=True, kw_only=True):
    """The newest dead letters of a stream."""

    table: str | None
    """Where they are; null: it keeps none in a table."""
    letters: list[DeadLetterListed]


class ReplayListed(msgspec.Struct, frozen=True, kw_only=True):
    """A replay that has not ended, or what one has published."""

    run_id: str
    state: str
    """The last phase that is done, or what has become of the publication."""
    begun: datetime
    tables: list[str]
    differences: int | None = None
    reason: str | None = None
    """null for viewers, as is the error."""
    error: str | None = None

    @classmethod
    def of_run(cls, plan: ReplayPlan, state: ReplayState, client: Client) -> ReplayListed:
        return cls(
            run_id=plan.run_id,
            state=f"done: {state.done[-1]}" if state.done else "planned",
            begun=datetime.fromtimestamp(plan.created_ms / 1000, UTC),
            tables=list(plan.tables),
            differences=state.differences,
            reason=plan.request.reason if client.operates else None,
            error=state.error if client.operates else None,
        )

    @classmethod
    def of_publication(cls, done: Publication, client: Client) -> ReplayListed:
        return cls(
            run_id=done.request.run_id,
            state=done.state,
            begun=datetime.fromtimestamp(done.begun_ms / 1000, UTC),
            tables=sorted(done.tables),
            reason=done.request.reason if client.operates else None,
        )


class Trouble(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why there is no answer."""

    error: str
    hint: str | None = None
    airflow: str | None = None
    """The path of Airflow here, if nobody is logged in to it; absent: a token says who looks."""
