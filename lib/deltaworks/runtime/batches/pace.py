"""How long a stream waits between two batches when the cores of its machine are overloaded.

The fixed cost of a batch does not depend on its records, so streams that share too few cores do better with fewer and
larger batches. Every stream decides for itself. While tasks of the machine wait for a core most of the time, its
interval grows, up to what its author allows. When they no longer wait, it shrinks again, more slowly.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from deltaworks import clock

_PRESSURE = Path("/proc/pressure/cpu")
_BUSY, _QUIET = 0.6, 0.3
_GROWS, _STEP_S, _SHRINKS = 1.5, 0.1, 0.8


def strain(pressure: Path = _PRESSURE) -> float:
    """The share of time, 0 to 1, in which a task of this machine has waited for a core.

    Linux measures it over the last ten seconds (pressure stall information). Elsewhere it is estimated from the load of
    the last minute.

    Args:
        pressure: the kernel's file.
    """
    try:
        some = pressure.read_text().split(maxsplit=2)[1]  # some avg10=12.34 avg60=...
        return float(some.removeprefix("avg10=")) / 100
    except (OSError, ValueError, IndexError):
        waiting = os.getloadavg()[0] - (os.cpu_count() or 1)
        return min(1.0, max(0.0, waiting))


class Pace:
    """When the next batch is due.

    Args:
        least_s: the interval on a machine with cores to spare.
        most_s: the largest interval.
        strain: see `strain`.
        now_s: a clock that never goes back.
    """

    def __init__(
        self,
        least_s: float,
        most_s: float,
        strain: Callable[[], float] = strain,
        now_s: Callable[[], float] = clock.ticks_s,
    ) -> None:
        self._least_s, self._most_s = least_s, max(least_s, most_s)
        self._strain, self._now_s = strain, now_s
        self._begun_s = 0.0
        self.interval_s = least_s

    @property
    def due(self) -> bool:
        """Whether a batch may begin."""
        if self.interval_s <= self._least_s:  # as before the first batch
            return True  # Spark's trigger keeps the shortest interval
        return self._now_s() - self._begun_s >= self.interval_s

    def begun(self) -> None:
        """A batch begins now."""
        self._begun_s = self._now_s()
        if self._most_s == self._least_s:
            return
        strain = self._strain()
        if strain > _BUSY:
            self.interval_s = min(self._most_s, self.interval_s * _GROWS + _STEP_S)
        elif strain < _QUIET:
            self.interval_s = max(self._least_s, self.interval_s * _SHRINKS)
