"""How far apart two records may be: factories and what they refuse."""

from __future__ import annotations

from datetime import timedelta

import pytest

from deltaworks import JoinWindows


def ms(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)


def test_a_bound_may_be_negative_if_the_interval_is_not() -> None:
    windows = JoinWindows.of_time_difference_with_no_grace(ms(5)).before(ms(-2))

    assert (windows.before_ms, windows.after_ms, windows.size_ms) == (-2, 5, 3)
    with pytest.raises(ValueError, match="from 6 to 5 ms ends before it begins"):
        windows.before(ms(-6))
    with pytest.raises(ValueError, match="from 2 to 1 ms ends before it begins"):
        windows.after(ms(1))


def test_records_are_kept_for_the_interval_and_the_grace() -> None:
    assert JoinWindows.of_time_difference_and_grace(ms(5), ms(7)).after(ms(1)).retention_ms == 5 + 1 + 7


def test_negative_durations_and_parts_of_milliseconds_are_refused() -> None:
    with pytest.raises(ValueError, match="the time difference of a join must not be negative, but is -1 ms"):
        JoinWindows.of_time_difference_with_no_grace(ms(-1))
    with pytest.raises(ValueError, match="the grace of a join window must not be negative, but is -1 ms"):
        JoinWindows.of_time_difference_and_grace(ms(1), ms(-1))
    with pytest.raises(ValueError, match="must be whole milliseconds"):
        JoinWindows.of_time_difference_with_no_grace(timedelta(microseconds=1500))
