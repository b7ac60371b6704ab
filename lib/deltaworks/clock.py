"""What time it is: the wall clock for people and records, ticks for how long something takes.

Nothing else in this package asks the operating system, so a test can set the wall clock of a process back and forward
(`arm`) without touching the machine's. Ticks never go back. A batch gets the time from its intent, not from here.
"""

from __future__ import annotations

import time
from collections.abc import Callable

_step_ns: Callable[[], int] | None = None


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


def ticks_s() -> float:
    """Seconds since some moment; only differences mean something. Never goes back."""
    return time.monotonic()


def arm(step_ns: Callable[[], int] | None) -> None:
    """Adds `step_ns()` to the wall clock of this process from now on; None ends it. For tests."""
    global _step_ns
    _step_ns = step_ns
