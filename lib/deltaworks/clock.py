"""The clocks: the wall clock for people and records, ticks for durations.

Nothing else in this package asks the operating system for the time, so a test can set the wall clock of a process back
and forward (`arm`) without touching the machine's. People and NTP set the wall clock; ticks never go back, and all
processes of one boot of a machine share them. So decisions (a deadline, an age, a lease) count ticks, and other
processes get both (`Sign`). A batch gets its time from its intent, and the intent from a `BatchClock`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import msgspec

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_JUMP_MS = 3_600_000
_BEHIND_MS = 1_000
_log = logging.getLogger(__name__)
_step_ns: Callable[[], int] | None = None
_first: tuple[int, float] | None = None
"""The readings of both clocks at the first call of `cautious_ms`."""


def wall_ns() -> int:
    """Nanoseconds since 1970; an operator or NTP may set this clock back or forward."""
    now = time.time_ns()
    return now if _step_ns is None else now + _step_ns()


def wall_ms() -> int:
    """Milliseconds since 1970, as Kafka counts them."""
    return wall_ns() // 1_000_000


def wall_s() -> float:
    """Seconds since 1970."""
    return wall_ns() / 1e9


def utc_now() -> datetime:
    """The time of the wall clock, for people."""
    return datetime.fromtimestamp(wall_s(), UTC)


def ticks_s() -> float:
    """Seconds since some moment of this boot; never goes back, and only differences have a meaning."""
    return time.monotonic()


def cautious_ms() -> int:
    """The time for deletions by age: setting the clock forward while this process runs makes nothing older.

    A clock that was wrong before the process started cannot be recognised.
    """
    global _first
    wall, ticks = wall_ms(), ticks_s()
    if _first is None:
        _first = wall, ticks
    return min(wall, _first[0] + round((ticks - _first[1]) * 1000))


@cache
def boot_id() -> str:
    """Identifies the current boot of this machine; empty if the system does not tell."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""


class Sign(msgspec.Struct, frozen=True):
    """The time of an event, for later readers in this or another process."""

    wall_s: float
    ticks_s: float
    boot: str

    @classmethod
    def now(cls) -> Sign:
        return cls(wall_s(), ticks_s(), boot_id())

    @classmethod
    def of(cls, at: datetime | float) -> Sign:
        """Makes a sign from wall-clock time alone; a float is seconds since 1970."""
        return cls(at.timestamp() if isinstance(at, datetime) else at, 0.0, "")

    def age_s(self) -> float:
        """Its age, at least 0: by ticks within the same boot of the same machine, otherwise by the wall clock."""
        ticks = ticks_s()
        if self.boot and self.boot == boot_id() and self.ticks_s <= ticks:
            return ticks - self.ticks_s
        return max(0.0, wall_s() - self.wall_s)


class BatchClock:
    """Gives each batch its time, which is never before that of the previous batch, whatever the wall clock does.

    While the wall clock is behind the last batch because it was set back, time continues from there by ticks.

    Args:
        last_ms: the time of the last batch that was planned; 0 if there was none.
    """

    def __init__(self, last_ms: int) -> None:
        self._last_ms = self._from_ms = last_ms
        self._from_ticks_s = ticks_s()
        self._asked = self._told = False

    def now(self) -> int:
        """The time for a batch that is planned now, in milliseconds since 1970."""
        wall, ticks = wall_ms(), ticks_s()
        by_ticks = self._from_ms + round((ticks - self._from_ticks_s) * 1000)
        if wall >= self._last_ms:
            if self._asked and wall - by_ticks > _JUMP_MS:
                _log.warning("the wall clock was set forward by %.1f h; batches follow it", (wall - by_ticks) / 3.6e6)
            self._last_ms = self._from_ms = wall
            self._from_ticks_s, self._told = ticks, False
        else:
            behind_ms = self._last_ms - wall
            if behind_ms > _BEHIND_MS and not self._told:
                _log.warning("the wall clock is %.1f s behind the last batch; time goes on from there", behind_ms / 1e3)
                self._told = True
            self._last_ms = max(self._last_ms, by_ticks)
        self._asked = True
        return self._last_ms


def arm(step_ns: Callable[[], int] | None) -> None:
    """Adds `step_ns()` to the wall clock of this process from now on; None stops that. For tests."""
    global _step_ns
    _step_ns = step_ns
