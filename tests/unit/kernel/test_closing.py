"""Results that go out when windows close, and which rows of a table are final."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from deltaworks import (
    EmitStrategy,
    Plan,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    TimeWindows,
    UnlimitedWindows,
)
from deltaworks.kernel.task import ErrorPolicy
from deltaworks.testing import TopologyTestDriver
from deltaworks.testing.recorded import MicroBatch, Recording, run_recorded
from deltaworks.topology.windows import AnyWindows
from tests.properties import cases


def ms(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)


def counts(
    windows: AnyWindows,
    emit: EmitStrategy,
    *,
    emit_interval: timedelta = timedelta(0),
    compatible_with_kafka: bool = False,
) -> Plan:
    builder = StreamsBuilder(
        record_cache=False, emit_interval=emit_interval, compatible_with_kafka=compatible_with_kafka
    )
    groups = builder.stream("in", key=str, value=int).group_by_key()
    if isinstance(windows, SessionWindows):
        table = groups.windowed_by(windows).emit_strategy(emit).count(store="counts")
    else:
        table = groups.windowed_by(windows).emit_strategy(emit).count(store="counts")
    table.to_delta("counts")
    table.to_stream().to("counts")
    return builder.build()


def driven(plan: Plan, *times_ms: int) -> TopologyTestDriver:
    driver = TopologyTestDriver(plan)
    for time_ms in times_ms:
        driver.create_input_topic("in").pipe_input("a", 1, timestamp_ms=time_ms)
    return driver


def sent(driver: TopologyTestDriver) -> list[str]:
    return [f"{key} {value}" for key, value in driver.create_output_topic("counts").read_key_values_to_list()]


TEN = TimeWindows(size=ms(10), grace=ms(5))
SLIDING = SlidingWindows(difference=ms(10), grace=ms(5))
SESSIONS = SessionWindows(gap=ms(10), grace=ms(5))
CLOSE, UPDATE = EmitStrategy.ON_WINDOW_CLOSE, EmitStrategy.ON_WINDOW_UPDATE


@pytest.mark.parametrize(("windows", "closes_ms"), [(TEN, 15), (SLIDING, 17), (SESSIONS, 27)])
def test_with_the_default_retention_the_last_window_is_forwarded_once_it_is_final(
    windows: AnyWindows, closes_ms: int
) -> None:
    first_ms = 1 if windows is TEN else 11
    before, after = (driven(counts(windows, CLOSE), first_ms, time_ms) for time_ms in (closes_ms - 1, closes_ms))

    assert sent(before) == []
    assert len(sent(after)) == 1


@pytest.mark.parametrize("windows", [TEN, SLIDING, SESSIONS])
@pytest.mark.parametrize("emit", [CLOSE, UPDATE])
def test_rows_of_a_table_become_final_when_windows_close(windows: AnyWindows, emit: EmitStrategy) -> None:
    table = driven(counts(windows, emit), 11, 31, 80).table("counts")

    assert {window.end_ms for window in table.final_rows} >= {11} if windows is not TEN else {20}
    assert all(window.end_ms < 80 for window in table.final_rows)


def test_an_unlimited_window_is_never_final() -> None:
    table = driven(counts(UnlimitedWindows(start=datetime.fromtimestamp(0.02, UTC)), UPDATE), 19, 20, 1 << 50).table(
        "counts"
    )

    assert [(window.start_ms, window.end_ms, count) for window, count in table.rows.items()] == [(20, 2**63 - 1, 2)]
    assert table.final_rows == {}


def recorded(plan: Plan, times_ms: list[int], clocks_ms: list[int], restarts: set[int]) -> Recording:
    """One record and one wall clock per micro-batch."""
    rows: list[cases.Record] = [(time_ms, b"a", cases.encoded(1), ()) for time_ms in times_ms]
    batches = [MicroBatch(clock_ms, (cases.batch([row]),)) for row, clock_ms in zip(rows, clocks_ms, strict=True)]
    return run_recorded(plan, {"in": 1}, batches, restarts=lambda batch_id, task: batch_id in restarts)


@pytest.mark.parametrize("windows", [TEN, SLIDING, SESSIONS])
def test_the_pause_between_two_looks_for_closed_windows_survives_a_restart(windows: AnyWindows) -> None:
    plan = counts(windows, CLOSE, emit_interval=ms(1000))
    times_ms, clocks_ms = [20, 60, 100, 140, 180], [5_000, 5_100, 5_999, 6_000, 6_001]

    whole = recorded(plan, times_ms, clocks_ms, set())
    parts = recorded(plan, times_ms, clocks_ms, {1, 2, 3, 4})

    assert parts.topic("counts") == whole.topic("counts")
    assert parts.stores == whole.stores
    assert {record.timestamp_ms for record in whole.topic("counts")} <= {20, 60, 100}


@pytest.mark.parametrize("windows", [TEN, SLIDING, SESSIONS])
def test_a_jump_of_stream_time_loses_no_result_unless_kafka_streams_is_imitated(windows: AnyWindows) -> None:
    times_ms = (31, 32, 33, 500_000, 1_000_000)

    kept = driven(counts(windows, CLOSE), *times_ms)
    lost = driven(counts(windows, CLOSE, compatible_with_kafka=True), *times_ms)

    all_results, some_results = len(sent(kept)), len(sent(lost))
    assert all_results > some_results
    assert kept.metrics.lost_results == 0
    assert lost.metrics.lost_results == all_results - some_results


def test_a_session_that_waits_for_its_final_result_is_not_kept_for_longer() -> None:
    plan = counts(SESSIONS, CLOSE)

    recording = recorded(plan, [0, 100, 200], [0, 0, 0], set())

    assert len(recording.stores[0, 0]["counts"]) == 1


def test_sliding_windows_without_a_difference_fail_at_the_first_record() -> None:
    plan = counts(SlidingWindows(difference=ms(0), grace=timedelta(0)), UPDATE)
    driver = TopologyTestDriver(plan, errors=ErrorPolicy.of("continue"))

    driver.create_input_topic("in").pipe_input("a", 1, timestamp_ms=1)

    assert [letter.message for letter in driver.dead_letters] == [
        "a sliding window needs a time difference of at least 1 ms"
    ]


def test_a_window_that_another_stream_of_the_cogroup_has_left_behind_is_begun_again_by_every_record() -> None:
    """The store drops what is older than its retention, also between two commits."""
    builder = StreamsBuilder(record_cache=False)
    stream = builder.stream("in", key=str, value=int)
    ahead = stream.filter(lambda _, value: value == 0).group_by_key()
    behind = stream.filter(lambda _, value: value != 0).group_by_key()
    cogroup = ahead.cogroup(lambda _, value, total: total + value, value=int)
    cogroup = cogroup.cogroup(behind, lambda _, value, total: total + value)
    cogroup.windowed_by(TimeWindows(size=ms(10), grace=timedelta(0))).aggregate(int, store="sums").to_delta("sums")
    rows: list[cases.Record] = [
        (50, b"a", cases.encoded(0), ()),
        (1, b"a", cases.encoded(3), ()),
        (2, b"a", cases.encoded(4), ()),
    ]

    recording = run_recorded(builder.build(), {"in": 1}, [MicroBatch(0, (cases.batch(rows),))])

    assert [row.value for row in recording.tasks[0, 0].rows["sums"] if row.kind == "window"] == [0, 3, 4]


def test_windows_of_a_cogroup_are_final_when_they_are_for_all_streams() -> None:
    builder = StreamsBuilder()
    left, right = (builder.stream(topic, key=str, value=int).group_by_key() for topic in ("left", "right"))
    cogroup = left.cogroup(lambda _, value, total: total + value, value=int)
    cogroup = cogroup.cogroup(right, lambda _, value, total: total + value)
    windows = TimeWindows(size=ms(10), grace=timedelta(0))
    cogroup.windowed_by(windows).aggregate(int, store="sums", retention=ms(1000)).to_delta("sums")
    driver = TopologyTestDriver(builder.build())

    driver.create_input_topic("left").pipe_input("a", 1, timestamp_ms=1)
    driver.create_input_topic("left").pipe_input("a", 1, timestamp_ms=50)
    assert driver.table("sums").final_rows == {}

    driver.create_input_topic("right").pipe_input("a", 1, timestamp_ms=12)
    assert [(window.start_ms, value) for window, value in driver.table("sums").final_rows.items()] == [(0, 1)]
