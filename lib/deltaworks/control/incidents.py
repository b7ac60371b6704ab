"""What counts as an incident of a stream or of the home, and how it looks to people.

The functions here look at what others have observed and say what they find. A finding opens an incident, or only keeps
one open (`opens=False`): between the two is a margin, so that no incident comes and goes. `incident_book` keeps the
incidents in the registry; who tells of them is in `deltaworks.airflow.notices`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

import msgspec

from deltaworks import disk
from deltaworks.control import heartbeat
from deltaworks.control.heartbeat import Heartbeat
from deltaworks.control.model import PipelineStatus

Kind = Literal[
    "failed",
    "given_up",
    "lagging",
    "batch_stuck",
    "dead_letters",
    "state_growing",
    "quality_failed",
    "approval_waits",
    "disk_filling",
    "connector_failed",
    "connector_given_up",
    "connector_drifted",
    "slot_endangered",
    "slot_lost",
    "sink_dead_letters",
    "connect_away",
]
DISK_FREE, DISK_FREE_AGAIN = 0.10, 0.15
"""The share of the disk of the home that is free when it is filling, and when that is over."""
LEAST_GROWTH = 100_000
"""Stores that have grown by fewer entries are never an incident."""
DRIFTS_S = 600.0
"""How long a connector may differ from its file before somebody is told: whoever changes a file deploys it soon."""
CONNECT_AWAY_S = 30.0
"""How long Kafka Connect may not answer before that is an incident; a worker that restarts needs as much."""
_MOSTLY = 0.8
_NOT_LONG = timedelta(hours=1)


@dataclass(frozen=True)
class KindText:
    """How a kind of incident looks to people."""

    title: str
    """Also the heading of its section in the runbooks."""
    advice: str
    """The first thing to do; `{pipeline}` stands for the name."""
    over: str
    """How it has ended."""

    @property
    def anchor(self) -> str:
        """The anchor of its section in the runbooks."""
        return anchor(self.title)


KINDS: dict[Kind, KindText] = {
    "failed": KindText(
        "Stream failed",
        "wait for the automatic restart; `deltaworks status {pipeline}` shows it",
        "it has recovered",
    ),
    "given_up": KindText(
        "Given up",
        "nothing restarts it: fix the cause, then `deltaworks deploy {pipeline}`",
        "it runs again",
    ),
    "lagging": KindText(
        "Lagging",
        "see whether the lag shrinks (`deltaworks status {pipeline}`); if not, give it more cores or larger batches",
        "it has caught up",
    ),
    "batch_stuck": KindText(
        "Batch stuck",
        "see in the log what the batch waits for: `deltaworks logs {pipeline}`",
        "a batch has ended",
    ),
    "dead_letters": KindText(
        "Dead letters",
        "see what fails, and why: `deltaworks dead-letters list {pipeline}`",
        "no record has failed for an hour",
    ),
    "state_growing": KindText(
        "State growing",
        "look for keys that never end, or windows that are kept too long",
        "it has stopped growing",
    ),
    "quality_failed": KindText(
        "Checks failed",
        "see which rows are wrong: `deltaworks quality {pipeline}`",
        "all checks pass again",
    ),
    "approval_waits": KindText(
        "Approval waits",
        "look at what would be done, then approve or reject",
        "it was answered",
    ),
    "disk_filling": KindText(
        "Disk filling",
        "free some space, or use a larger disk; a full one stops every stream",
        "there is room again",
    ),
    "connector_failed": KindText(
        "Connector failed",
        "wait for the automatic restart; `deltaworks connect status {pipeline}` shows why",
        "it has recovered",
    ),
    "connector_given_up": KindText(
        "Connector given up",
        "nothing restarts it: fix the cause, then `deltaworks connect restart {pipeline} --failed`",
        "it runs again",
    ),
    "connector_drifted": KindText(
        "Connector drifted",
        "see what differs: `deltaworks connect plan {pipeline}`; then apply it, or change the file",
        "file and cluster are alike",
    ),
    "slot_endangered": KindText(
        "Slot endangered",
        "let the connector read now (`deltaworks connect resume {pipeline}`), or raise `max_slot_wal_keep_size`",
        "its slot is not at its limit any more",
    ),
    "slot_lost": KindText(
        "Slot lost",
        "take a new snapshot, then delete what it does not have: `deltaworks connect sweep {pipeline}`",
        "its database has what it has not read",
    ),
    "sink_dead_letters": KindText(
        "Dead letters of a sink",
        "see what fails, and why: `deltaworks connect dead-letters {pipeline}`",
        "no record has failed for an hour",
    ),
    "connect_away": KindText(
        "Connect away",
        "see whether its workers run; `deltaworks connect status` asks them",
        "it answers again",
    ),
}
OF_STREAMS: frozenset[Kind] = frozenset(
    {"failed", "given_up", "lagging", "batch_stuck", "dead_letters", "state_growing"}
)
"""Those that `of_stream` finds."""
OF_CONNECTORS: frozenset[Kind] = frozenset(
    {
        "connector_failed",
        "connector_given_up",
        "connector_drifted",
        "slot_endangered",
        "slot_lost",
        "sink_dead_letters",
    }
)
"""Those that `deltaworks.connectors.watch` finds; `pipeline` is the name of the connector."""
STOPPED = "the stream was stopped"


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """An incident, as recorded in the registry."""

    id: int
    pipeline: str
    """Name of the pipeline, or of the connector (`OF_CONNECTORS`); empty: the whole home."""
    kind: Kind
    key: str = ""
    """What tells several of a kind apart, such as the id of a replay."""
    what: str
    cause: str | None = None
    """The likely cause."""
    place: str | None = None
    """Where in Airflow to look, such as `orders__replay/runs/manual__1`; None: the DAG of its kind."""
    opened_at: datetime
    ended_at: datetime | None = None
    how: str | None = None
    """How it has ended."""

    @property
    def subject(self) -> str:
        """Who it is about, for people."""
        return self.pipeline or "the home"

    @property
    def advice(self) -> str:
        """The first thing to do."""
        return KINDS[self.kind].advice.format(pipeline=self.pipeline)


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What makes an incident."""

    pipeline: str
    kind: Kind
    what: str
    cause: str | None = None
    key: str = ""
    place: str | None = None
    opens: bool = True
    """Whether it opens an incident; otherwise it keeps one open that there is."""


class Trend(msgspec.Struct, frozen=True, kw_only=True):
    """What has become of a stream's counts."""

    state_before: int | None = None
    """The most entries that its stores had a day ago or earlier; None: unknown."""
    dead_letters: int = 0
    """Within the last hour."""


class Count(msgspec.Struct, frozen=True, kw_only=True):
    """A count of dead letters at some time."""

    generation: int
    """Of the driver that has counted, or what stands for the topic of a sink; another one has counted from 0."""
    dead_letters: int


def anchor(heading: str) -> str:
    """The anchor of a heading in the runbooks."""
    return heading.lower().replace(" ", "-")


def runbook(docs_url: str | None, section: str = "") -> str:
    """Where a section of the runbooks is: an address if the settings name the site, or else the file.

    Args:
        docs_url: of the settings.
        section: its anchor; empty: the beginning.
    """
    page = "docs/runbooks.md" if docs_url is None else f"{docs_url}/runbooks.html"
    return f"{page}#{section}" if section else page


def of_stream(status: PipelineStatus, trend: Trend) -> list[Finding] | None:
    """The findings about a stream; None: nothing is known now, so what is open stays open.

    A stream that was stopped, or that nobody has deployed, has none.
    """
    if status.desired != "running":
        return []
    seen = status.seen
    if seen.state in ("unknown", "superseded"):
        return None
    found = [*_failures(status)]
    if seen.state == "running" and seen.heartbeat is not None:
        return [*found, *_of_running(seen.heartbeat, trend)]
    known = {each.kind for each in found}
    between = "it does not run now"  # until it runs again, nothing is over
    rest = sorted(OF_STREAMS - known)
    return found + [Finding(pipeline=status.name, kind=kind, what=between, opens=False) for kind in rest]


def free_share(home: Path) -> float:
    """How much of the disk of the home is free, of its space or of its files, whichever is less."""
    found = os.statvfs(home)
    shares = [found.f_bavail / found.f_blocks] if found.f_blocks else []
    shares += [found.f_favail / found.f_files] if found.f_files else []
    return min(shares, default=1.0)


def of_home(home: Path) -> list[Finding]:
    """The findings about the disk of the home."""
    free = free_share(home)
    if free >= DISK_FREE_AGAIN:
        return []
    what = f"{free:.0%} of the disk of {home} is free: {disk.free(home)}"
    return [Finding(pipeline="", kind="disk_filling", what=what, opens=free < DISK_FREE)]


def of_dead_letters(name: str, kind: Kind, increased: int, limit: int | None) -> Iterator[Finding]:
    """The finding about dead letters, if there are any.

    Args:
        name: of the pipeline or the connector.
        kind: that of a pipeline or of a sink.
        increased: how many there are within the last hour.
        limit: from how many on that is an incident; None: never.
    """
    if limit is not None and increased:
        what = f"{increased:,} records have become dead letters within an hour"
        yield Finding(pipeline=name, kind=kind, what=what, opens=increased >= limit)


def increase(counts: Sequence[Count], before: Count | None, up_s: float) -> int:
    """By how much the dead letters have increased; a driver counts from its start.

    Args:
        counts: in order of time.
        before: the last count before these; None: there is none.
        up_s: how long the last driver has run, or the connector has been deployed.
    """
    if before is None and counts and up_s > _NOT_LONG.total_seconds():
        before = counts[0]  # nobody has looked for a while
    total = 0
    for count in counts:
        known = before is not None and before.generation == count.generation
        total += max(0, count.dead_letters - (before.dead_letters if known and before else 0))
        before = count
    return total


def _failures(status: PipelineStatus) -> Iterator[Finding]:
    seen, name = status.seen, status.name
    code = "" if seen.exit_code is None else f" with exit code {seen.exit_code}"
    if status.gave_up is not None:
        what = f"generation {seen.generation} is {seen.state}{code}, and nothing restarts it"
        yield Finding(pipeline=name, kind="given_up", what=what, cause=status.gave_up)
        yield Finding(pipeline=name, kind="failed", what=what, opens=False)
    elif seen.state in ("failed", "dead", "stalled"):
        what = f"generation {seen.generation} is {seen.state}{code}"
        yield Finding(pipeline=name, kind="failed", what=what, cause=status.reason)
    elif status.restarts:
        times = "once" if status.restarts == 1 else f"{status.restarts} times"
        what = f"it was restarted {times}; generation {seen.generation} is {seen.state}"
        yield Finding(pipeline=name, kind="failed", what=what, cause=status.reason)


def _of_running(beat: Heartbeat, trend: Trend) -> Iterator[Finding]:
    yield from _lag(beat)
    yield from _batch(beat)
    limits, name = beat.alerts, beat.pipeline
    yield from of_dead_letters(name, "dead_letters", trend.dead_letters, limits.dead_letters)
    before, now = trend.state_before, beat.state_entries
    if limits.state_growth is not None and before is not None and now - before >= LEAST_GROWTH:
        what = f"its stores have {now:,} entries; they had {before:,} a day ago"
        opens = now > limits.state_growth * before
        margin = now > (1 + limits.state_growth) / 2 * before
        if opens or margin:
            yield Finding(pipeline=name, kind="state_growing", what=what, opens=opens)


def _lag(beat: Heartbeat) -> Iterator[Finding]:
    limit, lag_s = beat.alerts.lag, beat.lag_seconds
    if limit is None:
        return
    limit_s, waiting = limit.total_seconds(), beat.lag_records or 0
    # A driver knows a lag only since its start: until it has run long enough, a small one says nothing.
    unsure = lag_s is None or (waiting > 0 and beat.up_s < limit_s)
    if not unsure and lag_s is not None and lag_s <= limit_s / 2:
        return
    opens = lag_s is not None and lag_s > limit_s
    late = "unknown" if lag_s is None else _minutes(lag_s)
    what = f"it is {late} behind its topics; {waiting:,} records wait"
    yield Finding(pipeline=beat.pipeline, kind="lagging", what=what, cause=_why_late(beat, waiting), opens=opens)


def _why_late(beat: Heartbeat, waiting: int) -> str:
    if beat.batch_id is None:
        return "no batch has ended since its start"
    parts = {f"{topic}-{part}": lag for topic, each in beat.lag_by_partition.items() for part, lag in each.items()}
    most = max(parts, key=lambda part: parts[part], default=None)
    if most is not None and len(parts) > 1 and parts[most] > _MOSTLY * waiting:
        return f"{parts[most]:,} of them are in {most}: keys of that partition have more records than others"
    rate = f"{beat.records_per_second:,.0f} records/s, the last batch took {beat.batch_seconds:.0f} s"
    return f"more records arrive than it processes ({rate}), or it catches up after a pause"


def _batch(beat: Heartbeat) -> Iterator[Finding]:
    limit = beat.alerts.batch
    if limit is None or not beat.lag_records:
        return
    quiet_s = beat.quiet_s + heartbeat.age_s(beat)
    opens = quiet_s > limit.total_seconds()
    if not opens and beat.batch_id is not None:
        return
    after = "since its start" if beat.batch_id is None else f"after batch {beat.batch_id}"
    what = f"no batch has ended for {_minutes(quiet_s)} {after}, and {beat.lag_records:,} records wait"
    cause = "a function, a sink or a transaction does not return, or the batch is too large"
    yield Finding(pipeline=beat.pipeline, kind="batch_stuck", what=what, cause=cause, opens=opens)


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
