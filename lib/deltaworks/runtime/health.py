"""The health of a stream: what its driver counts and reports in the heartbeat beside its checkpoint."""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import msgspec

from deltaworks import clock
from deltaworks.clock import Sign
from deltaworks.control import call_outs, fence, heartbeat, restores, task_notes
from deltaworks.control.distribution import Distribution, extended
from deltaworks.control.heartbeat import Heartbeat, State, StoreSize, TableFacts
from deltaworks.control.intents import Intent
from deltaworks.control.paths import PipelinePaths
from deltaworks.control.reporter import Reporter
from deltaworks.kafka.ranges import Offsets, of_topics
from deltaworks.object_path import ObjectPath, take_requests
from deltaworks.runtime.messages import TaskResult
from deltaworks.runtime.state.recovery import TELL_EVERY_S
from deltaworks.topology.alerts import USUAL, Alerts

_RATE_WINDOW_S = 60.0
_LAG_SAMPLES = 512
_LAG_EVERY_S = 1.0
_SPARK_TELLS_S = 5.0
"""Soon after a batch, Spark tells how long it took; later it only tells that it idles."""
_log = logging.getLogger(__name__)


class Rate:
    """The records per second that a stream has processed over the last minute; after an idle minute, it is 0.

    A stream that has run for less than a minute is measured over its running time.
    """

    def __init__(self, ticks_s: Callable[[], float] = clock.ticks_s) -> None:
        self._ticks_s = ticks_s
        self._begun = ticks_s()
        self._batches: deque[tuple[float, int]] = deque()
        """The end and the number of records of each batch."""
        self._records = 0

    def add(self, records: int) -> None:
        """Adds a batch that has just ended."""
        self._batches.append((self._ticks_s(), records))
        self._records += records

    def per_second(self) -> float:
        """The current rate."""
        now = self._ticks_s()
        while self._batches and self._batches[0][0] <= now - _RATE_WINDOW_S:
            self._records -= self._batches.popleft()[1]
        return self._records / max(min(now - self._begun, _RATE_WINDOW_S), 1.0)


class Lag:
    """The lag of a stream in time: how long ago its topics ended at its current position.

    Timestamps of records say when an event happened, not when it was written. So the ends of the topics are remembered
    with the time when they were seen, more coarsely the longer the stream takes to reach them.
    """

    def __init__(self, ticks_s: Callable[[], float] = clock.ticks_s) -> None:
        self._ticks_s = ticks_s
        self._seen: list[tuple[float, Offsets]] = []
        self._every_s = _LAG_EVERY_S

    def see(self, ends: Offsets) -> None:
        """Records where the topics end now."""
        now = self._ticks_s()
        if len(self._seen) > 1 and now - self._seen[-2][0] < self._every_s:
            self._seen.pop()  # the last one is always the current one
        self._seen.append((now, ends))
        if len(self._seen) > _LAG_SAMPLES:
            self._seen = [*self._seen[:-1:2], self._seen[-1]]
            self._every_s *= 2

    def seconds(self, position: Offsets) -> float | None:
        """How long ago the topics ended at a position: 0 if they still do; None if no end was ever seen.

        For a position that the topics had passed before the first look, it is the time since that look.
        """
        if not self._seen:
            return None
        passed = next((n for n, (_, ends) in enumerate(self._seen) if not _reached(ends, position)), len(self._seen))
        caught_up = passed == len(self._seen)
        self._seen = self._seen[max(0, passed - 1) :]
        if caught_up:
            self._every_s = _LAG_EVERY_S
            return 0.0
        return self._ticks_s() - self._seen[0][0]


@dataclass
class _Totals:
    """Sums since this driver started, and the latest values per task."""

    records: int = 0
    dropped: int = 0
    late: int = 0
    lost_results: int = 0
    dead_letters: int = 0
    skipped_transactions: int = 0
    openings: dict[str, int] = field(default_factory=dict)
    requests: Counter[str] = field(default_factory=Counter)
    restored_entries: int = 0
    restore_s: float = 0.0
    sent: int = 0
    task_phases: dict[str, Distribution] = field(default_factory=dict)
    latency: dict[str, Distribution] = field(default_factory=dict)
    stores: dict[str, dict[str, tuple[int, int]]] = field(default_factory=dict)
    """Of each task: store -> entries and bytes."""
    tables: dict[str, TableFacts] = field(default_factory=dict)
    stream_time_ms: dict[str, int] = field(default_factory=dict)
    next_offsets: dict[str, dict[str, int]] = field(default_factory=dict)
    next_ticks_ms: dict[str, int | None] = field(default_factory=dict)

    def add(self, intent: Intent) -> None:
        self.records += intent.records
        for r in intent.ranges:
            self.next_offsets.setdefault(r.topic, {})[str(r.partition)] = r.stop

    def add_task(self, result: TaskResult) -> None:
        counts, name = result.counts, f"{result.stage}-{result.task}"
        self.dropped += counts.dropped
        self.late += counts.late
        self.lost_results += counts.lost_results
        self.dead_letters += counts.dead_letters
        self.skipped_transactions += result.skipped_transaction
        self.openings[result.recovery] = self.openings.get(result.recovery, 0) + 1
        self.stream_time_ms[name] = counts.stream_time_ms
        self.next_ticks_ms[name] = counts.next_tick_ms
        self.requests.update(counts.requests)
        self.restored_entries += counts.restored_entries
        self.restore_s += counts.restore_s
        self.sent += counts.sent
        self.stores[name] = counts.stores

    def add_durations(self, results: Collection[TaskResult], visible_ms: int) -> None:
        """Adds what a batch took; tables have shown it at `visible_ms`."""
        counts = [result.counts for result in results]
        phases = {phase for each in counts for phase in each.phases}
        took = {phase: [(each.phases[phase], 1) for each in counts if phase in each.phases] for phase in phases}
        self.task_phases = extended(self.task_phases, took)
        ends = {
            "processed": max((each.processed_ms for each in counts), default=0),
            "committed": max((each.committed_ms for each in counts), default=0),
            "visible": visible_ms,
        }
        arrivals = [arrival for each in counts for arrival in each.arrivals]
        ages = {"read": [((each.read_ms - each.timestamp_ms) / 1_000, each.records) for each in arrivals]}
        for stage, end_ms in ends.items():
            ages[stage] = [((end_ms - each.timestamp_ms) / 1_000, each.records) for each in arrivals]
        if arrivals:
            self.latency = extended(self.latency, ages)

    def store_sizes(self) -> dict[str, StoreSize]:
        """All tasks together."""
        found: dict[str, StoreSize] = {}
        for stores in self.stores.values():
            for name, (entries, size_bytes) in stores.items():
                known = found.get(name, StoreSize())
                found[name] = StoreSize(entries=known.entries + entries, size_bytes=known.size_bytes + size_bytes)
        return dict(sorted(found.items()))


class Health:
    """The health of one driver. A separate thread may also write the heartbeat.

    Args:
        paths: paths of the pipeline.
        name: name of the pipeline.
        generation: generation of the driver; the heartbeat belongs to the newest one.
        reporter: gets the same reports.
        alerts: the thresholds of the pipeline, for whoever reads the heartbeat.
        interval_s: its trigger interval, likewise.
    """

    def __init__(
        self,
        paths: PipelinePaths,
        name: str,
        generation: int,
        reporter: Reporter,
        alerts: Alerts = USUAL,
        interval_s: float | None = None,
    ) -> None:
        self._paths, self._name, self._generation, self._reporter = paths, name, generation, reporter
        self._totals = _Totals()
        self._rate = Rate()
        self._lag = Lag()
        self._ends: Offsets = {}
        """Where the source topics end, as far as known."""
        self._beat = Heartbeat(
            pipeline=name,
            generation=generation,
            query_id="",
            state="starting",
            pid=os.getpid(),
            at=clock.wall_s(),
            interval_s=interval_s,
            alerts=alerts,
        )
        self._begun = self._batch_ended = clock.ticks_s()
        self._told_by_spark: int | None = None
        self._lock = threading.Lock()
        """The batch and whoever waits for it change the heartbeat, and what it is made of; readers have copies."""

    @property
    def state(self) -> State:
        """What it has said last."""
        return self._beat.state

    @property
    def query_id(self) -> str:
        """The query id of the checkpoint."""
        return self._beat.query_id

    @property
    def quiet_s(self) -> float:
        """Seconds since the last batch ended."""
        return clock.ticks_s() - self._batch_ended

    @property
    def next_tick_ms(self) -> int | None:
        """When the first task has something to do without records; None: no task has anything to do."""
        return min((each for each in self._totals.next_ticks_ms.values() if each is not None), default=None)

    def begin(self, query_id: str, tasks: int = 0) -> None:
        """Takes the query id and the number of tasks, once the checkpoint is known."""
        task_notes.clear(self._paths.call_outs)
        task_notes.clear(self._paths.restores)
        self._change(query_id=query_id, tasks=tasks)

    def goes_on_at(self, offsets: Offsets) -> None:
        """Takes the offsets that earlier drivers have read up to."""
        self._totals.next_offsets = of_topics(offsets)

    def add(self, intent: Intent, results: Collection[TaskResult], *, visible_ms: int | None = None) -> None:
        """A batch is committed.

        Args:
            intent: of the batch.
            results: of its tasks.
            visible_ms: when its tables were committed, on the wall clock; None: now.
        """
        with self._lock:
            self._totals.add(intent)
            self._totals.add_durations(results, clock.wall_ms() if visible_ms is None else visible_ms)
            for result in results:
                self._totals.add_task(result)
        for result in results:
            if (took_s := result.counts.restore_s) >= TELL_EVERY_S:
                restored = result.counts.restored_entries
                _log.info(
                    "batch %d, task %d-%d: %s entries restored in %.0f s",
                    intent.batch,
                    result.stage,
                    result.task,
                    f"{restored:,}",
                    took_s,
                )
            if lost := result.counts.lost_results:
                _log.warning(
                    "batch %d, task %d-%d: %d final results are lost, as in Kafka Streams: stream time went further "
                    "than their store keeps windows. A longer retention= keeps them; so does the pipeline without "
                    "compatible_with_kafka=True, with a new checkpoint.",
                    intent.batch,
                    result.stage,
                    result.task,
                    lost,
                )

    def batch_ended(self, batch_id: int, records: int, phases: Mapping[str, float], stale_snapshots: list[str]) -> None:
        """Says so.

        Args:
            batch_id: id of the batch.
            records: how many it has read from Kafka, exchanged ones not again: `Intent.records`.
            phases: seconds of its parts, see `Heartbeat.batch_phases`.
            stale_snapshots: of KTables, which do not show it yet.
        """
        self._batch_ended = clock.ticks_s()
        with self._lock:
            self._rate.add(records)
        self.snapshots(stale_snapshots)
        self._change(batch_id=batch_id, batch_seconds=sum(phases.values()), batch_phases=dict(phases))
        self.write(self.state)

    def tables(self, changed: Mapping[str, tuple[int, float]], files: Mapping[str, int]) -> None:
        """Takes what a batch has done to tables.

        Args:
            changed: table -> rows that were changed, and how many seconds the commit took.
            files: table -> the number of its files now.
        """
        now_s = clock.wall_s()
        with self._lock:
            for name, number in files.items():
                known = self._totals.tables.get(name, TableFacts())
                self._totals.tables[name] = msgspec.structs.replace(known, files=number)
            for name, (rows, took_s) in changed.items():
                table = self._totals.tables.get(name, TableFacts())
                self._totals.tables[name] = msgspec.structs.replace(
                    table,
                    rows=table.rows + rows,
                    commits=table.commits + 1,
                    commit_seconds=table.commit_seconds + took_s,
                    committed_at=now_s,
                    stale_since=None,  # of a snapshot: what it lacks from now on is newer
                )

    def snapshots(self, stale: list[str]) -> None:
        """Takes the snapshots that are behind their changelogs."""
        now_s, tables = clock.wall_s(), self._totals.tables
        with self._lock:
            for name, table in tables.items():
                since = (table.stale_since or now_s) if name in stale else None
                tables[name] = msgspec.structs.replace(table, stale_since=since)
        self._change(stale_snapshots=stale)

    @property
    def waits_for_spark(self) -> bool:
        """Whether a batch has just ended of which Spark has not told how long it took."""
        told = self._beat.batch_id in (None, self._told_by_spark)
        return not told and self.quiet_s < _SPARK_TELLS_S

    def spark_batch(self, batch_id: int, phases: Mapping[str, float]) -> None:
        """Takes how many seconds the parts of a batch took, as Spark says."""
        self._told_by_spark = batch_id
        self._change(spark_phases=dict(phases))

    def traces(self, dropped: int) -> None:
        """Takes how many batches have no trace though they should."""
        if dropped != self._beat.traces_dropped:
            self._change(traces_dropped=dropped)

    def see_ends(self, ends: Offsets) -> None:
        """Takes where the topics end now; empty: unknown."""
        self._ends = ends
        if ends:
            self._lag.see(ends)

    def write(self, state: State, error: str | None = None) -> None:
        """Writes the heartbeat.

        Raises:
            FencedError: a newer generation has written the heartbeat.
        """
        totals = self._totals
        with self._lock:
            totals.requests.update(take_requests())
            next_offsets = {topic: dict(parts) for topic, parts in totals.next_offsets.items()}
            stores = totals.store_sizes()
            lag = {
                topic: {p: max(0, end - next_offsets.get(topic, {}).get(p, 0)) for p, end in parts.items()}
                for topic, parts in self._ends.items()
            }
            self._beat = msgspec.structs.replace(
                self._beat,
                state=state,
                at=clock.wall_s(),
                sign=Sign.now(),
                up_s=clock.ticks_s() - self._begun,
                quiet_s=self.quiet_s,
                error=error,
                records_total=totals.records,
                records_per_second=self._rate.per_second(),
                lag_by_partition=lag,
                lag_seconds=self._lag.seconds(next_offsets) if lag else None,
                lag_records=sum(sum(parts.values()) for parts in lag.values()) if lag else None,
                next_offsets=next_offsets,
                stream_time_ms=dict(totals.stream_time_ms),
                dropped_records=totals.dropped,
                late_records=totals.late,
                lost_results=totals.lost_results,
                dead_letters=totals.dead_letters,
                state_entries=sum(each.entries for each in stores.values()),
                store_openings=dict(totals.openings),
                restored_entries=totals.restored_entries,
                restore_seconds=totals.restore_s,
                skipped_transactions=totals.skipped_transactions,
                store_requests=dict(totals.requests),
                call_outs=call_outs.states(self._paths.call_outs),
                sent_records=totals.sent,
                task_phases=totals.task_phases,
                latency=totals.latency,
                stores=stores,
                tables=dict(totals.tables),
                restoring=dict(restores.going_on(self._paths.restores)),
            )
            self._paths.root.mkdir(parents=True, exist_ok=True)
            with self._admitted():
                heartbeat.write(self._paths.heartbeat, self._beat)
        self._reporter.beat(self._beat)

    def _change(self, **fields: object) -> None:
        with self._lock:
            self._beat = msgspec.structs.replace(self._beat, **fields)

    def _admitted(self) -> AbstractContextManager[None]:
        """The heartbeat is this machine's. A fence in an object store is not asked for it: it costs a request."""
        if isinstance(self._paths.fence, ObjectPath):
            return nullcontext()
        return fence.held(self._paths.fence, self._generation, self._name)


def _reached(ends: Offsets, position: Offsets) -> bool:
    return all(
        position.get(topic, {}).get(partition, 0) >= end
        for topic, partitions in ends.items()
        for partition, end in partitions.items()
    )
