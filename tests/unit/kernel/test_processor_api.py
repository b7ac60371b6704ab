"""Processors of users in a task: contexts, stores, punctuators, errors."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from deltaworks import (
    FixedKeyProcessor,
    FixedKeyRecord,
    Materialized,
    Processor,
    PunctuationType,
    Record,
    Stores,
    StreamsBuilder,
    StreamsError,
    Topology,
)
from deltaworks.kernel.errors import ErrorPolicy
from deltaworks.kernel.records import RecordBatch
from deltaworks.kernel.stores.memory import MemoryState
from deltaworks.kernel.task import Task
from deltaworks.testing import TestRecord, TopologyTestDriver
from deltaworks.testing.capture import Capture, Topics
from deltaworks.testing.memory_tables import TablesInMemory

STREAM, WALL_CLOCK = PunctuationType.STREAM_TIME, PunctuationType.WALL_CLOCK_TIME


def ms(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)


def key_value(name: str) -> Any:
    return Stores.key_value(name, key=str, value=int)


class Pass(Processor[Any, Any, Any, Any]):
    def process(self, record: Record[Any, Any]) -> None:
        self.context.forward(record)


def driver_of(supplier: Any, *stores: str, **options: Any) -> TopologyTestDriver:
    builder = StreamsBuilder()
    builder.add_state_store(key_value("kept"))
    builder.stream("in", key=str, value=int).process(supplier, *stores, key=str, value=int).to("out")
    return TopologyTestDriver(builder.build(), **options)


def output(driver: TopologyTestDriver) -> list[Any]:
    return driver.create_output_topic("out").read_key_values_to_list()


def test_a_store_that_is_not_connected_is_refused_with_what_to_do() -> None:
    class Look(Pass):
        def process(self, record: Record[Any, Any]) -> None:
            self.context.state_store("kept")

    builder = StreamsBuilder()
    builder.add_state_store(key_value("kept"))
    stream = builder.stream("in", key=str, value=int)
    stream.process(Pass, "kept", key=str, value=int, name="first")
    stream.process(Look, key=str, value=int, name="second")
    driver = TopologyTestDriver(builder.build())

    with pytest.raises(StreamsError, match=r"'kept' is not connected to 'second'.*\.process\(\.\.\., 'kept'\)"):
        driver.create_input_topic("in").pipe_input("k", 1)


def test_a_store_is_found_by_its_name_and_by_its_declaration() -> None:
    class Look(Pass):
        stores = (key_value("mine"),)

        def process(self, record: Record[Any, Any]) -> None:
            (declared,) = self.stores
            assert self.context.state_store(declared) is self.context.state_store("mine")
            self.context.forward(record)

    driver = driver_of(Look)
    driver.create_input_topic("in").pipe_input("k", 1)

    assert output(driver) == [("k", 1)]


def test_an_unknown_store_and_an_unknown_child_are_named_with_those_that_exist() -> None:
    class Look(Pass):
        def process(self, record: Record[Any, Any]) -> None:
            if record.value == 1:
                self.context.state_store("other")
            self.context.forward(record, "nobody")

    for value, message in (
        (1, "no store 'other' for '.*'; it can use: kept"),
        (2, "no child 'nobody'; it has: KSTREAM"),
    ):
        with pytest.raises(StreamsError, match=message):
            driver_of(Look, "kept").create_input_topic("in").pipe_input("k", value)


def test_init_forwards_nothing() -> None:
    class Eager(Pass):
        def init(self, context: Any) -> None:
            super().init(context)
            context.forward(Record("k", 1, 0))

    with pytest.raises(StreamsError, match="forwards in init, which runs whenever a task is built again"):
        driver_of(Eager)


def test_an_interval_is_at_least_a_millisecond() -> None:
    class Hasty(Pass):
        def init(self, context: Any) -> None:
            context.schedule(ms(0), STREAM, print)

    with pytest.raises(StreamsError, match="the interval of a punctuator must be at least a millisecond, not 0:00:00"):
        driver_of(Hasty)


def test_a_punctuator_has_no_record() -> None:
    seen: list[Any] = []

    class Watch(Pass):
        def init(self, context: Any) -> None:
            super().init(context)
            seen.append(context.record_metadata)
            context.schedule(ms(10), STREAM, self.tick)

        def process(self, record: Record[Any, Any]) -> None:
            seen.append(self.context.record_metadata)

        def tick(self, now_ms: int) -> None:
            seen.append(self.context.record_metadata)
            self.context.forward(Record("tick", now_ms, now_ms))

    driver = driver_of(Watch)
    driver.create_input_topic("in").pipe_record(TestRecord("k", 1, 5, (("h", b"1"),)))

    assert [where and (where.topic, where.partition, where.offset) for where in seen] == [None, ("in", 0, 0), None]
    assert driver.create_output_topic("out").read_records_to_list() == [TestRecord("tick", 5, 5)]


def test_three_punctuators_that_are_due_at_once_run_in_the_order_of_a_java_heap() -> None:
    class Three(Pass):
        def init(self, context: Any) -> None:
            super().init(context)
            for name in "abc":
                context.schedule(ms(10), STREAM, lambda now, name=name: context.forward(Record(name, now, now)))

        def process(self, record: Record[Any, Any]) -> None:
            pass

    driver = driver_of(Three)
    driver.create_input_topic("in").pipe_input("k", 1, timestamp_ms=0)

    assert output(driver) == [("a", 0), ("c", 0), ("b", 0)]


class Late(Pass):
    """Schedules once in init and once with its first record."""

    def init(self, context: Any) -> None:
        super().init(context)
        self.later = False
        context.schedule(ms(10), WALL_CLOCK, lambda now: context.forward(Record("init", now, now)))

    def process(self, record: Record[Any, Any]) -> None:
        if record.value == 1:
            self.context.schedule(
                ms(10), WALL_CLOCK, lambda now: self.context.forward(Record("later", now, now)), start_ms=0
            )


def test_what_was_scheduled_in_init_goes_on_after_a_restart_and_nothing_else() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).process(Late, key=str, value=int).to("out")
    topics, state = Topics(), MemoryState()

    def task(wall_clock_ms: int) -> Task:
        return Task(
            builder.build().stages[0],
            0,
            state=state,
            collector=Capture(topics, TablesInMemory(()), None),
            errors=ErrorPolicy(),
            exchange_partitions={},
            wall_clock_ms=wall_clock_ms,
        )

    first = task(1_000)
    first.process([RecordBatch("in", 0, [0], [5], [b"k"], [(1).to_bytes(8, "big")])], 1_004)
    first.punctuate(1_004)
    state.apply(first.commit())
    second = task(1_009)
    second.punctuate(1_009)
    state.apply(second.commit())
    assert [record.key for record in topics.of("out")] == [b"later"]
    second.punctuate(1_010)

    assert [(record.key, record.timestamp_ms) for record in topics.of("out")] == [(b"later", 1_004), (b"init", 1_010)]


def test_what_was_forwarded_before_an_error_stays_and_the_error_is_told_at_its_node() -> None:
    class Half(Pass):
        def process(self, record: Record[Any, Any]) -> None:
            self.context.forward(record)
            raise ValueError("half way")

    driver = driver_of(Half, errors=ErrorPolicy.of("continue"))
    driver.create_input_topic("in").pipe_input("k", 1)

    assert output(driver) == [("k", 1)]
    assert [(letter.operator, letter.message) for letter in driver.dead_letters] == [
        ("KSTREAM-PROCESSOR-0000000001", "half way")
    ]


def test_an_error_in_a_punctuator_goes_to_the_policy_and_the_next_run_comes() -> None:
    class Stumble(Pass):
        def init(self, context: Any) -> None:
            super().init(context)
            context.schedule(ms(10), WALL_CLOCK, self.tick)

        def tick(self, now_ms: int) -> None:
            if now_ms == 10:
                raise ValueError("stumbled")
            self.context.forward(Record("tick", now_ms, now_ms))

    driver = driver_of(Stumble, errors=ErrorPolicy.of("continue"))
    driver.advance_wall_clock_time(ms(10))
    driver.advance_wall_clock_time(ms(10))

    assert output(driver) == [("tick", 20)]
    assert [letter.message for letter in driver.dead_letters] == ["stumbled"]
    with pytest.raises(StreamsError, match="stumbled"):
        driver_of(Stumble).advance_wall_clock_time(ms(10))


def test_a_record_cache_forwards_with_the_headers_that_a_processor_gave() -> None:
    class Mark(Pass):
        def process(self, record: Record[Any, Any]) -> None:
            self.context.forward(record.with_headers((("by", b"mark"),)))

    builder = StreamsBuilder(record_cache=True)
    stream = builder.stream("in", key=str, value=int).process(Mark, key=str, value=int)
    stream.group_by_key(name="marked").count(store="counts").to_stream().to("out")
    same = builder.stream("other", key=str, value=int)
    marked = same.process_values(MarkValues, value=int)
    marked.group_by_key().count(store="others").to_stream().to("out2")
    driver = TopologyTestDriver(builder.build())
    driver.create_input_topic("other").pipe_record(TestRecord("k", 1, 5, (("h", b"1"),)))

    assert driver.create_output_topic("out2").read_record().headers == (("by", b"mark"),)


class MarkValues(FixedKeyProcessor[str, int, int]):
    def process(self, record: FixedKeyRecord[str, int]) -> None:
        self.context.forward(record.with_headers((("by", b"mark"),)))


def test_a_processor_reads_a_global_store_and_cannot_write_it() -> None:
    class Fill(Processor[str, int, Any, Any]):
        def process(self, record: Record[str, int]) -> None:
            self.context.state_store("shared").put(record.key, record.value)

    class Use(Pass):
        def process(self, record: Record[Any, Any]) -> None:
            shared = self.context.state_store("shared")
            self.context.forward(record.with_value(shared.get(record.key)))
            if record.value == 0:
                shared.put(record.key, 0)

    builder = StreamsBuilder()
    builder.add_global_store(key_value("shared"), "rows", Fill, key=str, value=int)
    builder.stream("in", key=str, value=int).process(Use, key=str, value=int).to("out")
    driver = TopologyTestDriver(builder.build())
    driver.create_input_topic("rows").pipe_input("k", 7)
    driver.create_input_topic("in").pipe_input("k", 1)

    assert output(driver) == [("k", 7)]
    with pytest.raises(StreamsError, match="the store 'shared' can only be read: it is global"):
        driver.create_input_topic("in").pipe_input("k", 0)


def test_a_read_only_state_store_is_written_by_its_own_processor_only() -> None:
    class Fill(Processor[str, int, Any, Any]):
        def process(self, record: Record[str, int]) -> None:
            self.context.state_store("rows").put(record.key, record.value)

    class Use(Pass):
        def process(self, record: Record[Any, Any]) -> None:
            rows = self.context.state_store("rows")
            self.context.forward(record.with_value(rows.get(record.key)))
            if record.value == 0:
                rows.delete(record.key)

    topology = Topology()
    topology.add_read_only_state_store(key_value("rows"), "source", "rows", "fill", Fill, key=str, value=int)
    topology.add_source("in", "in", key=str, value=int).add_processor("use", Use, "in")
    topology.connect_processor_and_state_stores("use", "rows")
    topology.add_sink("out", "out", "use", key=str, value=int)
    driver = TopologyTestDriver(topology.build())
    driver.create_input_topic("rows").pipe_input("k", 7)
    driver.create_input_topic("in").pipe_input("k", 1)

    assert output(driver) == [("k", 7)]
    with pytest.raises(StreamsError, match="the store 'rows' can only be read: something else fills it"):
        driver.create_input_topic("in").pipe_input("k", 0)


def test_a_processor_may_use_the_store_of_a_table_and_a_cache_forwards_what_it_writes() -> None:
    class Touch(Pass):
        def process(self, record: Record[Any, Any]) -> None:
            row = self.context.state_store("rows").get(record.key)
            self.context.state_store("rows").put(record.key, row.value + 1, record.timestamp_ms)

    builder = StreamsBuilder()
    rows = builder.table("rows", key=str, value=int, store=Materialized("rows", caching=True))
    rows.to_stream().to("out")
    builder.stream("in", key=str, value=int).process(Touch, "rows", key=str, value=int)
    driver = TopologyTestDriver(builder.build())
    driver.create_input_topic("rows").pipe_input("k", 7, timestamp_ms=1)
    driver.create_input_topic("in").pipe_input("k", 0, timestamp_ms=2)

    assert output(driver) == [("k", 7), ("k", 8)]
    assert driver.store("rows").all_with_timestamps() == [("k", 8, 2)]


def test_a_test_writes_a_store_before_the_topology_reads_it() -> None:
    class Use(Pass):
        def process(self, record: Record[Any, Any]) -> None:
            self.context.forward(record.with_value(self.context.state_store("kept").get(record.key)))

    driver = driver_of(Use, "kept")
    driver.store("kept").put("k", 9)
    driver.create_input_topic("in").pipe_input("k", 1)

    assert output(driver) == [("k", 9)]


def test_closing_the_driver_closes_processors_in_the_order_of_the_records() -> None:
    closed: list[str] = []

    class First(Pass):
        def close(self) -> None:
            closed.append("first")

    class Second(Pass):
        def close(self) -> None:
            closed.append("second")

    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).process(First, key=str, value=int).process(Second, key=str, value=int)
    TopologyTestDriver(builder.build()).close()

    assert closed == ["first", "second"]


def test_a_record_has_no_negative_time() -> None:
    with pytest.raises(ValueError, match="the timestamp of a record must not be negative, but is -1"):
        Record("k", 1, 0).with_timestamp(-1)
    with pytest.raises(ValueError, match="must not be negative"):
        FixedKeyRecord("k", 1, -5)


def test_stages_share_stream_time_only_if_they_are_asked_to_be_one_task() -> None:
    class Clock(Pass):
        def init(self, context: Any) -> None:
            super().init(context)
            context.schedule(ms(10), STREAM, lambda now: context.forward(Record("tick", now, now)))

    def ticks(one_task: bool) -> list[Any]:
        builder = StreamsBuilder()
        exchange = (
            builder.stream("in", key=str, value=int).filter(lambda _, value: value > 0).repartition(name="exchange")
        )
        exchange.process(Clock, key=str, value=int).filter(lambda key, _: key == "tick").to("out")
        driver = TopologyTestDriver(builder.build(), one_task=one_task)
        for value, timestamp_ms in ((1, 0), (0, 30)):
            driver.create_input_topic("in").pipe_input("k", value, timestamp_ms=timestamp_ms)
        return output(driver)

    assert ticks(False) == [("tick", 0)]
    assert ticks(True) == [("tick", 0), ("tick", 30)]
