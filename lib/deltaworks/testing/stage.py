"""A stage of a topology under test, with its only task."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from types import MappingProxyType

from deltaworks.kernel.call_outs import Answers
from deltaworks.kernel.errors import ErrorPolicy
from deltaworks.kernel.idling import Idling
from deltaworks.kernel.records import RecordBatch
from deltaworks.kernel.stores.build import Store
from deltaworks.kernel.stores.memory import MemoryState
from deltaworks.kernel.task import Task, TaskMetrics
from deltaworks.testing.capture import Capture
from deltaworks.topology.stages import Stage


class StageUnderTest:
    """A stage with its only task."""

    def __init__(
        self,
        stage: Stage,
        collector: Capture,
        errors: ErrorPolicy,
        wall_clock_ms: int,
        idle_timeout_ms: int | None = None,
        global_stores: Mapping[str, Store] = MappingProxyType({}),
        max_task_idle_ms: int | None = None,
        answers: Answers | None = None,
    ) -> None:
        self._state = MemoryState()
        self._idling = Idling(max_task_idle_ms)
        self.task = Task(
            stage,
            0,
            state=self._state,
            collector=collector,
            errors=errors,
            exchange_partitions=dict.fromkeys(stage.exchanges_out, 1),
            wall_clock_ms=wall_clock_ms,
            idle_timeout_ms=idle_timeout_ms,
            global_stores=global_stores,
            answers=answers,
        )
        self.sources = stage.sources
        self.positions = dict.fromkeys((*stage.topics, *stage.exchanges_in), 0)
        """Topic -> offset of the next record to read."""
        self.total = TaskMetrics()

    def ready(self, unread: Collection[str], wall_clock_ms: int) -> bool:
        """Whether it processes a record now, or waits for topics without one; called if a topic has a record."""
        with_records = [topic for topic in self.positions if topic in unread]
        without = [topic for topic in self.positions if topic not in unread]
        return self._idling.ready(with_records, without, wall_clock_ms)

    def run(self, batches: list[RecordBatch], wall_clock_ms: int) -> None:
        """A micro-batch."""
        self.task.process(batches, wall_clock_ms)
        self._commit()

    def observe(self, stream_time_ms: int) -> None:
        """Another stage has reached a time."""
        if self.task.observe(stream_time_ms):
            self._commit()

    def punctuate(self, wall_clock_ms: int) -> None:
        """The wall clock has moved."""
        self.task.process([], wall_clock_ms)
        self.task.punctuate(wall_clock_ms)
        self._commit()

    def idle(self, wall_clock_ms: int) -> None:
        """A micro-batch without records."""
        if self.task.idle(wall_clock_ms):
            self._commit()

    def _commit(self) -> None:
        self._state.apply(self.task.commit())
        batch = self.task.metrics
        self.total.records_in += batch.records_in
        self.total.dropped += batch.dropped
        self.total.late += batch.late
        self.total.lost_results += batch.lost_results
        self.total.dead_letters += batch.dead_letters
        self.total.stream_time_ms = batch.stream_time_ms


def with_expired(stage: Stage) -> Stage:
    """A stage whose stores with a record cache show expired entries."""
    return replace(
        stage,
        stores=tuple(
            replace(spec, expired_stay_cached=True) if spec.timed and spec.cached else spec for spec in stage.stores
        ),
    )
