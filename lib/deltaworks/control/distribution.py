"""How long something has taken, again and again: counts per range of seconds, from which percentiles follow."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping

import msgspec

BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0)
"""The upper ends of the ranges; what took longer is in one range more."""


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """Durations since a driver started. Its ranges are `BOUNDS_S`."""

    counts: tuple[int, ...] = (0,) * (len(BOUNDS_S) + 1)
    """How many are in each range, and beyond the last one."""
    sum_s: float = 0.0
    highest_s: float = 0.0
    """The highest one of the last batch that had any."""

    def __post_init__(self) -> None:
        if len(self.counts) != len(BOUNDS_S) + 1:
            raise ValueError(f"{len(self.counts)} ranges, where there are {len(BOUNDS_S) + 1}")

    @property
    def count(self) -> int:
        """How many there are."""
        return sum(self.counts)

    def with_batch(self, durations: Iterable[tuple[float, int]]) -> Distribution:
        """This one and those of a batch.

        Args:
            durations: seconds, and how often; less than 0 counts as 0, as when the clocks of two machines differ.
        """
        counts, sum_s, highest_s = list(self.counts), self.sum_s, -1.0
        for seconds, times in durations:
            took_s = max(0.0, seconds)
            counts[bisect_left(BOUNDS_S, took_s)] += times
            sum_s += took_s * times
            highest_s = max(highest_s, took_s)
        if highest_s < 0:
            return self
        return Distribution(counts=tuple(counts), sum_s=sum_s, highest_s=highest_s)

    def quantile_s(self, share: float) -> float | None:
        """The upper end of the range that this share does not exceed, such as 0.99; None: there is nothing, or it is
        beyond the last range."""
        seen, count = 0, self.count
        for bound, number in zip(BOUNDS_S, self.counts, strict=False):
            seen += number
            if count and seen >= share * count:
                return bound
        return None


def extended(
    known: Mapping[str, Distribution], durations: Mapping[str, Iterable[tuple[float, int]]]
) -> dict[str, Distribution]:
    """Distributions by name, and those of a batch."""
    found = dict(known)
    for name, each in durations.items():
        found[name] = found.get(name, Distribution()).with_batch(each)
    return found
