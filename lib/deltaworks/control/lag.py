"""How far a stream lies behind its topics in time: how long ago they ended where it is now.

Timestamps of records say when something happened, not when it was written; so the ends of the topics are remembered
with the time at which they were seen.
"""

from __future__ import annotations

from collections.abc import Callable

from deltaworks import clock
from deltaworks.kafka.ranges import Offsets

_SAMPLES = 512
_EVERY_S = 1.0


class Lag:
    """The ends of the topics, seen now and then; coarser the longer ago it is that they are waited for."""

    def __init__(self, ticks_s: Callable[[], float] = clock.ticks_s) -> None:
        self._ticks_s = ticks_s
        self._seen: list[tuple[float, Offsets]] = []
        self._every_s = _EVERY_S

    def see(self, ends: Offsets) -> None:
        """Where the topics end now."""
        now = self._ticks_s()
        if len(self._seen) > 1 and now - self._seen[-2][0] < self._every_s:
            self._seen.pop()  # the last one is always of now
        self._seen.append((now, ends))
        if len(self._seen) > _SAMPLES:
            self._seen = [*self._seen[:-1:2], self._seen[-1]]
            self._every_s *= 2

    def seconds(self, position: Offsets) -> float | None:
        """How long ago the topics ended at a position: 0 if they still do; None if no end was ever seen.

        A position that was passed before the first look is at least as long ago as that look.
        """
        if not self._seen:
            return None
        passed = next((n for n, (_, ends) in enumerate(self._seen) if not _reached(ends, position)), len(self._seen))
        caught_up = passed == len(self._seen)
        self._seen = self._seen[max(0, passed - 1) :]
        if caught_up:
            self._every_s = _EVERY_S
            return 0.0
        return self._ticks_s() - self._seen[0][0]


def _reached(ends: Offsets, position: Offsets) -> bool:
    return all(
        position.get(topic, {}).get(partition, 0) >= end
        for topic, partitions in ends.items()
        for partition, end in partitions.items()
    )
