"""The incidents of all streams in the registry: which are open, who was told of them, and how counts have gone on.

There is at most one open incident of a pipeline, kind and key, however many callers find it at once. Each channel (a
notifier) is told once that an incident is open and once that it is over, in this order. Whoever tells claims it first,
so that no two callers tell at once, and records it afterwards. A caller that is killed between telling and recording
has told, and nobody knows: after `CLAIM` another one tells again. Nothing is left out, and `Notice.key`
(`deltaworks.airflow.notices`) is the same both times.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from deltaworks.control.heartbeat import Heartbeat
from deltaworks.control.incidents import KINDS, OF_CONNECTORS, Count, Finding, Incident, Trend, increase
from deltaworks.control.registry import Registry
from deltaworks.control.registry_schema import incidents, notices, samples
from deltaworks.settings import Settings

State = Literal["open", "over"]

CLAIM = timedelta(minutes=5)
"""How long one caller may take to tell."""
TOLD_LATE = timedelta(days=1)
"""Of an incident that ended longer ago, nobody is told any more."""
_KEPT = timedelta(days=90)
_SLOT_S = 600
_SAMPLES_KEPT = timedelta(days=2)
_DAY, _HOUR = timedelta(days=1), timedelta(hours=1)


class Told(msgspec.Struct, frozen=True):
    """A channel that was told of a state of an incident."""

    state: State
    channel: str


class Sample(msgspec.Struct, frozen=True):
    """Counts of a stream at the end of ten minutes."""

    at: datetime
    """When these begin."""
    state_entries: int
    dead_letters: int
    """Of its driver, since its start."""


class IncidentBook:
    """Access to the incidents in the registry; every method may raise `ControlUnavailableError`."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    @classmethod
    def of(cls, settings: Settings) -> IncidentBook:
        """Those in the registry of the settings."""
        return cls(Registry.of(settings))

    # ---- What is open

    def settle(
        self,
        found: Sequence[Finding],
        looked_at: Callable[[Incident], bool],
        how: Callable[[Incident], str] = lambda incident: KINDS[incident.kind].over,
    ) -> None:
        """Opens incidents, and ends those that nobody finds any more.

        Args:
            found: everything that was found.
            looked_at: whether an open incident would have been found if it went on.
            how: says how an incident has ended.
        """
        keep = {(each.pipeline, each.kind, each.key) for each in found}
        with self._registry.transaction() as connection:
            there = _read(connection, incidents.c.ended_at.is_(None))
            known = {(each.pipeline, each.kind, each.key) for each in there}
            for each in found:
                if each.opens and (each.pipeline, each.kind, each.key) not in known:
                    connection.execute(_opening(each))
            for incident in there:
                if (incident.pipeline, incident.kind, incident.key) not in keep and looked_at(incident):
                    connection.execute(
                        sa.update(incidents)
                        .where(incidents.c.id == incident.id, incidents.c.ended_at.is_(None))
                        .values(ended_at=sa.func.now(), how=how(incident))
                    )
            connection.execute(sa.delete(incidents).where(incidents.c.ended_at < sa.func.now() - _KEPT))

    def open_counts(self) -> dict[str, int]:
        """Pipeline -> the number of its open incidents; a connector of the same name has others."""
        return self._counts(incidents.c.kind.not_in(sorted(OF_CONNECTORS)))

    def open_counts_of_connectors(self) -> dict[str, int]:
        """Connector -> the number of its open incidents."""
        return self._counts(incidents.c.kind.in_(sorted(OF_CONNECTORS)))

    def _counts(self, condition: sa.ColumnElement[bool]) -> dict[str, int]:
        query = (
            sa.select(incidents.c.pipeline, sa.func.count().label("number"))
            .where(incidents.c.ended_at.is_(None), condition)
            .group_by(incidents.c.pipeline)
        )
        with self._registry.transaction() as connection:
            return {row.pipeline: row.number for row in connection.execute(query)}

    def listed(self, name: str | None = None, *, ended: bool = False) -> list[Incident]:
        """The open incidents, latest first; with `ended`, also those of the last 90 days.

        Args:
            name: only those of this pipeline.
            ended: also those that have ended.
        """
        conditions = [] if name is None else [incidents.c.pipeline == name]
        if not ended:
            conditions.append(incidents.c.ended_at.is_(None))
        with self._registry.transaction() as connection:
            return _read(connection, *conditions)[::-1]

    # ---- Who was told

    def to_tell(self) -> list[tuple[Incident, frozenset[Told]]]:
        """The incidents that somebody may have to be told of, oldest first, and who was told already."""
        recent = sa.or_(incidents.c.ended_at.is_(None), incidents.c.ended_at > sa.func.now() - TOLD_LATE)
        with self._registry.transaction() as connection:
            found = _read(connection, recent)
            rows = connection.execute(
                sa.select(notices.c.incident, notices.c.state, notices.c.channel).where(
                    notices.c.incident.in_([each.id for each in found]), notices.c.told_at.is_not(None)
                )
            ).all()
        return [
            (each, frozenset(Told(row.state, row.channel) for row in rows if row.incident == each.id)) for each in found
        ]

    def claim(self, incident: int, told: Told, by: str) -> bool:
        """Claims to tell; returns whether the caller shall tell now.

        Args:
            incident: id of the incident.
            told: the state, and who is to be told.
            by: the caller; another try is another caller.
        """
        fresh = insert(notices).values(incident=incident, state=told.state, channel=told.channel, claimed_by=by)
        statement = fresh.on_conflict_do_update(
            index_elements=[notices.c.incident, notices.c.state, notices.c.channel],
            set_={"claimed_by": by, "claimed_at": sa.func.now()},
            where=sa.and_(notices.c.told_at.is_(None), notices.c.claimed_at < sa.func.now() - CLAIM),
        ).returning(notices.c.incident)
        with self._registry.transaction() as connection:
            return connection.execute(statement).first() is not None

    def release(self, incident: int, told: Told, by: str) -> None:
        """Gives up a claim, since telling has failed."""
        with self._registry.transaction() as connection:
            connection.execute(
                sa.delete(notices).where(
                    *_notice(incident, told), notices.c.claimed_by == by, notices.c.told_at.is_(None)
                )
            )

    def told(self, incident: int, told: Told) -> None:
        """Records that a channel was told."""
        with self._registry.transaction() as connection:
            connection.execute(sa.update(notices).where(*_notice(incident, told)).values(told_at=sa.func.now()))

    # ---- How counts go on

    def trends(self, beats: Collection[Heartbeat]) -> Mapping[str, Trend]:
        """Keeps the counts of heartbeats; returns the trend of each pipeline."""
        counts = {each.pipeline: Count(generation=each.generation, dead_letters=each.dead_letters) for each in beats}
        with self._registry.transaction() as connection:
            _keep(connection, counts, {beat.pipeline: beat.state_entries for beat in beats})
            earlier = connection.execute(
                sa.select(samples.c.pipeline, sa.func.max(samples.c.state_entries).label("most"))
                .where(samples.c.at <= sa.func.now() - _DAY)
                .group_by(samples.c.pipeline)
            ).all()
            increased = _increased(connection, {beat.pipeline: beat.up_s for beat in beats})
        most = {row.pipeline: row.most for row in earlier}
        return {name: Trend(state_before=most.get(name), dead_letters=each) for name, each in increased.items()}

    def dead_letters_of_sinks(self, counts: Mapping[str, Count], deployed_s: Mapping[str, float]) -> dict[str, int]:
        """Keeps the counts of connectors; returns by how much each has increased within an hour.

        Args:
            counts: connector -> how many dead letters its topic has got so far.
            deployed_s: connector -> for how many seconds it has been deployed: what its topic had when somebody first
                looked counts only if that was soon afterwards.
        """
        with self._registry.transaction() as connection:
            _keep(connection, {_of_sink(name): each for name, each in counts.items()}, {})
            increased = _increased(connection, {_of_sink(name): deployed_s[name] for name in counts})
        return {name: increased[_of_sink(name)] for name in counts}

    def samples(self, name: str) -> list[Sample]:
        """The counts of a pipeline that were kept, oldest first."""
        query = (
            sa.select(samples.c.at, samples.c.state_entries, samples.c.dead_letters)
            .where(samples.c.pipeline == name)
            .order_by(samples.c.at)
        )
        with self._registry.transaction() as connection:
            return [Sample(*row) for row in connection.execute(query)]


def _keep(connection: sa.Connection, counts: Mapping[str, Count], entries: Mapping[str, int]) -> None:
    """Keeps counts for some time, and the entries of stores beside them."""
    now = sa.func.now()
    slot = sa.func.to_timestamp(sa.func.floor(sa.extract("epoch", now) / _SLOT_S) * _SLOT_S)
    for name, count in counts.items():
        values = {**msgspec.structs.asdict(count), "state_entries": entries.get(name, 0)}
        fresh = insert(samples).values(pipeline=name, at=slot, **values)
        connection.execute(fresh.on_conflict_do_update(index_elements=[samples.c.pipeline, samples.c.at], set_=values))
    connection.execute(sa.delete(samples).where(samples.c.at < now - _SAMPLES_KEPT))


def _increased(connection: sa.Connection, up_s: Mapping[str, float]) -> dict[str, int]:
    """Name -> by how much its dead letters have increased within an hour; see `increase`."""
    hour_ago, columns = sa.func.now() - _HOUR, (samples.c.pipeline, samples.c.generation, samples.c.dead_letters)
    newest = (
        sa.select(samples.c.pipeline, sa.func.max(samples.c.at).label("at"))
        .where(samples.c.at <= hour_ago)
        .group_by(samples.c.pipeline)
        .subquery()
    )
    same = sa.and_(samples.c.pipeline == newest.c.pipeline, samples.c.at == newest.c.at)
    before = {row.pipeline: _count(row) for row in connection.execute(sa.select(*columns).join(newest, same))}
    counted: dict[str, list[Count]] = {}
    for row in connection.execute(sa.select(*columns).where(samples.c.at > hour_ago).order_by(samples.c.at)):
        counted.setdefault(row.pipeline, []).append(_count(row))
    return {name: increase(counted.get(name, []), before.get(name), of) for name, of in up_s.items()}


def _of_sink(name: str) -> str:
    """Under which name its counts are kept: a pipeline may have the same name, and none has a dot."""
    return f"connect.{name}"


def _opening(found: Finding) -> sa.Insert:
    """Opens an incident, unless one of its kind and key is open."""
    values = {name: getattr(found, name) for name in ("pipeline", "kind", "key", "what", "cause", "place")}
    return (
        insert(incidents)
        .values(**values)
        .on_conflict_do_nothing(
            index_elements=[incidents.c.pipeline, incidents.c.kind, incidents.c.key],
            index_where=incidents.c.ended_at.is_(None),
        )
    )


def _read(connection: sa.Connection, *conditions: sa.ColumnElement[bool]) -> list[Incident]:
    """Incidents in the order of their ids; of a kind that another version of deltaworks knows, none."""
    known = incidents.c.kind.in_(list(KINDS))
    rows = connection.execute(sa.select(incidents).where(known, *conditions).order_by(incidents.c.id))
    return [Incident(**row._asdict()) for row in rows]


def _notice(incident: int, told: Told) -> tuple[Any, ...]:
    return notices.c.incident == incident, notices.c.state == told.state, notices.c.channel == told.channel


def _count(row: Any) -> Count:
    return Count(generation=row.generation, dead_letters=row.dead_letters)
