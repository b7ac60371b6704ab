"""Windows say what they are, and refuse what they cannot be."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from deltaworks import SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows


def ms(count: float) -> timedelta:
    return timedelta(milliseconds=count)


def test_tumbling_windows_advance_by_their_size() -> None:
    assert TimeWindows.of_size_with_no_grace(ms(10)) == TimeWindows(size_ms=10, advance_ms=10, grace_ms=0)
    assert TimeWindows.of_size_and_grace(ms(10), ms(3)) == TimeWindows(size_ms=10, advance_ms=10, grace_ms=3)


def test_hopping_windows_keep_size_and_grace() -> None:
    windows = TimeWindows.of_size_and_grace(ms(10), ms(3)).advance_by(ms(2))

    assert windows == TimeWindows(size_ms=10, advance_ms=2, grace_ms=3)


def test_sessions_may_have_a_gap_of_zero() -> None:
    assert SessionWindows.of_inactivity_gap_with_no_grace(ms(0)) == SessionWindows(gap_ms=0, grace_ms=0)
    assert SessionWindows.of_inactivity_gap_and_grace(ms(5), ms(1)) == SessionWindows(gap_ms=5, grace_ms=1)


def test_sessions_may_have_a_longest_duration() -> None:
    sessions = SessionWindows.of_inactivity_gap_and_grace(ms(5), ms(1))

    assert sessions.max_duration_ms is None
    assert sessions.max_duration(ms(7)) == SessionWindows(gap_ms=5, grace_ms=1, max_duration_ms=7)
    with pytest.raises(ValueError, match="duration of a session must not be negative"):
        sessions.max_duration(ms(-1))


def test_sliding_windows_may_have_a_difference_of_zero() -> None:
    assert SlidingWindows.of_time_difference_with_no_grace(ms(0)) == SlidingWindows(difference_ms=0, grace_ms=0)
    assert SlidingWindows.of_time_difference_and_grace(ms(5), ms(1)) == SlidingWindows(difference_ms=5, grace_ms=1)
    with pytest.raises(ValueError, match="time difference of a window must not be negative"):
        SlidingWindows.of_time_difference_with_no_grace(ms(-1))
    with pytest.raises(ValueError, match="grace of a window must not be negative"):
        SlidingWindows.of_time_difference_and_grace(ms(1), ms(-1))


def test_an_unlimited_window_starts_at_an_instant_or_timestamp() -> None:
    assert UnlimitedWindows.of().start_ms == 0
    assert UnlimitedWindows.start_on_ms(7) == UnlimitedWindows.of().start_on(datetime.fromtimestamp(0.007, UTC))
    with pytest.raises(ValueError, match="cannot start before 1970"):
        UnlimitedWindows.start_on_ms(-1)
    with pytest.raises(ValueError, match="must have a time zone"):
        UnlimitedWindows.start_on(datetime(2026, 1, 1))


@pytest.mark.parametrize("size", [0, -1])
def test_a_window_has_a_size(size: int) -> None:
    with pytest.raises(ValueError, match=f"size of a window must be at least 1 ms, not {size} ms"):
        TimeWindows.of_size_with_no_grace(ms(size))


@pytest.mark.parametrize("advance", [0, -1, 11])
def test_a_window_advances_by_at_most_its_size(advance: int) -> None:
    with pytest.raises(ValueError, match=f"can advance by 1 to 10 ms, not by {advance} ms"):
        TimeWindows.of_size_with_no_grace(ms(10)).advance_by(ms(advance))


def test_grace_and_gap_are_not_negative() -> None:
    with pytest.raises(ValueError, match="grace of a window must not be negative"):
        TimeWindows.of_size_and_grace(ms(10), ms(-1))
    with pytest.raises(ValueError, match="gap of a session must not be negative"):
        SessionWindows.of_inactivity_gap_with_no_grace(ms(-1))


def test_less_than_a_millisecond_is_refused_rather_than_rounded() -> None:
    with pytest.raises(ValueError, match="size of a window must be whole milliseconds"):
        TimeWindows.of_size_with_no_grace(ms(1.5))
