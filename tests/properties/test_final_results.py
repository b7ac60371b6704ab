"""Final results: each window that closes comes out once and whole, however far stream time jumps.

Compared with a plain computation of windows and sessions, for any cut into micro-batches, any restart and any pause
between two checks. With `compatible_with_kafka` results may be lost; then they are counted.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deltaworks import EmitStrategy, Plan, SessionWindows, SlidingWindows, StreamsBuilder, TimeWindows
from deltaworks.testing.recorded import MicroBatch, Recording, cut, run_recorded
from deltaworks.topology.windows import AnyWindows
from tests.properties import cases
from tests.properties.cases import ms

SIZE_MS, ADVANCE_MS, GRACE_MS = 10, 4, 3
Found = Counter[tuple[int, int, int]]
"""`(start_ms, end_ms, count)` of results, and how often they came out."""


def plan(windows: AnyWindows, *, emit_interval: timedelta = timedelta(0), compatible_with_kafka: bool = False) -> Plan:
    builder = StreamsBuilder(emit_interval=emit_interval, compatible_with_kafka=compatible_with_kafka)
    groups = builder.stream("in", key=str, value=int).group_by_key()
    if isinstance(windows, SessionWindows):
        table = groups.windowed_by(windows).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count(store="counts")
    else:
        table = groups.windowed_by(windows).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count(store="counts")
    table.to_delta("counts")
    table.to_stream().select_key(lambda window, _: f"{window.start_ms} {window.end_ms}", key=str).to("out")
    return builder.build()


def run(plan: Plan, times_ms: list[int], cuts: list[int], restarts: set[int], *, pause_ms: int = 0) -> Recording:
    rows = [(time_ms, b"a", cases.encoded(1), ()) for time_ms in times_ms]
    parts = cut([cases.batch(rows)], [[min(end, len(rows))] for end in sorted(cuts)])
    return run_recorded(
        plan,
        {"in": 1},
        [MicroBatch(number * pause_ms, part) for number, part in enumerate(parts)],
        restarts=lambda batch_id, task: batch_id in restarts,
        max_cached_entries=2 if restarts else 200_000,
    )


def results(recording: Recording) -> Found:
    found = Found()
    for record in recording.topic("out"):
        assert record.key is not None and record.value is not None
        start_ms, end_ms = map(int, record.key.split())
        found[start_ms, end_ms, int.from_bytes(record.value, "big")] += 1
    return found


def hopping(times_ms: list[int]) -> Found:
    """Windows `[start, start + size)`, each closed once time has reached its end and the grace."""
    counts, observed_ms = Counter[int](), -1
    for time_ms in times_ms:
        observed_ms = max(observed_ms, time_ms)
        for start_ms in range(0, time_ms + 1, ADVANCE_MS):
            if start_ms + SIZE_MS > time_ms and start_ms + SIZE_MS > observed_ms - GRACE_MS:
                counts[start_ms] += 1
    return Found(
        (start_ms, start_ms + SIZE_MS, count)
        for start_ms, count in counts.items()
        if start_ms + SIZE_MS <= observed_ms - GRACE_MS
    )


def uneven(times_ms: list[int]) -> Found:
    """Windows of an author, each closed once time has reached its own end and the grace."""
    counts, observed_ms = Counter[tuple[int, int]](), -1
    for time_ms in times_ms:
        observed_ms = max(observed_ms, time_ms)
        for start_ms, end_ms in UNEVEN.windows_for(time_ms):
            counts[start_ms, end_ms] += end_ms > observed_ms - GRACE_MS
    return Found((*span, count) for span, count in counts.items() if count and span[1] <= observed_ms - GRACE_MS)


def sessions(times_ms: list[int], *, as_in_kafka: bool = False) -> Found:
    """Sessions of records at most a gap apart, each closed once time has passed its end, the gap and the grace.

    In Kafka Streams a record that is as late as it may be does not find the session that it belongs to.
    """
    open_: set[tuple[int, int, int]] = set()
    closed, observed_ms, newest_ms = Found(), -1, -1
    for time_ms in times_ms:
        observed_ms = max(observed_ms, time_ms)
        near = {each for each in open_ if each[0] <= time_ms + SIZE_MS and each[1] >= time_ms - SIZE_MS}
        if as_in_kafka:
            near = {each for each in near if each[1] > newest_ms - SIZE_MS - GRACE_MS}
        merged = (
            min([time_ms, *(each[0] for each in near)]),
            max([time_ms, *(each[1] for each in near)]),
            1 + sum(each[2] for each in near),
        )
        if merged[1] >= observed_ms - SIZE_MS - GRACE_MS:
            open_ = {each for each in open_ - near if each[:2] != merged[:2]} | {merged}
            newest_ms = max(newest_ms, merged[1])
        for each in [each for each in open_ if each[1] < observed_ms - SIZE_MS - GRACE_MS]:
            open_.remove(each)
            closed[each] += 1
    return closed


HOPPING = TimeWindows(size=ms(SIZE_MS), grace=ms(GRACE_MS), advance=ms(ADVANCE_MS))
SLIDING = SlidingWindows(difference=ms(SIZE_MS), grace=ms(GRACE_MS))
SESSIONS = SessionWindows(gap=ms(SIZE_MS), grace=ms(GRACE_MS))
UNEVEN = cases.Uneven(grace=ms(GRACE_MS))
NEAR, JUMPS = st.integers(-15, 15), st.integers(100, 90_000)


@st.composite
def times(draw: st.DrawFn) -> list[int]:
    """Times near each other, now and then a jump far beyond what a store keeps."""
    time_ms, found = 20, []
    for step_ms in draw(st.lists(st.one_of(NEAR, NEAR, NEAR, JUMPS), min_size=1, max_size=25)):
        time_ms = max(0, time_ms + step_ms)
        found.append(time_ms)
    return found


CUTS = st.lists(st.integers(0, 25), max_size=6)
RESTARTS = st.sets(st.integers(0, 6))


@pytest.mark.parametrize(("windows", "expected"), [(HOPPING, hopping), (UNEVEN, uneven), (SESSIONS, sessions)])
@settings(max_examples=60, deadline=None)
@given(times_ms=times(), cuts=CUTS, restarts=RESTARTS)
@example(times_ms=[20, 21, 5_000], cuts=[], restarts=set())
@example(times_ms=[20, 21, 90_000, 90_100], cuts=[1, 2, 3], restarts={1, 2, 3})
@example(times_ms=[20, 33, 20, 100], cuts=[], restarts=set())  # a record at the limit of lateness
def test_each_window_that_closes_comes_out_once_and_whole(  # type: ignore[no-untyped-def]
    windows: AnyWindows, expected, times_ms: list[int], cuts: list[int], restarts: set[int]
) -> None:
    parts = run(plan(windows), times_ms, cuts, restarts)

    assert results(parts) == expected(times_ms)


@pytest.mark.parametrize("windows", [HOPPING, UNEVEN, SLIDING, SESSIONS])
@settings(max_examples=60, deadline=None)
@given(times_ms=times(), cuts=CUTS, restarts=RESTARTS, pause_ms=st.integers(0, 1_500))
@example(times_ms=[20, 21, 90_000, 90_001, 90_100, 180_000], cuts=[2, 3, 4, 5], restarts={1, 3}, pause_ms=700)
def test_nothing_is_lost_while_a_check_waits(
    windows: AnyWindows, times_ms: list[int], cuts: list[int], restarts: set[int], pause_ms: int
) -> None:
    at_once = run(plan(windows), [*times_ms, 10**6, 10**7], [], set())
    end = len(times_ms)

    waiting = run(
        plan(windows, emit_interval=ms(1_000)),
        [*times_ms, 10**6, 10**7],
        [*cuts, *range(end, end + 2)],
        restarts,
        pause_ms=pause_ms or 1_001,
    )

    found = results(waiting)
    assert found <= results(at_once)
    last = max((end_ms for _, end_ms, _ in found), default=-1)
    assert {each: n for each, n in results(at_once).items() if each[1] < last}.items() <= found.items()


@pytest.mark.parametrize("windows", [HOPPING, UNEVEN, SLIDING, SESSIONS])
@settings(max_examples=60, deadline=None)
@given(times_ms=times(), cuts=CUTS, restarts=RESTARTS)
@example(times_ms=[20, 21, 90_000, 180_000], cuts=[], restarts=set())
@example(times_ms=[20, 7, 8, 21], cuts=[], restarts=set())
def test_what_is_lost_as_in_kafka_streams_is_counted(
    windows: AnyWindows, times_ms: list[int], cuts: list[int], restarts: set[int]
) -> None:
    kept = run(plan(windows), times_ms, [], set())
    as_there = run(plan(windows, compatible_with_kafka=True), times_ms, cuts, restarts)

    lost = sum(metrics.lost_results for batch in as_there.metrics for metrics in batch.values())
    found = results(as_there)
    all_results = sessions(times_ms, as_in_kafka=True) if windows is SESSIONS else results(kept)
    assert sum(metrics.lost_results for batch in kept.metrics for metrics in batch.values()) == 0
    assert found <= all_results
    assert lost == all_results.total() - found.total()
