"""How far apart two records may be: what join windows take and what they refuse."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from deltaworks import JoinWindows

ANY: Any = JoinWindows
"""Without types, for what mypy would refuse."""
NONE = timedelta(0)


def ms(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)


def test_a_difference_is_a_bound_in_both_directions() -> None:
    windows = JoinWindows(difference=ms(5), grace=ms(3))

    assert windows == JoinWindows(before=ms(5), after=ms(5), grace=ms(3))
    assert (windows.before_ms, windows.after_ms, windows.grace_ms) == (5, 5, 3)


def test_a_bound_may_be_negative_if_the_interval_is_not() -> None:
    windows = JoinWindows(before=ms(-2), after=ms(5), grace=NONE)

    assert (windows.before_ms, windows.after_ms, windows.size_ms) == (-2, 5, 3)
    with pytest.raises(ValueError, match="from 6 to 5 ms ends before it begins"):
        JoinWindows(before=ms(-6), after=ms(5), grace=NONE)
    with pytest.raises(ValueError, match="from 2 to 1 ms ends before it begins"):
        JoinWindows(before=ms(-2), after=ms(1), grace=NONE)


def test_records_are_kept_for_the_interval_and_the_grace() -> None:
    assert JoinWindows(before=ms(5), after=ms(1), grace=ms(7)).retention_ms == 5 + 1 + 7


def test_negative_durations_and_parts_of_milliseconds_are_refused() -> None:
    with pytest.raises(ValueError, match="the time difference of a join must not be negative, but is -1 ms"):
        JoinWindows(difference=ms(-1), grace=NONE)
    with pytest.raises(ValueError, match="the grace of a join window must not be negative, but is -1 ms"):
        JoinWindows(difference=ms(1), grace=ms(-1))
    with pytest.raises(ValueError, match="must be whole milliseconds"):
        JoinWindows(difference=timedelta(microseconds=1500), grace=NONE)


@pytest.mark.parametrize(
    ("arguments", "problem", "hint"),
    [
        (
            {},
            "needs difference, or before and after",
            "JoinWindows(difference=timedelta(minutes=5), grace=timedelta(0))",
        ),
        (
            {"before": ms(5)},
            "needs both before and after",
            "JoinWindows(before=timedelta(milliseconds=5), after=timedelta(0), grace=timedelta(0))",
        ),
        (
            {"after": ms(5)},
            "needs both before and after",
            "JoinWindows(before=timedelta(0), after=timedelta(milliseconds=5), grace=timedelta(0))",
        ),
        (
            {"difference": ms(1), "after": ms(5)},
            "takes either difference, or before and after",
            "JoinWindows(before=timedelta(milliseconds=1), after=timedelta(milliseconds=5), grace=timedelta(0))",
        ),
    ],
)
def test_the_bounds_are_a_difference_or_a_pair(arguments: dict[str, timedelta], problem: str, hint: str) -> None:
    with pytest.raises(TypeError) as error:
        ANY(grace=NONE, **arguments)

    assert str(error.value) == f"JoinWindows {problem}.\n    Hint: {hint}"


def test_join_windows_cannot_be_subclassed() -> None:
    with pytest.raises(TypeError, match=r"Hint: filter\(\.\.\.\) after the join keeps the pairs that Near would join"):
        type("Near", (ANY,), {})
