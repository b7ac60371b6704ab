"""Windows: how time cuts a stream. Value objects, made with keywords; `grace` is always said.

Intervals are milliseconds since the epoch. Time windows are half open, `[start, end)`; sliding windows and sessions are
closed, `[first, last]`.
Windows that an author writes are in `own_windows.py`. The semantics are in `kernel/processors`:
`windowed_aggregates.py`, `sliding.py`, `sessions.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cached_property
from typing import ClassVar, TypeAlias, final

from deltaworks.serdes.windowed import LAST_END_MS, Windowed
from deltaworks.topology.durations import milliseconds
from deltaworks.topology.keywords import Keywords, call
from deltaworks.topology.own_windows import Windows

__all__ = ["EmitStrategy", "SessionWindows", "SlidingWindows", "TimeWindows", "UnlimitedWindows", "Windowed", "Windows"]

_EPOCH = datetime.fromtimestamp(0, UTC)
_SUBCLASS_WINDOWS = "class {name}(Windows), with windows_for(self, timestamp_ms), returns the windows of a timestamp"


class EmitStrategy(Enum):
    """When an aggregate over windows forwards its results.

    Source: `EmitStrategy`; differs: no.

    >>> EmitStrategy.ON_WINDOW_CLOSE.value
    'on window close'
    """

    ON_WINDOW_UPDATE = "on window update"
    """At every update; with a record cache, at the commit after it."""
    ON_WINDOW_CLOSE = "on window close"
    """Once, when no record can change the window any more."""


@final
@dataclass(frozen=True, init=False, repr=False)
class TimeWindows(Keywords):
    """Fixed windows `[start, end)` aligned to the epoch: tumbling, or hopping when `advance` is less than `size`.

    Args:
        size: from the start of a window to its end.
        grace: for how long after its end, in stream time, a window takes records; `timedelta(0)`: it drops late ones.
        advance: hopping windows: one starts every `advance`, so a record belongs to `size / advance` of them. None: one
            starts where the previous one ends.

    Source: `TimeWindows`; differs: keywords in place of factories. It cannot be subclassed: see `Windows`.

    >>> TimeWindows(size=timedelta(minutes=5), grace=timedelta(0), advance=timedelta(seconds=60))
    TimeWindows(size=timedelta(minutes=5), grace=timedelta(0), advance=timedelta(minutes=1))
    """

    size: timedelta
    grace: timedelta
    advance: timedelta

    _example: ClassVar[Mapping[str, str]] = {"size": "timedelta(minutes=5)", "grace": "timedelta(0)"}
    _replaced: ClassVar[Mapping[str, str]] = {
        "of": "TimeWindows(size=timedelta(minutes=5), grace=timedelta(0))",
        "of_size_with_no_grace": "TimeWindows(size=timedelta(minutes=5), grace=timedelta(0))",
        "of_size_and_grace": "TimeWindows(size=timedelta(minutes=5), grace=timedelta(minutes=1))",
        "advance_by": "TimeWindows(size=timedelta(minutes=5), grace=timedelta(0), advance=timedelta(minutes=1))",
        "grace_period_ms": "windows.grace",
    }
    _instead_of_a_subclass = _SUBCLASS_WINDOWS

    def __init__(self, *, size: timedelta, grace: timedelta, advance: timedelta | None = None) -> None:
        advance = size if advance is None else advance
        size_ms = milliseconds(size, "the size of a window")
        advance_ms = milliseconds(advance, "the advance of a window")
        if size_ms <= 0:
            raise ValueError(f"the size of a window must be at least 1 ms, not {size_ms} ms")
        if not 0 < advance_ms <= size_ms:
            raise ValueError(f"a window of {size_ms} ms can advance by 1 to {size_ms} ms, not by {advance_ms} ms")
        _check_grace(grace)
        object.__setattr__(self, "size", size)
        object.__setattr__(self, "grace", grace)
        object.__setattr__(self, "advance", advance)

    @cached_property
    def size_ms(self) -> int:
        """The size in milliseconds."""
        return milliseconds(self.size, "the size of a window")

    @cached_property
    def advance_ms(self) -> int:
        """From one start to the next, in milliseconds."""
        return milliseconds(self.advance, "the advance of a window")

    @property
    def grace_ms(self) -> int:
        """The grace in milliseconds."""
        return milliseconds(self.grace, "the grace of a window")

    def end_of(self, start_ms: int) -> int:
        """The end of the window that starts then."""
        return start_ms + self.size_ms

    def __repr__(self) -> str:
        hopping = {} if self.advance == self.size else {"advance": self.advance}
        return call("TimeWindows", {"size": self.size, "grace": self.grace, **hopping})


@final
@dataclass(frozen=True, init=False, repr=False)
class UnlimitedWindows(Keywords):
    """One window `[start, for ever)`: records before its start belong to none, and it never closes.

    Args:
        start: an instant, such as `datetime(2026, 1, 1, tzinfo=UTC)`; None: the epoch, so every record belongs to it.

    Source: `UnlimitedWindows`; differs: a keyword in place of factories.

    >>> UnlimitedWindows(start=datetime(2026, 1, 1, tzinfo=UTC))
    UnlimitedWindows(start=datetime(2026, 1, 1, 0, 0, tzinfo=UTC))
    """

    start: datetime

    _replaced: ClassVar[Mapping[str, str]] = {
        "of": "UnlimitedWindows()",
        "start_on": "UnlimitedWindows(start=datetime(2026, 1, 1, tzinfo=UTC))",
        "start_on_ms": "UnlimitedWindows(start=datetime.fromtimestamp(start_ms / 1000, UTC))",
    }
    _instead_of_a_subclass = _SUBCLASS_WINDOWS

    def __init__(self, *, start: datetime | None = None) -> None:
        start = _EPOCH if start is None else start
        if not isinstance(start, datetime):
            raise TypeError(
                f"the start of a window must be a datetime, such as datetime(2026, 1, 1, tzinfo=UTC), not {start!r}"
            )
        if start.tzinfo is None:
            raise ValueError(f"the start of a window must have a time zone, {start} has none")
        if start < _EPOCH:
            raise ValueError(f"an unlimited window cannot start before 1970, at {start}")
        milliseconds(start - _EPOCH, "the start of a window")
        object.__setattr__(self, "start", start.astimezone(UTC))

    @property
    def start_ms(self) -> int:
        """The start as a timestamp."""
        return milliseconds(self.start - _EPOCH, "the start of a window")

    @property
    def grace_ms(self) -> int:
        """A window that never closes needs no grace."""
        return 0

    def end_of(self, start_ms: int) -> int:
        """It has none: the largest timestamp."""
        return LAST_END_MS

    def __repr__(self) -> str:
        return call("UnlimitedWindows", {} if self.start == _EPOCH else {"start": self.start})


@final
@dataclass(frozen=True, init=False, repr=False)
class SlidingWindows(Keywords):
    """Windows `[first, last]` that end or start with a record: every set of records that lie close enough has one.

    A record at `t` gets the window `[t - difference, t]`, and `[t + 1, t + 1 + difference]` once that holds a record.
    Records earlier than `difference` share the window `[0, difference]`.

    Args:
        difference: the largest distance of two records of a window.
        grace: for how long after its end, in stream time, a window takes records; `timedelta(0)`: it drops late ones.

    Source: `SlidingWindows`; differs: keywords in place of factories. As there, a difference of zero is accepted here,
    and fails at the first record.

    >>> SlidingWindows(difference=timedelta(minutes=5), grace=timedelta(minutes=1))
    SlidingWindows(difference=timedelta(minutes=5), grace=timedelta(minutes=1))
    """

    difference: timedelta
    grace: timedelta

    _example: ClassVar[Mapping[str, str]] = {"difference": "timedelta(minutes=5)", "grace": "timedelta(0)"}
    _replaced: ClassVar[Mapping[str, str]] = {
        "of_time_difference_with_no_grace": "SlidingWindows(difference=timedelta(minutes=5), grace=timedelta(0))",
        "of_time_difference_and_grace": "SlidingWindows(difference=timedelta(minutes=5), grace=timedelta(minutes=1))",
        "with_time_difference_and_grace": "SlidingWindows(difference=timedelta(minutes=5), grace=timedelta(minutes=1))",
        "time_difference_ms": "windows.difference",
        "grace_period_ms": "windows.grace",
    }
    _instead_of_a_subclass = _SUBCLASS_WINDOWS

    def __init__(self, *, difference: timedelta, grace: timedelta) -> None:
        difference_ms = milliseconds(difference, "the time difference of a window")
        if difference_ms < 0:
            raise ValueError(f"the time difference of a window must not be negative, but is {difference_ms} ms")
        _check_grace(grace)
        object.__setattr__(self, "difference", difference)
        object.__setattr__(self, "grace", grace)

    @cached_property
    def difference_ms(self) -> int:
        """The time difference in milliseconds."""
        return milliseconds(self.difference, "the time difference of a window")

    @property
    def grace_ms(self) -> int:
        """The grace in milliseconds."""
        return milliseconds(self.grace, "the grace of a window")

    def end_of(self, start_ms: int) -> int:
        """The end of the window that starts then, which still belongs to it."""
        return start_ms + self.difference_ms

    def __repr__(self) -> str:
        return call("SlidingWindows", {"difference": self.difference, "grace": self.grace})


@final
@dataclass(frozen=True, init=False, repr=False)
class SessionWindows(Keywords):
    """Windows `[first, last]` of records whose distance is at most `gap`.

    Args:
        gap: the longest time without a record inside a session.
        grace: for how much longer than `gap` after its last record, in stream time, a session takes records;
            `timedelta(0)`: late ones are dropped.
        max_duration: sessions last at most this long from the first to the last record, however busy their key is.
            A record joins the session it falls into, then the other sessions a gap away, the earlier ones first, as
            long as the result is not longer. Sessions that would make it longer stay as they are, and a record without
            a fitting session starts one. So sessions of a key never overlap, but may be closer than the gap. None:
            sessions go on as long as records come.

    Source: `SessionWindows`; differs: keywords in place of factories; `max_duration`, off by default.

    >>> SessionWindows(gap=timedelta(minutes=30), grace=timedelta(0))
    SessionWindows(gap=timedelta(minutes=30), grace=timedelta(0))
    """

    gap: timedelta
    grace: timedelta
    max_duration: timedelta | None

    _example: ClassVar[Mapping[str, str]] = {"gap": "timedelta(minutes=30)", "grace": "timedelta(0)"}
    _replaced: ClassVar[Mapping[str, str]] = {
        "with": "SessionWindows(gap=timedelta(minutes=30), grace=timedelta(0))",
        "of_inactivity_gap_with_no_grace": "SessionWindows(gap=timedelta(minutes=30), grace=timedelta(0))",
        "of_inactivity_gap_and_grace": "SessionWindows(gap=timedelta(minutes=30), grace=timedelta(minutes=1))",
        "inactivity_gap": "windows.gap",
        "grace_period_ms": "windows.grace",
    }
    _instead_of_a_subclass = _SUBCLASS_WINDOWS

    def __init__(self, *, gap: timedelta, grace: timedelta, max_duration: timedelta | None = None) -> None:
        gap_ms = milliseconds(gap, "the inactivity gap of a session")
        if gap_ms < 0:
            raise ValueError(f"the inactivity gap of a session must not be negative, but is {gap_ms} ms")
        _check_grace(grace)
        if max_duration is not None and (longest_ms := milliseconds(max_duration, "the duration of a session")) < 0:
            raise ValueError(f"the duration of a session must not be negative, but is {longest_ms} ms")
        object.__setattr__(self, "gap", gap)
        object.__setattr__(self, "grace", grace)
        object.__setattr__(self, "max_duration", max_duration)

    @property
    def gap_ms(self) -> int:
        """The inactivity gap in milliseconds."""
        return milliseconds(self.gap, "the inactivity gap of a session")

    @property
    def grace_ms(self) -> int:
        """The grace in milliseconds."""
        return milliseconds(self.grace, "the grace of a session")

    @property
    def max_duration_ms(self) -> int | None:
        """The longest duration in milliseconds."""
        return None if self.max_duration is None else milliseconds(self.max_duration, "the duration of a session")

    def __repr__(self) -> str:
        limit = {} if self.max_duration is None else {"max_duration": self.max_duration}
        return call("SessionWindows", {"gap": self.gap, "grace": self.grace, **limit})


AnyWindows: TypeAlias = TimeWindows | UnlimitedWindows | SlidingWindows | SessionWindows | Windows
"""All kinds of windows that `windowed_by` accepts."""


def _check_grace(grace: timedelta) -> None:
    grace_ms = milliseconds(grace, "the grace of a window")
    if grace_ms < 0:
        raise ValueError(f"the grace of a window must not be negative, but is {grace_ms} ms")
