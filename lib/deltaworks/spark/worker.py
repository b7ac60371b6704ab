"""What a Python worker keeps from batch to batch: plan, consumers, local stores, kernel tasks, transactional producers.

Everything here is a cache. Tasks wander between workers, so nothing may be trusted because it is here: the store
protocol decides about state, the transaction marker about Kafka.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec
from pyspark import cloudpickle

from deltaworks import faults
from deltaworks.control import fence
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.kafka.transactional import TransactionalSink
from deltaworks.kernel.task import GARBAGE_THRESHOLDS, Task
from deltaworks.spark.collector import TaskCollector
from deltaworks.spark.consumer import RangeReader
from deltaworks.spark.local_store import LocalStore, Stamp
from deltaworks.spark.protocol import local_path
from deltaworks.topology.stages import Plan

TASK_STORE = "__task__"


class HostConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What every worker needs to host tasks; travels with the query."""

    pipeline: bytes
    """The cloudpickled `Pipeline`."""
    bootstrap: str
    query_id: str
    """Identity of the checkpoint."""
    generation: int
    """Of the driver."""
    fence: str
    """Path of the fence; a task of an older generation writes nothing."""
    local_root: str
    tables_root: str
    tasks: tuple[int, ...]
    """Number of tasks per stage."""
    hop_partitions: dict[str, int]
    """Hop -> number of tasks that it spreads its keys over."""
    marker_topic: str | None
    """Topic whose partition 0 carries the batch id as a consumer-group offset; None if nothing goes to Kafka."""
    fault_hook: str | None = None
    """`module:function`, called once per process (tests only)."""


@dataclass
class HostedTask:
    """One kernel task with what belongs to it in this process."""

    local: LocalStore
    collector: TaskCollector
    kernel: Task | None = None
    """Its object caches are valid for the state `stamp`."""
    stamp: Stamp | None = None
    reader: RangeReader | None = None


@dataclass
class Worker:
    """The tasks of one query in this process."""

    config: HostConfig
    pipeline: Pipeline
    plan: Plan
    routes: dict[tuple[int, int], int]
    _tasks: dict[tuple[int, int], HostedTask] = field(default_factory=dict)

    def task(self, stage: int, task: int) -> HostedTask:
        hosted = self._tasks.get((stage, task))
        if hosted is None:
            hosted = self._tasks[stage, task] = self._host(stage, task)
        return hosted

    def kernel(self, hosted: HostedTask, stage: int, task: int, stamp: Stamp, wall_clock_ms: int) -> Task:
        """The kernel task for a committed state: the kept one if it holds that state, else a new one."""
        if hosted.kernel is not None and hosted.stamp == stamp:
            return hosted.kernel
        return Task(
            self.plan.stages[stage],
            task,
            state=hosted.local,
            collector=hosted.collector,
            errors=self.pipeline.errors,
            hop_partitions=self.config.hop_partitions,
            wall_clock_ms=wall_clock_ms,
        )

    def check_fence(self) -> None:
        """Raises `FencedError` if a newer generation of the pipeline has taken over."""
        fence.check(Path(self.config.fence), self.config.generation, self.pipeline.name)

    def close(self) -> None:
        """Lets go of local stores, consumers and producers."""
        for hosted in self._tasks.values():
            hosted.local.close()
            hosted.collector.close()
            if hosted.reader is not None:
                hosted.reader.close()
        self._tasks.clear()

    def reader(self, hosted: HostedTask) -> RangeReader:
        if hosted.reader is None:
            hosted.reader = RangeReader(self.config.bootstrap)
        return hosted.reader

    def forget_reader(self, stage: int, task: int) -> None:
        """The next batch gets a new consumer."""
        hosted = self.task(stage, task)
        if hosted.reader is not None:
            hosted.reader.close()
            hosted.reader = None

    def _host(self, stage: int, task: int) -> HostedTask:
        config, spec = self.config, self.plan.stages[stage]
        timed = {store.name: store.timed for store in spec.stores} | {TASK_STORE: False}
        local = LocalStore(local_path(Path(config.local_root), stage, task), timed)
        collector = TaskCollector(
            self.pipeline, self.plan, Path(config.tables_root), stage, task, partial(self._sink, stage, task)
        )
        return HostedTask(local, collector)

    def _sink(self, stage: int, task: int) -> TransactionalSink:
        config = self.config
        assert config.marker_topic is not None, "a record for a topic, but the plan writes none"
        application = f"{self.pipeline.name}-{config.query_id}"
        return TransactionalSink(config.bootstrap, application, stage, task, config.marker_topic)


_workers: dict[str, Worker] = {}
"""By query id. The only state of this module: a Python worker outlives the tasks that Spark runs in it."""


def worker_for(config: HostConfig, routes: dict[tuple[int, int], int]) -> Worker:
    """The worker state of this process, made on first use."""
    worker = _workers.get(config.query_id)
    if worker is None:
        gc.set_threshold(*GARBAGE_THRESHOLDS)
        faults.install(config.fault_hook)
        pipeline: Pipeline = cloudpickle.loads(config.pipeline)
        worker = _workers[config.query_id] = Worker(config, pipeline, pipeline.plan(), routes)
    return worker
