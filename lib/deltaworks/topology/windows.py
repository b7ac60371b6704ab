"""Windows: how time cuts a stream. Value objects; the policy is in the factory's name.

Intervals are milliseconds since the epoch. Time windows are half open, `[start, end)`; sliding windows and sessions are
closed, `[first, last]`.
The semantics are in `kernel/processors`: `windowed_aggregates.py`, `sliding.py`, `sessions.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import TypeAlias

from deltaworks.serdes.windowed import Windowed
from deltaworks.topology.durations import milliseconds

__all__ = ["EmitStrategy", "SessionWindows", "SlidingWindows", "TimeWindows", "UnlimitedWindows", "Windowed"]

NO_END_MS = 2**63 - 1
"""End of a window that never ends."""

_EPOCH = datetime.fromtimestamp(0, UTC)


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


@dataclass(frozen=True)
class TimeWindows:
    """Fixed windows `[start, end)` aligned to the epoch: tumbling, or hopping when `advance_ms < size_ms`.

    Source: `TimeWindows`; differs: no.

    >>> TimeWindows.of_size_and_grace(timedelta(minutes=5), timedelta(minutes=1)).advance_by(timedelta(minutes=1))
    TimeWindows(size_ms=300000, advance_ms=60000, grace_ms=60000)
    """

    size_ms: int
    advance_ms: int
    grace_ms: int

    def __post_init__(self) -> None:
        if self.size_ms <= 0:
            raise ValueError(f"the size of a window must be at least 1 ms, not {self.size_ms} ms")
        if not 0 < self.advance_ms <= self.size_ms:
            raise ValueError(
                f"a window of {self.size_ms} ms can advance by 1 to {self.size_ms} ms, not by {self.advance_ms} ms"
            )
        _check_grace(self.grace_ms)

    @classmethod
    def of_size_with_no_grace(cls, size: timedelta) -> TimeWindows:
        """Tumbling windows; records of a window that has ended are dropped."""
        return cls.of_size_and_grace(size, timedelta(0))

    @classmethod
    def of_size_and_grace(cls, size: timedelta, grace: timedelta) -> TimeWindows:
        """Tumbling windows that stay open for `grace` after their end, in stream time."""
        size_ms = milliseconds(size, "the size of a window")
        return cls(size_ms=size_ms, advance_ms=size_ms, grace_ms=milliseconds(grace, "the grace of a window"))

    def advance_by(self, advance: timedelta) -> TimeWindows:
        """Hopping windows: one starts every `advance`, so a record belongs to `size / advance` of them."""
        return replace(self, advance_ms=milliseconds(advance, "the advance of a window"))


@dataclass(frozen=True)
class UnlimitedWindows:
    """One window `[start, for ever)`: records before its start belong to none, and it never closes.

    Source: `UnlimitedWindows`; differs: no.

    >>> UnlimitedWindows.start_on(datetime(1970, 1, 1, 0, 1, tzinfo=UTC))
    UnlimitedWindows(start_ms=60000)
    """

    start_ms: int = 0

    def __post_init__(self) -> None:
        if self.start_ms < 0:
            raise ValueError(f"an unlimited window cannot start before 1970, at {self.start_ms} ms")

    @property
    def grace_ms(self) -> int:
        """A window that never closes needs no grace."""
        return 0

    @classmethod
    def of(cls) -> UnlimitedWindows:
        """Starts at the epoch, so every record belongs to it."""
        return cls()

    @classmethod
    def start_on(cls, start: datetime) -> UnlimitedWindows:
        """Starts at an instant, such as `datetime(2026, 1, 1, tzinfo=UTC)`."""
        if start.tzinfo is None:
            raise ValueError(f"the start of a window must have a time zone, {start} has none")
        return cls(milliseconds(start - _EPOCH, "the start of a window"))

    @classmethod
    def start_on_ms(cls, start_ms: int) -> UnlimitedWindows:
        """Starts at a timestamp."""
        return cls(start_ms)


@dataclass(frozen=True)
class SlidingWindows:
    """Windows `[first, last]` that end or start with a record: every set of records that lie close enough has one.

    A record at `t` gets the window `[t - difference, t]`, and `[t + 1, t + 1 + difference]` once that holds a record.
    Records earlier than `difference` share the window `[0, difference]`.

    Source: `SlidingWindows`; differs: no. As there, a difference of zero is accepted here, and fails at the first
    record.

    >>> SlidingWindows.of_time_difference_and_grace(timedelta(minutes=5), timedelta(minutes=1))
    SlidingWindows(difference_ms=300000, grace_ms=60000)
    """

    difference_ms: int
    grace_ms: int

    def __post_init__(self) -> None:
        if self.difference_ms < 0:
            raise ValueError(f"the time difference of a window must not be negative, but is {self.difference_ms} ms")
        _check_grace(self.grace_ms)

    @classmethod
    def of_time_difference_with_no_grace(cls, difference: timedelta) -> SlidingWindows:
        """A record is late once stream time has passed it by more than `difference`."""
        return cls.of_time_difference_and_grace(difference, timedelta(0))

    @classmethod
    def of_time_difference_and_grace(cls, difference: timedelta, grace: timedelta) -> SlidingWindows:
        """Windows that accept late records for another `grace`."""
        return cls(
            difference_ms=milliseconds(difference, "the time difference of a window"),
            grace_ms=milliseconds(grace, "the grace of a window"),
        )


@dataclass(frozen=True)
class SessionWindows:
    """Windows `[first, last]` of records whose distance is at most `gap_ms`.

    Source: `SessionWindows`; differs: `max_duration`, off by default.

    >>> SessionWindows.of_inactivity_gap_with_no_grace(timedelta(minutes=30))
    SessionWindows(gap_ms=1800000, grace_ms=0, max_duration_ms=None)
    """

    gap_ms: int
    grace_ms: int
    max_duration_ms: int | None = None

    def __post_init__(self) -> None:
        if self.gap_ms < 0:
            raise ValueError(f"the inactivity gap of a session must not be negative, but is {self.gap_ms} ms")
        _check_grace(self.grace_ms)
        if self.max_duration_ms is not None and self.max_duration_ms < 0:
            raise ValueError(f"the duration of a session must not be negative, but is {self.max_duration_ms} ms")

    @classmethod
    def of_inactivity_gap_with_no_grace(cls, gap: timedelta) -> SessionWindows:
        """A session is closed once stream time has passed its last record by more than `gap`."""
        return cls.of_inactivity_gap_and_grace(gap, timedelta(0))

    @classmethod
    def of_inactivity_gap_and_grace(cls, gap: timedelta, grace: timedelta) -> SessionWindows:
        """Sessions that accept late records for another `grace`."""
        return cls(
            gap_ms=milliseconds(gap, "the inactivity gap of a session"),
            grace_ms=milliseconds(grace, "the grace of a session"),
        )

    def max_duration(self, duration: timedelta) -> SessionWindows:
        """Sessions that last at most `duration` from the first to the last record, however busy their key is.

        A record joins the session it falls into, then the other sessions a gap away, the earlier ones first, as long
        as the result is not longer than `duration`. Sessions that would make it longer stay as they are, and a record
        without a fitting session starts one. So sessions of a key never overlap, but may be closer than the gap.

        Source: none; Kafka Streams' sessions go on as long as records come.
        """
        return replace(self, max_duration_ms=milliseconds(duration, "the duration of a session"))


AnyWindows: TypeAlias = TimeWindows | UnlimitedWindows | SlidingWindows | SessionWindows
"""All kinds of windows that `windowed_by` accepts."""


def _check_grace(grace_ms: int) -> None:
    if grace_ms < 0:
        raise ValueError(f"the grace of a window must not be negative, but is {grace_ms} ms")
