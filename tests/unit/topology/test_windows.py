"""Windows say what they are, and refuse what they cannot be."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import deltaworks
from deltaworks import JoinWindows, SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows

ANY: Any = deltaworks
"""Without types, for what mypy would refuse."""
NONE = timedelta(0)


def ms(count: float) -> timedelta:
    return timedelta(milliseconds=count)


ALL = [
    TimeWindows(size=ms(10), grace=ms(3)),
    TimeWindows(size=timedelta(hours=36), grace=NONE, advance=timedelta(minutes=90)),
    SlidingWindows(difference=ms(5), grace=ms(1)),
    SessionWindows(gap=ms(5), grace=ms(1)),
    SessionWindows(gap=ms(5), grace=ms(1), max_duration=ms(7)),
    UnlimitedWindows(),
    UnlimitedWindows(start=datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))),
    JoinWindows(difference=ms(5), grace=ms(1)),
    JoinWindows(before=ms(-5), after=ms(7), grace=ms(1)),
]


@pytest.mark.parametrize("windows", ALL, ids=repr)
def test_windows_are_shown_as_the_call_that_makes_them(windows: Any) -> None:
    made = eval(repr(windows), {**vars(deltaworks), **globals()})

    assert made == windows
    assert hash(made) == hash(windows)


@pytest.mark.parametrize("windows", ALL, ids=repr)
def test_windows_travel_to_other_processes(windows: Any) -> None:
    assert pickle.loads(pickle.dumps(windows)) == windows


@pytest.mark.parametrize("windows", ALL, ids=repr)
def test_windows_cannot_be_changed(windows: Any) -> None:
    with pytest.raises(AttributeError):
        windows.grace = ms(1)


def test_tumbling_windows_advance_by_their_size() -> None:
    windows = TimeWindows(size=ms(10), grace=ms(3))

    assert (windows.size_ms, windows.advance_ms, windows.grace_ms) == (10, 10, 3)
    assert windows == TimeWindows(size=ms(10), grace=ms(3), advance=ms(10))


def test_hopping_windows_advance_by_less() -> None:
    windows = TimeWindows(size=ms(10), grace=ms(3), advance=ms(2))

    assert (windows.size_ms, windows.advance_ms, windows.grace_ms) == (10, 2, 3)


def test_sessions_may_have_a_gap_of_zero() -> None:
    windows = SessionWindows(gap=NONE, grace=ms(1))

    assert (windows.gap_ms, windows.grace_ms, windows.max_duration_ms) == (0, 1, None)


def test_sessions_may_have_a_longest_duration() -> None:
    assert SessionWindows(gap=ms(5), grace=ms(1), max_duration=ms(7)).max_duration_ms == 7
    with pytest.raises(ValueError, match="duration of a session must not be negative"):
        SessionWindows(gap=ms(5), grace=ms(1), max_duration=ms(-1))


def test_sliding_windows_may_have_a_difference_of_zero() -> None:
    windows = SlidingWindows(difference=NONE, grace=ms(1))

    assert (windows.difference_ms, windows.grace_ms) == (0, 1)
    with pytest.raises(ValueError, match="time difference of a window must not be negative"):
        SlidingWindows(difference=ms(-1), grace=NONE)
    with pytest.raises(ValueError, match="grace of a window must not be negative"):
        SlidingWindows(difference=ms(1), grace=ms(-1))


def test_an_unlimited_window_starts_at_an_instant() -> None:
    assert UnlimitedWindows().start_ms == 0
    assert UnlimitedWindows(start=datetime.fromtimestamp(0.007, UTC)).start_ms == 7
    with pytest.raises(ValueError, match="cannot start before 1970"):
        UnlimitedWindows(start=datetime(1969, 12, 31, tzinfo=UTC))
    with pytest.raises(ValueError, match="must have a time zone"):
        UnlimitedWindows(start=datetime(2026, 1, 1))
    with pytest.raises(TypeError, match=r"such as datetime\(2026, 1, 1, tzinfo=UTC\), not 7"):
        ANY.UnlimitedWindows(start=7)


@pytest.mark.parametrize("size", [0, -1])
def test_a_window_has_a_size(size: int) -> None:
    with pytest.raises(ValueError, match=f"size of a window must be at least 1 ms, not {size} ms"):
        TimeWindows(size=ms(size), grace=NONE)


@pytest.mark.parametrize("advance", [0, -1, 11])
def test_a_window_advances_by_at_most_its_size(advance: int) -> None:
    with pytest.raises(ValueError, match=f"can advance by 1 to 10 ms, not by {advance} ms"):
        TimeWindows(size=ms(10), grace=NONE, advance=ms(advance))


def test_grace_and_gap_are_not_negative() -> None:
    with pytest.raises(ValueError, match="grace of a window must not be negative"):
        TimeWindows(size=ms(10), grace=ms(-1))
    with pytest.raises(ValueError, match="gap of a session must not be negative"):
        SessionWindows(gap=ms(-1), grace=NONE)


def test_less_than_a_millisecond_is_refused_rather_than_rounded() -> None:
    with pytest.raises(ValueError, match="size of a window must be whole milliseconds"):
        TimeWindows(size=ms(1.5), grace=NONE)


@pytest.mark.parametrize(
    ("kind", "arguments", "calls"),
    [
        ("TimeWindows", {"size": ms(10)}, "TimeWindows(size=timedelta(milliseconds=10), {grace})"),
        ("SlidingWindows", {"difference": ms(10)}, "SlidingWindows(difference=timedelta(milliseconds=10), {grace})"),
        ("SessionWindows", {"gap": timedelta(minutes=90)}, "SessionWindows(gap=timedelta(minutes=90), {grace})"),
        ("JoinWindows", {"difference": ms(10)}, "JoinWindows(difference=timedelta(milliseconds=10), {grace})"),
    ],
)
def test_windows_without_grace_name_both_choices(kind: str, arguments: dict[str, timedelta], calls: str) -> None:
    with pytest.raises(TypeError) as error:
        getattr(ANY, kind)(**arguments)

    assert str(error.value) == (
        f"{kind} needs grace: for how long, in stream time, records may be late."
        f"\n    Hint: {calls.format(grace='grace=timedelta(0)')} drops late records;"
        f" {calls.format(grace='grace=timedelta(minutes=1)')} takes those that are up to a minute late"
    )


@pytest.mark.parametrize(
    ("code", "problem", "hint"),
    [
        (
            "TimeWindows(ms(10), NONE)",
            "TimeWindows takes its arguments by keyword only.",
            "TimeWindows(size=timedelta(minutes=5), grace=timedelta(0))",
        ),
        (
            "SessionWindows(gap_ms=5, grace_ms=0)",
            "SessionWindows has no argument 'gap_ms'; it takes gap, grace, max_duration.",
            "SessionWindows(gap=timedelta(minutes=30), grace=timedelta(0))",
        ),
        (
            "SlidingWindows(grace=NONE)",
            "SlidingWindows needs difference.",
            "SlidingWindows(difference=timedelta(minutes=5), grace=timedelta(0))",
        ),
    ],
)
def test_a_wrong_call_shows_a_right_one(code: str, problem: str, hint: str) -> None:
    with pytest.raises(TypeError) as error:
        eval(code)

    assert str(error.value) == f"{problem}\n    Hint: {hint}"
    assert eval(hint) is not None


NAMES = {
    "TimeWindows.ofSizeWithNoGrace": "TimeWindows(size=timedelta(minutes=5), grace=timedelta(0))",
    "TimeWindows.ofSizeAndGrace": "TimeWindows(size=timedelta(minutes=5), grace=timedelta(minutes=1))",
    "TimeWindows.of_size_with_no_grace": "TimeWindows(size=timedelta(minutes=5), grace=timedelta(0))",
    "TimeWindows.of_size_and_grace": "TimeWindows(size=timedelta(minutes=5), grace=timedelta(minutes=1))",
    "TimeWindows.of": "TimeWindows(size=timedelta(minutes=5), grace=timedelta(0))",
    "WINDOWS.advanceBy": "TimeWindows(size=timedelta(minutes=5), grace=timedelta(0), advance=timedelta(minutes=1))",
    "WINDOWS.advance_by": "TimeWindows(size=timedelta(minutes=5), grace=timedelta(0), advance=timedelta(minutes=1))",
    "SlidingWindows.ofTimeDifferenceWithNoGrace": "SlidingWindows(difference=timedelta(minutes=5), grace=timedelta(0))",
    "SlidingWindows.of_time_difference_and_grace": (
        "SlidingWindows(difference=timedelta(minutes=5), grace=timedelta(minutes=1))"
    ),
    "SessionWindows.ofInactivityGapWithNoGrace": "SessionWindows(gap=timedelta(minutes=30), grace=timedelta(0))",
    "SessionWindows.of_inactivity_gap_and_grace": (
        "SessionWindows(gap=timedelta(minutes=30), grace=timedelta(minutes=1))"
    ),
    "UnlimitedWindows.of": "UnlimitedWindows()",
    "UnlimitedWindows.startOn": "UnlimitedWindows(start=datetime(2026, 1, 1, tzinfo=UTC))",
    "JoinWindows.ofTimeDifferenceAndGrace": (
        "JoinWindows(difference=timedelta(minutes=5), grace=timedelta(minutes=1))"
    ),
    "JoinWindows.of_time_difference_with_no_grace": (
        "JoinWindows(difference=timedelta(minutes=5), grace=timedelta(0))"
    ),
}
WINDOWS = TimeWindows(size=ms(10), grace=NONE)


@pytest.mark.parametrize(("name", "hint"), NAMES.items())
def test_a_name_of_kafka_streams_shows_the_call_that_takes_its_place(name: str, hint: str) -> None:
    kind, _, attribute = name.partition(".")
    owner = {"WINDOWS": WINDOWS}.get(kind, getattr(ANY, kind, None))

    with pytest.raises(AttributeError) as error:
        getattr(owner, attribute)

    kind = "TimeWindows" if kind == "WINDOWS" else kind
    assert str(error.value) == f"{kind} has no attribute {attribute!r}.\n    Hint: {hint}"
    assert eval(hint) is not None


def test_an_unknown_name_has_no_hint() -> None:
    with pytest.raises(AttributeError, match=r"^TimeWindows has no attribute 'length'$"):
        ANY.TimeWindows.length  # noqa: B018


@pytest.mark.parametrize("kind", [TimeWindows, SlidingWindows, SessionWindows, UnlimitedWindows])
def test_windows_of_the_kernel_cannot_be_subclassed(kind: Any) -> None:
    with pytest.raises(TypeError) as error:
        type("Days", (kind,), {})

    assert str(error.value) == (
        f"{kind.__name__} cannot be subclassed: what Days adds would be ignored."
        "\n    Hint: class Days(Windows), with windows_for(self, timestamp_ms), returns the windows of a timestamp"
    )
