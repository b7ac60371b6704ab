"""The test driver: a whole topology in one process, one record at a time."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, ClassVar, Self, TypeVar, overload

from deltaworks.dsl.mistakes import Hinted
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.dsl.point import Typed
from deltaworks.kernel.errors import ErrorPolicy
from deltaworks.kernel.records import Coordinates, DeadLetter, RecordBatch
from deltaworks.kernel.task import Task, TaskMetrics
from deltaworks.testing.call_outs import Fake, fakes_for
from deltaworks.testing.capture import Capture, Topics
from deltaworks.testing.clocks import EPOCH, instant_at, instant_ms
from deltaworks.testing.memory_tables import TablesInMemory
from deltaworks.testing.stage import StageUnderTest, with_expired
from deltaworks.testing.stores import (
    TestKeyValueStore,
    TestSessionStore,
    TestVersionedStore,
    TestWindowStore,
    other_kind,
    view_of,
)
from deltaworks.testing.topics import RawRecord, TestInputTopic, TestOutputTopic
from deltaworks.testing.typed import check_store_type, topic_serde
from deltaworks.topology.durations import milliseconds
from deltaworks.topology.nodes import CustomSink, ExtractedTopicSink, Source, TopicSink
from deltaworks.topology.plan import Plan
from deltaworks.topology.sinks import SinkRecord
from deltaworks.topology.timestamps import ConsumedRecord

K = TypeVar("K")
V = TypeVar("V")
S = TypeVar("S")


class TopologyTestDriver(Hinted):
    """Runs a topology without Kafka, Spark or Delta Lake, to test what it computes.

    Write records into input topics; when `pipe_input` returns, the topology has processed the record completely:
    output topics, stores and tables show the result.

    ```python
    driver = TopologyTestDriver(pipeline)
    orders = driver.create_input_topic("raw-orders", key=str, value=Order)
    premium = driver.create_output_topic("premium-orders", key=str, value=Order)

    orders.pipe_input("ann", Order(amount=100, tier="PREMIUM"), timestamp_ms=5_000)

    assert premium.read_key_value() == ("ann", Order(amount=90, tier="PREMIUM"))
    assert driver.window_store("order-count-store", key=str, value=int).fetch("ann", 0) == 1
    assert driver.table("order_counts").rows == {Windowed("ann", 0, 3_600_000): 1}
    ```

    **Types.** Topics and stores have the serdes of the topology. With `key=` and `value=` a type checker knows their
    types too, and the driver refuses types that the topology does not have there. Without them, and in `store`,
    everything is `Any`.

    **Order.** While a topic has unread records, the driver takes the one with the lowest timestamp, sends it through
    its stage, commits (so record caches are flushed), and appends the output to exchanges and to topics that the
    topology also reads.

    Records of global tables are applied at once.

    **Time.** Stream time comes from the records. The wall clock starts at `initial_wall_clock` and moves only by
    `advance_wall_clock_time`. Every input topic has a clock for records without a timestamp: it starts at `start` and
    moves by `advance` with each such record. All clocks start at 1970-01-01 in UTC unless the test sets them. With an
    `idle_timeout`, stream time follows the wall clock once it has moved by that much without a record.

    **Errors.** With `on_error="fail"` a bad record raises `StreamsError` from `pipe_input`, and the driver stops;
    earlier results can still be read. With `"continue"` the record goes to `dead_letters`, and to the pipeline's
    dead letter topic if it has one.

    **The end.** `close()`, or a `with` block, closes the processors that you wrote and calls the pipeline's `on_stop`;
    its `on_start` is called when the driver is made. The fixture `driver_for` of the
    pytest plugin does it for you.

    **What it does not simulate.** Partitions: every topic has one, and every stage has one task, so co-partitioning
    and skew do not show. Micro-batches: it commits after each record, while the stream commits after many, so with a
    record cache the stream forwards fewer updates; tables and stores end up the same. Crashes, restarts,
    transactions, Parquet and Delta commits: see `deltaworks.testing.recorded` for micro-batches on several tasks.

    Source: `TopologyTestDriver`; differs: tables, dead letters; the wall clock starts in 1970, not now.
    """

    _other_names: ClassVar[dict[str, str]] = {
        "state_store": "store(name)",
        "all_state_stores": "stores",
        "timestamped_key_value_store": "key_value_store(name, key=..., value=...).all_with_timestamps()",
        "timestamped_window_store": "window_store(name, key=..., value=...).all_with_timestamps()",
        "versioned_key_value_store": "versioned_store(name, key=..., value=...)",
        "key_value_store": "key_value_store(name, key=..., value=...)",
        "window_store": "window_store(name, key=..., value=...)",
        "session_store": "session_store(name, key=..., value=...)",
        "produced_topic_names": "produced_topics",
        "pipe_input": "create_input_topic(topic).pipe_input(key, value)",
        "read_output": "create_output_topic(topic).read_record()",
    }

    def __init__(
        self,
        topology: Pipeline | Plan,
        *,
        initial_wall_clock: datetime = EPOCH,
        errors: ErrorPolicy | None = None,
        set_aside: Collection[str] = (),
        dead_letter_topic: str | None = None,
        idle_timeout: timedelta | None = None,
        max_task_idle: timedelta | None = None,
        expired_stay_cached: bool = False,
        one_task: bool = False,
        call_outs: Mapping[str, Fake] | None = None,
    ) -> None:
        """
        Args:
            topology: A pipeline, or the plan that `StreamsBuilder.build` returned.
            initial_wall_clock: Where the wall clock starts.
            errors: Replaces the pipeline's `on_error` and handlers; a plan alone fails on every error.
            set_aside: Records that become dead letters instead of being processed, as `TOPIC-0@OFFSET`; see the command
                `deltaworks set-aside`.
            dead_letter_topic: Replaces the pipeline's.
            idle_timeout: Replaces the pipeline's.
            max_task_idle: Replaces the pipeline's. Records wait for the other topics of their stage until the wall
                clock has moved by that much.
            expired_stay_cached: Window and session stores with a record cache show entries past their retention, as
                those of Kafka Streams do until the cache is full. On our hosts, expired entries are gone.
            one_task: Users' processors see the stream time of all stages together, as in Kafka Streams' test driver,
                which runs them in one task. On our hosts, and on Kafka Streams' own, each stage has its own.
            call_outs: Name of a `map_async`, `map_values_async` or `enrich_from` -> what answers in the place of the
                other system: a plain or `async` function with the same arguments. The driver asks no network, so an
                operator without one cannot take a record.
        """
        if not isinstance(topology, Pipeline | Plan):
            raise TypeError(_no_plan(topology))
        wall_clock_ms = instant_ms(initial_wall_clock, "initial_wall_clock=")
        plan = topology.plan() if isinstance(topology, Pipeline) else topology
        if isinstance(topology, Pipeline):
            dead_letter_topic = dead_letter_topic or topology.dead_letters.topic
            errors = errors or topology.errors
            idle_timeout = topology.idle_timeout if idle_timeout is None else idle_timeout
            max_task_idle = topology.max_task_idle if max_task_idle is None else max_task_idle
        self._plan = plan
        self._dead_letter_table = topology.dead_letters.table if isinstance(topology, Pipeline) else None
        self._topics = Topics()
        self._tables = TablesInMemory(plan.tables)
        self._capture = Capture(self._topics, self._tables, dead_letter_topic)
        stages = [with_expired(stage) for stage in plan.stages] if expired_stay_cached else plan.stages
        idle_timeout_ms = None if idle_timeout is None else milliseconds(idle_timeout, "idle_timeout")
        max_task_idle_ms = None if max_task_idle is None else milliseconds(max_task_idle, "max_task_idle")
        errors = errors or ErrorPolicy()
        errors = replace(errors, set_aside=errors.set_aside | frozenset(map(Coordinates.of, set_aside)))
        self._global_stages = [
            StageUnderTest(stage, self._capture, errors, wall_clock_ms) for stage in plan.global_stages
        ]
        answers = fakes_for(plan, call_outs)
        global_stores = {name: store for stage in self._global_stages for name, store in stage.task.stores.items()}
        self._stages = [
            StageUnderTest(
                stage, self._capture, errors, wall_clock_ms, idle_timeout_ms, global_stores, max_task_idle_ms, answers
            )
            for stage in stages
        ]
        self._readers = {topic: stage for stage in self._all_stages for topic in stage.positions}
        self._outputs = {*plan.sink_topics, *filter(None, [dead_letter_topic])}
        self._wall_clock_ms = wall_clock_ms
        self._waits = max_task_idle is not None
        self._one_task = one_task
        self._failure: Exception | None = None
        self._running: AbstractContextManager[None] = (
            topology.running() if isinstance(topology, Pipeline) else nullcontext()
        )
        self._running.__enter__()

    def __repr__(self) -> str:
        metrics = self.metrics
        counted = f"{metrics.records_in} records in, {metrics.dropped} dropped, {metrics.late} late"
        return f"TopologyTestDriver of {self._plan!r}; {counted}; wall clock at {instant_at(self._wall_clock_ms)}"

    @overload
    def create_input_topic(
        self,
        topic: str,
        *,
        key: Typed[K],
        value: Typed[V],
        start: datetime = ...,
        advance: timedelta = ...,
    ) -> TestInputTopic[K, V]: ...

    @overload
    def create_input_topic(
        self,
        topic: str,
        *,
        key: Typed[Any] | None = None,
        value: Typed[Any] | None = None,
        start: datetime = ...,
        advance: timedelta = ...,
    ) -> TestInputTopic[Any, Any]: ...

    def create_input_topic(
        self,
        topic: str,
        *,
        key: Typed[Any] | None = None,
        value: Typed[Any] | None = None,
        start: datetime = EPOCH,
        advance: timedelta = timedelta(0),
    ) -> TestInputTopic[Any, Any]:
        """Returns a topic to write into.

        Args:
            topic: A topic that the topology reads.
            key: Type of its keys, which the topology must have there, or a serde for other bytes; None: the serde that
                the topology reads it with.
            value: Type or serde of its values, likewise.
            start: Where its clock starts, for records without a timestamp.
            advance: By how much the clock moves with each of them.

        Raises:
            KeyError: The topology does not read the topic.
            TypeError: The topology reads it with other types.
        """
        plan = self._plan
        all_stages = (*plan.global_stages, *plan.stages)
        source = next((node for stage in all_stages for node in stage.sources if _reads(node, topic)), None)
        if source is None:
            raise _unknown("input topic", topic, [*plan.source_topics, *plan.global_topics, *plan.source_patterns])
        return TestInputTopic(
            topic,
            lambda record: self._pipe(topic, record),
            topic_serde(key, source.key, topic, "key"),
            topic_serde(value, source.value, topic, "value"),
            start,
            advance,
        )

    @overload
    def create_output_topic(self, topic: str, *, key: Typed[K], value: Typed[V]) -> TestOutputTopic[K, V]: ...

    @overload
    def create_output_topic(
        self, topic: str, *, key: Typed[Any] | None = None, value: Typed[Any] | None = None
    ) -> TestOutputTopic[Any, Any]: ...

    def create_output_topic(
        self, topic: str, *, key: Typed[Any] | None = None, value: Typed[Any] | None = None
    ) -> TestOutputTopic[Any, Any]:
        """Returns a topic to read from its beginning.

        Args:
            topic: A topic that the topology writes, or any name if one of its functions names topics; the dead letter
                topic needs both types.
            key: Type of its keys, which the topology must have there, or a serde for other bytes; None: the serde that
                the topology writes it with.
            value: Type or serde of its values, likewise.

        Raises:
            KeyError: The topology does not write the topic.
            TypeError: The topology writes it with other types.
        """
        extracted = next((node for node in self._plan.nodes if isinstance(node, ExtractedTopicSink)), None)
        known = self._outputs | self._capture.written.records.keys()
        if topic not in known and extracted is None:
            raise _unknown("output topic", topic, known)
        sinks = (node for node in self._plan.nodes if isinstance(node, TopicSink) and node.topic == topic)
        sink = next(sinks, extracted)
        known_key, known_value = (None, None) if sink is None else (sink.key, sink.value)
        return TestOutputTopic(
            topic,
            self._capture.written.of(topic),
            topic_serde(key, known_key, topic, "key"),
            topic_serde(value, known_value, topic, "value"),
        )

    def sink(self, name: str) -> list[SinkRecord[Any, Any]]:
        """The records that arrived at a sink of the author, oldest first; the sink itself is not opened.

        Raises:
            KeyError: There is no such sink.
        """
        known = [node.name for node in self._plan.nodes if isinstance(node, CustomSink)]
        if name not in known:
            raise _unknown("sink", name, known)
        return self._capture.sinks.setdefault(name, [])

    def store(self, name: str) -> Any:
        """A state store to read and write: a key-value, versioned, window or session store, or a user's own.

        `key_value_store`, `window_store`, `session_store` and `versioned_store` also tell a type checker what it holds.

        Raises:
            KeyError: There is no such store.
        """
        return view_of(name, self._task_with(name))

    def key_value_store(self, name: str, *, key: Typed[K], value: Typed[V]) -> TestKeyValueStore[K, V]:
        """A state store with one value per key.

        Args:
            name: Its name.
            key: Type or serde of its keys.
            value: Type or serde of its values.

        Raises:
            KeyError: There is no such store.
            TypeError: It is a store of another kind, or has other types.
        """
        return self._typed_store(name, TestKeyValueStore, "key-value", key, value)

    def window_store(self, name: str, *, key: Typed[K], value: Typed[V]) -> TestWindowStore[K, V]:
        """A state store with a value per key and time window; see `key_value_store`.

        Args:
            name: Its name.
            key: Type or serde of its keys, without their windows.
            value: Type or serde of its values.
        """
        return self._typed_store(name, TestWindowStore, "window", key, value)

    def session_store(self, name: str, *, key: Typed[K], value: Typed[V]) -> TestSessionStore[K, V]:
        """A state store with a value per key and session; see `key_value_store`.

        Args:
            name: Its name.
            key: Type or serde of its keys, without their sessions.
            value: Type or serde of its values.
        """
        return self._typed_store(name, TestSessionStore, "session", key, value)

    def versioned_store(self, name: str, *, key: Typed[K], value: Typed[V]) -> TestVersionedStore[K, V]:
        """A state store with the versions of a value per key; see `key_value_store`."""
        return self._typed_store(name, TestVersionedStore, "versioned", key, value)

    @property
    def stores(self) -> dict[str, Any]:
        """Every state store by name, to read, without stores that are internal to their operator."""
        names = sorted(name for stage in self._all_stages for name in stage.task.stores)
        readable: dict[str, Any] = {}
        for name in names:
            try:
                readable[name] = self.store(name)
            except KeyError:
                continue
        return readable

    def table(self, name: str) -> Any:
        """The content of a Delta table: `AppendTable`, `KeyedTable` or `WindowTable`, depending on how it is written.

        Raises:
            KeyError: The topology writes no such table.
        """
        tables = self._tables.by_name
        if name not in tables:
            if name == self._dead_letter_table:
                raise KeyError(f"'{name}' is the table of dead letters; driver.dead_letters has them")
            raise _unknown("table", name, tables)
        return tables[name]

    def advance_wall_clock_time(self, advance: timedelta) -> None:
        """Moves the wall clock forward."""
        advance_ms = milliseconds(advance, "the advance of the wall clock")
        if advance_ms < 0:
            raise ValueError(f"the wall clock cannot go back by {-advance}")
        with self._until_failure():
            self._wall_clock_ms += advance_ms
            for stage in self._stages:
                stage.punctuate(self._wall_clock_ms)
            self._run_until_idle()
            for stage in self._stages:
                # Records from a stage that has been idle make the next one busy.
                if all(stage.positions[topic] == len(self._topics.of(topic)) for topic in stage.positions):
                    stage.idle(self._wall_clock_ms)
                self._run_until_idle()

    def close(self) -> None:
        """Closes the users' processors, unless one has failed, then calls `on_stop`; output can still be read."""
        failure, running = self._failure, self._running
        self._running = nullcontext()
        try:
            if failure is None:
                self._failure = ValueError("the test driver is closed")
                for stage in self._all_stages:
                    stage.task.close()
        except Exception as error:
            failure = error
            raise
        finally:
            running.__exit__(None if failure is None else type(failure), failure, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def dead_letters(self) -> list[DeadLetter]:
        """The records that were set aside, oldest first."""
        return self._capture.dead_letters

    @property
    def metrics(self) -> TaskMetrics:
        """Counters since the driver was made, over all stages."""
        return TaskMetrics(
            records_in=sum(stage.total.records_in for stage in self._all_stages),
            dropped=sum(stage.total.dropped for stage in self._all_stages),
            late=sum(stage.total.late for stage in self._all_stages),
            lost_results=sum(stage.total.lost_results for stage in self._all_stages),
            dead_letters=sum(stage.total.dead_letters for stage in self._all_stages),
            stream_time_ms=max((stage.total.stream_time_ms for stage in self._stages), default=-1),
        )

    @property
    def produced_topics(self) -> list[str]:
        """Names of the output topics that a record was written to, the dead letter topic included."""
        return sorted(topic for topic, records in self._capture.written.records.items() if records)

    @property
    def produced(self) -> dict[str, list[RawRecord]]:
        """Output topic -> the records sent there as bytes, oldest first, without those that a test has piped."""
        written = self._capture.written
        return {topic: list(written.of(topic)) for topic in sorted(self._outputs | written.records.keys())}

    def _task_with(self, store: str) -> Task:
        tasks = [stage.task for stage in self._all_stages]
        for task in tasks:
            if store in task.stores:
                return task
        raise _unknown("store", store, [name for task in tasks for name in task.stores])

    def _typed_store(self, name: str, wanted: type[S], kind: str, key: Typed[Any], value: Typed[Any]) -> S:
        task = self._task_with(name)
        view, spec = view_of(name, task), task.stores[name].spec
        if not isinstance(view, wanted):
            raise other_kind(spec, kind)
        check_store_type(key, spec.key, name, "key")
        check_store_type(value, spec.value, name, "value")
        return view

    @property
    def _all_stages(self) -> list[StageUnderTest]:
        return [*self._global_stages, *self._stages]

    def _pipe(self, topic: str, record: RawRecord) -> None:
        with self._until_failure():
            self._topics.of(topic).append(record)
            self._run_until_idle()

    @contextmanager
    def _until_failure(self) -> Iterator[None]:
        """After an error the tasks must not be used any more; only their results can be read."""
        if self._failure is not None:
            raise self._failure
        try:
            yield
        except Exception as failure:
            self._failure = failure
            raise

    def _run_until_idle(self) -> None:
        while topic := self._next_topic():
            stage = self._readers[topic]
            offset = stage.positions[topic]
            stage.positions[topic] += 1
            record = self._topics.of(topic)[offset]
            headers = [record.headers] if record.headers else None
            batch = RecordBatch(topic, 0, [offset], [record.timestamp_ms], [record.key], [record.value], headers)
            stage.run([batch], self._wall_clock_ms)
            if self._one_task and stage in self._stages:
                for other in self._stages:
                    other.observe(stage.total.stream_time_ms)

    def _next_topic(self) -> str | None:
        """The topic with unread records whose next record has the lowest timestamp; global topics go first."""
        if self._plan.source_patterns:
            self._match_topics()
        unread = [
            topic for topic, stage in self._readers.items() if stage.positions[topic] < len(self._topics.of(topic))
        ]
        if self._waits:
            unread = [topic for topic in unread if self._readers[topic].ready(unread, self._wall_clock_ms)]
        if len(unread) < 2 or self._readers[unread[0]] in self._global_stages:
            return unread[0] if unread else None
        return min(unread, key=lambda topic: (self._head_ms(topic), topic))

    def _head_ms(self, topic: str) -> int:
        """The time of the next record of a topic."""
        stage = self._readers[topic]
        offset = stage.positions[topic]
        head = self._topics.of(topic)[offset]
        source = next(node for node in stage.sources if _reads(node, topic, exchanges=True))
        if source.timestamp_extractor is None:
            return head.timestamp_ms
        place = (topic, 0, offset, self._wall_clock_ms)
        record = ConsumedRecord(head.key, head.value, head.timestamp_ms, head.headers, *place)
        return source.time_before_its_turn(record, stage.task.partition_time_ms(topic, 0))

    def _match_topics(self) -> None:
        """Reads topics from now on that match a pattern and have been written to since."""
        for topic in self._topics.records.keys() - self._readers.keys():
            for stage in self._stages:
                if any(_reads(node, topic) for node in stage.sources):
                    self._readers[topic] = stage
                    stage.positions[topic] = 0


def _reads(source: Source, topic: str, *, exchanges: bool = False) -> bool:
    if source.exchange and not exchanges:
        return False
    return topic in source.topics or (source.pattern is not None and re.fullmatch(source.pattern, topic) is not None)


def _no_plan(given: object) -> str:
    hint = "; give what its build() returns" if hasattr(given, "build") else ""
    return f"the test driver runs a Pipeline or a Plan, but got a {type(given).__name__}{hint}"


def _unknown(what: str, name: str, known: Iterable[str]) -> KeyError:
    return KeyError(f"the topology has no {what} '{name}'; it has: {', '.join(sorted(known)) or 'none'}")
