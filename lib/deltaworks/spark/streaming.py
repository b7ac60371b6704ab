"""Runs a pipeline live: one Structured Streaming query, whose driver commits the Delta tables batch by batch."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import Any

import msgspec
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from deltaworks import faults
from deltaworks.control import batches, fence, heartbeat, publication, set_aside, topics
from deltaworks.control.checkpoint import CheckpointPlan, open_plan
from deltaworks.control.heartbeat import Heartbeat, State
from deltaworks.control.lease import Lease
from deltaworks.control.paths import PipelinePaths
from deltaworks.control.reporter import Reporter, SilentReporter
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.errors import FencedError, KafkaReadError
from deltaworks.faults import reach
from deltaworks.files import replace_file
from deltaworks.kafka.ranges import Offsets
from deltaworks.lakehouse import succession
from deltaworks.lakehouse.committer import TableCommitter, TableOptions
from deltaworks.settings import Settings
from deltaworks.spark import failures, handover, session
from deltaworks.spark import rows as row_kinds
from deltaworks.spark.checkpoint import committed_offsets
from deltaworks.spark.routes import Routes
from deltaworks.spark.rows import BatchPlan, TaskResult
from deltaworks.spark.source import TICK, KafkaRanges, KafkaRangesReader, SourceConfig, offsets_option, source_config
from deltaworks.spark.task_host import TaskHost
from deltaworks.spark.worker import HostConfig
from deltaworks.topology.stages import Plan

_IDLE_BEAT_S = 1.0
_POLL_S = 0.1
_QUIET_S = 3.0
"""A stream without records for so long brings its snapshots up to date."""

_Handler = Callable[[int, FrameType | None], Any] | int | None


def request_stop(settings: Settings, name: str) -> None:
    """Asks the running generation to finish its batch, refresh its snapshots and stop."""
    paths = PipelinePaths.of(settings, name)
    paths.root.mkdir(parents=True, exist_ok=True)
    paths.drain(fence.read(paths.fence)).touch()


def run(
    pipeline: Pipeline,
    settings: Settings,
    *,
    until_caught_up: bool = False,
    finish_batch: bool = False,
    generation: int | None = None,
    reporter: Reporter | None = None,
) -> None:
    """Runs the pipeline until it is told to stop, or fails.

    Args:
        pipeline: What to run.
        settings: Home, bootstrap servers, cores and memory.
        until_caught_up: Stop after everything that is in the topics now has been processed.
        finish_batch: Stop after the batch that an earlier driver has left unfinished, if there is one.
        generation: Number of this deployment; None: the next one.
        reporter: Told of beats and batches, asked for commands; None: nobody.

    Raises:
        LeaseError: another driver runs this pipeline.
        FencedError: a newer generation has taken over.
        IncompatibleCheckpointError: the checkpoint belongs to another plan.
        TopologyError: the topology, or the partitions of its topics, do not fit.
        StreamsError: a record failed, and the pipeline says fail.
        QueryError: Spark ended the query for a reason of its own.
    """
    faults.install(settings.fault_hook)
    paths = PipelinePaths.of(settings, pipeline.name)
    if generation is None:
        generation = fence.read(paths.fence) + 1
    with Lease(paths.lease, pipeline.name, generation) as lease:
        fence.advance(paths.fence, generation, pipeline.name)
        handover.settle(paths)
        succession.require_settled(paths.handovers)
        handover.expire(paths, time.time() - TableOptions().keep_releases_ms / 1000)
        shutil.rmtree(paths.scratch, ignore_errors=True)
        pipeline = set_aside.applied(paths, pipeline)
        driver = StreamDriver(pipeline, settings, paths, lease, generation, reporter or SilentReporter())
        if finish_batch:
            driver.plan_nothing()
        driver.run(until_caught_up=until_caught_up or finish_batch)


@dataclass
class _Totals:
    """Sums since this driver started, and the latest per task."""

    records: int = 0
    dropped: int = 0
    late: int = 0
    dead_letters: int = 0
    skipped_transactions: int = 0
    openings: dict[str, int] = field(default_factory=dict)
    stream_time_ms: dict[str, int] = field(default_factory=dict)
    state_entries: dict[str, int] = field(default_factory=dict)
    next_offsets: dict[str, dict[str, int]] = field(default_factory=dict)
    next_ticks_ms: dict[str, int | None] = field(default_factory=dict)

    def add(self, plan: BatchPlan) -> None:
        self.records += sum(r.stop - r.start for r in plan.ranges)
        for r in plan.ranges:
            self.next_offsets.setdefault(r.topic, {})[str(r.partition)] = r.stop

    def add_task(self, result: TaskResult) -> None:
        counts, name = result.counts, f"{result.stage}-{result.task}"
        self.dropped += counts.dropped
        self.late += counts.late
        self.dead_letters += counts.dead_letters
        self.skipped_transactions += result.skipped_transaction
        self.openings[result.opened] = self.openings.get(result.opened, 0) + 1
        self.stream_time_ms[name] = counts.stream_time_ms
        self.state_entries[name] = counts.state_entries
        self.next_ticks_ms[name] = counts.next_tick_ms


class StreamDriver:
    """One run of one pipeline."""

    def __init__(
        self,
        pipeline: Pipeline,
        settings: Settings,
        paths: PipelinePaths,
        lease: Lease,
        generation: int,
        reporter: Reporter,
    ) -> None:
        self._pipeline = pipeline
        self._settings = settings
        self._paths = paths
        self._lease = lease
        self._generation = generation
        self._reporter = reporter
        self._drain = paths.drain(generation)
        self._finishing = False
        self._plan = pipeline.plan()
        self._totals = _Totals()
        self._ends: Offsets = {}
        """Where the source topics end, as far as is known."""
        self._ticked = False
        self._stop = threading.Event()
        self._beat = Heartbeat(
            pipeline=pipeline.name,
            generation=generation,
            query_id="",
            state="starting",
            pid=os.getpid(),
            at=time.time(),
        )
        self._beat_lock = threading.Lock()
        self._committing = threading.Lock()
        self._batch_ended = time.monotonic()

    def plan_nothing(self) -> None:
        """No batch follows the one that is open."""
        self._finishing, self._drain = True, self._paths.finishing(self._generation)
        self._drain.touch()

    def run(self, *, until_caught_up: bool) -> None:
        try:
            self._write_beat("starting")
            checkpoint = self._open_checkpoint()
            committer = self._open_tables(checkpoint)
            with self._session(checkpoint) as spark:
                self._run_query(spark, checkpoint, committer, until_caught_up=until_caught_up)
        except BaseException as error:
            with suppress(FencedError):  # then the heartbeat is the newer generation's
                self._write_beat("failed", error=str(error))
            raise
        finally:
            self._drain.unlink(missing_ok=True)
            self._reporter.close()

    def _open_checkpoint(self) -> CheckpointPlan:
        self._topics = topics.prepare(self._settings.bootstrap, self._pipeline, self._plan)
        tasks = self._plan.tasks(self._topics.read)
        fingerprint, cores = self._plan.fingerprint(), self._settings.cores
        checkpoint = open_plan(self._paths.plan, self._pipeline.name, fingerprint, self._topics.named, tasks, cores)
        self._beat = msgspec.structs.replace(self._beat, query_id=checkpoint.query_id)
        return checkpoint

    def _open_tables(self, checkpoint: CheckpointPlan) -> TableCommitter:
        committer = TableCommitter(
            self._settings.tables,
            self._pipeline.name,
            checkpoint.query_id,
            self._plan.tables,
            self._pipeline.dead_letter_table,
            archives=self._pipeline.archives(self._plan).tables,
        )
        committer.open(self._generation)
        return committer

    @contextmanager
    def _session(self, checkpoint: CheckpointPlan) -> Iterator[SparkSession]:
        settings = self._settings
        spark = session.build(
            f"deltaworks-{self._pipeline.name}",
            cores=settings.cores,
            partitions=Routes.of(self._plan, checkpoint.tasks, checkpoint.slots).partitions,
            driver_memory=settings.driver_memory,
            scratch=self._paths.scratch,
            python_path=os.pathsep.join(map(str, settings.python_path)),
        )
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        self._lease.owns_jvm(gateway.proc.pid)
        spark.dataSource.register(KafkaRanges)
        try:
            yield spark
        finally:
            spark.stop()

    def _run_query(
        self, spark: SparkSession, checkpoint: CheckpointPlan, committer: TableCommitter, *, until_caught_up: bool
    ) -> None:
        self._paths.next_tick.unlink(missing_ok=True)
        frame = self._dataflow(spark, checkpoint)
        offsets = committed_offsets(self._paths.checkpoint) or self._planner.initialOffset()
        self._totals.next_offsets = {topic: parts for topic, parts in offsets.items() if topic != TICK}
        writer = (
            frame.writeStream.queryName(self._pipeline.name)
            .outputMode("update")
            .option("checkpointLocation", str(self._paths.checkpoint))
            .foreachBatch(partial(self._commit_batch, committer, checkpoint.first_batch))
        )
        interval = f"{self._pipeline.trigger_interval.total_seconds()} seconds"
        query = (
            writer.trigger(availableNow=True) if until_caught_up else writer.trigger(processingTime=interval)
        ).start()
        self._write_beat("running")
        handlers = self._handle_signals()
        try:
            self._supervise(query, committer)
        except StreamingQueryException as error:
            raise failures.as_error(error) from error
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        committer.refresh_snapshots(force=True)
        committer.close()
        self._beat = msgspec.structs.replace(self._beat, stale_snapshots=[])
        self._write_beat("stopped")

    def _dataflow(self, spark: SparkSession, checkpoint: CheckpointPlan) -> DataFrame:
        """Source of ranges, then one stateful operator per stage, or one for all; the plan is a straight line."""
        routing = Routes.of(self._plan, checkpoint.tasks, checkpoint.slots)
        routes = routing.by_task()
        source = msgspec.structs.replace(self._source(routing), goes_on_at=checkpoint.start or {})
        self._planner = KafkaRangesReader(source)
        config = HostConfig(
            pipeline=cloudpickle.dumps(self._pipeline),  # type: ignore[no-untyped-call]
            bootstrap=self._settings.bootstrap,
            query_id=checkpoint.query_id,
            generation=self._generation,
            fence=str(self._paths.fence),
            local_root=str(self._paths.local),
            tables_root=str(self._settings.tables),
            tasks=checkpoint.tasks,
            hop_partitions=self._plan.hop_partitions(self._topics.read),
            marker_topic=_marker_topic(self._pipeline, self._plan),
            first_batch=checkpoint.first_batch,
            seed=None if checkpoint.seed is None else str(self._paths.line.root / checkpoint.seed),
            fault_hook=self._settings.fault_hook,
        )
        frame = (
            spark.readStream.format("kafka_ranges")
            .options(**offsets_option(source))
            .load()
            .withColumn("wall_ms", F.unix_millis(F.current_timestamp()))
            .select("route", "stage", "task", "kind", "payload", "wall_ms", "position")
        )
        for operator in routing.operators:
            host = TaskHost(config, operator, routes)
            frame = frame.groupBy("route").transformWithState(host, row_kinds.SCHEMA, "Update", "None")
        return frame

    def _source(self, routing: Routes) -> SourceConfig:
        partitions = self._topics.read | self._topics.whole
        files = {"drain_file": self._drain, "tick_file": self._paths.next_tick}
        return source_config(self._pipeline, self._plan, self._settings, partitions, routing, **files)

    def _commit_batch(self, committer: TableCommitter, first_batch: int, frame: DataFrame, spark_batch: int) -> None:
        """`foreachBatch`: the one action that runs the tasks, then one Delta commit per table."""
        started, batch_id = time.monotonic(), first_batch + spark_batch
        reach("driver.before_tasks")
        fence.check(self._paths.fence, self._generation, self._pipeline.name)
        rows = frame.collect()
        reach("driver.after_tasks")
        results = [msgspec.msgpack.decode(r.payload, type=TaskResult) for r in rows if r.kind == row_kinds.RESULT]
        planned = next((row for row in rows if row.kind == row_kinds.BATCH), None)
        if planned is None:  # the first batch of a query runs even if the source has nothing for it
            wall_ms, plan = time.time_ns() // 1_000_000, BatchPlan([], tick=False)
        else:
            wall_ms, plan = planned.wall_ms, msgspec.msgpack.decode(planned.payload, type=BatchPlan)
        with self._committing:
            committer.commit(batch_id, [write for result in results for write in result.writes])
            reach("driver.after_tables")
            committer.refresh_snapshots()
        record = batches.record_of(batch_id, wall_ms, plan.ranges, tick=plan.tick)
        fence.check(self._paths.fence, self._generation, self._pipeline.name)
        batches.append(self._paths.batches, record)
        self._reporter.batch(record, self._beat.query_id)
        self._totals.add(plan)
        self._ticked = self._ticked or plan.tick
        for result in results:
            self._totals.add_task(result)
        self._plan_next_tick()
        self._after_batch(committer, batch_id, sum(r.counts.records_in for r in results), time.monotonic() - started)
        reach("driver.end")

    def _plan_next_tick(self) -> None:
        """Tells the source, which lives in another process; what is missing is due now."""
        if not self._ticked:
            return  # not every task has said when it wants to run
        due_ms = [each for each in self._totals.next_ticks_ms.values() if each is not None]
        replace_file(self._paths.next_tick, str(min(due_ms, default="never")).encode())

    def _after_batch(self, committer: TableCommitter, batch_id: int, records: int, seconds: float) -> None:
        self._batch_ended = time.monotonic()
        self._beat = msgspec.structs.replace(
            self._beat,
            batch_id=batch_id,
            batch_seconds=seconds,
            records_per_second=records / max(seconds, 1e-9),
            stale_snapshots=committer.stale_snapshots,
        )
        self._write_beat(self._beat.state)

    def _supervise(self, query: StreamingQuery, committer: TableCommitter) -> None:
        """Waits for the end of the query; beats while it idles, drains when told to."""
        last_beat = time.monotonic()
        while query.isActive:
            if self._stop.is_set() or self._reporter.asked_to_drain():
                self._drain.touch()
                self._stop.clear()
            if self._drain.exists() and self._beat.state != "draining" and not self._finishing:
                self._write_beat("draining")
            if self._beat.state == "draining" and not query.status["isTriggerActive"]:
                query.stop()
                break
            self._obey(committer)
            if time.monotonic() - last_beat >= _IDLE_BEAT_S:
                self._measure_lag()
                if time.monotonic() - self._batch_ended > _QUIET_S:
                    self._refresh_snapshots(committer)
                self._write_beat(self._beat.state)
                last_beat = time.monotonic()
            query.awaitTermination(_POLL_S)  # type: ignore[arg-type]  # parts of a second work
        query.awaitTermination()
        error = query.exception()
        if error is not None:
            raise error

    def _obey(self, committer: TableCommitter) -> None:
        """Publishes and rolls back, between the commits of two batches."""
        by = f"generation {self._generation}"
        publication.carry_out(self._paths, self._pipeline.name, committer, self._committing, self._generation, by=by)

    def _refresh_snapshots(self, committer: TableCommitter) -> None:
        with self._committing:
            committer.refresh_snapshots(eager=True)
        self._beat = msgspec.structs.replace(self._beat, stale_snapshots=committer.stale_snapshots)

    def _measure_lag(self) -> None:
        """Asks where the topics end; a broker that does not answer leaves the lag unknown."""
        with suppress(KafkaReadError):
            self._ends = self._planner.end_offsets(timeout_s=0.0)
            return
        self._ends = {}

    def _handle_signals(self) -> Mapping[int, _Handler]:
        """SIGTERM and SIGINT drain."""

        def stop(number: int, frame: FrameType | None) -> None:
            self._stop.set()

        return {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}

    def _write_beat(self, state: State, error: str | None = None) -> None:
        totals = self._totals
        lag = {
            topic: {p: max(0, end - totals.next_offsets.get(topic, {}).get(p, 0)) for p, end in parts.items()}
            for topic, parts in self._ends.items()
        }
        with self._beat_lock:
            self._beat = msgspec.structs.replace(
                self._beat,
                state=state,
                at=time.time(),
                error=error,
                records_total=totals.records,
                lag_by_partition=lag,
                lag_records=sum(sum(parts.values()) for parts in lag.values()) if lag else None,
                next_offsets=totals.next_offsets,
                stream_time_ms=totals.stream_time_ms,
                dropped_records=totals.dropped,
                late_records=totals.late,
                dead_letters=totals.dead_letters,
                state_entries=sum(totals.state_entries.values()),
                store_openings=totals.openings,
                skipped_transactions=totals.skipped_transactions,
            )
            self._paths.root.mkdir(parents=True, exist_ok=True)
            with fence.held(self._paths.fence, self._generation, self._pipeline.name):
                heartbeat.write(self._paths.heartbeat, self._beat)
        self._reporter.beat(self._beat)


def _marker_topic(pipeline: Pipeline, plan: Plan) -> str | None:
    """An existing topic; nothing is written to it."""
    return next(iter((*topics.output_topics(pipeline, plan), *plan.source_topics)), None)
