"""One look at all connectors of a project: what `supervision` does, and the incidents that are recorded of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from deltaworks import clock
from deltaworks.connect import project
from deltaworks.connect.api import ConnectApi, Patience
from deltaworks.connectors import dead_letters, slots
from deltaworks.connectors.supervision import POLICY, Decision, Supervised, supervise
from deltaworks.control.connector_book import DELETED, ConnectorBook
from deltaworks.control.incident_book import IncidentBook
from deltaworks.control.incidents import CONNECT_AWAY_S, KINDS, OF_CONNECTORS, Finding, Incident, of_dead_letters
from deltaworks.control.policy import RestartPolicy
from deltaworks.errors import ConfigurationError, ConnectUnavailableError, KafkaTopicError, TransientError
from deltaworks.settings import Settings
from deltaworks.topology.alerts import USUAL

PATIENCE = Patience(connect_s=3.0, answer_s=10.0, rebalance_s=10.0)
_AGAIN_S = 3.0


def watch(
    settings: Settings, policy: RestartPolicy = POLICY, patience: Patience = PATIENCE, *, away_s: float = CONNECT_AWAY_S
) -> tuple[Decision, ...] | None:
    """Looks once, acts, and records what is an incident; any number of callers may do so at once.

    Args:
        settings: of the project and its registry.
        policy: pauses and limits of restarts.
        patience: how long a single request may take.
        away_s: how long a worker that does not answer is asked again before that is an incident.

    Returns:
        What was decided; None: there is no connector that it has to look after.

    Raises:
        ConfigurationError: the settings do not say where Kafka Connect is, or it refuses us.
        ConnectUnavailableError: the worker does not answer; that is recorded as an incident.
        ControlUnavailableError: the registry does not answer, so nothing is known.
    """
    book, incidents = ConnectorBook.of(settings), IncidentBook.of(settings)
    known = any(record.desired != DELETED for record in book.records().values())
    if not known and not project.written(settings):
        _settle(incidents, book, [], answers=True)
        return None
    loaded = project.load_each(settings)
    with ConnectApi.of(settings, patience) as api:
        try:
            seen = _asked(settings, api, loaded, book, policy, away_s)
        except ConnectUnavailableError as error:
            away = Finding(pipeline="", kind="connect_away", what=error.message)
            _settle(incidents, book, [away], answers=False)
            raise
        letters = _dead_letters(settings, api, loaded, book, incidents)
    _settle(incidents, book, [*seen.findings, *letters], answers=True)
    return seen.decisions


def _asked(
    settings: Settings,
    api: ConnectApi,
    loaded: project.Loaded,
    book: ConnectorBook,
    policy: RestartPolicy,
    away_s: float,
) -> Supervised:
    until = clock.ticks_s() + away_s
    while True:
        try:
            return supervise(api, loaded, book, policy, look=partial(slots.look, settings))
        except ConnectUnavailableError:
            if clock.ticks_s() + _AGAIN_S > until:
                raise
        time.sleep(_AGAIN_S)


def _dead_letters(
    settings: Settings, api: ConnectApi, loaded: project.Loaded, book: ConnectorBook, incidents: IncidentBook
) -> list[Finding]:
    """The sinks whose dead letters have become more; while that is not known, nothing is over."""
    deployed_s = {name: each.changed_ago_s for name, each in book.records().items() if each.desired == "running"}
    try:
        configs = {name: each for name, each in api.configs().items() if name in deployed_s}
        counts = dead_letters.so_far(settings.cluster, api, configs)
    except (ConfigurationError, KafkaTopicError, TransientError):
        what = "its dead letters cannot be counted now"
        return [Finding(pipeline=name, kind="sink_dead_letters", what=what, opens=False) for name in deployed_s]
    if not counts:
        return []
    limits = {name: each.dead_letters_alert for name, each in loaded.connectors.items()}
    increased = incidents.dead_letters_of_sinks(counts, deployed_s)
    return [
        finding
        for name, count in increased.items()
        for finding in of_dead_letters(name, "sink_dead_letters", count, limits.get(name, USUAL.dead_letters))
    ]


def _settle(incidents: IncidentBook, book: ConnectorBook, found: Sequence[Finding], *, answers: bool) -> None:
    wanted = {record.name for record in book.records().values() if record.desired == "running"}

    def looked_at(incident: Incident) -> bool:
        return incident.kind == "connect_away" or (answers and incident.kind in OF_CONNECTORS)

    def how(incident: Incident) -> str:
        gone = incident.kind in OF_CONNECTORS and incident.pipeline not in wanted
        return "it was paused, stopped or deleted" if gone else KINDS[incident.kind].over

    incidents.settle(found, looked_at, how)
