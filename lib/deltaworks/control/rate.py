"""How many records a stream has processed per second, over the last minute."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from deltaworks import clock

_WINDOW_S = 60.0


class Rate:
    """Batches of the last minute; none are left of a stream that has idled for one, and its rate is 0.

    A stream that runs for less is measured over the time that it has run.
    """

    def __init__(self, ticks_s: Callable[[], float] = clock.ticks_s) -> None:
        self._ticks_s = ticks_s
        self._begun = ticks_s()
        self._batches: deque[tuple[float, int]] = deque()
        """When each ended, and its records."""
        self._records = 0

    def add(self, records: int) -> None:
        """A batch has ended."""
        self._batches.append((self._ticks_s(), records))
        self._records += records

    def per_second(self) -> float:
        """Of now."""
        now = self._ticks_s()
        while self._batches and self._batches[0][0] <= now - _WINDOW_S:
            self._records -= self._batches.popleft()[1]
        return self._records / max(min(now - self._begun, _WINDOW_S), 1.0)
