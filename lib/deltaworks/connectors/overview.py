"""The connectors of a project for people who look at its streams: soon, or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from deltaworks.connect import project
from deltaworks.connect.answers import Listed
from deltaworks.connect.api import ConnectApi, Patience
from deltaworks.connect.connector import Connector
from deltaworks.connect.slots import Trouble
from deltaworks.connect.states import FAILED, why_failed
from deltaworks.connectors import dead_letters, slots
from deltaworks.connectors.supervision import differences
from deltaworks.control.connector_book import DELETED, ConnectorBook, ConnectorRecord
from deltaworks.control.incident_book import IncidentBook
from deltaworks.errors import ConfigurationError, ConnectUnavailableError, ControlUnavailableError
from deltaworks.settings import Settings

PATIENCE = Patience(connect_s=1.0, answer_s=2.0, work_s=2.0, rebalance_s=0.0)


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
    """Whether file and cluster differ; None: that is not known."""
    type: str = "unknown"
    """`source`, `sink`, or `unknown`."""
    workers: tuple[str, ...] = ()
    """The worker of each task; empty: it has none now."""
    dead_letters: int | None = None
    """How many its topic of dead letters holds; None: it has none, or that is not known."""
    incidents: int = 0
    """The number of its open incidents; 0 also if the registry does not answer."""


@dataclass(frozen=True, kw_only=True)
class Connectors:
    """The connectors of a project, and why no more is known."""

    url: str | None = None
    connectors: tuple[ConnectorStatus, ...] = ()
    """By name."""
    problem: str | None = None
    """Why Kafka Connect says nothing; None: it has answered."""


def overview(settings: Settings, name: str | None = None, *, patience: Patience = PATIENCE) -> Connectors:
    """The status of all connectors of the project, or of one; never an error, and within a few seconds.

    Args:
        settings: of the project.
        name: only this connector.
        patience: how long the worker may take.
    """
    records, incidents = _recorded(settings)
    names = {*project.written(settings), *(each for each, of in records.items() if of.desired != DELETED)}
    chosen = sorted(each for each in names if name in (None, each))
    if not chosen:
        return Connectors()
    loaded = project.load_each(settings)
    there: Mapping[str, Listed] | None = None
    letters: Mapping[str, int] = {}
    troubles: Mapping[str, Trouble] = {}
    url = problem = None
    try:
        with ConnectApi.of(settings, patience) as api:
            url = api.url
            there = api.all()
            configs = {each: of.info.texts for each, of in there.items() if each in chosen and of.info is not None}
            letters = dead_letters.counts_soon(settings.cluster, api, configs) or {}
            statuses = {each: of.status for each, of in there.items() if each in chosen and of.status is not None}
            troubles = slots.troubles_soon(settings, api, loaded.connectors, statuses)
    except (ConfigurationError, ConnectUnavailableError) as error:
        problem = error.message
    found = [
        replace(
            _status(each, records.get(each), loaded, there),
            dead_letters=letters.get(each),
            incidents=incidents.get(each, 0),
        )
        for each in chosen
    ]
    told = (replace(each, reason=troubles[each.name].told) if each.name in troubles else each for each in found)
    return Connectors(url=url, connectors=tuple(told), problem=problem)


def _recorded(settings: Settings) -> tuple[Mapping[str, ConnectorRecord], Mapping[str, int]]:
    """What the registry has of connectors, and the number of their open incidents."""
    try:
        return ConnectorBook.of(settings).records(), IncidentBook.of(settings).open_counts_of_connectors()
    except ControlUnavailableError:
        return {}, {}


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
        return ConnectorStatus(name=name, desired=desired, state="MISSING", restarts=restarts, reason=why)
    connector = loaded.connectors.get(name)
    differs = None if connector is None else connector.properties != listed.info.texts
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
        tasks=len(states),
        restarts=restarts,
        type="unknown" if status is None else status.type,
        workers=()
        if status is None
        else tuple(task.worker_id for task in sorted(status.tasks, key=lambda each: each.id)),
        reason=reason or wrong or _drift(connector, listed.info.texts),
        differs=differs,
    )


def _drift(connector: Connector | None, current: Mapping[str, str]) -> str | None:
    if connector is None:
        return "it has no file in jobs/connectors"
    return differences(connector, current) if connector.properties != current else None
