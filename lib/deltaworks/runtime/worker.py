"""What a Python worker keeps from batch to batch: plan, consumers, local stores, kernel tasks, transactional producers.

Everything here is a cache. Tasks wander between workers, so nothing may be trusted because it is here: the store
protocol decides about state, the transaction marker about Kafka.
"""

from __future__ import annotations

import gc
import logging
import os
import pickle
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property, partial
from pathlib import Path
from typing import Protocol

import msgspec

from deltaworks import faults
from deltaworks.breaker import CircuitBreaker
from deltaworks.config import Kafka
from deltaworks.control import call_outs, fence, restores
from deltaworks.control.served import Place
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.errors import StateError
from deltaworks.kafka import control_topic
from deltaworks.kafka.limits import TopicLimits
from deltaworks.kafka.transactional import TRANSACTION_TIMEOUT_MS, TransactionalSink, application
from deltaworks.kernel.call_outs import Answers
from deltaworks.kernel.records import Collector
from deltaworks.kernel.stores.build import Store
from deltaworks.kernel.stores.state import StateBackend
from deltaworks.kernel.task import GARBAGE_THRESHOLDS, Task
from deltaworks.lakehouse import page_index
from deltaworks.object_path import place_below
from deltaworks.runtime import messages
from deltaworks.runtime.call_outs.answers import LiveAnswers
from deltaworks.runtime.call_outs.asking import Asker
from deltaworks.runtime.call_outs.books import Books
from deltaworks.runtime.collector import TaskCollector
from deltaworks.runtime.consumer import RangeReader
from deltaworks.runtime.global_tables import GlobalTables, Reader, global_path
from deltaworks.runtime.history import History, LiveReader
from deltaworks.runtime.kafka_sink import TransactionalProducer
from deltaworks.runtime.messages import BatchHeader
from deltaworks.runtime.sinks import AuthorSinks, sinks_of
from deltaworks.runtime.state import published
from deltaworks.runtime.state.applier import Applier
from deltaworks.runtime.state.local_store import LocalStore, StateVersion, discard, stores_of
from deltaworks.runtime.state.overlay import Overlay
from deltaworks.runtime.state.recovery import (
    NOTHING,
    CheckpointState,
    Pending,
    RecoveryAction,
    Restore,
    StateHeader,
    local_path,
    open_store,
    same_version,
)
from deltaworks.runtime.state.store_process import StoreServing
from deltaworks.runtime.state.store_requests import GLOBAL
from deltaworks.runtime.task_loop import TaskId
from deltaworks.topology.archives import Archives
from deltaworks.topology.nodes import CallOut
from deltaworks.topology.plan import Plan
from deltaworks.topology.sinks import SinkTask

_MILLISECOND = timedelta(milliseconds=1)
_log = logging.getLogger(__name__)


class HostConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What every worker needs to host tasks; travels with the query."""

    pipeline: bytes
    """The cloudpickled `Pipeline`."""
    bootstrap: Kafka
    query_id: str
    """Identity of the checkpoint."""
    generation: int
    """Of the driver."""
    fence: Path
    """The fence; a task of an older generation writes nothing."""
    local_root: str | None
    """Folder of the local stores; None: whoever runs the tasks says where (`at`)."""
    tables_root: Path
    """Folder of all tables."""
    tasks: tuple[int, ...]
    """Number of tasks per stage."""
    exchange_partitions: dict[str, int]
    """Exchange -> number of tasks that it spreads its keys over."""
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS
    """After this time the broker ends a transaction (`admin.transaction_timeout_ms`)."""
    first_batch: int = 0
    """Id of Spark's batch 0; see `CheckpointPlan`."""
    initial_state: Path | None = None
    """Folder with the stores that its tasks begin with."""
    commits: Path | None = None
    """Folder in which Spark notes the batches that it has committed, so that changes reach the local stores although no
    other batch follows; None: nobody looks."""
    is_read: bool = False
    """Whether the stores are read by other processes (`queries`)."""
    serving: StoreServing | None = None
    """How the server beside the stores of an executor is started; None: there is none."""
    is_state_here: bool = True
    """The stream's state is on this machine, so nobody has gone on with it elsewhere."""
    call_outs: Path | None = None
    """Folder of this machine in which tasks note which systems count as down; None: nobody looks."""
    restores: Path | None = None
    """Folder of this machine in which tasks note how far their restores have come; None: nobody looks."""
    answers: Path | None = None
    """Folder of the recorded answers of other systems; None: its tasks ask nobody."""
    fault_hook: str | None = None
    """`module:function`, called once per process (tests only)."""

    @property
    def local_folder(self) -> Path:
        """The folder of the local stores."""
        assert self.local_root is not None, "nobody has said where local stores are"
        return Path(self.local_root)

    def at(self, folder: Path) -> HostConfig:
        """For another machine: what is not in an object store lies below this folder of it.

        What the driver tells tasks of their tables is in a folder of this process: an earlier attempt that still runs
        in another one was told something older.
        """
        place_below(folder / "tables" / str(os.getpid()), self.fence, self.tables_root)
        return msgspec.structs.replace(self, local_root=str(folder / "stores"))


@dataclass
class HostedTask:
    """One kernel task with what belongs to it in this process."""

    local: LocalStore
    collector: TaskCollector
    overlay: Overlay | None
    """Its changes in the turns of a batch, for tasks that take several turns."""
    answers: LiveAnswers | None = None
    """Of other systems, if it asks any."""
    kernel: Task | None = None
    """Its object caches are valid for the state `version`."""
    version: StateVersion | None = None
    reader: Reader | None = None
    pending: Pending | None = None
    """The changes of its last batch, unless they are in the local store or the next one has begun."""
    restore: Restore | None = None
    """What the current batch has restored of its local store."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held by whoever looks at `pending`, until it is done with it."""

    @property
    def state(self) -> StateBackend:
        """The store that its kernel reads."""
        return self.local if self.overlay is None else self.overlay

    def forget(self) -> None:
        """The local store has been opened again, so nothing that reads from it is good any more."""
        self.kernel = self.version = None
        if self.overlay is not None:
            self.overlay = Overlay(self.local)

    def close(self) -> None:
        """Lets go of local store, consumer and producer."""
        with self.lock:
            self.pending = None
            self.local.close()
        self.collector.close()
        if self.reader is not None:
            self.reader.close()


class Clients(Protocol):
    """Makes what speaks to Kafka."""

    def reader(self) -> Reader:
        """Reads the ranges of one task."""

    def sink(self, stage: int, task: int) -> TransactionalProducer:
        """Writes the records of one task."""


@dataclass(frozen=True)
class KafkaClients:
    """`Clients` of a real broker; the driver has prepared the pipeline's control topic."""

    config: HostConfig
    name: str
    """Of the pipeline."""
    limits: TopicLimits
    """Shared by all tasks of this process."""
    history: History
    """Records of its topics that Kafka no longer has."""

    @classmethod
    def of(cls, config: HostConfig, pipeline: Pipeline, plan: Plan) -> KafkaClients:
        """
        Args:
            config: of the query.
            pipeline: its dead letters have a topic.
            plan: names the other topics that are written, as far as they are not computed.
        """
        written = {*plan.sink_topics, *((pipeline.dead_letters.topic,) if pipeline.dead_letters.topic else ())}
        history = History(config.bootstrap, config.tables_root, Archives.of(plan))
        return cls(config, pipeline.name, TopicLimits(config.bootstrap, written), history)

    def reader(self) -> Reader:
        return LiveReader(RangeReader(self.config.bootstrap, self.name), self.history)

    def sink(self, stage: int, task: int) -> TransactionalProducer:
        config = self.config
        return TransactionalSink(
            config.bootstrap,
            application(self.name, config.query_id),
            stage,
            task,
            control_topic.place_of(self.name, config.query_id, config.tasks, (stage, task)),
            limits=self.limits,
            transaction_timeout_ms=config.transaction_timeout_ms,
        )


@dataclass
class Worker:
    """The tasks of one query in this process."""

    config: HostConfig
    pipeline: Pipeline
    plan: Plan
    routes: dict[TaskId, int]
    clients: Clients
    _tasks: dict[TaskId, HostedTask] = field(default_factory=dict)
    globals: GlobalTables | None = None
    told: dict[TaskId, bytes] = field(default_factory=dict)
    """What the driver's machine has sent for the tasks of this batch, see `messages.TOLD`."""
    _applier: Applier | None = None
    _shown: dict[TaskId, StateVersion] = field(default_factory=dict)
    """The versions that this process has shown to readers."""

    def open_globals(self, position: bytes | None) -> None:
        """Brings the global tables to the position that they have in this batch."""
        if not self.plan.global_stages:
            return
        assert position is not None
        if self.globals is None:
            root = self.config.local_folder
            self.globals = GlobalTables(
                self.plan, self.pipeline, root, self.clients.reader, generation=self.config.generation
            )
        if self.globals.at(position):
            for hosted in self._tasks.values():
                hosted.kernel = hosted.version = None  # they read the stores of before

    def hear(self, task: TaskId) -> None:
        """Puts what the driver's machine has sent for a task where the task looks for it."""
        if (payload := self.told.pop(task, None)) is not None:
            for table, files in messages.unpacked(payload).items():
                page_index.keep(self.config.tables_root / table, files)

    def open(self, task: TaskId, committed: CheckpointState) -> tuple[StateHeader, RecoveryAction]:
        """Brings the local store of a task to the committed state; what waited in memory is in it, or forgotten.

        A store that cannot be trusted is thrown away and filled again.

        Raises:
            StateError: also a new one cannot be read or written.
        """
        hosted = self.task(*task)
        hosted.restore = restore = Restore(f"task {task[0]}-{task[1]}", partial(self._tell_restore, task))
        with hosted.lock:
            pending, hosted.pending = hosted.pending, None
            try:
                if hosted.local.refresh():
                    hosted.forget()
                opened = open_store(hosted.local, committed, pending, restore)
            except StateError as error:
                _log.warning("%s It is thrown away and filled again.", error.message)
                hosted.local.discard()
                hosted.forget()
                opened = open_store(hosted.local, committed, restore=restore)
            if hosted.overlay is not None:
                hosted.overlay.clear()
            return opened

    def _tell_restore(self, task: TaskId, done: int, total: int) -> None:
        if self.config.restores is None:
            return
        name = f"{task[0]}-{task[1]}"
        if done < total:
            restores.note(self.config.restores, name, restores.Restoring(done=done, total=total))
        else:
            restores.ended(self.config.restores, name)

    def keep(self, task: TaskId, kernel: Task, pending: Pending) -> None:
        """A batch has ended well, as far as this process knows."""
        hosted = self.task(*task)
        hosted.kernel, hosted.version = kernel, pending.version
        with hosted.lock:
            hosted.pending = pending
        if self.config.commits is not None:
            if self._applier is None:
                self._applier = Applier(self.config.commits, lambda: list(self._tasks.values()))
            self._applier.look()

    def publish(
        self, task: TaskId, batch: BatchHeader, versions: tuple[StateVersion, StateVersion], chunks: Sequence[bytes]
    ) -> None:
        """Shows readers of stores what a task has changed, before Spark can commit the batch."""
        if self.config.is_read:
            published.write(local_path(self.config.local_folder, *task), batch.id, batch.intent, versions, chunks)
            self._shown[task] = versions[1]

    def show(self, task: TaskId, committed: CheckpointState, batch: BatchHeader) -> None:
        """Says which batch the store of an idle task is of, if nothing says it yet, or something older.

        On an executor the store is filled, if it has to be: the task may have been elsewhere until now. On the driver's
        machine it is left to the next batch of the task.

        Args:
            task: which one.
            committed: its state before the batch.
            batch: the batch in process, of which the task has no part yet.
        """
        config, folder = self.config, local_path(self.config.local_folder, *task)
        if not (config.is_read and self.plan.stages[task[0]].stateful):
            return
        if config.is_state_here and published.is_there(folder):
            return
        version = (committed.header() or NOTHING).version
        if self._shown.get(task) == version:
            return
        with suppress(StateError):  # then the next batch of the task fills it again
            if config.serving is not None:
                self.open(task, committed)
            if same_version(self.task(*task).local.version(), version):
                published.write(folder, batch.id - 1, "", (version, version))
                self._shown[task] = version
            else:
                published.remove(folder)

    def place(self) -> Place | None:
        """Where the server beside the stores is; None: they need none."""
        if self.config.serving is None:
            return None
        return self.config.serving.place(self.config.local_folder, self._stores)

    @cached_property
    def _stores(self) -> dict[str, dict[str, bool]]:
        stages = {str(stage.index): stores_of(stage) for stage in self.plan.stages}
        return stages | {f"{GLOBAL}{stage.index}": stores_of(stage) for stage in self.plan.global_stages}

    def tasks_of(self, shard: int, stages: Collection[int]) -> list[TaskId]:
        """The tasks of some stages that a shard hosts."""
        return [task for task, route in self.routes.items() if route == shard and task[0] in stages]

    def discard_stores(self, shard: int) -> None:
        """Throws the local stores of a shard away, because who has opened them has died."""
        root = self.config.local_folder
        for task in [task for task, route in self.routes.items() if route == shard]:
            if task in self._tasks:
                self._tasks.pop(task).close()
            discard(local_path(root, *task))
        if self.globals is not None:
            self.globals.close()
            self.globals = None
        for stage in self.plan.global_stages:
            discard(global_path(root, stage.index))

    def task(self, stage: int, task: int) -> HostedTask:
        """The collector, stores and kernel of a task, made on first use."""
        hosted = self._tasks.get((stage, task))
        if hosted is None:
            hosted = self._tasks[stage, task] = self._host(stage, task)
        return hosted

    def kernel(self, hosted: HostedTask, stage: int, task: int, version: StateVersion, wall_clock_ms: int) -> Task:
        """The kernel task for a committed state: the kept one if it holds that state, else a new one."""
        if hosted.kernel is not None and hosted.version == version:
            return hosted.kernel
        return new_kernel(
            self.pipeline,
            self.plan,
            (stage, task),
            hosted.state,
            hosted.collector,
            exchange_partitions=self.config.exchange_partitions,
            global_stores=self._global_stores,
            wall_clock_ms=wall_clock_ms,
            answers=hosted.answers,
        )

    def check_fence(self) -> None:
        """Raises `FencedError` if a newer generation of the pipeline has taken over."""
        fence.check(self.config.fence, self.config.generation, self.pipeline.name)

    def close(self) -> None:
        """Lets go of local stores, consumers and producers."""
        if self._applier is not None:
            self._applier.close()
        for hosted in self._tasks.values():
            hosted.close()
        self._tasks.clear()
        if self.globals is not None:
            self.globals.close()
        self.asker.close()

    def reader(self, hosted: HostedTask) -> Reader:
        if hosted.reader is None:
            hosted.reader = self.clients.reader()
        return hosted.reader

    def forget_reader(self, task: TaskId) -> None:
        """The next batch gets a new consumer."""
        hosted = self.task(*task)
        if hosted.reader is not None:
            hosted.reader.close()
            hosted.reader = None

    def _host(self, stage: int, task: int) -> HostedTask:
        config = self.config
        local = LocalStore.copy(local_path(config.local_folder, stage, task), stores_of(self.plan.stages[stage]))
        collector = TaskCollector(
            self.pipeline,
            self.plan,
            config.tables_root,
            stage,
            task,
            partial(self.clients.sink, stage, task),
            AuthorSinks(sinks_of(self.plan.stages[stage]), partial(self._sink_task, task)),
        )
        overlay = Overlay(local) if stage in self._cyclic else None
        return HostedTask(local, collector, overlay, self._answers((stage, task)))

    def _answers(self, task: TaskId) -> LiveAnswers | None:
        folder = self.config.answers
        if folder is None or not any(isinstance(node, CallOut) for node in self.plan.stages[task[0]].nodes):
            return None
        return LiveAnswers(Books(folder), task, self.asker, self.check_fence)

    @cached_property
    def asker(self) -> Asker:
        """Asks other systems for all tasks."""
        return Asker(changed=self._breaker_changed)

    def _breaker_changed(self, name: str, breaker: CircuitBreaker) -> None:
        state = breaker.state
        _log.warning("the system that '%s' asks: its breaker is %s", name, state)
        if self.config.call_outs is not None:
            with suppress(OSError):  # only the heartbeat lacks it
                call_outs.note(self.config.call_outs, name, state)

    def _sink_task(self, task: int, sink: str) -> SinkTask:
        return SinkTask(
            pipeline=self.pipeline.name,
            sink=sink,
            task=task,
            checkpoint=self.config.query_id,
            generation=self.config.generation,
        )

    @cached_property
    def _cyclic(self) -> frozenset[int]:
        """Stages whose tasks have several turns in a batch."""
        return frozenset(stage for group in self.plan.groups if group.cyclic for stage in group.stages)

    @property
    def _global_stores(self) -> Mapping[str, Store]:
        return {} if self.globals is None else self.globals.stores


def new_kernel(
    pipeline: Pipeline,
    plan: Plan,
    task: TaskId,
    state: StateBackend,
    collector: Collector,
    *,
    exchange_partitions: Mapping[str, int],
    global_stores: Mapping[str, Store],
    wall_clock_ms: int,
    answers: Answers | None = None,
) -> Task:
    """A task over its committed state, with the options of its pipeline.

    Args:
        pipeline: says what happens to records that fail, and when a task is idle.
        plan: of the pipeline.
        task: which one.
        state: its stores.
        collector: gets its output.
        exchange_partitions: exchange -> number of tasks that it spreads its keys over.
        global_stores: those that it may read.
        wall_clock_ms: the time of the micro-batch that comes next.
        answers: gives what other systems say; None: nobody can be asked.
    """
    stage, number = task
    return Task(
        plan.stages[stage],
        number,
        state=state,
        collector=collector,
        errors=pipeline.errors,
        exchange_partitions=exchange_partitions,
        wall_clock_ms=wall_clock_ms,
        idle_timeout_ms=None if (timeout := pipeline.idle_timeout) is None else timeout // _MILLISECOND,
        global_stores=global_stores,
        answers=answers,
    )


_workers: dict[tuple[str, int], Worker] = {}
"""By query id and generation, at most one. The only state of this module: a Python worker outlives the tasks that Spark
runs in it."""


def worker_for(config: HostConfig, routes: dict[TaskId, int]) -> Worker:
    """The worker state of this process, made on first use."""
    mine = config.query_id, config.generation
    worker = _workers.get(mine)
    if worker is None:
        while _workers:
            _workers.popitem()[1].close()
        gc.set_threshold(*GARBAGE_THRESHOLDS)
        faults.install(config.fault_hook)
        pipeline: Pipeline = pickle.loads(config.pipeline)
        plan = pipeline.plan()
        worker = Worker(config, pipeline, plan, routes, KafkaClients.of(config, pipeline, plan))
        _workers[mine] = worker
    return worker
