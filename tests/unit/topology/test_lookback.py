"""How far back a replay of some days has to read, and when that is no help."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from deltaworks import (
    BufferConfig,
    EmitStrategy,
    JoinWindows,
    Processor,
    Record,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    UnlimitedWindows,
    WallclockTimestampExtractor,
)
from deltaworks.topology.lookback import NeedsAllHistory, lookback_ms, tables_from_the_beginning
from tests.support.calendar_days import Days

SECOND = timedelta(seconds=1)
HOUR = TimeWindows(size=3600 * SECOND, grace=600 * SECOND)
CLOSED = Suppressed.until_window_closes(BufferConfig.unbounded())
LATER = Suppressed.until_time_limit(SECOND, BufferConfig.unbounded())
AFTER = JoinWindows(before=-39 * SECOND, after=40 * SECOND, grace=timedelta(0))
NEAR = JoinWindows(difference=10 * SECOND, grace=5 * SECOND)


class Forwards(Processor[str, str, str, str]):
    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record)


def back(build: Callable[[StreamsBuilder], Any], *, dead_letters: bool = False) -> int:
    builder = StreamsBuilder(emit_interval=SECOND)
    build(builder)
    plan = builder.build()
    whole = tables_from_the_beginning(plan, plan.source_topics)
    return lookback_ms(plan, plan.tables, dead_letters=dead_letters, whole=whole)


def words(builder: StreamsBuilder) -> Any:
    return builder.stream("words", key=str, value=str)


def table(builder: StreamsBuilder) -> Any:
    return builder.table("names", key=str, value=str, store="names")


def hourly(builder: StreamsBuilder) -> Any:
    return words(builder).group_by_key().windowed_by(HOUR).count(store="hourly")


def sessions(builder: StreamsBuilder, windows: SessionWindows | None = None) -> Any:
    windows = windows or SessionWindows(gap=30 * SECOND, grace=5 * SECOND)
    return words(builder).group_by_key().windowed_by(windows).count(store="sessions")


def without_windows(table: Any) -> Any:
    return table.to_stream().select_key(lambda windowed, count: windowed.key, key=str)


@pytest.mark.parametrize(
    ("ms", "build"),
    [
        (0, lambda b: words(b).map_values(str.upper).to_delta("t")),
        (0, lambda b: words(b).join(table(b), lambda word, name: word + name, value=str).to_delta("t")),
        (0, lambda b: words(b).select_key(lambda k, v: v, key=str).repartition().to_delta("t")),
        (3_600_000, lambda b: hourly(b).to_delta("t")),
        (25 * 3_600_000, lambda b: words(b).group_by_key().windowed_by(
            Days(zone="Europe/Berlin", grace=SECOND)).count(store="d").to_delta("t")),
        (3_600_000, lambda b: hourly(b).suppress(CLOSED, store="held").to_delta("t")),
        (30_001, lambda b: words(b).group_by_key().windowed_by(
            SlidingWindows(difference=10 * SECOND, grace=timedelta(0))).count(store="s").to_delta("t")),
        (30_000, lambda b: sessions(b).to_delta("t")),
        (20_000, lambda b: words(b).join(
            b.stream("others", key=str, value=str), lambda *both: "", NEAR, value=str, store="j").to_delta("t")),
        (80_000, lambda b: words(b).join(
            b.stream("others", key=str, value=str), lambda *both: "", AFTER, value=str, store="j").to_delta("t")),
        (0, lambda b: words(b).merge(table(b).to_stream()).to_delta("t")),
        (0, lambda b: table(b).group_by(lambda k, v: (v, k), key=str, value=str).count(
            store="by-name").to_stream().to_delta("t")),
    ],
)  # fmt: skip
def test_results_depend_on_what_windows_and_joins_remember(ms: int, build: Callable[[StreamsBuilder], Any]) -> None:
    assert back(build) == ms


@pytest.mark.parametrize(
    ("why", "build"),
    [
        ("results without a window", lambda b: words(b).group_by_key().count(store="c").to_stream().to_delta("t")),
        ("has no end", lambda b: words(b).group_by_key().windowed_by(
            UnlimitedWindows()).count(store="c").to_delta("t")),
        ("became too long", lambda b: sessions(b, SessionWindows(
            gap=30 * SECOND, grace=timedelta(0), max_duration=60 * SECOND)).to_delta("t")),
        ("every update of sessions", lambda b: without_windows(sessions(b)).to_delta("t")),
        ("the memory of .* is unknown", lambda b: words(b).process(Forwards, key=str, value=str).to_delta("t")),
        ("its own times", lambda b: b.stream(
            "words", key=str, value=str, timestamp_extractor=WallclockTimestampExtractor()).to_delta("t")),
        ("move to other tasks", lambda b: without_windows(hourly(b)).repartition().to_delta("t")),
        ("waits for a partner", lambda b: words(b).left_join(
            b.stream("others", key=str, value=str), lambda *both: "", NEAR, value=str, store="j").to_delta("t")),
        ("emit_interval", lambda b: words(b).group_by_key().windowed_by(HOUR).emit_strategy(
            EmitStrategy.ON_WINDOW_CLOSE).count(store="hourly").to_delta("t")),
        ("hold back updates of any age", lambda b: hourly(b).suppress(LATER, store="held").to_delta("t")),
    ],
)  # fmt: skip
def test_what_depends_on_records_of_any_age_says_why(why: str, build: Callable[[StreamsBuilder], Any]) -> None:
    with pytest.raises(NeedsAllHistory, match=why):
        back(build)


def test_only_what_is_wanted_counts() -> None:
    builder = StreamsBuilder()
    hourly(builder).to_delta("hours")
    longest = words(builder).group_by_key().reduce(lambda a, b: max(a, b, key=len), store="longest")
    longest.to_delta("words")
    plan = builder.build()
    (hours,) = (sink for sink in plan.tables if sink.table == "hours")

    assert lookback_ms(plan, [hours], dead_letters=False, whole=()) == 3_600_000
    with pytest.raises(NeedsAllHistory, match="results without a window"):
        lookback_ms(plan, [hours], dead_letters=True, whole=())


def test_on_numbers_of_records_nothing_fails() -> None:
    assert back(lambda b: sessions(b).to_delta("t"), dead_letters=True) == 30_000

    builder = StreamsBuilder()
    hourly(builder).to_delta("hours")
    words(builder).group_by_key().count(store="all").to_delta("totals")
    plan = builder.build()
    (hours,) = (sink for sink in plan.tables if sink.table == "hours")
    assert lookback_ms(plan, [hours], dead_letters=True, whole=()) == 3_600_000

    def summed(builder: StreamsBuilder) -> None:
        windows = SessionWindows(gap=30 * SECOND, grace=timedelta(0))
        words(builder).group_by_key().windowed_by(windows).reduce(lambda a, b: a + b, store="s").to_delta("t")

    with pytest.raises(NeedsAllHistory, match="dead letters of"):
        back(summed, dead_letters=True)


def test_topics_of_tables_are_read_from_the_beginning() -> None:
    builder = StreamsBuilder()
    words(builder).join(table(builder), lambda word, name: word + name, value=str).to_delta("t")

    assert tables_from_the_beginning(builder.build(), ["words", "names"]) == {"names"}
