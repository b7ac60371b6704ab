"""Runs a pipeline live: one Structured Streaming query, whose driver commits the Delta tables batch by batch."""

from __future__ import annotations

import logging
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import Any

import msgspec
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from deltaworks import clock, disk, faults, processes
from deltaworks.control import (
    accepted,
    batches,
    children,
    cluster,
    fence,
    jobs,
    next_tick,
    opening,
    place,
    set_aside,
    table_commands,
    topics,
)
from deltaworks.control.beating import Beating
from deltaworks.control.checkpoint import CheckpointPlan, stored_plan
from deltaworks.control.children import ToldToStopError
from deltaworks.control.intents import Intent, token
from deltaworks.control.lease import Lease
from deltaworks.control.paths import PipelinePaths
from deltaworks.control.reporter import Reporter, SilentReporter
from deltaworks.control.served import Announcer, Place
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.errors import FencedError, KafkaReadError, TransientError
from deltaworks.faults import reach
from deltaworks.kafka import admin
from deltaworks.kafka.ranges import Offsets
from deltaworks.lakehouse.committer import TableCommit, TableCommitter, TableOptions
from deltaworks.lakehouse.publish import ownership
from deltaworks.lakehouse.snapshots import SnapshotRefresh
from deltaworks.object_path import ObjectPath
from deltaworks.runtime import messages
from deltaworks.runtime.batches import oversized, sizes
from deltaworks.runtime.batches.sizes import RecordSizes
from deltaworks.runtime.health import Health
from deltaworks.runtime.messages import BatchHeader, TaskResult
from deltaworks.runtime.state.store_process import StoreServing
from deltaworks.runtime.worker import HostConfig
from deltaworks.settings import Settings
from deltaworks.spark import class_data, failures, forking, handover, s3a, session, widening
from deltaworks.spark.beginning import Beginning, Begun
from deltaworks.spark.checkpoint import committed_offsets
from deltaworks.spark.checkpoint_in_store import FolderExpiry
from deltaworks.spark.checkpoint_sync import CheckpointSync
from deltaworks.spark.cluster import Executors, sent
from deltaworks.spark.forking import ForkServer
from deltaworks.spark.routes import Routes
from deltaworks.spark.source import KafkaRanges, KafkaRangesReader, SourceConfig, offsets_option, source_config
from deltaworks.spark.task_host import TaskHost
from deltaworks.topology import rescaling
from deltaworks.traces.figures import BatchFigures
from deltaworks.traces.tracer import NoTracer, Tracer

_log = logging.getLogger(__name__)
_IDLE_BEAT_S = 1.0
_POLL_S = 0.1
_QUIET_S = 3.0
"""A stream that has had no records for so long refreshes its snapshots."""

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
    take_over: bool = False,
    generation: int | None = None,
    reporter: Reporter | None = None,
    tracer: Tracer | None = None,
) -> None:
    """Runs the pipeline until it is told to stop, or fails.

    Args:
        pipeline: What to run.
        settings: Home, bootstrap servers, cores and memory.
        until_caught_up: Stop once everything that is in the topics now has been processed.
        finish_batch: Stop after the batch that an earlier driver has left unfinished, if there is one.
        take_over: Also if the pipeline belongs to another home at this Kafka.
        generation: Number of this deployment; None: the next one.
        reporter: Gets heartbeats and batches, and supplies commands; None: nobody.
        tracer: Gets what batches took; None: nobody.

    Raises:
        LeaseError: another driver runs this pipeline.
        FencedError: a newer generation has taken over.
        IncompatibleCheckpointError: the checkpoint belongs to another plan.
        IntentError: the outputs hold another batch under a batch id than this stream.
        TopologyError: the topology does not fit, or the partitions of its topics do not.
        StreamsError: a record failed, and the pipeline's error policy is to fail.
        QueryError: Spark ended the query for a reason of its own.
    """
    processes.show_stacks_on_signal()
    faults.install(settings.fault_hook)
    settings = replace(settings, cores=pipeline.shards(settings.cores))
    paths = PipelinePaths.of(settings, pipeline.name)
    place.note(settings, pipeline.name)
    if generation is None:
        generation = fence.read(paths.fence) + 1
    while True:
        with disk.told(paths.root), Lease(paths.lease, pipeline.name, generation) as lease:
            fence.advance(paths.fence, generation, pipeline.name)
            handover.settle(paths)
            ownership.require_settled(paths.handovers)
            handover.expire(paths, (clock.cautious_ms() - TableOptions().keep_retained_ms) / 1000)
            shutil.rmtree(paths.scratch, ignore_errors=True)
            pipeline = set_aside.applied(paths, pipeline)
            with forking.serving(f"deltaworks: Python of {pipeline.name}", settings.joined_python_path) as forks:
                lease.owns(forks=forks.pid)
                reporter = reporter or SilentReporter()
                driver = StreamDriver(pipeline, settings, paths, lease, generation, reporter, forks, tracer)
                first = driver.run(until_caught_up=until_caught_up, finish_batch=finish_batch, take_over=take_over)
        if first is None or not opening.finish_with(settings, pipeline.name, generation, first):
            return


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
        forks: ForkServer,
        tracer: Tracer | None = None,
    ) -> None:
        self._forks = forks
        self._tracer = tracer or NoTracer()
        self._figures: BatchFigures | None = None
        """Of the batch in process."""
        self._pipeline = pipeline
        self._settings = settings
        self._paths = paths
        self._lease = lease
        self._generation = generation
        self._reporter = reporter
        self._current = paths.current
        """Stays as it is once it has begun."""
        self._drain = paths.drain(generation)
        self._plan = pipeline.plan()
        self._cluster = settings.cluster_of(pipeline.name)
        self._elsewhere = cluster.of(settings, pipeline.name) is not None
        """Tasks run on other machines."""
        self._announcer: Announcer | None = None
        """Tells readers of stores what they cannot see on this machine."""
        self._code = "" if settings.code is None else settings.code.name
        self._planned_by = self._drain
        """While this file exists, the source plans no new batch."""
        self._first_batch = 0
        """Id of Spark's batch 0."""
        self._batch: int | None = None
        """In process."""
        self._sizes = RecordSizes(sizes.read(self._current.sizes))
        interval_s = pipeline.trigger_interval.total_seconds()
        self._health = Health(paths, pipeline.name, generation, reporter, pipeline.alerts, interval_s)
        self._ticked = False
        self._stop = threading.Event()
        self._committing = threading.Lock()

    def run(self, *, until_caught_up: bool, finish_batch: bool = False, take_over: bool = False) -> Intent | None:
        """Runs the query.

        Returns:
            The intent of a batch that must first be finished by the code that began it; then nothing was run.
        """
        try:
            self._health.write("starting")
            known = stored_plan(self._current.plan)
            held = None if known is None else known.partitions
            self._topics = topics.prepare(self._cluster, self._pipeline, self._plan, begun=known is not None, held=held)
            for topic in self._topics.empty:
                _log.warning("topic '%s' did not exist and was created; check its spelling if it should have", topic)
            for line in self._topics.different:
                _log.warning("%s; it stays as it is", line)
            for line in map(topics.grown_line, self._topics.grown.items()):
                _log.warning("%s", line)
            beginning = Beginning(
                self._pipeline, self._plan, self._settings, self._paths, self._topics, self._generation, self._code
            )
            begun = beginning.begin(take_over=take_over)
            if isinstance(begun, Begun) and not finish_batch and self._widened(begun):
                begun = beginning.begin(take_over=take_over)
            if isinstance(begun, Intent):
                return begun
            self._begin(begun, finish_batch=finish_batch)
            with self._pipeline.running(), self._session(begun.checkpoint) as spark:
                self._run_query(spark, begun, until_caught_up=until_caught_up or finish_batch)
        except ToldToStopError:
            self._health.write("stopped")
        except BaseException as error:
            if self._batch is not None and oversized.told(self._current.open_batch, self._batch, error):
                _log.warning("batch %d was too large for memory or time; the next start takes less", self._batch)
            try:
                self._require_not_replaced()
                self._health.write("failed", error=str(error))
            except FencedError as replaced:  # whatever Spark says, its files are the newer generation's, or gone
                self._trace_failed(replaced)
                raise replaced from error
            self._trace_failed(error)
            raise
        finally:
            for file in (self._drain, self._planned_by):
                file.unlink(missing_ok=True)
        return None

    def _require_not_replaced(self) -> None:
        """Raises `FencedError` if a newer generation has taken over, as far as that can be known now."""
        with suppress(TransientError):
            fence.check(self._paths.fence, self._generation, self._pipeline.name)

    def _widened(self, begun: Begun) -> bool:
        """Whether it is to begin again, since its state may have been spread over more cores."""
        if begun.is_open or not widening.is_needed(self._plan, begun.checkpoint, self._settings.cores):
            return False
        begun.close()
        with (
            children.stops_noted() as told,
            Beating(lambda: self._health.write("starting")) as beating,
            beating.during("spreading the state"),
        ):
            widening.at_start(
                self._settings,
                self._plan,
                self._paths,
                self._generation,
                is_told=lambda: bool(told) or self._drain.exists() or self._reporter.asked_to_drain(),
                begun=lambda pid: self._lease.owns(jvm=pid),
            )
        return True

    def _begin(self, begun: Begun, *, finish_batch: bool) -> None:
        self._current = self._paths.current
        self._intents, self._first_batch = begun.intents, begun.checkpoint.first_batch
        self._health.begin(begun.checkpoint.query_id, sum(begun.checkpoint.tasks))
        if finish_batch:
            self._planned_by = self._paths.finishing(self._generation)
            self._planned_by.touch()

    @contextmanager
    def _session(self, checkpoint: CheckpointPlan) -> Iterator[SparkSession]:
        settings = self._settings
        spark = session.build(
            f"deltaworks-{self._pipeline.name}",
            cores=settings.cores,
            partitions=Routes.of(self._plan, checkpoint.tasks, checkpoint.shards).partitions,
            driver_memory=settings.driver_memory,
            scratch=self._paths.scratch,
            python_path=settings.joined_python_path,
            forks=self._forks,
            options=class_data.option(settings),
            extra=s3a.with_jars(settings, self._paths.lasting, settings.spark_of(self._pipeline.name)),
            executors=Executors.of(settings, self._pipeline.name),
        )
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        self._lease.owns(jvm=gateway.proc.pid)
        if isinstance(self._paths.lasting, ObjectPath):
            s3a.reach(spark, self._paths.lasting, self._paths.scratch)
        spark.dataSource.register(KafkaRanges)
        try:
            yield spark
        except Exception as error:
            if (lost := failures.of_lost_jvm(gateway.proc, error)) is not None:
                raise lost from error
            raise
        finally:
            if gateway.proc.poll() is None:
                spark.stop()

    def _run_query(self, spark: SparkSession, begun: Begun, *, until_caught_up: bool) -> None:
        committer = begun.committer
        committer.publish_cut()
        self._paths.next_tick.unlink(missing_ok=True)
        frame = self._dataflow(spark, begun)
        checkpoint = self._current.spark
        durable = self._beside()
        offsets = committed_offsets(checkpoint) or self._planner.initialOffset()
        self._health.goes_on_at(offsets)
        writer = (
            frame.writeStream.queryName(self._pipeline.name)
            .outputMode("update")
            .option("checkpointLocation", str(checkpoint))
            .foreachBatch(disk.told(self._paths.root)(partial(self._commit_batch, begun, durable)))
        )
        interval = f"{self._pipeline.trigger_interval.total_seconds()} seconds"
        query = (
            writer.trigger(availableNow=True) if until_caught_up else writer.trigger(processingTime=interval)
        ).start()
        session.heed_settings_everywhere(spark, query)
        handlers = self._handle_signals()
        try:
            self._supervise(query, committer)
            self._tell_committed(query)
            self._trace_spark(query)
        except StreamingQueryException as error:
            raise failures.as_error(error) from error
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            begun.watch.close()
            durable.abandon()
        durable.close()
        committer.refresh_snapshots(force=True)
        committer.publish_cut()
        committer.close()
        self._health.snapshots([])
        self._health.write("stopped")

    def _beside(self) -> CheckpointSync | FolderExpiry:
        """What is done with Spark's checkpoint beside the query."""
        current = self._current
        if isinstance(current.root, ObjectPath):
            return FolderExpiry(current.root)
        return CheckpointSync(
            current.spark,
            current.synced,
            processes.boot_id(),
            failed=self._not_synced,
            admitted=self._admitted,
        )

    def _not_synced(self, error: Exception) -> None:
        _log.warning("Spark's checkpoint was not synced: %s. The next batch tries again.", error)

    def _dataflow(self, spark: SparkSession, begun: Begun) -> DataFrame:
        """Source of ranges, then one stateful operator per stage, or one for all; the plan is a straight line."""
        checkpoint = begun.checkpoint
        routing = Routes.of(self._plan, checkpoint.tasks, checkpoint.shards)
        routes = routing.by_task()
        serving: StoreServing | None = None
        if self._elsewhere and self._settings.serve_stores == "executors":
            serving = StoreServing.of(str(spark.sparkContext.getConf().get("spark.driver.host")))
        source = self._source(routing, begun, shows_always=serving is not None)
        self._planner = KafkaRangesReader(source)
        told = self._sent_settings()
        is_state_here = not isinstance(self._current.root, ObjectPath)
        is_read = not self._elsewhere or serving is not None
        if is_read and not is_state_here:
            token = None if serving is None else serving.token
            self._announcer = Announcer(self._paths.served, checkpoint, self._current.local, routes, token=token)
        config = HostConfig(
            # Hooks belong to the driver: what they hold need not be sent to workers.
            pipeline=cloudpickle.dumps(  # type: ignore[no-untyped-call]
                replace(self._pipeline, on_start=None, on_stop=None, schemas=jobs.schemas_of(told, self._pipeline.name))
            ),
            bootstrap=told.cluster_of(self._pipeline.name),
            query_id=checkpoint.query_id,
            generation=self._generation,
            fence=self._paths.fence,
            local_root=None if self._elsewhere else str(self._current.local),
            tables_root=told.tables,
            tasks=checkpoint.tasks,
            exchange_partitions=self._plan.exchange_partitions(self._topics.read),
            transaction_timeout_ms=admin.transaction_timeout_ms(self._cluster),
            first_batch=checkpoint.first_batch,
            initial_state=None if checkpoint.initial_state is None else self._current.root / checkpoint.initial_state,
            commits=self._current.spark / "commits",
            is_read=is_read,
            serving=serving,
            is_state_here=is_state_here,
            answers=self._paths.answers,
            call_outs=None if self._elsewhere else self._paths.call_outs,
            restores=None if self._elsewhere else self._paths.restores,
            fault_hook=self._settings.fault_hook,
        )
        frame = spark.readStream.format("kafka_ranges").options(**offsets_option(source)).load()
        for operator in routing.operators:
            host = TaskHost(config, operator, routes)
            frame = frame.groupBy("route").transformWithState(host, messages.SCHEMA, "Update", "None")
        return frame

    def _sent_settings(self) -> Settings:
        """The settings for those who run the tasks."""
        return sent(self._settings) if self._elsewhere else self._settings

    def _source(self, routing: Routes, begun: Begun, *, shows_always: bool) -> SourceConfig:
        last = batches.last(self._paths.batches)
        return source_config(
            self._pipeline,
            self._plan,
            self._settings,
            self._topics.read | self._topics.whole,
            routing,
            checkpoint=begun.checkpoint,
            intents=self._current.intents,
            drain_file=self._planned_by,
            tick_file=self._paths.next_tick,
            sizes_file=self._current.sizes,
            generation=self._generation,
            code=self._code,
            first_clock_ms=0 if last is None else last.wall_clock_ms,
            accepted=accepted.read(self._current.accepted),
            sliced_batch=begun.sliced_batch,
            may_grow=self._may_grow(),
            elsewhere=self._elsewhere,
            shows_always=shows_always,
        )

    def _may_grow(self) -> tuple[str, ...]:
        """The topics whose further partitions can wait for a `deltaworks rescale`."""
        now = self._topics.read
        follows = rescaling.can_follow(self._plan, now, now | {name: 2 * n for name, n in self._topics.named.items()})
        return tuple(self._topics.named) if follows else ()

    def _commit_batch(
        self, begun: Begun, durable: CheckpointSync | FolderExpiry, frame: DataFrame, spark_batch: int
    ) -> None:
        """`foreachBatch`: the one action that runs the tasks, then one Delta commit per table."""
        committer, batch_id = begun.committer, begun.checkpoint.first_batch + spark_batch
        started, self._batch = clock.ticks_s(), batch_id
        self._figures = figures = BatchFigures(
            batch_id=batch_id, generation=self._generation, query_id=self._health.query_id, begun_s=started
        )
        reach("driver.before_tasks")
        fence.check(self._paths.fence, self._generation, self._pipeline.name)
        begun.watch.check()
        if self._announcer is not None:
            self._announcer.committed(batch_id - 1)  # else there would be no other batch
        figures.intent = intent = self._intents.require(batch_id)
        rows = frame.collect()
        reach("driver.after_tasks")
        processed = clock.ticks_s()
        results = [msgspec.msgpack.decode(r.payload, type=TaskResult) for r in rows if r.kind == messages.RESULT]
        if self._tracer.takes:
            figures.processed(results, processed)
        header = next(msgspec.msgpack.decode(r.batch, type=BatchHeader) for r in rows if r.kind == messages.BATCH)
        self._intents.require_same(intent, header.intent)
        record = batches.record_of(batch_id, intent.clock_ms, intent.ranges, tick=intent.tick, topics=intent.topics)
        with self._committing:
            writes = [write for result in results for write in result.writes]
            commits = committer.commit(
                batch_id,
                writes,
                intent=token(intent.digest),
                digest=intent.digest,
                known=header.known,
                topics=intent.topics,
                provenance={"generation": intent.generation, "code": intent.code, "offsets": record.offsets},
            )
            reach("driver.after_tables")
            refreshed = committer.refresh_snapshots()
            reach("driver.before_cut")
            committer.publish_cut()
        committed, visible_ms = clock.ticks_s(), clock.wall_ms()
        figures.commits, figures.refreshed, figures.committed_s = commits, refreshed, committed
        batches.append(self._paths.batches, record, self._admitted)
        self._batch = None
        durable.committed(spark_batch)
        self._reporter.batch(record, self._health.query_id)
        self._health.add(intent, results, visible_ms=visible_ms)
        self._tell_tables(committer, commits, refreshed)
        self._ticked = self._ticked or intent.tick
        for result in results:
            for size in result.counts.sizes:
                self._sizes.read(size.topic, size.records, size.size_bytes)
        sizes.write(self._current.sizes, self._sizes)
        if self._announcer is not None:
            places = {r.route: msgspec.msgpack.decode(r.payload, type=Place) for r in rows if r.kind == messages.PLACE}
            self._announcer.ended(intent, places)
        self._plan_next_tick()
        ended = clock.ticks_s()
        phases = {"tasks": processed - started, "tables": committed - processed, "after": ended - committed}
        figures.end(ended, clock.wall_ns())
        self._tracer.ended(figures)
        self._figures = None
        self._health.traces(self._tracer.dropped)
        self._health.batch_ended(batch_id, intent.records, phases, committer.stale_snapshots)
        reach("driver.end")

    def _trace_failed(self, error: BaseException) -> None:
        """Gives away what is known of the batch in process, which an error has ended; there may be none."""
        if (figures := self._figures) is not None:
            figures.end(clock.ticks_s(), clock.wall_ns(), error)
            self._tracer.failed(figures)

    def _admitted(self) -> AbstractContextManager[None]:
        """While it lasts, no newer generation begins."""
        return fence.held(self._paths.fence, self._generation, self._pipeline.name)

    def _plan_next_tick(self) -> None:
        """Tells the source, which lives in another process; a missing file means that a tick is due now."""
        if not self._ticked:
            return  # not every task has said when it wants to run
        next_tick.write(self._paths.next_tick, self._health.next_tick_ms)

    def _supervise(self, query: StreamingQuery, committer: TableCommitter) -> None:
        """Waits for the end of the query; writes heartbeats while it idles, drains when told to."""
        with Beating(lambda: self._health.write(self._health.state)) as beating:
            self._wait_for_end(query, committer, beating)
        query.awaitTermination()
        error = query.exception()
        if error is not None:
            raise error

    def _wait_for_end(self, query: StreamingQuery, committer: TableCommitter, beating: Beating) -> None:
        last_beat = clock.ticks_s()
        while query.isActive:
            if self._health.state == "starting" and self._has_planned(query):
                self._health.write("running")
            self._tell_committed(query)
            self._trace_spark(query)
            if self._stop.is_set() or self._reporter.asked_to_drain():
                self._drain.touch()
                self._stop.clear()
            if self._drain.exists() and self._health.state != "draining":
                self._health.write("draining")
            if self._health.state == "draining" and not query.status["isTriggerActive"]:
                query.stop()
                break
            with beating.during("commands"):
                self._obey(committer)
            if clock.ticks_s() - last_beat >= _IDLE_BEAT_S:
                self._measure_lag()
                self._hear_of_spark(query)
                self._health.traces(self._tracer.dropped)
                if self._health.quiet_s > _QUIET_S:
                    with beating.during("a snapshot"):
                        self._refresh_snapshots(committer)
                self._health.write(self._health.state)
                last_beat = clock.ticks_s()
            query.awaitTermination(_POLL_S)  # type: ignore[arg-type]  # parts of a second work

    def _has_planned(self, query: StreamingQuery) -> bool:
        """Whether the query knows its first step, a batch or none yet: refusals to go on come before that."""
        return self._batch is not None or query.status["message"].startswith("Waiting for")

    def _tell_committed(self, query: StreamingQuery) -> None:
        """Tells readers of stores of a batch that Spark has committed: then it says how the batch went."""
        if self._announcer is None or not self._announcer.waits:
            return
        told = query.lastProgress
        if told is not None and "addBatch" in told["durationMs"]:
            self._announcer.committed(self._first_batch + told["batchId"])

    def _obey(self, committer: TableCommitter) -> None:
        """Carries out publications and rollbacks between the commits of two batches."""
        by = f"generation {self._generation}"
        table_commands.carry_out(self._paths, self._pipeline.name, committer, self._committing, self._generation, by=by)

    def _refresh_snapshots(self, committer: TableCommitter) -> None:
        with self._committing:
            refreshed = committer.refresh_snapshots(eager=True)
            committer.publish_cut()
        self._tell_tables(committer, (), refreshed)
        self._health.snapshots(committer.stale_snapshots)

    def _tell_tables(
        self, committer: TableCommitter, commits: Sequence[TableCommit], refreshed: Sequence[SnapshotRefresh]
    ) -> None:
        """Tells what was committed. How many rows of a snapshot a refresh has changed, nobody counts."""
        changed = {each.table: (each.changed_rows, each.seconds) for each in commits if not each.skipped}
        changed |= {each.table: (0, each.seconds) for each in refreshed}
        self._health.tables(changed, {name: len(table.log.files) for name, table in committer.tables.items()})

    def _hear_of_spark(self, query: StreamingQuery) -> None:
        """Takes how long the last batch took in Spark, with what is around `_commit_batch`."""
        if not self._health.waits_for_spark:
            return
        if (told := self._told_by(query)) is not None:
            self._health.spark_batch(*told)

    def _trace_spark(self, query: StreamingQuery) -> None:
        """Likewise, for the trace of the batch."""
        if self._tracer.waits and (told := self._told_by(query)) is not None:
            self._tracer.spark_told(*told)

    def _told_by(self, query: StreamingQuery) -> tuple[int, dict[str, float]] | None:
        """The last batch of which Spark has told, and how many seconds its parts took; None: it has told of none."""
        told = query.lastProgress
        if told is None or "addBatch" not in told["durationMs"]:
            return None
        phases = {phase: took_ms / 1_000 for phase, took_ms in told["durationMs"].items()}
        return self._first_batch + told["batchId"], phases

    def _measure_lag(self) -> None:
        """Asks where the topics end; if the broker does not answer, the lag stays unknown."""
        ends: Offsets = {}
        with suppress(KafkaReadError):
            ends = self._planner.end_offsets(timeout_s=0.0)
        self._health.see_ends(ends)

    def _handle_signals(self) -> Mapping[int, _Handler]:
        """Makes SIGTERM and SIGINT drain the stream."""

        def stop(number: int, frame: FrameType | None) -> None:
            self._stop.set()

        return {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
