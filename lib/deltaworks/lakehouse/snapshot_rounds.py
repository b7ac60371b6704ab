"""When the snapshots of a pipeline are refreshed: together, so that all of them show the same batch.

While changelogs grow, rounds follow each other with a pause that is proportional to what the next one costs: few
changes are shown after seconds, and many take no more than a twentieth of a core.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from deltaworks.clock import ticks_s
from deltaworks.lakehouse.snapshots import Snapshot, SnapshotRefresh

REST_S = 10.0
"""The shortest pause between two rounds."""
REST = 20.0
"""The pause is at least this many times as long as the next round is expected to take."""
_ATTEMPTS = 3
"""Attempts at a round that must not wait: another writer may rewrite the files that it replaces."""
T = TypeVar("T")


class SnapshotRounds(Generic[T]):
    """The rounds of one pipeline.

    Args:
        snapshots: all of its snapshots.
        moment: called between two batches, when a round begins and when nothing has changed since the last one: what
            snapshots stand for; None: unknown.
    """

    def __init__(self, snapshots: Sequence[Snapshot], moment: Callable[[], T | None]) -> None:
        self._snapshots, self._moment = snapshots, moment
        self._running: list[Snapshot] = []
        self._begun: T | None = None
        self.shown: T | None = None
        """What all snapshots stand for; None: unknown, as not all of them were refreshed together."""
        self._ended_s = ticks_s() - (0.0 if any(each.as_of_batch >= 0 for each in snapshots) else REST_S)

    def forget(self) -> None:
        """Notes that a table was changed by something else than a batch: what rounds stand for is unknown."""
        self.shown = self._begun = None

    def refresh(self, *, force: bool = False, eager: bool = False) -> list[SnapshotRefresh]:
        """Commits a round whose rows are ready, and begins one if something has changed and the pause is over.

        Args:
            force: no pause, and wait for the result.
            eager: no pause.

        Returns:
            The snapshots that this call has committed.
        """
        refreshed = self._finish(wait=force)
        for _ in range(_ATTEMPTS if force else 1):
            stale = [each for each in self._snapshots if each.stale]
            if self._running or not stale or not (force or eager or self._is_rested(stale)):
                break
            self._running, self._begun = stale, self._moment()
            for each in stale:
                each.begin()
            refreshed += self._finish(wait=force)
        if self.shown is not None and not any(each.stale for each in self._snapshots):
            self.shown = now if (now := self._moment()) is not None else self.shown
        return refreshed

    def _finish(self, *, wait: bool) -> list[SnapshotRefresh]:
        if not self._running or not (wait or all(each.ready for each in self._running)):
            return []
        running, self._running = self._running, []
        refreshed = [done for each in running if (done := each.finish()) is not None]
        self.shown = self._begun if len(refreshed) == len(running) else None
        self._ended_s = ticks_s()
        return refreshed

    def _is_rested(self, stale: Sequence[Snapshot]) -> bool:
        rested_s = ticks_s() - self._ended_s
        return rested_s >= REST_S and rested_s >= REST * sum(each.expected_s for each in stale)
