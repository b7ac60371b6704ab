"""Sessions with a longest duration: none is longer, none overlaps another one, and every record is in one."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st

from deltaworks import SessionWindows, StreamsBuilder
from deltaworks.testing import TopologyTestDriver
from tests.properties.cases import ms


@settings(max_examples=60, deadline=None)
@given(
    times_ms=st.lists(st.integers(0, 60), min_size=1, max_size=40),
    gap_ms=st.integers(0, 12),
    longest_ms=st.integers(0, 20),
)
@example(times_ms=[7, 11, 15, 0, 4, 8], gap_ms=5, longest_ms=10)
def test_no_session_is_longer_than_the_longest_duration(times_ms: list[int], gap_ms: int, longest_ms: int) -> None:
    windows = SessionWindows(gap=ms(gap_ms), grace=ms(100), max_duration=ms(longest_ms))
    builder = StreamsBuilder()
    groups = builder.stream("in", key=str, value=int).group_by_key()
    groups.windowed_by(windows).count(store="sessions").to_delta("sessions")
    driver = TopologyTestDriver(builder.build())

    for time_ms in times_ms:
        driver.create_input_topic("in").pipe_input("a", 1, timestamp_ms=time_ms)

    rows = {session: count for session, count in driver.table("sessions").rows.items() if count is not None}
    sessions = sorted(rows)
    assert all(session.end_ms - session.start_ms <= longest_ms for session in sessions)
    assert all(before.end_ms < after.start_ms for before, after in pairwise(sessions))
    assert sum(rows.values()) == len(times_ms)
    assert all(
        count == sum(session.start_ms <= time_ms <= session.end_ms for time_ms in times_ms)
        for session, count in rows.items()
    )
