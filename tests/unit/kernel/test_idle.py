"""With an idle timeout, time goes on while no record comes: whatever waits for time is let go of."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from deltaworks import (
    BufferConfig,
    EmitStrategy,
    JoinWindows,
    KStream,
    Materialized,
    Pipeline,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Windowed,
)
from deltaworks.testing import TopologyTestDriver
from deltaworks.testing.clocks import EPOCH

Build = Callable[[KStream[str, str], StreamsBuilder], None]


def ms(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)


TEN = TimeWindows(size=ms(10), grace=timedelta(0))


def pipeline(build: Build, **options: Any) -> Pipeline:
    def topology(builder: StreamsBuilder) -> None:
        build(builder.stream("in", key=str, value=str), builder)

    return Pipeline(name="p", topology=topology, record_cache=False, **options)


def window_close(stream: KStream[str, str], builder: StreamsBuilder) -> None:
    windowed = stream.group_by_key().windowed_by(TEN).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
    windowed.count(store="c").to_stream().to("out")


def session_close(stream: KStream[str, str], builder: StreamsBuilder) -> None:
    sessions = stream.group_by_key().windowed_by(SessionWindows(gap=ms(10), grace=timedelta(0)))
    sessions.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count(store="c").to_stream().to("out")


def sliding_close(stream: KStream[str, str], builder: StreamsBuilder) -> None:
    windows = SlidingWindows(difference=ms(10), grace=timedelta(0))
    windowed = stream.group_by_key().windowed_by(windows).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
    windowed.count(store=Materialized("c", retention=ms(1000))).to_stream().to("out")


def suppressed(stream: KStream[str, str], builder: StreamsBuilder) -> None:
    table = stream.group_by_key().windowed_by(TEN).count(store="c")
    table.suppress(Suppressed.until_window_closes(BufferConfig.unbounded()), store="held").to_stream().to("out")


def limited(stream: KStream[str, str], builder: StreamsBuilder) -> None:
    table = stream.group_by_key().count(store="c")
    table.suppress(Suppressed.until_time_limit(ms(10), BufferConfig.unbounded()), store="held").to_stream().to("out")


def outer_join(stream: KStream[str, str], builder: StreamsBuilder) -> None:
    other = builder.stream("other", key=str, value=str)
    windows = JoinWindows(difference=ms(10), grace=timedelta(0))
    stream.left_join(other, lambda left, right: f"{left} {right}", windows, value=str, store="join").to("out")


def grace_join(stream: KStream[str, str], builder: StreamsBuilder) -> None:
    table = builder.table("rows", key=str, value=str, store=Materialized("rows", history=ms(1000)))
    stream.left_join(table, lambda value, row: f"{value} {row}", value=str, grace=ms(10), name="join").to("out")


class Ticks(Processor[str, str, str, str]):
    def init(self, context: ProcessorContext[str, str]) -> None:
        self.context = context
        context.schedule(ms(10), PunctuationType.STREAM_TIME, self.tick)

    def tick(self, now_ms: int) -> None:
        self.context.forward(Record("tick", str(self.context.current_stream_time_ms), now_ms))

    def process(self, record: Record[str, str]) -> None:
        """Records are not forwarded."""


def punctuated(stream: KStream[str, str], builder: StreamsBuilder) -> None:
    stream.process(Ticks, key=str, value=str).to("out")


@pytest.mark.parametrize(
    ("build", "result"),
    [
        (window_close, (Windowed("k", 0, 10), 1)),
        (session_close, (Windowed("k", 5, 5), 1)),
        (sliding_close, (Windowed("k", 0, 10), 1)),
        (suppressed, (Windowed("k", 0, 10), 1)),
        (limited, ("k", 1)),
        (outer_join, ("k", "v None")),
        (grace_join, ("k", "v None")),
        (punctuated, ("tick", "1005")),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_what_waits_for_time_is_let_go_of(build: Build, result: tuple[Any, Any]) -> None:
    driver = TopologyTestDriver(pipeline(build, idle_timeout=ms(1000)))
    out = driver.create_output_topic("out")
    driver.create_input_topic("in").pipe_input("k", "v", timestamp_ms=5)
    out.read_records_to_list()

    driver.advance_wall_clock_time(ms(999))
    assert out.is_empty
    driver.advance_wall_clock_time(ms(1))

    assert result in out.read_key_values_to_list()
    assert driver.metrics.stream_time_ms == 1005
    driver.advance_wall_clock_time(ms(0))
    assert out.is_empty


@pytest.mark.parametrize("build", [window_close, suppressed, outer_join, grace_join, punctuated])
def test_without_it_only_records_move_time(build: Build) -> None:
    driver = TopologyTestDriver(pipeline(build))
    driver.create_input_topic("in").pipe_input("k", "v", timestamp_ms=5)
    out = driver.create_output_topic("out")
    out.read_records_to_list()

    driver.advance_wall_clock_time(timedelta(days=1))

    assert out.is_empty
    assert driver.metrics.stream_time_ms == 5


def test_time_goes_on_from_where_it_was_and_a_record_starts_it_again() -> None:
    driver = TopologyTestDriver(pipeline(window_close, idle_timeout=ms(50)))
    topic, out = driver.create_input_topic("in"), driver.create_output_topic("out")
    topic.pipe_input("k", "v", timestamp_ms=5)
    driver.advance_wall_clock_time(ms(50))
    assert out.read_key_value() == (Windowed("k", 0, 10), 1)

    topic.pipe_input("k", "late", timestamp_ms=40)
    topic.pipe_input("k", "v", timestamp_ms=52)
    assert driver.metrics.late == 1
    driver.advance_wall_clock_time(ms(49))
    assert driver.metrics.stream_time_ms == 55
    driver.advance_wall_clock_time(ms(1))

    assert driver.metrics.stream_time_ms == 105
    assert out.read_key_value() == (Windowed("k", 50, 60), 1)


def test_windows_of_a_table_become_final() -> None:
    def build(stream: KStream[str, str], builder: StreamsBuilder) -> None:
        stream.group_by_key().windowed_by(TEN).count(store="c").to_delta("counts")

    driver = TopologyTestDriver(pipeline(build, idle_timeout=ms(50)))
    driver.create_input_topic("in").pipe_input("k", "v", timestamp_ms=5)
    window = Windowed("k", 0, 10)
    assert driver.table("counts").final_rows == {}

    driver.advance_wall_clock_time(ms(50))

    assert driver.table("counts").final_rows == {window: 1}


def test_row_that_no_record_has_caused_comes_from_nowhere() -> None:
    def build(stream: KStream[str, str], builder: StreamsBuilder) -> None:
        windowed = stream.group_by_key().windowed_by(TEN).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
        rekeyed = windowed.count(store="c").to_stream().select_key(lambda window, _: window.key, key=str)
        rekeyed.map_values(lambda count: 1 // (count - 1), value=int).to_delta("rows")

    driver = TopologyTestDriver(pipeline(build, idle_timeout=ms(50), on_error="continue"))
    topic = driver.create_input_topic("in")
    topic.pipe_key_value_list([("a", "v"), ("b", "v"), ("b", "v")], start=EPOCH + ms(5))

    driver.advance_wall_clock_time(ms(50))

    assert [(row.key, row.value) for row in driver.table("rows").rows] == [("b", 1)]
    (letter,) = driver.dead_letters
    assert (letter.source.topic, letter.key, letter.value) == ("", None, None)


def test_next_stage_is_busy_with_what_an_idle_one_sends() -> None:
    """Its time does not run ahead of the results that are on their way to it."""

    def build(stream: KStream[str, str], builder: StreamsBuilder) -> None:
        windowed = stream.group_by_key().windowed_by(TEN).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
        starts = windowed.count(store="c").to_stream().select_key(lambda window, _: window.key, key=str)
        starts.group_by_key(name="again").windowed_by(TEN).count(store="d").to_stream().to("out")

    driver = TopologyTestDriver(pipeline(build, idle_timeout=ms(50)))
    driver.create_input_topic("in").pipe_input("k", "v", timestamp_ms=5)

    driver.advance_wall_clock_time(ms(50))

    assert driver.create_output_topic("out").read_key_value() == (Windowed("k", 0, 10), 1)
    assert driver.metrics.late == 0


def test_task_that_never_had_a_record_has_no_time_to_go_on() -> None:
    driver = TopologyTestDriver(pipeline(punctuated, idle_timeout=ms(50)))

    driver.advance_wall_clock_time(ms(100))

    assert driver.create_output_topic("out").is_empty


def test_timeout_that_is_not_positive_is_refused() -> None:
    with pytest.raises(Exception, match="idle_timeout is not positive"):
        pipeline(window_close, idle_timeout=ms(0)).plan()
