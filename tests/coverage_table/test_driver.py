"""The test driver and its topics, method by method."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from deltaworks import (
    Materialized,
    Plan,
    SessionWindows,
    StreamsBuilder,
    TimeWindows,
    WallclockTimestampExtractor,
)
from deltaworks.testing import TestInputTopic, TestOutputTopic, TestRecord, TopologyTestDriver
from deltaworks.testing.clocks import EPOCH

PAIRS = [("ann", 1), ("bob", 2), ("ann", 3)]
SECOND = timedelta(seconds=1)


def plan() -> Plan:
    builder = StreamsBuilder(explicit_names="none")
    numbers = builder.stream("numbers", key=str, value=int)
    numbers.filter(lambda _, number: number != 13).to("out")
    numbers.group_by_key().reduce(max, store="largest")
    return builder.build()


def topics() -> tuple[TestInputTopic[str, int], TestOutputTopic[str, int]]:
    driver = TopologyTestDriver(plan())
    return (
        driver.create_input_topic("numbers", key=str, value=int),
        driver.create_output_topic("out", key=str, value=int),
    )


def filled() -> TestOutputTopic[str, int]:
    numbers, out = topics()
    for second, (key, number) in enumerate(PAIRS):
        numbers.pipe_input(key, number, timestamp_ms=1_000 * second)
    return out


def test_a_record_can_be_piped_with_its_time_and_headers() -> None:
    numbers, out = topics()
    numbers.pipe_input("ann", 1, timestamp_ms=5, headers=(("trace", b"x"),))

    assert out.read_record() == TestRecord("ann", 1, 5, (("trace", b"x"),))


def test_a_test_record_can_be_piped() -> None:
    numbers, out = topics()
    numbers.pipe_record(TestRecord("ann", 1, 5))

    assert out.read_record() == TestRecord("ann", 1, 5)


def test_records_can_be_piped_as_a_list() -> None:
    numbers, out = topics()
    numbers.pipe_record_list([TestRecord("ann", 1, 5), TestRecord("bob", 2, 6)])

    assert out.read_records_to_list() == [TestRecord("ann", 1, 5), TestRecord("bob", 2, 6)]


def test_pairs_can_be_piped_as_a_list() -> None:
    numbers, out = topics()
    numbers.pipe_key_value_list(PAIRS)

    assert out.read_key_values_to_list() == PAIRS


def test_values_can_be_piped_as_a_list() -> None:
    numbers, out = topics()
    numbers.pipe_value_list([1, 2])

    assert out.read_key_values_to_list() == [(None, 1), (None, 2)]


def test_the_clock_of_a_topic_can_be_moved() -> None:
    numbers, out = topics()
    numbers.advance_time(SECOND)
    numbers.pipe_input("ann", 1)

    assert out.read_record().timestamp_ms == 1_000


def test_the_clock_of_a_topic_starts_where_it_is_told() -> None:
    driver = TopologyTestDriver(plan())
    driver.create_input_topic("numbers", start=EPOCH + 7 * SECOND).pipe_input("ann", 1)

    assert driver.create_output_topic("out").read_record().timestamp_ms == 7_000


def test_the_clock_of_a_topic_goes_on_by_itself() -> None:
    driver = TopologyTestDriver(plan())
    driver.create_input_topic("numbers", advance=SECOND).pipe_value_list([1, 2])

    assert [record.timestamp_ms for record in driver.create_output_topic("out").read_records_to_list()] == [0, 1_000]


def test_a_value_can_be_read() -> None:
    assert filled().read_value() == 1


def test_a_pair_can_be_read() -> None:
    assert filled().read_key_value() == ("ann", 1)


def test_a_record_can_be_read() -> None:
    assert filled().read_record() == TestRecord("ann", 1, 0)


def test_records_can_be_read_as_a_list() -> None:
    assert [record.timestamp_ms for record in filled().read_records_to_list()] == [0, 1_000, 2_000]


def test_pairs_can_be_read_as_a_list() -> None:
    assert filled().read_key_values_to_list() == PAIRS


def test_pairs_can_be_read_as_a_map() -> None:
    assert filled().read_key_values_to_map() == {"ann": 3, "bob": 2}


def test_values_can_be_read_as_a_list() -> None:
    assert filled().read_values_to_list() == [1, 2, 3]


def test_what_is_not_read_yet_is_counted() -> None:
    out = filled()
    out.read_value()

    assert out.queue_size == 2


def test_a_topic_without_unread_records_is_empty() -> None:
    out = filled()
    before = out.is_empty
    out.read_values_to_list()

    assert (before, out.is_empty) == (False, True)


def test_stores_can_be_read() -> None:
    driver = TopologyTestDriver(plan())
    driver.create_input_topic("numbers").pipe_key_value_list(PAIRS)

    assert driver.store("largest").all() == [("ann", 3), ("bob", 2)]


def of_each_kind() -> TopologyTestDriver:
    builder = StreamsBuilder()
    numbers = builder.stream("numbers", key=str, value=int)
    grouped = numbers.group_by_key()
    grouped.count(store="key-value")
    grouped.windowed_by(TimeWindows(size=SECOND, grace=timedelta(0))).count(store="window")
    grouped.windowed_by(SessionWindows(gap=SECOND, grace=timedelta(0))).count(store="session")
    numbers.to_table(store=Materialized("versioned", history=SECOND))
    return TopologyTestDriver(builder.build())


VIEWS: dict[str, Callable[[TopologyTestDriver], list[Any]]] = {
    "key-value": lambda driver: driver.key_value_store("key-value", key=str, value=int).all(),
    "window": lambda driver: driver.window_store("window", key=str, value=int).all(),
    "session": lambda driver: driver.session_store("session", key=str, value=int).all(),
    "versioned": lambda driver: driver.versioned_store("versioned", key=str, value=int).all(),
}


@pytest.mark.parametrize("kind", VIEWS)
def test_a_store_of_each_kind_can_be_read(kind: str) -> None:
    driver = of_each_kind()
    driver.create_input_topic("numbers").pipe_input("ann", 1)

    assert [value for _, value in VIEWS[kind](driver)] == [1]


def test_the_topics_that_were_written_are_known() -> None:
    driver = TopologyTestDriver(plan())
    driver.create_input_topic("numbers").pipe_key_value_list(PAIRS)

    assert driver.produced_topics == ["out"]


def test_what_was_written_can_be_seen_as_bytes() -> None:
    driver = TopologyTestDriver(plan())
    driver.create_input_topic("numbers").pipe_key_value_list(PAIRS)

    assert [record.key for record in driver.produced["out"]] == [b"ann", b"bob", b"ann"]


def test_records_are_counted() -> None:
    driver = TopologyTestDriver(plan())
    driver.create_input_topic("numbers").pipe_key_value_list([("ann", 1), (None, 2)])

    assert (driver.metrics.records_in, driver.metrics.dropped) == (2, 1)


def test_the_wall_clock_starts_where_it_is_told() -> None:
    builder = StreamsBuilder()
    builder.stream("numbers", key=str, value=int, timestamp_extractor=WallclockTimestampExtractor()).to("out")
    driver = TopologyTestDriver(builder.build(), initial_wall_clock=EPOCH + timedelta(milliseconds=9))
    driver.create_input_topic("numbers").pipe_input("ann", 1)

    assert driver.create_output_topic("out").read_record().timestamp_ms == 9


def test_the_wall_clock_can_be_moved() -> None:
    builder = StreamsBuilder()
    builder.stream("numbers", key=str, value=int, timestamp_extractor=WallclockTimestampExtractor()).to("out")
    driver = TopologyTestDriver(builder.build())
    driver.advance_wall_clock_time(SECOND)
    driver.create_input_topic("numbers").pipe_input("ann", 1)

    assert driver.create_output_topic("out").read_record().timestamp_ms == 1_000


def test_all_stores_can_be_read() -> None:
    assert list(TopologyTestDriver(plan()).stores) == ["largest"]


def test_a_closed_driver_takes_nothing() -> None:
    driver = TopologyTestDriver(plan())
    driver.close()

    with pytest.raises(ValueError, match="closed"):
        driver.create_input_topic("numbers").pipe_input("ann", 1)


def test_a_value_can_be_piped() -> None:
    numbers, out = topics()
    numbers.pipe_value(1)

    assert out.read_key_value() == (None, 1)


def test_a_list_has_times() -> None:
    numbers, out = topics()
    numbers.pipe_key_value_list([("ann", 1), ("bob", 2)], start=EPOCH + timedelta(milliseconds=5), advance=SECOND)

    assert [record.timestamp_ms for record in out.read_records_to_list()] == [5, 1_005]


def test_a_list_of_values_has_times() -> None:
    numbers, out = topics()
    numbers.pipe_value_list([1, 2], start=EPOCH + timedelta(milliseconds=5), advance=SECOND)

    assert [record.timestamp_ms for record in out.read_records_to_list()] == [5, 1_005]
