"""Metrics of the connectors of a project for Prometheus: what `overview` says, and how far sinks are behind.

Kafka Connect is asked every few seconds by `Looking`, whoever scrapes, so a worker that hangs delays no scrape.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from deltaworks import clock
from deltaworks.connect.api import ConnectApi
from deltaworks.connectors.lags import lags_soon
from deltaworks.connectors.overview import PATIENCE, Connectors, ConnectorStatus, overview
from deltaworks.errors import ConfigurationError, ConnectUnavailableError
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
}
"""Name -> field of `ConnectorStatus`, and help."""


class ConnectorMetrics(Collector):
    """Shows what the last look at the connectors has found; what is not known is absent."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._lock = threading.Lock()  # guards what follows
        self._found: Connectors | None = None
        self._at = 0.0
        self._lags: Mapping[str, int] = {}
        self._workers: dict[str, tuple[str, ...]] = {}
        self._moved: dict[str, int] = {}
        self.registry.register(self)

    def take(self, found: Connectors, lags: Mapping[str, int]) -> None:
        """Takes what a look has found.

        Args:
            found: the connectors.
            lags: sink -> records that it is behind.
        """
        with self._lock:
            self._found, self._lags, self._at = found, lags, clock.wall_s()
            for each in found.connectors:
                before, now = self._workers.get(each.name, ()), each.workers
                moved = sum(one != other for one, other in zip(before, now, strict=False) if one and other)
                self._moved[each.name] = self._moved.get(each.name, 0) + moved
                if now:
                    self._workers[each.name] = now

    def collect(self) -> Iterator[Metric]:
        """See the class."""
        with self._lock:
            found, lags, moved, at = self._found, self._lags, dict(self._moved), self._at
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
            known = {each.name: getattr(each, field) for each in found.connectors if each.state != "UNKNOWN"}
            yield _gauge(metric, {name: value for name, value in known.items() if value is not None}, text)
        yield _gauge("lag_records", lags, "Records of its topics that a sink has not committed.")
        counter = CounterMetricFamily(
            f"{PREFIX}moved_tasks", "Tasks that were found at another worker than before.", labels=["connector"]
        )
        for name, number in moved.items():
            counter.add_metric([name], number)
        yield counter

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
    found = overview(settings)
    sinks = [each.name for each in found.connectors if each.type == "sink"]
    lags: Mapping[str, int] = {}
    if sinks:
        try:
            with ConnectApi.of(settings, PATIENCE) as api:
                lags = lags_soon(settings.cluster, api, sinks)
        except (ConfigurationError, ConnectUnavailableError):  # it has just gone away
            pass
    metrics.take(found, lags)


def _gauge(metric: str, values: Mapping[str, float], text: str) -> Metric:
    gauge = GaugeMetricFamily(f"{PREFIX}{metric}", text, labels=["connector"])
    for name, value in values.items():
        gauge.add_metric([name], float(value))
    return gauge
