"""The lag of a stream in time: how long ago its topics ended at its current position.

Timestamps of records say when an event happened, not when it was written. So the ends of the topics are remembered with
the time when they were seen.
"""

from __future__ import annotations

from collections.abc import Callable

from deltaworks import clock
from deltaworks.kafka.ranges import Offsets

_SAMPLES = 512
_EVERY_S = 1.0


class Lag:
    """The ends of the topics, seen now and then, and kept more coarsely the longer the stream takes to reach them."""

    def __init__(self, ticks_s: Callable[[], float] = clock.ticks_s) -> None:
        self._ticks_s = ticks_s
        self._seen: list[tuple[float, Offsets]] = []
        self._every_s = _EVERY_S

    def see(self, ends: Offsets) -> None:
        """Records where the topics end now."""
        now = self._ticks_s()
        if len(self._seen) > 1 and now - self._seen[-2][0] < self._every_s:
            self._seen.pop()  # the last one is always the current one
        self._seen.append((now, ends))
        if len(self._seen) > _SAMPLES:
            self._seen = [*self._seen[:-1:2], self._seen[-1]]
            self._every_s *= 2

    def seconds(self, position: Offsets) -> float | None:
        """How long ago the topics ended at a position: 0 if they still do; None if no end was ever seen.

        For a position that the topics had passed before the first look, it is the time since that look.
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
