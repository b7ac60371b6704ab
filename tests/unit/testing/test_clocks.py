"""Clocks of a test start in 1970 or where the test says, and take datetimes and timedeltas only."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from deltaworks import Plan, StreamsBuilder, WallclockTimestampExtractor
from deltaworks.testing import TopologyTestDriver
from deltaworks.testing.clocks import EPOCH, instant_at, instant_ms

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def plan() -> Plan:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str).to("out")
    builder.stream("read", key=str, value=str, timestamp_extractor=WallclockTimestampExtractor()).to("out")
    return builder.build()


def times(driver: TopologyTestDriver) -> list[datetime]:
    return [record.time for record in driver.create_output_topic("out").read_records_to_list()]


def test_all_clocks_start_in_1970() -> None:
    driver = TopologyTestDriver(plan())

    driver.create_input_topic("read").pipe_input("a", "")
    driver.create_input_topic("in").pipe_key_value_list([("a", ""), ("a", "")])

    assert times(driver) == [EPOCH] * 3


def test_the_wall_clock_starts_where_the_test_says_and_moves_when_it_says() -> None:
    driver = TopologyTestDriver(plan(), initial_wall_clock=NOON)
    topic = driver.create_input_topic("read")

    topic.pipe_input("a", "")
    driver.advance_wall_clock_time(SECOND)
    topic.pipe_input("a", "")

    assert times(driver) == [NOON, NOON + SECOND]


def test_the_clock_of_a_topic_moves_with_each_record_that_has_no_time() -> None:
    driver = TopologyTestDriver(plan())
    topic = driver.create_input_topic("in", start=NOON, advance=SECOND)

    topic.pipe_input("a", "")
    topic.pipe_input("a", "", at=EPOCH)
    topic.pipe_raw(b"a", b"")
    topic.pipe_value_list([""], start=NOON - SECOND)
    topic.pipe_input("a", "")

    assert times(driver) == [NOON, EPOCH, NOON + SECOND, NOON - SECOND, NOON + 2 * SECOND]


def test_an_instant_may_have_any_time_zone() -> None:
    assert instant_ms(datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), "it") == 0
    assert instant_at(instant_ms(NOON, "it")) == NOON


@pytest.mark.parametrize(
    ("code", "error", "text"),
    [
        (lambda at: TopologyTestDriver(plan(), initial_wall_clock=at), TypeError, "initial_wall_clock= must be a"),
        (lambda at: TopologyTestDriver(plan()).create_input_topic("in", start=at), TypeError, "start= must be a date"),
        (
            lambda at: TopologyTestDriver(plan()).create_input_topic("in").pipe_value_list([""], start=at),
            TypeError,
            r"start= must be a datetime, such as datetime\(2026, 1, 31, 9, 30, tzinfo=UTC\), not 5",
        ),
        (
            lambda at: TopologyTestDriver(plan()).create_input_topic("in", advance=at),
            TypeError,
            r"advance= must be a timedelta, such as timedelta\(milliseconds=5\), not 5",
        ),
        (
            lambda _: TopologyTestDriver(plan(), initial_wall_clock=datetime(2026, 1, 31)),
            ValueError,
            r"initial_wall_clock= must have a time zone, 2026-01-31 00:00:00 has none: datetime\(..., tzinfo=UTC\)",
        ),
    ],
)
def test_milliseconds_and_times_without_a_zone_are_refused(
    code: Callable[[Any], object], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        code(5)
