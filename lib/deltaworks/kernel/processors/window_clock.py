"""The time of a windowed aggregate: the largest timestamp it has seen, and what that says about its windows."""

from __future__ import annotations


class WindowClock:
    """Observed time of one aggregate in one task."""

    __slots__ = ("_stays_open_ms", "observed_ms")

    def __init__(self, observed_ms: int, stays_open_ms: int) -> None:
        """
        Args:
            observed_ms: The largest timestamp seen so far; -1 for none.
            stays_open_ms: How far time may pass the end of a window before no record can change it any more.
        """
        self.observed_ms = observed_ms
        self._stays_open_ms = stays_open_ms

    @property
    def final_before_ms(self) -> int:
        """Windows whose `end_ms` is below will never change again."""
        return self.observed_ms - self._stays_open_ms
