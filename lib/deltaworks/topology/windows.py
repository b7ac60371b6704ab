"""Windows: how time cuts a stream. Value objects; the policy is in the factory's name.

Intervals are milliseconds since the epoch. Time windows are half open, `[start, end)`; sessions are closed,
`[first, last]`.
What a window does to a record lives in `kernel/processors/aggregates.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from deltaworks.serdes.windowed import Windowed

__all__ = ["SessionWindows", "TimeWindows", "Windowed"]

_MILLISECOND = timedelta(milliseconds=1)


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
        """Tumbling windows; a record of a window that has ended is dropped."""
        return cls.of_size_and_grace(size, timedelta(0))

    @classmethod
    def of_size_and_grace(cls, size: timedelta, grace: timedelta) -> TimeWindows:
        """Tumbling windows that stay open for `grace` after their end, in stream time."""
        size_ms = _milliseconds(size, "the size of a window")
        return cls(size_ms=size_ms, advance_ms=size_ms, grace_ms=_milliseconds(grace, "the grace of a window"))

    def advance_by(self, advance: timedelta) -> TimeWindows:
        """Hopping windows: one starts every `advance`, so a record belongs to `size / advance` of them."""
        return replace(self, advance_ms=_milliseconds(advance, "the advance of a window"))


@dataclass(frozen=True)
class SessionWindows:
    """Windows `[first, last]` of records whose distance is at most `gap_ms`.

    Source: `SessionWindows`; differs: no.

    >>> SessionWindows.of_inactivity_gap_with_no_grace(timedelta(minutes=30))
    SessionWindows(gap_ms=1800000, grace_ms=0)
    """

    gap_ms: int
    grace_ms: int

    def __post_init__(self) -> None:
        if self.gap_ms < 0:
            raise ValueError(f"the inactivity gap of a session must not be negative, but is {self.gap_ms} ms")
        _check_grace(self.grace_ms)

    @classmethod
    def of_inactivity_gap_with_no_grace(cls, gap: timedelta) -> SessionWindows:
        """A session is closed once stream time has passed its last record by more than `gap`."""
        return cls.of_inactivity_gap_and_grace(gap, timedelta(0))

    @classmethod
    def of_inactivity_gap_and_grace(cls, gap: timedelta, grace: timedelta) -> SessionWindows:
        """Sessions that accept late records for `grace` more."""
        return cls(
            gap_ms=_milliseconds(gap, "the inactivity gap of a session"),
            grace_ms=_milliseconds(grace, "the grace of a session"),
        )


def _milliseconds(duration: timedelta, what: str) -> int:
    if duration % _MILLISECOND:
        raise ValueError(f"{what} must be whole milliseconds, not {duration}")
    return duration // _MILLISECOND


def _check_grace(grace_ms: int) -> None:
    if grace_ms < 0:
        raise ValueError(f"the grace of a window must not be negative, but is {grace_ms} ms")
