"""Host `streaming`: real Spark and real Kafka, with the cuts of a case, restarts and killed workers.

The clock of a micro-batch is Spark's, and Spark decides what a micro-batch holds. Therefore the host also returns the
batches as the stream has recorded them; other hosts run these for comparison.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from confluent_kafka import Message, Producer
from pyspark.sql import SparkSession

from deltaworks import DeltaworksError
from deltaworks.control import batches, fence
from deltaworks.control.checkpoint import CheckpointPlan
from deltaworks.control.lease import Lease
from deltaworks.control.paths import PipelinePaths
from deltaworks.control.reporter import SilentReporter
from deltaworks.kafka import admin
from deltaworks.kafka.admin import TopicSpec
from deltaworks.kernel.partitioning import partition_of
from deltaworks.kernel.records import RecordBatch
from deltaworks.runtime.state.local_store import LocalStore, stores_of
from deltaworks.runtime.state.recovery import local_path
from deltaworks.settings import Settings
from deltaworks.spark import class_data, session
from deltaworks.spark.beginning import Begun
from deltaworks.spark.forking import ForkServer
from deltaworks.spark.routes import Routes
from deltaworks.spark.source import KafkaRanges, SourceConfig
from deltaworks.spark.streaming import StreamDriver
from deltaworks.testing.recorded import MicroBatch
from deltaworks.testing.topics import RawRecord
from tests.conformance.hosts import Entries, Failure, Observed, Run
from tests.conformance.streaming_task import CasePipeline, pipeline_of
from tests.support.fault_hooks import HOOK, VARIABLE
from tests.support.fault_points import WORKER
from tests.support.live_stack import read_all

_PATIENCE_S = 300.0
_NO_PAUSE = timedelta(0)


@dataclass(frozen=True, kw_only=True)
class Disturbances:
    """What happens to the stream besides."""

    restarts: frozenset[int] = frozenset()
    """After these batches the driver ends and another one goes on."""
    lost_disks: frozenset[int] = frozenset()
    """Those restarts at which the local stores are gone."""
    kills: frozenset[int] = frozenset()
    """During these batches a Python worker gets SIGKILL at a random point."""


class SparkHost:
    """One Spark session, in which case after case is a query of its own."""

    def __init__(self, settings: Settings, home: Path, rng: Random) -> None:
        """
        Args:
            settings: a broker that runs; cores and memory.
            home: where everything of the cases lies.
            rng: chooses where a worker is killed.
        """
        self._faults = home / "faults"
        os.environ[VARIABLE] = str(self._faults)  # of this process, so that it is of the workers too
        for folder in ("trace", "inject", "done"):
            (self._faults / folder).mkdir(parents=True)
        self._settings = replace(settings, home=home, fault_hook=HOOK)
        self._runs = 0
        self._rng = rng
        self._forks = ForkServer.start("deltaworks: Python of cases", settings.joined_python_path)
        self._spark = session.build(
            "cases",
            cores=settings.cores,
            partitions=1,
            driver_memory=settings.driver_memory,
            scratch=home / "scratch",
            python_path=settings.joined_python_path,
            forks=self._forks,
            options=class_data.option(settings),
        )
        self._spark.dataSource.register(KafkaRanges)
        self.killed = 0
        """Workers that were killed."""
        self.restarted = 0
        """Drivers that went on where another one had ended."""

    def close(self) -> None:
        """Ends the session."""
        self._spark.stop()
        self._forks.close()

    def run(
        self,
        run: Run,
        extra_topics: Sequence[str] = (),
        disturbances: Disturbances | None = None,
        *,
        shards: int = 2,
    ) -> tuple[Observed, list[MicroBatch]]:
        """Runs a case.

        Args:
            run: what to run; its batches are the cuts.
            extra_topics: topics whose names only a function knows.
            disturbances: None: none.
            shards: as in `Routes`.

        Returns:
            What was there at the end, and the batches as the stream has recorded them.
        """
        disturbances = disturbances or Disturbances()
        self._shards = shards
        written = {*run.plan.sink_topics, *extra_topics, *filter(None, [run.dead_letter_topic])}
        written -= run.topic_partitions.keys()
        self._start_over(run, written)
        feeder = _Feeder(self._settings.bootstrap, self._paths)
        error: DeltaworksError | None = None
        todo = list(enumerate(run.batches))
        while todo and error is None:
            upto = next((at for at, (number, _) in enumerate(todo) if number in disturbances.restarts), len(todo) - 1)
            part, todo = todo[: upto + 1], todo[upto + 1 :]
            error = self._run_part(run, feeder, part, disturbances)
            self.restarted += bool(todo)
            if part[-1][0] in disturbances.lost_disks and todo:
                shutil.rmtree(self._paths.current.local, ignore_errors=True)
        topics = {topic: [_raw(message) for message in read_all(self._settings.bootstrap, topic)] for topic in written}
        failure = None if error is None else Failure(-1, type(error).__name__, str(error))
        recorded = self._recorded(run)
        return Observed({t: found for t, found in topics.items() if found}, self._stores(run), error=failure), recorded

    def _run_part(
        self, run: Run, feeder: _Feeder, part: Sequence[tuple[int, MicroBatch]], disturbances: Disturbances
    ) -> DeltaworksError | None:
        """One driver, from its start to its end."""
        generation = fence.read(self._paths.fence) + 1
        with Lease(self._paths.lease, self._name, generation) as lease:
            fence.advance(self._paths.fence, generation, self._name)
            pipeline = replace(pipeline_of(run, self._name), trigger_interval=_NO_PAUSE)
            settings = replace(self._settings, cores=self._shards)
            driver = _CaseDriver(
                pipeline, settings, self._paths, lease, generation, self._spark, feeder.gate, self._forks
            )
            driver.fed_back = run.fed_back
            thread = threading.Thread(target=self._feed, args=(driver, feeder, part, disturbances), daemon=True)
            thread.start()
            try:
                driver.run(until_caught_up=False)
            except DeltaworksError as error:
                return error
            finally:
                driver.ended.set()
                thread.join()
        if feeder.error is not None:
            raise feeder.error
        return None

    def _feed(
        self, driver: _CaseDriver, feeder: _Feeder, part: Sequence[tuple[int, MicroBatch]], disturbances: Disturbances
    ) -> None:
        try:
            for number, batch in part:
                point = self._rng.choice(WORKER) if number in disturbances.kills else None
                if point is not None:
                    (self._faults / "inject" / point).write_text("kill")
                feeder.feed(batch, driver.ended, write=number not in driver.fed_back)
                if point is not None:
                    (self._faults / "inject" / point).unlink(missing_ok=True)
                    with suppress(FileNotFoundError):
                        (self._faults / "done" / point).unlink()
                        self.killed += 1
        except BaseException as error:
            feeder.error = error
        finally:
            feeder.gate.touch()  # the planner looks at it, not at the drain file
            self._paths.drain(driver.generation).touch()

    def _start_over(self, run: Run, written: set[str]) -> None:
        # In a folder of its own: Spark may still write what it knew of the states of the query before.
        self._runs += 1
        self._name = f"case-{self._runs}"
        self._paths = PipelinePaths.of(self._settings, self._name)
        bootstrap = self._settings.bootstrap
        wanted = dict.fromkeys(run.plan.global_topics, 1) | dict(run.topic_partitions)
        widest = max(wanted.values(), default=1)
        present = [topic for topic in admin.partition_counts(bootstrap) if not topic.startswith("__")]
        if present:
            admin.delete_topics(bootstrap, present)
        specs = [TopicSpec(name=topic, partitions=wanted.get(topic, widest)) for topic in {*wanted, *written}]
        admin.create_topics(bootstrap, specs)

    def _recorded(self, run: Run) -> list[MicroBatch]:
        """The batches as the stream has recorded them, with what it read."""
        topics = sorted(run.topic_partitions.keys() | {*run.plan.global_topics})
        read: dict[tuple[str, int], list[Message]] = {}
        for message in read_all(self._settings.bootstrap, *topics):
            read.setdefault((str(message.topic()), int(message.partition() or 0)), []).append(message)
        return [
            MicroBatch(
                record.wall_clock_ms,
                tuple(
                    _record_batch(topic, int(p), read[topic, int(p)][start:stop])
                    for topic, partitions in record.offsets.items()
                    for p, (start, stop) in partitions.items()
                ),
                record.tick,
            )
            for record in batches.read(self._paths.batches)
        ]

    def _stores(self, run: Run) -> dict[tuple[int, int], dict[str, Entries]]:
        found: dict[tuple[int, int], dict[str, Entries]] = {}
        for stage, count in zip(run.plan.stages, run.plan.tasks(run.topic_partitions), strict=True):
            timed = stores_of(stage)
            for task in range(count):
                path = local_path(self._paths.current.local, stage.index, task)
                found[stage.index, task] = {}
                if path.exists():
                    local = LocalStore(path, timed)
                    contents = {name: list(local.reader(name).scan(b"", None)) for name in timed}
                    found[stage.index, task] = {name: entries for name, entries in contents.items() if entries}
                    local.close()
        return found


class _CaseDriver(StreamDriver):
    """A driver in a session that others use after it, which plans no batch while the gate is closed."""

    def __init__(
        self,
        pipeline: CasePipeline,
        settings: Settings,
        paths: PipelinePaths,
        lease: Lease,
        generation: int,
        spark: SparkSession,
        gate: Path,
        forks: ForkServer,
    ) -> None:
        super().__init__(pipeline, settings, paths, lease, generation, SilentReporter(), forks)
        self._shared, self._gate = spark, gate
        self.generation = generation
        self.fed_back: frozenset[int] = frozenset()
        self.ended = threading.Event()

    @contextmanager
    def _session(self, checkpoint: CheckpointPlan) -> Iterator[SparkSession]:
        routes = Routes.of(self._plan, checkpoint.tasks, checkpoint.shards)
        self._shared.conf.set("spark.sql.shuffle.partitions", str(routes.partitions))
        yield self._shared

    def _source(self, routing: Routes, begun: Begun, *, shows_always: bool) -> SourceConfig:
        return msgspec.structs.replace(
            super()._source(routing, begun, shows_always=shows_always), drain_file=str(self._gate)
        )


class _Feeder:
    """Writes a micro-batch as a whole, then waits until the stream has recorded it."""

    def __init__(self, bootstrap: str, paths: PipelinePaths) -> None:
        self.gate = paths.root / "gate"
        self.error: BaseException | None = None
        self._paths = paths
        self._written = 0
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})

    def feed(self, batch: MicroBatch, ended: threading.Event, *, write: bool) -> None:
        """Returns when the stream has taken the batch, or ended. Without `write` it has written the records itself."""
        count = sum(len(part.keys) for part in batch.records)
        if not count:
            return
        self.gate.parent.mkdir(parents=True, exist_ok=True)
        self.gate.touch()
        for part in batch.records if write else ():
            headers = part.headers_of_each
            rows = zip(part.keys, part.values, part.timestamps_ms, headers, strict=True)
            for key, value, timestamp_ms, header in rows:
                self._producer.produce(
                    part.topic, value, key, part.partition, timestamp=max(timestamp_ms, 1), headers=list(header)
                )
        self._producer.flush()
        self._written += count
        self.gate.unlink()
        deadline = time.monotonic() + _PATIENCE_S
        while self._recorded() < self._written and not ended.is_set():
            if time.monotonic() > deadline:
                raise AssertionError(f"the stream has recorded {self._recorded()} of {self._written} records")
            time.sleep(0.01)

    def _recorded(self) -> int:
        return sum(
            stop - start
            for record in batches.read(self._paths.batches)
            for partitions in record.offsets.values()
            for start, stop in partitions.values()
        )


def _record_batch(topic: str, partition: int, messages: Sequence[Message]) -> RecordBatch:
    records = [_raw(message) for message in messages]
    headers = [record.headers for record in records]
    return RecordBatch(
        topic,
        partition,
        [message.offset() or 0 for message in messages],
        [record.timestamp_ms for record in records],
        [record.key for record in records],
        [record.value for record in records],
        headers if any(headers) else None,
    )


def _raw(message: Any) -> RawRecord:
    return RawRecord(message.key(), message.value(), message.timestamp()[1], tuple(message.headers() or ()))


def spread(run: Run, partitions: int) -> Run:
    """The same records over several partitions of every topic, by their keys; those of global tables keep one."""
    ends: dict[tuple[str, int], int] = {}
    spread_batches = []
    for batch in run.batches:
        parts: dict[tuple[str, int], RecordBatch] = {}
        for part in batch.records:
            headers = part.headers_of_each
            for key, value, time_ms, header in zip(part.keys, part.values, part.timestamps_ms, headers, strict=True):
                to = part.topic, partition_of(key or b"", partitions) if part.topic in run.topic_partitions else 0
                target = parts.setdefault(to, RecordBatch(*to, [], [], [], [], []))
                target.offsets.append(ends.setdefault(to, 0))
                ends[to] += 1
                target.timestamps_ms.append(time_ms)
                target.keys.append(key)
                target.values.append(value)
                assert target.headers is not None
                target.headers.append(header)
        spread_batches.append(MicroBatch(batch.wall_clock_ms, tuple(parts.values()), batch.tick))
    return replace(run, topic_partitions=dict.fromkeys(run.topic_partitions, partitions), batches=spread_batches)
