"""A task: one copy of a stage, with its stores and times; the unit that every host runs.

A host hands over the available records and the wall clock (`process`), then asks for the changes (`commit`) and makes
them durable together with the output that the task handed to the collector. A task does no I/O of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from deltaworks.errors import SerializationError, StreamsError
from deltaworks.kernel.call_outs import Answers, NobodyAnswers
from deltaworks.kernel.context import NO_HEADERS, NOWHERE, Process, TaskContext, TaskMetrics, unique
from deltaworks.kernel.errors import ErrorPolicy, class_name
from deltaworks.kernel.migration import StoredSchemas
from deltaworks.kernel.order import Partition, run
from deltaworks.kernel.processors.build import processor
from deltaworks.kernel.processors.wiring import Wiring
from deltaworks.kernel.records import Collector, Coordinates, Headers, RecordBatch
from deltaworks.kernel.resend import FailedRecords, Resends
from deltaworks.kernel.stores.access import StoreAccess, access
from deltaworks.kernel.stores.build import Store, build_store
from deltaworks.kernel.stores.custom import CustomStore
from deltaworks.kernel.stores.session import SessionStore
from deltaworks.kernel.stores.state import NEVER, StateBackend, StoreChanges
from deltaworks.kernel.stores.window import WindowStore
from deltaworks.kernel.task_times import ACTIVE, STREAM, STREAM_WHEN_ACTIVE, TASK_STORE, TaskTimes
from deltaworks.topology.nodes.sinks import TableKind
from deltaworks.topology.stages import Stage

__all__ = ["GARBAGE_THRESHOLDS", "TASK_STORE", "ErrorPolicy", "Task", "TaskMetrics"]


GARBAGE_THRESHOLDS = (50_000, 20, 50)
"""The arguments that a host should give to `gc.set_threshold`. A task makes no cycles, but caches hundreds of thousands
of rows. With Python's own thresholds the collector walks through them repeatedly, a sixth of the time of a join."""


class Task:
    """One copy of a stage.

    It may be kept for the next batch, or built again from the state at any time, with the same results.
    After an exception it must be discarded, because part of a batch is in its caches.
    """

    def __init__(
        self,
        stage: Stage,
        partition: int,
        *,
        state: StateBackend,
        collector: Collector,
        errors: ErrorPolicy,
        exchange_partitions: Mapping[str, int],
        wall_clock_ms: int = 0,
        idle_timeout_ms: int | None = None,
        max_cached_entries: int = 200_000,
        global_stores: Mapping[str, Store] = MappingProxyType({}),
        answers: Answers | None = None,
    ) -> None:
        """
        Args:
            stage: The stage that it is a copy of.
            partition: Its number; a task reads the partitions of that number.
            state: Its stores as of the last commit, including the reserved store `__task__`.
            collector: Receives the output.
            errors: What happens to a record that fails.
            exchange_partitions: Exchange -> number of tasks of the stage that reads it.
            wall_clock_ms: The time at which users' processors are initialized: that of the next batch.
            idle_timeout_ms: After this long without a record, time follows the wall clock; see `idle`. None: never.
            max_cached_entries: The number of committed entries per store that stay in memory as objects.
            global_stores: The stores of the global stages, which the host keeps up to date and its processors read.
            answers: Gives what other systems say; None: nobody can be asked.
        """
        self._times = TaskTimes(state.reader(TASK_STORE))
        self._schemas = StoredSchemas(stage.stores, state)
        self._failed = FailedRecords(state.reader(TASK_STORE))
        self._stores = {
            spec.name: build_store(
                spec,
                self._schemas.reader(spec.name),
                newest_ms=self._times.get(f"newest/{spec.name}"),
                max_cached=max_cached_entries,
            )
            for spec in stage.stores
        }
        origins = {node.name: None if node.origin is None else str(node.origin) for node in stage.nodes}
        self._context = TaskContext(partition, collector, errors, origins)
        self._context.exchanges = frozenset(stage.exchanges_in)
        self._context.metrics.stream_time_ms = self._times.get(STREAM)
        self._context.stream_time_ms, self._context.wall_clock_ms = self._times.get(STREAM), wall_clock_ms
        nodes = {node.name: node for node in stage.nodes}
        times = self._times
        wiring = Wiring(
            self._context,
            self._stores,
            exchange_partitions,
            times.observed(),
            nodes,
            emitted_ms=times.emitted,
            global_stores=global_stores,
            answers=answers or NobodyAnswers(),
            stage=stage.index,
        )
        self._wiring = _wired(stage, wiring)
        for start in reversed(wiring.starts):
            start()
        wiring.punctuation.restore(times)
        self._sources = {topic: node for node in stage.sources for topic in node.topics}
        self._resends = Resends(errors.resends_of, self._wiring, self._failed, self._timed)
        if errors.resends_of is not None:
            self._context.failed_records = self._resends.failed
        self._patterns = [(re.compile(node.pattern), node) for node in stage.sources if node.pattern is not None]
        clocks = self._wiring.clocks
        self._window_tables = [
            (collector.rows(node.name), clocks[node.window_node])
            for node in stage.tables
            if node.kind is TableKind.WINDOWED and node.window_node is not None
        ]
        self._final_before_ms = [max(0, clock.final_before_ms) for _, clock in self._window_tables]
        self._idle_timeout_ms = idle_timeout_ms
        self._set_aside = errors.set_aside
        self._committed = True

    @property
    def metrics(self) -> TaskMetrics:
        """Counters of the batch in process, or of the last one."""
        return self._context.metrics

    @property
    def stores(self) -> Mapping[str, Store]:
        """Its stores by name, for reading."""
        return self._stores

    def access(self, name: str) -> StoreAccess:
        """One of its stores as users' processors see it, to read and write."""
        return access(self._stores[name], self._context)

    def process(self, batches: Sequence[RecordBatch], wall_clock_ms: int) -> None:
        """Processes records in the order of the order contract.

        Args:
            batches: In offset order per topic-partition; after an exchange, each upstream task is a partition.
            wall_clock_ms: The time of the micro-batch; a batch that is run again gets the same.

        Raises:
            StreamsError: A record failed and the policy says `fail`.
        """
        context = self._begin(wall_clock_ms)
        numbers: dict[tuple[str, int], list[int]] = {}
        for number, batch in enumerate(batches, start=len(context.batches)):
            if batch.offsets:
                numbers.setdefault((batch.topic, batch.partition), []).append(number)
                context.metrics.records_in += len(batch.offsets)
        context.batches.extend(batches)
        self._run(numbers, context, wall_clock_ms)

    def process_slices(self, slices: Mapping[tuple[str, int], Iterable[RecordBatch]], wall_clock_ms: int) -> None:
        """Like `process`, in the same order, but holds only a slice of each partition at a time.

        Args:
            slices: Topic and partition -> its records, in offset order; each slice is asked for when the one before has
                been processed.
            wall_clock_ms: The time of the micro-batch.

        Raises:
            StreamsError: A record failed and the policy says `fail`.
        """
        context = self._begin(wall_clock_ms)
        self._run({at: context.one_by_one(each) for at, each in slices.items()}, context, wall_clock_ms)

    def _run(self, numbers: Mapping[tuple[str, int], Iterable[int]], context: TaskContext, wall_clock_ms: int) -> None:
        partitions = {
            (topic, partition): self._partition(topic, partition, numbers[topic, partition])
            for topic, partition in sorted(numbers)
        }
        if partitions:
            run(list(partitions.values()), context)
        for (topic, number), partition in partitions.items():
            self._times.advance(f"partition/{topic}/{number}", partition.newest_ms)
            self._times.advance(STREAM, partition.newest_ms)
        context.metrics.stream_time_ms = self._times.get(STREAM)
        if partitions and self._idle_timeout_ms is not None:
            self._times.advance(ACTIVE, wall_clock_ms)
            self._times.advance(STREAM_WHEN_ACTIVE, self._times.get(STREAM))
        self._end()

    def is_idle(self, wall_clock_ms: int) -> bool:
        """Whether it has had records, but none for as long as the idle timeout."""
        if self._idle_timeout_ms is None or self._times.get(ACTIVE) == NEVER:
            return False
        return wall_clock_ms - self._times.get(ACTIVE) >= self._idle_timeout_ms

    def idle(self, wall_clock_ms: int) -> bool:
        """Advances time with the wall clock after `idle_timeout_ms`; called if a micro-batch has no record for it.

        Stream time becomes its value at the last record, plus the time that has passed on the wall clock since.

        Returns:
            Whether it did, so that there is something to commit.
        """
        if not self.is_idle(wall_clock_ms):
            return False
        context = self._begin(wall_clock_ms)
        time_ms = self._times.get(STREAM_WHEN_ACTIVE) + wall_clock_ms - self._times.get(ACTIVE)
        self._times.advance(STREAM, time_ms)
        context.metrics.stream_time_ms = self._times.get(STREAM)
        context.stream_time_ms = max(context.stream_time_ms, time_ms)
        number, index = context.number, context.index
        context.resume(NOWHERE, time_ms, NO_HEADERS)
        for go_on in reversed(self._wiring.idlers):
            go_on(time_ms)
        context.number, context.index = number, index
        self._wiring.punctuation.stream_time(context.stream_time_ms)
        self._end()
        return True

    def observe(self, stream_time_ms: int) -> bool:
        """A task that shares stream time with this one has reached a time, so users' punctuators may be due.

        Returns:
            Whether they may, so that there is something to commit.
        """
        context = self._context
        if not self._wiring.starts or stream_time_ms <= context.stream_time_ms:
            return False
        self._begin(context.wall_clock_ms)
        context.stream_time_ms = stream_time_ms
        self._wiring.punctuation.stream_time(stream_time_ms)
        return True

    def punctuate(self, wall_clock_ms: int) -> None:
        """Runs users' punctuators that are due on the wall clock; after the records of a micro-batch, or without any.

        Raises:
            StreamsError: One failed and the policy says `fail`.
        """
        self._begin(wall_clock_ms)
        self._wiring.punctuation.wall_clock(wall_clock_ms)
        self._end()

    def tick(self, wall_clock_ms: int) -> None:
        """Handles a micro-batch without records for this task, after the wall clock has moved.

        Raises:
            StreamsError: A punctuator failed and the policy says `fail`.
        """
        self.punctuate(wall_clock_ms)
        self.idle(wall_clock_ms)

    def next_tick_ms(self) -> int | None:
        """The time on the wall clock from which a `tick` has something to do; None: never, before there are records."""
        due_ms = [] if (next_ms := self._wiring.punctuation.next_wall_clock_ms) is None else [next_ms]
        if self._idle_timeout_ms is not None and (active_ms := self._times.get(ACTIVE)) != NEVER:
            due_ms.append(max(active_ms, self._context.wall_clock_ms) + self._idle_timeout_ms)
        return min(due_ms, default=None)

    def partition_time_ms(self, topic: str, partition: int) -> int:
        """The largest timestamp taken so far from a partition, -1 before the first."""
        return self._times.get(f"partition/{topic}/{partition}")

    def commit(self) -> dict[str, StoreChanges]:
        """Forwards the updates in the record caches, flushes custom stores, then says which windows are final.

        Returns:
            Store -> its changes since the last commit, for stores that have any.
        """
        for flush in reversed(self._wiring.flushes):
            flush()
        self._flush_custom_stores()
        self._close_windows()
        self._wiring.punctuation.remember(self._times)
        for name, clock in self._wiring.clocks_by_store.items():
            self._times.advance(f"observed/{name}", clock.observed_ms)
        for name, emit_clock in self._wiring.emit_clocks.items():
            self._times.advance_emitted(name, emit_clock.emitted_ms, emit_clock.pause_until_ms)
        changes: dict[str, StoreChanges] = {}
        for name, store in self._stores.items():
            try:
                changed = store.take_changes()
            except SerializationError as error:
                raise self._not_kept(name, error) from error
            self._times.advance(f"newest/{name}", store.newest_ms)
            if isinstance(store, WindowStore | SessionStore):
                self._context.metrics.lost_results += store.take_lost()
            if changed is not None:
                changes[name] = changed
        times = self._times.take_changes()
        if times is not None:
            changes[TASK_STORE] = times
        self._schemas.add_to(changes)
        self._failed.add_to(changes)
        self._context.forget_batches()
        self._committed = True
        return changes

    def close(self) -> None:
        """Closes users' processors, upstream ones first, when the task is given up in an orderly way."""
        for close in reversed(self._wiring.closers):
            close()

    def _begin(self, wall_clock_ms: int) -> TaskContext:
        context = self._context
        if self._committed:
            context.metrics = TaskMetrics(stream_time_ms=context.metrics.stream_time_ms)
            self._schemas.committed()
            self._committed = False
        context.wall_clock_ms = wall_clock_ms
        return context

    def _end(self) -> None:
        """Releases processed records, unless a record cache needs them at the commit."""
        if not self._wiring.flushes:
            self._context.forget_batches()

    def _not_kept(self, store: str, error: SerializationError) -> StreamsError:
        """The error for a value that does not serialize at the commit; until then, immutable values stay objects."""
        nodes = [node for node in self._wiring.nodes.values() if store in node.stores]
        makers = [node for node in nodes if store in node.fills] or nodes
        who = ", ".join(f"'{node.name}' from {node.origin}" if node.origin else f"'{node.name}'" for node in makers)
        return StreamsError(
            f"store '{store}' of {who or 'nobody'} cannot keep a value that it was given: {error}",
            hint="declare the store with the type of its values, or put only values of the declared type",
        )

    def _partition(self, topic: str, partition: int, numbers: Iterable[int]) -> Partition:
        source = self._sources.get(topic)
        if source is None:
            source = next((node for pattern, node in self._patterns if pattern.fullmatch(topic)), None)
            if source is None:
                read = sorted({*self._sources, *(pattern.pattern for pattern, _ in self._patterns)})
                raise ValueError(f"no source reads topic '{topic}'; this stage reads {read}")
            self._sources[topic] = source
        newest_ms = self.partition_time_ms(topic, partition)
        entry = self._timed(self._wiring.processes[source.name])
        limit = None if source.whole else dict(source.timestamps).get(topic)  # global tables are read outside batches
        set_aside = self._offsets_set_aside(topic, partition)
        return Partition(
            source,
            entry,
            numbers,
            self._context,
            newest_ms,
            limit,
            set_aside,
            None if source.exchange else self._resends,
        )

    def _offsets_set_aside(self, topic: str, partition: int) -> frozenset[int]:
        if not self._set_aside:
            return frozenset()
        here = unique(Coordinates(topic, partition, 0), self._context.partition, self._context.exchanges)
        mine = (each for each in self._set_aside if (each.topic, each.partition) == (here.topic, here.partition))
        return frozenset(each.offset for each in mine)

    def _timed(self, process: Process) -> Process:
        """Keeps stream time for users' processors and their punctuators; without such processors this costs nothing."""
        if not self._wiring.starts:
            return process
        context, punctuation = self._context, self._wiring.punctuation

        def keeping_time(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
            if timestamp_ms > context.stream_time_ms:
                context.stream_time_ms = timestamp_ms
            process(key, value, timestamp_ms, headers)
            punctuation.stream_time(context.stream_time_ms)

        return keeping_time

    def _flush_custom_stores(self) -> None:
        for name, store in self._stores.items():
            if isinstance(store, CustomStore):
                try:
                    store.flush_instance()
                except StreamsError:
                    raise
                except Exception as error:
                    raise StreamsError(
                        f"flush() of the custom store '{name}' failed: {class_name(error)}: {error}",
                        hint="a store that cannot flush cannot keep its state, so no record can be blamed or skipped",
                    ) from error

    def _close_windows(self) -> None:
        for position, (rows, clock) in enumerate(self._window_tables):
            before_ms = clock.final_before_ms
            if before_ms > self._final_before_ms[position]:
                self._final_before_ms[position] = before_ms
                rows.close_windows(before_ms)


def _wired(stage: Stage, wiring: Wiring) -> Wiring:
    for node in stage.nodes:
        for parent in node.parents:
            wiring.children.setdefault(parent, []).append(node.name)
    for node in reversed(stage.nodes):
        wiring.processes[node.name] = processor(node, wiring)
    return wiring
