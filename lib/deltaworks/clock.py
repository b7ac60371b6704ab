"""What time it is: the wall clock for people and records, ticks for how long something takes.

Nothing else in this package asks the operating system, so a test can set the wall clock of a process back and forward
(`arm`) without touching the machine's. The wall clock is set by people and by NTP; ticks never go back, and are common
to all processes of one boot of a machine. So what decides (a deadline, an age, a lease) counts ticks, and other
processes are told both (`Sign`). A batch gets its time from its intent, and the intent from a `BatchClock`.
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
"""What the clocks said when `cautious_ms` was asked for the first time."""


def wall_ns() -> int:
    """Nanoseconds since 1970; may be set back or forward by an operator, or by a leap of the machine's clock."""
    now = time.time_ns()
    return now if _step_ns is None else now + _step_ns()


def wall_ms() -> int:
    """Milliseconds since 1970, as Kafka counts them."""
    return wall_ns() // 1_000_000


def wall_s() -> float:
    """Seconds since 1970."""
    return wall_ns() / 1e9


def utc_now() -> datetime:
    """The wall clock for people."""
    return datetime.fromtimestamp(wall_s(), UTC)


def ticks_s() -> float:
    """Seconds since some moment of this boot; only differences mean something. Never goes back."""
    return time.monotonic()


def cautious_ms() -> int:
    """The time for what deletes by age: a clock that is set forward while this process runs makes nothing older.

    A clock that was wrong before the process began cannot be told from a right one.
    """
    global _first
    wall, ticks = wall_ms(), ticks_s()
    if _first is None:
        _first = wall, ticks
    return min(wall, _first[0] + round((ticks - _first[1]) * 1000))


@cache
def boot_id() -> str:
    """Which boot of which machine this is; empty where the system does not say."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""


class Sign(msgspec.Struct, frozen=True):
    """When something happened, for whoever looks at it later, in this process or another one."""

    wall_s: float
    ticks_s: float
    boot: str

    @classmethod
    def now(cls) -> Sign:
        return cls(wall_s(), ticks_s(), boot_id())

    @classmethod
    def of(cls, at: datetime | float) -> Sign:
        """Of a moment of which only the wall clock is known; a float is seconds since 1970."""
        return cls(at.timestamp() if isinstance(at, datetime) else at, 0.0, "")

    def age_s(self) -> float:
        """How long ago that is, at least 0: by ticks on the same boot of the same machine, else by the wall clock."""
        ticks = ticks_s()
        if self.boot and self.boot == boot_id() and self.ticks_s <= ticks:
            return ticks - self.ticks_s
        return max(0.0, wall_s() - self.wall_s)


class BatchClock:
    """The time of one batch after the other: never below that of the batch before, whatever is done to the wall clock.

    While the wall clock is behind the last batch, because it was set back, time goes on with the ticks from there.

    Args:
        last_ms: the time of the last batch that was planned; 0 if there was none.
    """

    def __init__(self, last_ms: int) -> None:
        self._last_ms = self._from_ms = last_ms
        self._from_ticks_s = ticks_s()
        self._asked = self._told = False

    def now(self) -> int:
        """The time of a batch that is planned now, in milliseconds since 1970."""
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
    """Adds `step_ns()` to the wall clock of this process from now on; None ends it. For tests."""
    global _step_ns
    _step_ns = step_ns
