"""Windows that an author writes: calendar days of a time zone, windows that overlap, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from deltaworks import (
    BufferConfig,
    EmitStrategy,
    ErrorPolicy,
    Plan,
    Processor,
    Record,
    StreamsBuilder,
    StreamsError,
    Suppressed,
    Windowed,
    Windows,
)
from deltaworks.kernel.processors.own_windows import CHECKED_STARTS, NO_START_MS, spans_of
from deltaworks.testing import TopologyTestDriver
from tests.support.calendar_days import Days

HOUR_MS = 3_600_000
CLOSE = EmitStrategy.ON_WINDOW_CLOSE


@dataclass(frozen=True, kw_only=True)
class Given(Windows):
    """Windows as in a list."""

    spans: tuple[Any, ...]
    size: timedelta = timedelta(milliseconds=100)

    def windows_for(self, timestamp_ms: int) -> Iterable[tuple[int, int]]:
        return [span for span in self.spans if span[0] <= timestamp_ms < span[1]]


BERLIN = Days(zone="Europe/Berlin", grace=timedelta(hours=1))
NO_GRACE = timedelta(0)
NESTED = Given(spans=((0, 50), (10, 20), (15, 40)), grace=NO_GRACE)
"""The windows end in another order than they begin."""


def at(text: str) -> int:
    """A timestamp in UTC."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1000


def counts(windows: Windows, emit: EmitStrategy = EmitStrategy.ON_WINDOW_UPDATE, **options: Any) -> Plan:
    builder = StreamsBuilder(**options)
    clicks = builder.stream("in", key=str, value=str).group_by_key()
    table = clicks.windowed_by(windows).emit_strategy(emit).count(store="counts")
    table.to_delta("counts")
    table.to_stream().to("out")
    return builder.build()


def driven(plan: Plan, *times_ms: int, **options: Any) -> TopologyTestDriver:
    driver = TopologyTestDriver(plan, **options)
    for number, time_ms in enumerate(times_ms):
        driver.create_input_topic("in").pipe_input("ann", f"{number}", timestamp_ms=time_ms)
    return driver


def sent(driver: TopologyTestDriver, topic: str = "out") -> list[tuple[str, Any]]:
    return [(str(key), value) for key, value in driver.create_output_topic(topic).read_key_values_to_list()]


def test_days_are_as_long_as_the_time_zone_says() -> None:
    spring, autumn = at("2026-03-29T12:00"), at("2026-10-25T12:00")

    driver = driven(counts(BERLIN), spring, spring + 24 * HOUR_MS, autumn)

    windows = [(key.start, key.end) for key in driver.table("counts").rows]
    assert [(end - start) // timedelta(hours=1) for start, end in windows] == [23, 24, 25]
    assert windows[0][0] == datetime(2026, 3, 28, 23, tzinfo=UTC)
    assert windows[2][0] == datetime(2026, 10, 24, 22, tzinfo=UTC)


@pytest.mark.parametrize(("day", "hours"), [("2026-03-28T23:00", 23), ("2026-10-24T22:00", 25)])
def test_a_day_takes_records_until_its_own_end_and_grace(day: str, hours: int) -> None:
    start_ms = at(day)
    end_ms = start_ms + hours * HOUR_MS

    in_time = driven(counts(BERLIN), start_ms, end_ms + HOUR_MS - 1, end_ms - 1)
    too_late = driven(counts(BERLIN), start_ms, end_ms + HOUR_MS, end_ms - 1)

    assert sent(in_time)[-1] == (f"[ann@{start_ms}/{end_ms}]", 2)
    assert len(sent(too_late)) == 2
    final = in_time.table("counts").final_rows, too_late.table("counts").final_rows
    assert [list(rows.values()) for rows in final] == [[], [1]]


@pytest.mark.parametrize(("day", "hours"), [("2026-03-28T23:00", 23), ("2026-10-24T22:00", 25)])
def test_a_day_is_forwarded_once_at_its_own_end_and_grace(day: str, hours: int) -> None:
    start_ms = at(day)
    end_ms = start_ms + hours * HOUR_MS
    plan = counts(BERLIN, CLOSE)

    before = driven(plan, start_ms, end_ms + HOUR_MS - 1)
    after = driven(plan, start_ms, end_ms + HOUR_MS, end_ms + HOUR_MS)

    assert sent(before) == []
    assert sent(after) == [(f"[ann@{start_ms}/{end_ms}]", 1)]
    assert [key.end_ms for key in after.table("counts").final_rows] == [end_ms]


def test_windows_may_overlap_and_close_in_another_order_than_they_begin() -> None:
    driver = driven(counts(NESTED, CLOSE), 12, 16, 20, 40, 50)

    assert sent(driver) == [("[ann@10/20]", 2), ("[ann@15/40]", 2), ("[ann@0/50]", 4)]


def test_windows_that_close_together_are_forwarded_by_start() -> None:
    driver = driven(counts(Given(spans=(*NESTED.spans, (60, 70)), grace=NO_GRACE), CLOSE), 16, 60)

    assert sent(driver) == [("[ann@0/50]", 1), ("[ann@10/20]", 1), ("[ann@15/40]", 1)]


def test_a_late_record_does_not_open_a_closed_window_again() -> None:
    driver = driven(counts(NESTED, CLOSE), 16, 30, 12, 31, 50)

    assert sent(driver) == [("[ann@10/20]", 1), ("[ann@0/50]", 4), ("[ann@15/40]", 3)]


def test_a_time_may_have_no_window() -> None:
    driver = driven(counts(Given(spans=((10, 20),), grace=NO_GRACE)), 5, 10, 19, 20)

    assert sent(driver) == [("[ann@10/20]", 1), ("[ann@10/20]", 2)]


def test_a_record_cache_forwards_the_window_with_its_own_end() -> None:
    driver = driven(counts(NESTED, record_cache=True), 16)

    assert sent(driver) == [("[ann@0/50]", 1), ("[ann@10/20]", 1), ("[ann@15/40]", 1)]


def test_the_end_of_a_window_comes_from_the_windows_wherever_its_key_is_read() -> None:
    """Through an exchange, a suppressed table, a topic and a store."""
    builder = StreamsBuilder()
    clicks = builder.stream("in", key=str, value=str).group_by_key()
    table = clicks.windowed_by(Given(spans=(*NESTED.spans, (50, 60)), grace=NO_GRACE)).count(store="counts")
    final = table.suppress(Suppressed.until_window_closes(BufferConfig.unbounded()), name="final")
    final.to_stream().repartition(name="moved").to("out")
    driver = driven(builder.build(), 16, 50)

    assert sent(driver) == [("[ann@10/20]", 1), ("[ann@15/40]", 1), ("[ann@0/50]", 1)]
    assert [str(key) for key, _ in driver.store("counts").all()][:3] == ["[ann@0/50]", "[ann@10/20]", "[ann@15/40]"]


def test_a_processor_reads_the_windows_of_an_aggregate() -> None:
    class Reads(Processor[Windowed[str], int, str, str]):
        def process(self, record: Record[Windowed[str], int]) -> None:
            rows = self.context.state_store("counts").fetch_all(0, 100)
            self.context.forward(Record("ann", ",".join(str(key) for key, _ in rows), record.timestamp_ms))

    builder = StreamsBuilder()
    table = builder.stream("in", key=str, value=str).group_by_key().windowed_by(NESTED).count(store="counts")
    table.to_stream().process(Reads, "counts", key=str, value=str).to("out")

    assert sent(driven(builder.build(), 45)) == [("ann", "[ann@0/50]")]


def test_streams_of_a_cogroup_share_own_windows() -> None:
    builder = StreamsBuilder()
    one, two = (builder.stream(topic, key=str, value=str).group_by_key() for topic in ("in", "other"))
    both = one.cogroup(lambda _, value, text: text + value, value=str).cogroup(two, lambda _, value, text: text)
    both.windowed_by(NESTED).aggregate(str, store="texts").to_stream().to("out")

    assert sent(driven(builder.build(), 45, 46)) == [("[ann@0/50]", "0"), ("[ann@0/50]", "01")]


@pytest.mark.parametrize(
    ("spans", "reason"),
    [
        (((10, 200),), r"\[10, 200\), which is 190 ms long; its size is only timedelta\(milliseconds=100\)"),
        (((-5, 20),), r"\[-5, 20\), which does not hold it or begins before 1970"),
        (((10, 20), (10, 30)), "two windows that start at 10"),
        (((0, 50), (10.0, 20)), r"\(10.0, 20\), not a pair of start and end"),
    ],
)
def test_windows_that_cannot_be_stored_fail_their_record(spans: tuple[Any, ...], reason: str) -> None:
    with pytest.raises(StreamsError, match=reason):
        driven(counts(Given(spans=spans, grace=NO_GRACE)), 12)


def wrong(windows_for: Callable[[int], Any]) -> Windows:
    class Wrong(Windows):
        def windows_for(self, timestamp_ms: int) -> Iterable[tuple[int, int]]:
            result: Iterable[tuple[int, int]] = windows_for(timestamp_ms)
            return result

    return Wrong(size=timedelta(seconds=1), grace=NO_GRACE)


@pytest.mark.parametrize(
    ("windows_for", "reason"),
    [
        (lambda _: None, r"returned None, not pairs of start and end"),
        (lambda _: (0, 60), r"returned 0, not a pair of start and end, such as \(0, 60_000\)"),
        (lambda _: [(20, 30)], r"windows_for\(12\) of Wrong\(.*\) returned \[20, 30\), which does not hold it"),
        (
            lambda time_ms: [(0, time_ms + 1)],
            r"windows_for\(12\) of .* ends the window at 0 at 13, windows_for\(0\) at 1",
        ),
        (lambda time_ms: [(time_ms - 1, time_ms + 1)], "windows_for.11. of .* has no window that starts at 11"),
    ],
)
def test_a_function_that_says_no_windows_fails_its_record(windows_for: Callable[[int], Any], reason: str) -> None:
    with pytest.raises(StreamsError, match=reason):
        driven(counts(wrong(windows_for)), 12)


def test_a_record_whose_windows_are_unknown_can_be_set_aside() -> None:
    def fails_once(time_ms: int) -> Sequence[tuple[int, int]]:
        if time_ms == 7:
            raise LookupError("no calendar")
        return [(0, 10)]

    driver = driven(counts(wrong(fails_once)), 5, 7, 8, errors=ErrorPolicy(processing="continue"))

    assert sent(driver)[-1] == ("[ann@0/10]", 2)
    assert len(driver.dead_letters) == 1


def test_a_mapping_of_starts_to_ends_is_taken_as_in_kafka_streams() -> None:
    assert sent(driven(counts(wrong(lambda _: {0: 10})), 5)) == [("[ann@0/10]", 1)]


def test_each_window_is_stored_for_the_longest_size_and_grace() -> None:
    (stage,) = counts(BERLIN).stages

    assert [store.retention_ms for store in stage.stores] == [26 * HOUR_MS]


def test_the_memory_of_checked_starts_is_bounded() -> None:
    asked: list[int] = []

    def windows_for(time_ms: int) -> list[tuple[int, int]]:
        asked.append(time_ms)
        return [(time_ms, time_ms + 1)]

    spans = spans_of(wrong(windows_for))
    for time_ms in (*range(CHECKED_STARTS + 1), 0, 0):
        assert spans(time_ms) == {time_ms: (time_ms + 1, NO_START_MS)}

    assert asked[-3:] == [0, 0, 0]  # asked for its end once more, after it has been forgotten
