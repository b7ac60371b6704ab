"""A task that waits for the other side of a join."""

from __future__ import annotations

from datetime import timedelta

from deltaworks import Pipeline, StreamsBuilder
from deltaworks.kernel.idling import Idling
from deltaworks.testing import TopologyTestDriver


def ms(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)


def joined(builder: StreamsBuilder) -> None:
    table = builder.table("rows", key=str, value=str, store="rows")
    builder.stream("in", key=str, value=str).left_join(table, lambda value, row: f"{value} {row}", value=str).to("out")


class Waiting:
    """A stream-table join on a driver."""

    def __init__(self, max_task_idle: timedelta | None) -> None:
        self.driver = TopologyTestDriver(Pipeline(name="p", topology=joined, max_task_idle=max_task_idle))
        self.rows = self.driver.create_input_topic("rows")
        self.stream = self.driver.create_input_topic("in")
        self.out = self.driver.create_output_topic("out")

    def read(self) -> list[str | None]:
        return self.out.read_values_to_list()


def test_without_it_a_record_is_processed_at_once() -> None:
    waiting = Waiting(None)

    waiting.stream.pipe_input("k", "a", timestamp_ms=10)

    assert waiting.read() == ["a None"]


def test_record_waits_until_the_other_topic_has_one_and_the_older_one_goes_first() -> None:
    waiting = Waiting(ms(100))

    waiting.stream.pipe_input("k", "a", timestamp_ms=10)
    assert waiting.read() == []
    waiting.rows.pipe_input("k", "x", timestamp_ms=5)
    assert waiting.read() == []
    waiting.rows.pipe_input("k", "y", timestamp_ms=15)

    assert waiting.read() == ["a x"]


def test_record_waits_no_longer_than_allowed() -> None:
    waiting = Waiting(ms(100))
    waiting.stream.pipe_input("k", "a", timestamp_ms=10)

    waiting.driver.advance_wall_clock_time(ms(99))
    assert waiting.read() == []
    waiting.driver.advance_wall_clock_time(ms(1))
    assert waiting.read() == ["a None"]
    waiting.stream.pipe_input("k", "b", timestamp_ms=20)
    assert waiting.read() == ["b None"]


def test_topic_that_had_a_record_is_waited_for_again() -> None:
    waiting = Waiting(ms(100))
    waiting.stream.pipe_input("k", "a", timestamp_ms=10)
    waiting.driver.advance_wall_clock_time(ms(100))

    waiting.rows.pipe_input("k", "x", timestamp_ms=5)
    waiting.driver.advance_wall_clock_time(ms(100))
    waiting.stream.pipe_input("k", "b", timestamp_ms=20)

    assert waiting.read() == ["a None"]
    waiting.driver.advance_wall_clock_time(ms(100))
    assert waiting.read() == ["b x"]


def test_partitions_are_waited_for_at_the_same_time() -> None:
    idling = Idling(100)

    assert not idling.ready(["a"], ["b", "c"], 0)
    assert not idling.ready(["a"], ["b", "c"], 99)
    assert idling.ready(["a"], ["b", "c"], 100)
    assert idling.ready(["a", "b"], ["c"], 150)
    assert not idling.ready(["a"], ["b", "c"], 160)
