"""The connectors of a project for people who look at its streams: soon, or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from deltaworks.connect import project
from deltaworks.connect.answers import Listed, Status
from deltaworks.connect.api import ConnectApi, Patience
from deltaworks.connect.connector import Connector
from deltaworks.connect.states import AT_REST, FAILED, MOVING, has_failed, why_failed
from deltaworks.connectors import dead_letters, slots
from deltaworks.connectors.dead_letters import Count
from deltaworks.connectors.lags import Turns, lags_soon
from deltaworks.connectors.slots import Seen
from deltaworks.connectors.supervision import differences
from deltaworks.control.connector_book import DELETED, ConnectorBook, ConnectorRecord
from deltaworks.control.incident_book import IncidentBook
from deltaworks.errors import ConfigurationError, ConnectUnavailableError, ControlUnavailableError
from deltaworks.settings import Settings
from deltaworks.topology.alerts import USUAL

PATIENCE = Patience(connect_s=1.0, answer_s=2.0, work_s=2.0, rebalance_s=0.0)
LAGS_S = 1.5
"""How long sinks may be asked for their offsets, for somebody who waits."""


@dataclass(frozen=True, kw_only=True)
class ConnectorStatus:
    """A connector of the project."""

    name: str
    desired: str | None
    """`running`, `paused`, `stopped`; None: nobody has deployed it, or the registry does not answer."""
    state: str
    """In the words of Kafka Connect; `MISSING`: it does not have it; `UNKNOWN`: it does not answer."""
    running_tasks: int = 0
    failed_tasks: int = 0
    tasks: int = 0
    restarts: int = 0
    """Automatic restarts since it was last healthy for a while."""
    reason: str | None = None
    """Why it is so, in one line without secrets."""
    differs: bool | None = None
    """Whether it is there, and not as its file says; None: that is not known."""
    type: str = "unknown"
    """`source`, `sink`, or `unknown`."""
    workers: tuple[str, ...] = ()
    """The worker of each task; empty: it has none now."""
    dead_letters: int | None = None
    """How many its topic of dead letters holds; None: it has none, or that is not known."""
    incidents: int = 0
    """The number of its open incidents; 0 also if the registry does not answer."""
    failed: bool | None = None
    """Whether it, or a task of it, has failed, or it is gone though it should run; None: that is not known."""
    gave_up: bool | None = None
    """Whether nothing restarts it any more; None: the registry does not answer."""
    deployed_s: float | None = None
    """How long ago somebody has deployed it; None: nobody has, or the registry does not answer."""
    lag_records: int | None = None
    """Of a sink: the records of its topics that it has not committed; None: that is not known."""
    lag_bytes: int | None = None
    """Of a source of PostgreSQL: what it has not confirmed of the database's log; None: that is not known."""
    danger: Literal["none", "endangered", "lost"] | None = None
    """What becomes of the log that it has not read, as far as anybody here can ask; None: that is not known now."""
    dead_letters_ever: int | None = None
    """How many its topic of dead letters has ever got; None: as `dead_letters`."""
    dead_letters_alert: int | None = None
    """This many within an hour are an incident; None: never."""


@dataclass(frozen=True, kw_only=True)
class Connectors:
    """The connectors of a project, and why no more is known."""

    url: str | None = None
    connectors: tuple[ConnectorStatus, ...] = ()
    """By name."""
    problem: str | None = None
    """Why Kafka Connect says nothing; None: it has answered."""


def overview(
    settings: Settings,
    name: str | None = None,
    *,
    patience: Patience = PATIENCE,
    lags_s: float = LAGS_S,
    turns: Turns | None = None,
) -> Connectors:
    """The status of all connectors of the project, or of one; never an error, and within a few seconds.

    Args:
        settings: of the project.
        name: only this connector.
        patience: how long the worker may take.
        lags_s: after that, no other sink is asked how far it is.
        turns: of those who look again and again, so that each sink is asked at some time.
    """
    recorded = _recorded(settings)
    records, incidents = ({}, {}) if recorded is None else recorded
    names = {*project.written(settings), *(each for each, of in records.items() if of.desired != DELETED)}
    chosen = sorted(each for each in names if name in (None, each))
    if not chosen:
        return Connectors()
    loaded = project.load_each(settings)
    limits = {each: of.dead_letters_alert for each, of in loaded.connectors.items()}
    there: Mapping[str, Listed] | None = None
    letters: Mapping[str, Count] = {}
    lags: Mapping[str, int] = {}
    of_slots: Mapping[str, Seen] = {}
    url = problem = None
    try:
        with ConnectApi.of(settings, patience) as api:
            url = api.url
            there = api.all()
            configs = {each: of.info.texts for each, of in there.items() if each in chosen and of.info is not None}
            letters = dead_letters.counts_soon(settings.cluster, api, configs) or {}
            statuses = {each: of.status for each, of in there.items() if each in chosen and of.status is not None}
            of_slots = slots.seen_soon(settings, api, loaded.connectors, statuses)
            sinks = [each for each, of in statuses.items() if of.type == "sink"]
            in_turn = sinks if turns is None else turns.of(sinks)
            lags = lags_soon(settings.cluster, api, in_turn, within_s=lags_s)
    except (ConfigurationError, ConnectUnavailableError) as error:
        problem = error.message
    found = [
        _with_slot(
            replace(
                _status(each, records.get(each), loaded, there),
                dead_letters=letters[each].total if each in letters else None,
                dead_letters_ever=letters[each].ever if each in letters else None,
                dead_letters_alert=limits.get(each, USUAL.dead_letters) if each in letters else None,
                lag_records=lags.get(each),
                incidents=incidents.get(each, 0),
                gave_up=None if recorded is None else each in records and records[each].gave_up is not None,
                deployed_s=records[each].changed_ago_s if each in records else None,
            ),
            of_slots.get(each),
        )
        for each in chosen
    ]
    return Connectors(url=url, connectors=tuple(found), problem=problem)


def _recorded(settings: Settings) -> tuple[Mapping[str, ConnectorRecord], Mapping[str, int]] | None:
    """What the registry has of connectors, and the number of their open incidents; None: it does not answer."""
    try:
        return ConnectorBook.of(settings).records(), IncidentBook.of(settings).open_counts_of_connectors()
    except ControlUnavailableError:
        return None


def _with_slot(found: ConnectorStatus, seen: Seen | None) -> ConnectorStatus:
    if seen is None:
        return found
    behind = None if seen.slot is None else seen.slot.behind_bytes
    if seen.trouble is not None:
        return replace(found, danger=seen.trouble.danger, lag_bytes=behind, reason=seen.trouble.told)
    return replace(found, danger="none" if seen.answered else None, lag_bytes=behind)


def _status(
    name: str, record: ConnectorRecord | None, loaded: project.Loaded, there: Mapping[str, Listed] | None
) -> ConnectorStatus:
    desired = None if record is None or record.desired == DELETED else record.desired
    restarts = 0 if record is None else record.restarts
    broken = loaded.broken.get(name)
    wrong = None if broken is None else f"its file cannot be used: {broken.partition(chr(10))[0]}"
    if there is None:
        return ConnectorStatus(name=name, desired=desired, state="UNKNOWN", restarts=restarts, reason=wrong)
    listed = there.get(name)
    if listed is None or listed.info is None:
        why = wrong or ("Kafka Connect does not have it" if desired else "it was not deployed yet")
        return ConnectorStatus(
            name=name,
            desired=desired,
            state="MISSING",
            restarts=restarts,
            reason=why,
            differs=False,
            failed=desired == "running",
            danger="none",
        )
    connector = loaded.connectors.get(name)
    differs = None if broken else connector is not None and connector.properties != listed.info.texts
    status = listed.status
    states = [] if status is None else [task.state for task in status.tasks]
    reason = None if status is None else why_failed(status)
    if record is not None and record.gave_up is not None:
        reason = f"nothing restarts it: {record.gave_up}"
    return ConnectorStatus(
        name=name,
        desired=desired,
        state="UNASSIGNED" if status is None else status.connector.state,
        running_tasks=states.count("RUNNING"),
        failed_tasks=states.count(FAILED),
        failed=_failed(status),
        tasks=len(states),
        restarts=restarts,
        type="unknown" if status is None else status.type,
        workers=()
        if status is None
        else tuple(task.worker_id for task in sorted(status.tasks, key=lambda each: each.id)),
        reason=reason or wrong or _drift(connector, listed.info.texts),
        differs=differs,
    )


def _failed(status: Status | None) -> bool | None:
    if status is None or (status.connector.state in MOVING and not has_failed(status)):
        return None
    return status.connector.state not in AT_REST and has_failed(status)


def _drift(connector: Connector | None, current: Mapping[str, str]) -> str | None:
    if connector is None:
        return "it has no file in jobs/connectors"
    return differences(connector, current) if connector.properties != current else None
