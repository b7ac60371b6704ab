"""The time of a windowed aggregate: the largest timestamp it has seen, and what that says about its windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from deltaworks.kernel.stores.state import NEVER


class FinalClock(Protocol):
    """Says which rows of a windowed table are final."""

    @property
    def final_before_ms(self) -> int:
        """Windows whose `end_ms` is below this will never change again."""


class WindowClock:
    """Observed time of one aggregate in one task."""

    __slots__ = ("_stays_open_ms", "observed_ms")

    def __init__(self, observed_ms: int, stays_open_ms: int) -> None:
        """
        Args:
            observed_ms: The largest timestamp seen so far; -1 for none.
            stays_open_ms: How far time may pass the end of a window until no record can change it any more.
        """
        self.observed_ms = observed_ms
        self._stays_open_ms = stays_open_ms

    @property
    def final_before_ms(self) -> int:
        """Windows whose `end_ms` is below this will never change again."""
        return self.observed_ms - self._stays_open_ms


class EmitClock:
    """The progress of an aggregate that forwards when windows close. The task remembers both times.

    Source: `AbstractKStreamTimeWindowAggregateProcessor#shouldEmitFinal`. There the pause ends with a restart.
    """

    __slots__ = ("_final_after_ms", "_interval_ms", "emitted_ms", "pause_until_ms")

    def __init__(self, emitted_ms: int, pause_until_ms: int, *, interval_ms: int, final_after_ms: int) -> None:
        """
        Args:
            emitted_ms: Windows that had closed at this time have been forwarded; -1 for none.
            pause_until_ms: Wall clock before which there is no check.
            interval_ms: Pause between two checks.
            final_after_ms: From that time to the first end that has not been forwarded.
        """
        self.emitted_ms = emitted_ms
        self.pause_until_ms = pause_until_ms
        self._interval_ms = interval_ms
        self._final_after_ms = final_after_ms

    def due(self, closed_ms: int, wall_clock_ms: int) -> bool:
        """Whether it is time to look for windows that close at `closed_ms`."""
        if self._interval_ms:
            if wall_clock_ms < self.pause_until_ms:
                return False
            self.pause_until_ms = wall_clock_ms + self._interval_ms
        return closed_ms > self.emitted_ms or self.emitted_ms == NEVER

    @property
    def final_before_ms(self) -> int:
        """Windows whose `end_ms` is below this have been forwarded."""
        return NEVER if self.emitted_ms == NEVER else self.emitted_ms + self._final_after_ms


class CogroupClock:
    """The clock of several aggregates that share their windows: a window is final when it is final for all of them."""

    __slots__ = ("_clocks", "_nodes")

    def __init__(self, clocks: Mapping[str, FinalClock], nodes: Sequence[str]) -> None:
        self._clocks = clocks
        self._nodes = nodes

    @property
    def final_before_ms(self) -> int:
        """Windows whose `end_ms` is below this will never change again."""
        return min(self._clocks[node].final_before_ms for node in self._nodes)
