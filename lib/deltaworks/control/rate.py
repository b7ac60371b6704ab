"""The records per second that a stream has processed over the last minute."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from deltaworks import clock

_WINDOW_S = 60.0


class Rate:
    """The batches of the last minute; after an idle minute, the rate is 0.

    A stream that has run for less than a minute is measured over its running time.
    """

    def __init__(self, ticks_s: Callable[[], float] = clock.ticks_s) -> None:
        self._ticks_s = ticks_s
        self._begun = ticks_s()
        self._batches: deque[tuple[float, int]] = deque()
        """The end and the number of records of each batch."""
        self._records = 0

    def add(self, records: int) -> None:
        """Adds a batch that has just ended."""
        self._batches.append((self._ticks_s(), records))
        self._records += records

    def per_second(self) -> float:
        """The current rate."""
        now = self._ticks_s()
        while self._batches and self._batches[0][0] <= now - _WINDOW_S:
            self._records -= self._batches.popleft()[1]
        return self._records / max(min(now - self._begun, _WINDOW_S), 1.0)
