"""Metrics of the connectors of a project for Prometheus: what `overview` says, and which tasks have moved.

Kafka Connect is asked every few seconds by `Looking`, whoever scrapes, so a worker that hangs delays no scrape.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from deltaworks import clock
from deltaworks.connectors.lags import Turns
from deltaworks.connectors.overview import Connectors, ConnectorStatus, overview
from deltaworks.settings import Settings

PREFIX = "deltaworks_connector_"
EVERY_S = 10.0
"""How often Kafka Connect is asked."""
STATES = ("RUNNING", "PAUSED", "STOPPED", "FAILED", "RESTARTING", "UNASSIGNED", "MISSING", "UNKNOWN")
_COUNTS: Mapping[str, tuple[str, str]] = {
    "tasks": ("tasks", "Tasks of a connector."),
    "running_tasks": ("running_tasks", "Those of them that run."),
    "failed_tasks": ("failed_tasks", "Those of them that have ended with an error."),
    "restarts": ("restarts", "Automatic restarts since it was last healthy for a while."),
    "differs": ("differs", "1: it is not as its file says."),
    "dead_letters": ("dead_letters", "Records in its topic of dead letters."),
    "lag_records": ("lag_records", "Records of its topics that a sink has not committed."),
    "lag_bytes": ("lag_bytes", "What a source of PostgreSQL has not confirmed of the database's log."),
    "failed": ("failed", "1: it or a task of it has failed, or it is gone though it should run."),
    "given_up": ("gave_up", "1: nothing restarts it any more."),
    "deployed_seconds": ("deployed_s", "How long ago somebody has deployed it."),
    "alert_dead_letters": ("dead_letters_alert", "This many dead letters within an hour are an incident."),
}
"""Name -> field of `ConnectorStatus`, and help."""
_RECORDED = frozenset({"restarts", "given_up"})
"""What the registry knows, also while Kafka Connect does not answer."""
_SLOT: Mapping[str, tuple[str, str]] = {
    "slot_endangered": ("endangered", "1: what it has not read of its database's log is about to be removed."),
    "slot_lost": ("lost", "1: what it has not read of its database's log is gone."),
}
"""Name -> value of `ConnectorStatus.danger`, and help."""


class ConnectorMetrics(Collector):
    """Shows what the last look at the connectors has found; what is not known is absent."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.turns = Turns()
        self._lock = threading.Lock()  # guards what follows
        self._found: Connectors | None = None
        self._at = 0.0
        self._workers: dict[str, tuple[str, ...]] = {}
        self._moved: dict[str, int] = {}
        self.registry.register(self)

    def take(self, found: Connectors) -> None:
        """Takes what a look has found."""
        with self._lock:
            self._found, self._at = found, clock.wall_s()
            for each in found.connectors:
                before, now = self._workers.get(each.name, ()), each.workers
                moved = sum(one != other for one, other in zip(before, now, strict=False) if one and other)
                self._moved[each.name] = self._moved.get(each.name, 0) + moved
                if now:
                    self._workers[each.name] = now

    def collect(self) -> Iterator[Metric]:
        """See the class."""
        with self._lock:
            found, moved, at = self._found, dict(self._moved), self._at
        if found is None:
            return
        answers = "1: Kafka Connect has answered; absent: the project has no connectors."
        connect = GaugeMetricFamily("deltaworks_connect_up", answers)
        if found.connectors:
            connect.add_metric([], float(found.problem is None))
        yield connect
        looked = GaugeMetricFamily("deltaworks_connect_looked_timestamp_seconds", "When it was asked last.")
        looked.add_metric([], at)
        yield looked
        yield self._states(found.connectors)
        for metric, (field, text) in _COUNTS.items():
            known = {each.name: getattr(each, field) for each in found.connectors if _is_known(each, metric)}
            yield _gauge(metric, {name: value for name, value in known.items() if value is not None}, text)
        for metric, (danger, text) in _SLOT.items():
            in_it = {each.name: each.danger == danger for each in found.connectors if each.danger is not None}
            yield _gauge(metric, in_it, text)
        ever = {each.name: each.dead_letters_ever for each in found.connectors if each.dead_letters_ever is not None}
        yield _counter("failed_records", ever, "Records that its topic of dead letters has ever got.")
        yield _counter("moved_tasks", moved, "Tasks that were found at another worker than before.")

    def _states(self, connectors: tuple[ConnectorStatus, ...]) -> Metric:
        gauge = GaugeMetricFamily(
            f"{PREFIX}state",
            "1 for what a connector does, in the words of Kafka Connect.",
            labels=["connector", "state"],
        )
        for each in connectors:
            for state in (*STATES, *({each.state} - {*STATES})):
                gauge.add_metric([each.name, state], float(state == each.state))
        return gauge


def look(settings: Settings, metrics: ConnectorMetrics) -> None:
    """Asks Kafka Connect once; never an error, and within seconds."""
    metrics.take(overview(settings, lags_s=EVERY_S, turns=metrics.turns))


def _is_known(status: ConnectorStatus, metric: str) -> bool:
    return status.gave_up is not None if metric in _RECORDED else status.state != "UNKNOWN"


def _gauge(metric: str, values: Mapping[str, float], text: str) -> Metric:
    return _shown(GaugeMetricFamily(f"{PREFIX}{metric}", text, labels=["connector"]), values)


def _counter(metric: str, values: Mapping[str, float], text: str) -> Metric:
    return _shown(CounterMetricFamily(f"{PREFIX}{metric}", text, labels=["connector"]), values)


def _shown(family: GaugeMetricFamily | CounterMetricFamily, values: Mapping[str, float]) -> Metric:
    for name, value in values.items():
        family.add_metric([name], float(value))
    return family
