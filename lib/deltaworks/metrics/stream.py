"""The metrics of one stream, made of its heartbeats."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping
from datetime import timedelta
from itertools import accumulate
from pathlib import Path
from typing import get_args

from prometheus_client import CollectorRegistry, Histogram, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    StateSetMetricFamily,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from deltaworks.control.distribution import BOUNDS_S, Distribution
from deltaworks.control.heartbeat import Heartbeat, State, TableFacts
from deltaworks.control.incidents import free_share
from deltaworks.topology.alerts import Alerts

PREFIX = "deltaworks_stream_"
STATES: tuple[str, ...] = get_args(State)
_SECONDS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 30.0, 60.0, 120.0)
_GAUGES: Mapping[str, tuple[str, str]] = {
    "generation": ("generation", "Number of the driver among all of this stream."),
    "up_seconds": ("up_s", "How long this driver has run."),
    "quiet_seconds": ("quiet_s", "How long no batch has ended."),
    "heartbeat_timestamp_seconds": ("at", "Time of the last heartbeat."),
    "records_per_second": ("records_per_second", "Records read, over the last minute."),
    "lag_seconds": ("lag_seconds", "How long ago the source topics ended at the stream's position."),
    "tasks": ("tasks", "Number of tasks of all stages."),
    "state_entries": ("state_entries", "Entries of all state stores."),
    "last_batch": ("batch_id", "Number of the last batch."),
    "last_batch_seconds": ("batch_seconds", "How long it took."),
    "interval_seconds": ("interval_s", "The trigger interval of the pipeline."),
}
"""Name -> field of the heartbeat, and help."""
_COUNTERS: Mapping[str, tuple[str, str]] = {
    "records": ("records_total", "Records read."),
    "sent_records": ("sent_records", "Records sent to Kafka."),
    "dropped_records": ("dropped_records", "Records that the topology has dropped, as Kafka Streams does."),
    "late_records": ("late_records", "Records too late for their window."),
    "lost_results": ("lost_results", "Final results that expired; only with `compatible_with_kafka`."),
    "dead_letters": ("dead_letters", "Records sent to the dead letter topic."),
    "restored_entries": ("restored_entries", "Entries of state that were read again."),
    "restore_seconds": ("restore_seconds", "How long tasks took for that, in sum."),
    "traces_dropped": ("traces_dropped", "Batches whose traces were not delivered."),
    "skipped_transactions": ("skipped_transactions", "Kafka transactions that an earlier attempt had committed."),
}
"""Likewise; they count from the start of the driver."""


class StreamMetrics(Collector):
    """Takes heartbeats, and shows the last one; batches are counted in histograms.

    Args:
        pipeline: the name of the pipeline, in all labels.
        home: how much of its disk is free is shown, too.
    """

    def __init__(self, pipeline: str, home: Path | None = None) -> None:
        self.registry = CollectorRegistry()
        self._pipeline, self._home = pipeline, home
        self._lock = threading.Lock()  # guards what follows
        self._beat: Heartbeat | None = None
        self._batches = Histogram(
            f"{PREFIX}batch_duration_seconds", "From the plan of a batch to its end.", ("pipeline",),
            buckets=_SECONDS, registry=self.registry,
        ).labels(pipeline)  # fmt: skip
        self._phases = Histogram(
            f"{PREFIX}batch_phase_duration_seconds",
            "Parts of a batch: `tasks` read, process and write; `tables` are committed; `after` that it is recorded.",
            ("pipeline", "phase"), buckets=_SECONDS, registry=self.registry,
        )  # fmt: skip
        self.registry.register(self)
        ProcessCollector(registry=self.registry)

    def take(self, beat: Heartbeat) -> None:
        """Takes a heartbeat; one that tells of a new batch is counted."""
        with self._lock:
            before, self._beat = self._beat, beat
        if beat.batch_id is not None and (before is None or before.batch_id != beat.batch_id):
            self._batches.observe(beat.batch_seconds)
            for phase, seconds in beat.batch_phases.items():
                self._phases.labels(self._pipeline, phase).observe(seconds)

    def collect(self) -> Iterator[Metric]:
        """What the last heartbeat says; numbers that it does not know are absent."""
        with self._lock:
            beat = self._beat
        if beat is None:
            return
        name = [self._pipeline]
        state = StateSetMetricFamily(f"{PREFIX}state", "What the driver does.", labels=["pipeline"])
        state.add_metric(name, {each: each == beat.state for each in STATES})
        yield state
        for metric, (field, text) in _GAUGES.items():
            if (value := getattr(beat, field)) is not None:
                yield self._gauge(metric, value, text)
        yield self._gauge(
            "stale_snapshots", len(beat.stale_snapshots), "Snapshots of KTables that do not show all changes yet."
        )
        yield from self._limits(beat.alerts)
        if self._home is not None:
            text = "Share of the disk of the home that is free, of its space or of its files."
            yield self._gauge("home_free_ratio", free_share(self._home), text)
        for metric, (field, text) in _COUNTERS.items():
            counter = CounterMetricFamily(f"{PREFIX}{metric}", text, labels=["pipeline"])
            counter.add_metric(name, getattr(beat, field))
            yield counter
        yield self._counted("store_openings", "how", beat.store_openings, "Local stores opened, and how.")
        requests = "Requests to the object store of the tables."
        yield self._counted("object_store_requests", "kind", beat.store_requests, requests)
        yield from self._durations("task_phase", "phase", beat.task_phases, "Parts of a task's batch.")
        ages = "Age of records by their timestamps when a stage had been reached."
        yield from self._durations("latency", "stage", beat.latency, ages)
        yield from self._stores(beat)
        told = "The last batch of which Spark has told, by its words."
        yield self._measured("spark_phase_seconds", "phase", beat.spark_phases, told)
        yield self._breakers(beat.call_outs)
        yield from self._tables(beat.tables, beat.at)
        yield self._by_partition("lag_records", beat.lag_by_partition, "Records that no committed batch covers.")
        yield self._by_partition("next_offset", beat.next_offsets, "The next offset after the last committed batch.")

    def _limits(self, alerts: Alerts) -> Iterator[Metric]:
        """The thresholds of the pipeline; one that is None is absent."""
        for metric, limit, text in (
            ("lag_seconds", alerts.lag, "From how far behind its topics on a stream has an incident."),
            ("batch_seconds", alerts.batch, "From how long without a batch on, while records wait."),
            ("dead_letters", alerts.dead_letters, "From how many dead letters within an hour on."),
            ("state_growth", alerts.state_growth, "From which multiple of the entries of a day before on."),
        ):
            if limit is not None:
                value = limit.total_seconds() if isinstance(limit, timedelta) else limit
                yield self._gauge(f"alert_{metric}", value, text)

    def _gauge(self, metric: str, value: float, text: str) -> Metric:
        gauge = GaugeMetricFamily(f"{PREFIX}{metric}", text, labels=["pipeline"])
        gauge.add_metric([self._pipeline], value)
        return gauge

    def _durations(self, metric: str, label: str, found: Mapping[str, Distribution], text: str) -> Iterator[Metric]:
        """A histogram, and the highest of the last batch."""
        histogram = HistogramMetricFamily(f"{PREFIX}{metric}_seconds", text, labels=["pipeline", label])
        for name, each in found.items():
            ends = map(floatToGoString, (*BOUNDS_S, math.inf))
            buckets = list(zip(ends, accumulate(each.counts), strict=True))
            histogram.add_metric([self._pipeline, name], buckets, each.sum_s)
        yield histogram
        highest = {name: each.highest_s for name, each in found.items()}
        yield self._measured(f"{metric}_highest_seconds", label, highest, f"{text} The highest of the last batch.")

    def _breakers(self, down: Mapping[str, str]) -> Metric:
        gauge = GaugeMetricFamily(
            f"{PREFIX}breaker_open", "Call-outs whose system counts as down.", labels=["pipeline", "call_out", "state"]
        )
        for call_out, breaker in down.items():
            gauge.add_metric([self._pipeline, call_out, breaker], 1)
        return gauge

    def _stores(self, beat: Heartbeat) -> Iterator[Metric]:
        sizes = beat.stores
        entries, size = ({name: getattr(each, of) for name, each in sizes.items()} for of in ("entries", "size_bytes"))
        yield self._measured("store_entries", "store", entries, "Entries of a state store, in all tasks.")
        yield self._measured("store_bytes", "store", size, "Bytes of its pages.")
        going_on = beat.restoring.values()
        yield self._gauge("restoring_tasks", len(going_on), "Tasks whose restore goes on and takes long.")
        for metric, number, text in (
            ("restoring_entries", sum(each.total for each in going_on), "Entries that these restores have to read."),
            ("restoring_entries_done", sum(each.done for each in going_on), "Those of them that they have read."),
        ):
            yield self._gauge(metric, number, text)

    def _tables(self, tables: Mapping[str, TableFacts], now_s: float) -> Iterator[Metric]:
        for metric, field, text in (
            ("table_rows", "rows", "Rows that were appended, updated or deleted."),
            ("table_commits", "commits", "Batches that have changed a table."),
            ("table_commit_seconds", "commit_seconds", "How long their commits took, in sum."),
        ):
            yield self._counted(metric, "table", {name: getattr(each, field) for name, each in tables.items()}, text)
        files = {name: each.files for name, each in tables.items()}
        yield self._measured("table_files", "table", files, "Files that a table consists of.")
        committed = {name: each.committed_at for name, each in tables.items() if each.committed_at is not None}
        yield self._measured("table_commit_timestamp_seconds", "table", committed, "Time of its last commit.")
        stale = {
            name: 0.0 if each.stale_since is None else max(0.0, now_s - each.stale_since)
            for name, each in tables.items()
        }
        yield self._measured(
            "table_stale_seconds",
            "table",
            stale,
            "How long it has lacked changes of its changelog, at most since its last refresh.",
        )

    def _measured(self, metric: str, label: str, values: Mapping[str, float], text: str) -> Metric:
        gauge = GaugeMetricFamily(f"{PREFIX}{metric}", text, labels=["pipeline", label])
        for name, value in values.items():
            gauge.add_metric([self._pipeline, name], value)
        return gauge

    def _counted(self, metric: str, label: str, counts: Mapping[str, float], text: str) -> Metric:
        found = CounterMetricFamily(f"{PREFIX}{metric}", text, labels=["pipeline", label])
        for kind, count in counts.items():
            found.add_metric([self._pipeline, kind], count)
        return found

    def _by_partition(self, metric: str, numbers: Mapping[str, Mapping[str, int]], text: str) -> Metric:
        found = GaugeMetricFamily(f"{PREFIX}{metric}", text, labels=["pipeline", "topic", "partition"])
        for topic, partitions in numbers.items():
            for partition, number in partitions.items():
                found.add_metric([self._pipeline, topic, partition], number)
        return found
