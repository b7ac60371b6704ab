"""The streaming host without Spark: the same tasks, store protocol, transactions and Delta commits, in one process.

In the place of Spark's checkpoint, an attempt works on a copy of every task's state, and only a batch that ends well
replaces it. A failure at a fault point ends an attempt; then either the task runs again (a lost worker), or everything
is opened again and the whole batch repeats (a lost driver).
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import msgspec
import pytest
from pyspark.sql import Row

from deltaworks import faults
from deltaworks.control import batches
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.kafka import admin
from deltaworks.kafka.ranges import Offsets, Range
from deltaworks.kernel.stores.state import StoreChanges
from deltaworks.lakehouse.committer import TableCommitter
from deltaworks.settings import Settings
from deltaworks.spark import rows
from deltaworks.spark.local_store import Changes, LocalStore, Stamp, discard
from deltaworks.spark.protocol import open_store
from deltaworks.spark.routes import Routes
from deltaworks.spark.rows import TaskResult
from deltaworks.spark.task_host import run_batch
from deltaworks.spark.worker import HostConfig, Worker
from tests.faults.hooks import InjectedFault
from tests.task_state import TaskState

Task = tuple[int, int]
_InputRow = Row("route", "task", "kind", "payload", "wall_ms")
_FIRST_WALL_MS = 1_800_000_000_000


class InProcessStream:
    """One pipeline; every batch is cut, attempted and committed by the test.

    Args:
        pipeline: what to run.
        settings: a home of its own and a broker that runs.
        query_id: of the checkpoint.
    """

    def __init__(self, pipeline: Pipeline, settings: Settings, query_id: str = "test") -> None:
        self.pipeline, self.settings, self.query_id = pipeline, settings, query_id
        self.plan = pipeline.plan()
        admin.create_topics(settings.bootstrap, admin.topic_specs(pipeline.topics))
        counts = admin.partition_counts(settings.bootstrap)
        self.partitions = {topic: counts[topic] for topic in self.plan.source_topics}
        self.tasks = self.plan.tasks(self.partitions)
        self.routes = Routes(self.tasks, slots=2).by_task()
        self.states: dict[Task, TaskState] = {task: TaskState() for task in self.routes}
        self.offsets: Offsets = {t: {str(p): 0 for p in range(n)} for t, n in self.partitions.items()}
        self.batch_id = 0
        self.openings: list[str] = []
        self.skipped_transactions = 0
        self.failed_at: set[str] = set()
        """Fault points at which an attempt ended."""
        self.restart()

    def restart(self) -> None:
        """A new driver and new workers: nothing but the checkpoint, the disk, Kafka and Delta survives."""
        self._close()
        self.worker = self._new_worker()
        self.committer = TableCommitter(
            self.settings.tables, self.pipeline.name, self.query_id, self.plan.tables, self.pipeline.dead_letter_table
        )
        self.committer.open(generation=1)

    def lose_worker(self) -> None:
        """A new worker process."""
        self._close()
        self.worker = self._new_worker()

    def lose_disk(self, task: Task | None = None) -> None:
        """The local store of one task, or of all, is gone."""
        self._close()
        for stage, number in [task] if task else self.routes:
            discard(self.settings.pipeline(self.pipeline.name) / "local" / f"{stage}-{number}")
        self.worker = self._new_worker()

    def run_on_another_machine(self, end: Offsets) -> None:
        """The tasks come back to a disk that holds an attempt of other code at the same batch.

        That attempt ends before Delta sees it. The batch then runs on another machine, and the next one here again: the
        stores of this disk have the right version, and another nonce.
        """
        folder = self.settings.pipeline(self.pipeline.name) / "local"
        with pytest.MonkeyPatch.context() as patch, suppress(InjectedFault), self._armed(["driver.after_tasks"]):
            patch.setattr(LocalStore, "commit", _commit_of_other_code(LocalStore.commit))
            self._commit(end, self._attempt(end)[1])
        self._close()
        folder.rename(folder.with_name("elsewhere"))
        self.restart()
        self.run(end)
        self._close()
        discard(folder)
        folder.with_name("elsewhere").rename(folder)
        self.restart()

    def run(self, end: Offsets, fail_at: list[str] | None = None) -> None:
        """One micro-batch up to `end`, attempted until it succeeds.

        Args:
            end: next offset per topic and partition.
            fail_at: fault points; each ends one attempt when it is reached.
        """
        failures = list(fail_at or [])
        while True:
            with self._armed(failures):
                try:
                    states, results = self._attempt(end)
                    self._commit(end, results)
                except InjectedFault:
                    self.restart()
                    continue
            break
        self.states = states
        self.offsets = end
        self.batch_id += 1

    def run_to_the_end(
        self, rng: random.Random, records_per_batch: int, fail: Callable[[int], list[str]], elsewhere: int = 2
    ) -> None:
        """Random cuts of everything that is in the topics.

        Args:
            rng: decides the cuts.
            records_per_batch: at most, per partition.
            fail: names the failures of each batch.
            elsewhere: the batch that runs on another machine.
        """
        final = self.end()
        while self.offsets != final:
            end = {
                topic: {
                    p: min(stop, self.offsets[topic][p] + rng.randint(0, records_per_batch))
                    for p, stop in parts.items()
                }
                for topic, parts in final.items()
            }
            if self.batch_id == elsewhere:
                self.run_on_another_machine(end)
            elif end != self.offsets:
                self.run(end, fail(self.batch_id))
        self.committer.refresh_snapshots(force=True)

    def end(self) -> Offsets:
        """The end of every source topic."""
        found = admin.end_offsets(self.settings.bootstrap, self.plan.source_topics)
        offsets: Offsets = {topic: {} for topic in self.plan.source_topics}
        for (topic, partition), offset in found.items():
            offsets[topic][str(partition)] = offset
        return offsets

    def _attempt(self, end: Offsets) -> tuple[dict[Task, TaskState], list[TaskResult]]:
        """All tasks of all stages; a task that fails at a point of its own runs again in another worker."""
        faults.reach("driver.before_tasks")
        states = copy.deepcopy(self.states)
        results: list[TaskResult] = []
        pending: dict[Task, list[Row]] = self._ranges(end)
        for stage in range(len(self.tasks)):
            for task in sorted(t for t in pending if t[0] == stage):
                output, states[task] = self._run_task(task, pending[task])
                for row in output:
                    if row.kind == rows.RESULT:
                        results.append(msgspec.msgpack.decode(row.payload, type=TaskResult))
                    else:
                        reader = next(t for t, route in self.routes.items() if route == row.route and t[1] == row.task)
                        pending.setdefault(reader, []).append(row)
        return states, results

    def _run_task(self, task: Task, inputs: list[Row]) -> tuple[list[Row], TaskState]:
        while True:
            state = copy.deepcopy(self.states[task])
            try:
                return list(run_batch(self.worker, *task, self.batch_id, inputs, state)), state
            except InjectedFault:
                self.lose_worker()

    def _commit(self, end: Offsets, results: list[TaskResult]) -> None:
        faults.reach("driver.after_tasks")
        self.committer.commit(self.batch_id, [write for result in results for write in result.writes])
        faults.reach("driver.after_tables")
        ranges = [r for result in results for r in result.ranges]
        folder = self.settings.pipeline(self.pipeline.name) / "batches"
        batches.append(folder, batches.record_of(self.batch_id, self._wall_ms, ranges))
        self.openings += [result.opened for result in results]
        self.skipped_transactions += sum(result.skipped_transaction for result in results)
        faults.reach("driver.end")

    def _ranges(self, end: Offsets) -> dict[Task, list[Row]]:
        inputs: dict[Task, list[Range]] = {}
        for stage in self.plan.stages:
            for topic in stage.topics:
                for text, stop in end[topic].items():
                    start = self.offsets[topic][text]
                    if stop > start:
                        inputs.setdefault((stage.index, int(text)), []).append(Range(topic, int(text), start, stop))
        return {
            task: [_InputRow(self.routes[task], task[1], rows.RANGES, msgspec.msgpack.encode(ranges), self._wall_ms)]
            for task, ranges in inputs.items()
        }

    @property
    def _wall_ms(self) -> int:
        return _FIRST_WALL_MS + 1000 * self.batch_id

    def _new_worker(self) -> Worker:
        config = HostConfig(
            pipeline=b"",
            bootstrap=self.settings.bootstrap,
            query_id=self.query_id,
            generation=1,
            fence=str(self.settings.pipeline(self.pipeline.name) / "generation"),
            local_root=str(self.settings.pipeline(self.pipeline.name) / "local"),
            tables_root=str(self.settings.tables),
            tasks=self.tasks,
            hop_partitions=self.plan.hop_partitions(self.partitions),
            marker_topic=next(iter(self.plan.sink_topics), self.pipeline.dead_letter_topic),
        )
        return Worker(config, self.pipeline, self.plan, self.routes)

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
            open_store(self.worker.task(*task).local, state)
        self.worker.close()


def _commit_of_other_code(commit: Callable[..., None]) -> Callable[..., None]:
    def other_code(store: LocalStore, changes: Changes, stamp: Stamp, previous: Stamp | None) -> None:
        commit(store, {name: _other_values(change) for name, change in changes.items()}, stamp, previous)

    return other_code


def _other_values(change: StoreChanges) -> StoreChanges:
    """What other code might have stored: the last byte of every value is another one."""
    entries = [(k, v if v is None else v[:-1] + bytes([v[-1] ^ 1])) for k, v in change.entries]
    return StoreChanges(entries, change.expire_before_ms)
