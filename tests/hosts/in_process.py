"""The streaming host without Spark: the same tasks, store protocol, transactions and Delta commits, in one process.

In the place of Spark's checkpoint, an attempt works on a copy of every task's state, and only a batch that ends well
replaces it. A failure at a fault point ends an attempt; then either the task runs again (a lost worker), or everything
is opened again and the whole batch repeats (a lost driver).

The broker is a real one, or one in memory (`MemoryKafka`).
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from deltaworks import faults
from deltaworks.control import batches, topics
from deltaworks.control.checkpoint import CheckpointPlan, write_plan
from deltaworks.control.intents import Intent, Intents, token
from deltaworks.control.paths import PipelinePaths
from deltaworks.control.served import Place
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.files import files_in
from deltaworks.kafka import admin, control_topic
from deltaworks.kafka.ranges import Offsets
from deltaworks.kernel.stores.state import StoreChanges
from deltaworks.kernel.task import Task
from deltaworks.lakehouse.committer import TableCommitter
from deltaworks.runtime import messages
from deltaworks.runtime.messages import BatchHeader, Row, TaskResult
from deltaworks.runtime.shard import Operator, run_shard
from deltaworks.runtime.state.initial_state import with_initial_state
from deltaworks.runtime.state.local_store import discard
from deltaworks.runtime.state.recovery import CheckpointState
from deltaworks.runtime.state.store_process import StoreServing
from deltaworks.runtime.task_loop import TaskId
from deltaworks.runtime.worker import Clients, HostConfig, KafkaClients, Worker
from deltaworks.settings import Settings
from deltaworks.spark.routes import Routes
from deltaworks.spark.source import BATCH, CLOCK, TICK, header_of, plan_rows, ranges_of, show_rows, source_config
from tests.hosts.memory_kafka import MemoryKafka
from tests.support.fault_hooks import InjectedFault
from tests.support.task_state import TaskState

_FIRST_WALL_MS = 1_800_000_000_000


class InProcessStream:
    """One pipeline; every batch is cut, attempted and committed by the test.

    ```python
    kafka = MemoryKafka({"words": 4})
    kafka.write("words", RawRecord(b"a", b"1", 1_000))
    stream = InProcessStream(pipeline, settings, kafka=kafka)
    stream.run(stream.end())                       # one batch with everything
    stream.lose_worker()                           # the next one opens its stores again
    kafka.read("counts"), stream.settings.tables   # what came out; `stream.batches` has the record of its batches
    ```

    Args:
        pipeline: what to run.
        settings: a home of its own; without `kafka`, also a broker that runs.
        query_id: of the checkpoint.
        kafka: a broker in memory; None: the real one.
        shards: shards per stage.
        switched_to: a checkpoint with a query id and shards of its own; None: it begins at the first batch.
        clock: batch id -> its time, where the test does not say.
        commits: folder in which the test notes the batches that Spark has committed; None: the worker does not look.
        generation: of its driver.
        serving: starts a server beside its stores, as on an executor; None: it needs none.
        is_state_here: see `HostConfig`.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        settings: Settings,
        query_id: str = "test",
        *,
        kafka: MemoryKafka | None = None,
        shards: int = 2,
        switched_to: CheckpointPlan | None = None,
        clock: Callable[[int], int] = lambda batch_id: _FIRST_WALL_MS + 1000 * batch_id,
        commits: Path | None = None,
        generation: int = 1,
        serving: StoreServing | None = None,
        is_state_here: bool = True,
    ) -> None:
        self._serving, self._is_state_here = serving, is_state_here
        self.places: dict[int, Place] = {}
        """Route -> where its last batch had its stores."""
        query_id, shards = (query_id, shards) if switched_to is None else (switched_to.query_id, switched_to.shards)
        self.pipeline, self.settings, self.query_id, self.kafka = pipeline, settings, query_id, kafka
        self.paths = PipelinePaths.of(settings, pipeline.name)
        self.clock, self._commits, self._generation = clock, commits, generation
        self.plan = pipeline.plan()
        read, self._partitions = self._topics()
        self.tasks = self.plan.tasks(read)
        self._exchange_partitions = self.plan.exchange_partitions(read)
        self._routing = Routes.of(self.plan, self.tasks, shards)
        self.routes = self._routing.by_task()
        self.batches = self.paths.batches
        self.checkpoint = switched_to or CheckpointPlan(
            lineage="test",
            query_id=query_id,
            fingerprint=self.plan.fingerprint(),
            partitions=self._partitions,
            tasks=self.tasks,
            shards=shards,
        )
        if switched_to is None:
            write_plan(self.paths.current.plan, self.checkpoint)
        self.intents = Intents(files_in(self.paths.current.intents))
        self._source = source_config(
            pipeline, self.plan, settings, self._partitions, self._routing, checkpoint=self.checkpoint,
            intents=self.paths.current.intents, drain_file=self.paths.drain(1), tick_file=self.paths.next_tick,
            sizes_file=self.paths.current.sizes,
            generation=generation, code="",
        )  # fmt: skip
        self.states: dict[TaskId, TaskState] = {task: TaskState() for task in self.routes}
        self.offsets: Offsets = {t: {str(p): 0 for p in range(n)} for t, n in self._partitions.items()}
        self.batch_id = 0
        self._initial_state: Path | None = None
        if switched_to is not None:
            assert switched_to.initial_state is not None and switched_to.start is not None
            self._initial_state, self.batch_id = (
                self.paths.current.root / switched_to.initial_state,
                switched_to.first_batch,
            )
            self.offsets = {t: parts | switched_to.start.get(t, {}) for t, parts in self.offsets.items()}
            self.offsets |= {TICK: switched_to.start[TICK]} if TICK in switched_to.start else {}
        self.openings: list[str] = []
        self.skipped_transactions = 0
        self.failed_at: set[str] = set()
        """Fault points at which an attempt ended."""
        self.restart()

    def restart(self) -> None:
        """A new driver and new workers: nothing but the checkpoint, the disk, Kafka and Delta survives."""
        self._close()
        self._shown = False
        self.worker = self._new_worker()
        self.committer = TableCommitter(
            self.settings.tables, self.pipeline.name, self.query_id, self.plan.tables, self.pipeline.dead_letters.table,
            archives=self.pipeline.archives(self.plan).tables,
        )  # fmt: skip
        self.committer.open(generation=self._generation)

    def lose_worker(self) -> None:
        """A new worker process."""
        self._close()
        self.worker = self._new_worker()

    def lose_disk(self, task: TaskId | None = None) -> None:
        """The local store of one task, or of all, is gone."""
        self._close()
        for stage, number in [task] if task else self.routes:
            discard(self._local / f"{stage}-{number}")
        self.worker = self._new_worker()

    def run_on_another_machine(self, end: Offsets) -> None:
        """The tasks come back to a disk that holds an attempt of other code at the same batch.

        That attempt ends before Delta sees it, but its worker takes it for committed. The batch then runs on another
        machine, and the next one here again: the stores of this disk have the right version, and another nonce.
        """
        with suppress(InjectedFault), self._armed(["driver.after_tasks"]):
            intent = self.intents.put(self._intent(end, self._next_wall_ms))
            self._commit(intent, self._attempt(intent)[1])
        for task in self.routes:
            hosted = self.worker.task(*task)
            pending = hosted.pending
            if pending is not None and pending.batch == self.batch_id:  # not one that is committed
                changes = {name: _other_values(change) for name, change in pending.changes.items()}
                hosted.local.commit(changes, pending.version, pending.base)
        self._close()
        self._local.rename(self._local.with_name("elsewhere"))
        self.restart()
        self.run(end)
        self._close()
        discard(self._local)
        self._local.with_name("elsewhere").rename(self._local)
        self.restart()

    def run(self, end: Offsets, fail_at: list[str] | None = None, *, wall_ms: int | None = None) -> None:
        """One micro-batch up to `end`, attempted until it succeeds; before it, those that have an intent already.

        Args:
            end: next offset per topic and partition, those of global tables too.
            fail_at: fault points; each ends one attempt when it is reached.
            wall_ms: the time; None: what the clock says. A later `end[TICK]` makes it a tick.
        """
        caught_up = False
        while (known := self.intents.get(self.batch_id)) is not None:
            self._run(known, [])
            caught_up = True
        if not caught_up or self.offsets != end:
            intent = self._intent(end, self._next_wall_ms if wall_ms is None else wall_ms)
            self._run(self.intents.put(intent), fail_at or [])

    def _run(self, intent: Intent, fail_at: list[str]) -> None:
        failures = list(fail_at)
        while True:
            with self._armed(failures):
                try:
                    states, results = self._attempt(intent)
                    self._commit(intent, results)
                except InjectedFault:
                    self.restart()
                    continue
            break
        self.states = states
        self.offsets = {topic: parts for topic, parts in intent.end.items() if topic not in (CLOCK, BATCH)}
        self.batch_id += 1

    def _intent(self, end: Offsets, wall_ms: int) -> Intent:
        start = {topic: self.offsets.get(topic, {"0": 0}) for topic in end}
        before = self.intents.get(self.batch_id - 1)
        return Intent(
            batch=self.batch_id,
            lineage=self.checkpoint.lineage,
            query=self.query_id,
            generation=self._generation,
            code="",
            clock_ms=wall_ms,
            tick=end.get(TICK) != start.get(TICK),
            ranges=ranges_of(start, end),
            end={**end, CLOCK: {"0": wall_ms}, BATCH: {"0": self.batch_id}},
            previous="" if before is None else before.digest,
            topics={} if self.kafka is None else self.kafka.ids([topic for topic in end if topic != TICK]),
        )

    def recreate(self, topic: str) -> None:
        """A topic is deleted and recreated, and somebody accepts that: it is read from its beginning."""
        assert self.kafka is not None
        self.kafka.recreate(topic)
        self.offsets = {**self.offsets, topic: dict.fromkeys(self.offsets[topic], 0)}

    @property
    def _known(self) -> int:
        return max(self.intents.batches(), default=-1)

    def tick(self, wall_ms: int) -> None:
        """One micro-batch without records, in which what depends on the wall clock runs."""
        self.run({**self.offsets, TICK: {"0": wall_ms}}, wall_ms=wall_ms)

    def run_to_the_end(
        self,
        rng: random.Random,
        records_per_batch: int,
        fail: Callable[[int], list[str]] = lambda _: [],
        elsewhere: int | None = 2,
    ) -> None:
        """Random cuts of everything that is in the topics; a third are ticks, the first and last are empty.

        Args:
            rng: decides the cuts.
            records_per_batch: at most, per partition.
            fail: names the failures of each batch.
            elsewhere: the batch that runs on another machine.
        """
        final = self.end()
        self.run(self.offsets)  # as the first batch of a query is if there is nothing to read yet
        while {t: parts for t, parts in self.offsets.items() if t != TICK} != final:
            end = {
                topic: {
                    p: min(stop, self.offsets[topic][p] + rng.randint(0, records_per_batch))
                    for p, stop in parts.items()
                }
                for topic, parts in final.items()
            }
            if rng.random() < 0.3:
                end[TICK] = {"0": self._next_wall_ms}
            elif TICK in self.offsets:
                end[TICK] = self.offsets[TICK]
            if self.batch_id == elsewhere:
                self.run_on_another_machine(end)
            elif end != self.offsets:
                self.run(end, fail(self.batch_id))
        self.run(self.offsets)
        self.committer.refresh_snapshots(force=True)

    def end(self) -> Offsets:
        """The end of every topic that is read."""
        if self.kafka is not None:
            kafka = self.kafka
            return {t: {str(p): kafka.end(t, p) for p in range(n)} for t, n in self._partitions.items()}
        found = admin.end_offsets(self.settings.bootstrap, tuple(self._partitions))
        offsets: Offsets = {topic: {} for topic in self._partitions}
        for (topic, partition), offset in found.items():
            offsets[topic][str(partition)] = offset
        return offsets

    def kernels(self) -> dict[TaskId, Task]:
        """Every task over its committed state, to look at its stores."""
        self.lose_worker()
        self.open_globals()
        opened = {}
        for task, state in self.states.items():
            header, _ = self.worker.open(task, self.committed(task, state))
            hosted = self.worker.task(*task)
            opened[task] = self.worker.kernel(hosted, *task, header.version, self._next_wall_ms)
        return opened

    def committed(self, task: TaskId, state: TaskState) -> CheckpointState:
        """What Spark's state says of a task."""
        return state if self._initial_state is None else with_initial_state(state, self._initial_state, *task)

    def open_globals(self) -> None:
        """Brings the global tables to where the last batch has read."""
        position = {topic: self.offsets[topic] for topic in self.plan.global_topics}
        self.worker.open_globals(msgspec.msgpack.encode(position))

    def _attempt(self, intent: Intent) -> tuple[dict[TaskId, TaskState], list[TaskResult]]:
        """All operators; a shard that fails at a point of its own runs again in another worker."""
        faults.reach("driver.before_tasks")
        states = dict(self.states)
        flowing = list(plan_rows(self._source, intent, known := max(self._known, intent.batch)))
        if not self._shown or self._serving is not None:
            self._shown = True
            flowing += show_rows(self._source, header_of(self._source, intent, known))
        for operator in self._routing.operators:
            mine = {self.routes[stage, t] for stage in operator.stages for t in range(self.tasks[stage])}
            output = [row for row in flowing if row.route not in mine]
            for route in sorted(mine):
                addressed = [row for row in flowing if row.route == route]
                if addressed:
                    output += self._run_shard(operator, addressed, states)
            flowing = output
        results = [
            msgspec.msgpack.decode(row.payload, type=TaskResult) for row in flowing if row.kind == messages.RESULT
        ]
        (plan,) = [row for row in flowing if row.kind == messages.BATCH]
        self.intents.require_same(intent, msgspec.msgpack.decode(plan.batch, type=BatchHeader).intent)
        assert all(row.kind in messages.TO_DRIVER for row in flowing)
        told = [row for row in flowing if row.kind == messages.PLACE]
        self.places |= {row.route: msgspec.msgpack.decode(row.payload, type=Place) for row in told}
        return states, results

    def _run_shard(self, operator: Operator, inputs: list[Row], states: dict[TaskId, TaskState]) -> list[Row]:
        while True:
            changed: dict[TaskId, TaskState] = {}

            def committed(task: TaskId, changed: dict[TaskId, TaskState] = changed) -> CheckpointState:
                if task not in changed:
                    changed[task] = copy.deepcopy(self.states[task])
                return self.committed(task, changed[task])

            try:
                output = list(run_shard(self.worker, operator, self.batch_id, inputs, committed))
            except InjectedFault:
                self.lose_worker()
                continue
            states |= changed
            return output

    def _commit(self, intent: Intent, results: list[TaskResult]) -> None:
        faults.reach("driver.after_tasks")
        writes = [write for result in results for write in result.writes]
        self.committer.commit(
            intent.batch,
            writes,
            intent=token(intent.digest),
            digest=intent.digest,
            known=self._known,
            topics=intent.topics,
        )
        faults.reach("driver.after_tables")
        faults.reach("driver.before_cut")
        record = batches.record_of(intent.batch, intent.clock_ms, intent.ranges, tick=intent.tick, topics=intent.topics)
        batches.append(self.batches, record)
        self.openings += [result.recovery for result in results]
        self.skipped_transactions += sum(result.skipped_transaction for result in results)
        faults.reach("driver.end")

    @property
    def _next_wall_ms(self) -> int:
        return self.clock(self.batch_id)

    @property
    def _local(self) -> Path:
        return self.paths.current.local

    def _topics(self) -> tuple[dict[str, int], dict[str, int]]:
        """Partitions of the topics whose records go to tasks, and of those of global tables besides."""
        if self.kafka is None:
            prepared = topics.prepare(self.settings.bootstrap, self.pipeline, self.plan, begun=False)
            return prepared.read, prepared.read | prepared.whole
        written = self.kafka.records.keys() | self.kafka.partitions.keys()
        matched = {topic for topic in written if any(stage.reads(topic) for stage in self.plan.stages)}
        read = {topic: self.kafka.count(topic) for topic in sorted({*self.plan.source_topics, *matched})}
        return read, read | {topic: self.kafka.count(topic) for topic in self.plan.global_topics}

    def _new_worker(self) -> Worker:
        config = HostConfig(
            pipeline=b"",
            bootstrap=self.settings.bootstrap,
            query_id=self.query_id,
            generation=self._generation,
            fence=self.paths.fence,
            local_root=str(self._local),
            tables_root=self.settings.tables,
            tasks=self.tasks,
            exchange_partitions=self._exchange_partitions,
            commits=self._commits,
            is_read=True,
            serving=self._serving,
            is_state_here=self._is_state_here,
            answers=self.paths.answers,
            restores=self.paths.restores,
        )
        if self.kafka is None:
            control_topic.prepare(config.bootstrap, self.pipeline.name, self.tasks)
        clients: Clients = (
            KafkaClients.of(config, self.pipeline, self.plan)
            if self.kafka is None
            else self.kafka.clients(self.query_id)
        )
        return Worker(config, self.pipeline, self.plan, self.routes, clients)

    @contextmanager
    def _armed(self, failures: list[str]) -> Iterator[None]:
        def hook(point: str) -> None:
            if point in failures:
                failures.remove(point)
                self.failed_at.add(point)
                raise InjectedFault(point)

        faults.arm(hook)
        try:
            yield
        finally:
            faults.arm(None)

    def _close(self) -> None:
        if hasattr(self, "worker"):
            self.worker.close()

    def close(self) -> None:
        """Brings every local store to the committed state, then lets go of stores, consumers and producers."""
        for task, state in self.states.items():
            self.worker.open(task, self.committed(task, state))
        self.worker.close()


def _other_values(change: StoreChanges) -> StoreChanges:
    """What other code might have stored: the last byte of every value is another one."""
    entries = [(k, v if v is None else v[:-1] + bytes([v[-1] ^ 1])) for k, v in change.entries]
    return StoreChanges(entries, change.expire_before_ms)
