"""The restart policy: at once after the first failure, then with growing pauses, not for ever, and never in vain."""

from __future__ import annotations

from dataclasses import dataclass

from deltaworks.exits import DISK_FULL, NO_RESTART


@dataclass(frozen=True)
class Restart:
    """Restart the stream now."""

    restarts: int
    """Number of counted automatic restarts before this one."""


@dataclass(frozen=True)
class Wait:
    """Wait before the restart."""

    seconds: float


@dataclass(frozen=True)
class GiveUp:
    """Do not restart: somebody has to look."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class End:
    """How a generation ended."""

    exit_code: int | None
    """Exit code; None if it was killed or left no outcome."""
    reason: str | None
    ago_s: float
    """How long ago it ended."""
    ran_s: float | None
    """How long it ran; None if it never processed batches."""
    committed: bool = False
    """Whether it committed a batch; if so, its failure is the first in a row."""


@dataclass(frozen=True, kw_only=True)
class RestartPolicy:
    """Pauses and limits, in seconds."""

    first_s: float = 5.0
    """Pause before the second restart in a row, doubled for each later one; the first restart is immediate."""
    longest_s: float = 300.0
    limit: int = 5
    """Maximum number of restarts in a row that lead to no batch."""
    healthy_s: float = 600.0
    """After running this long, a stream has recovered, with or without batches, and earlier restarts do not count."""

    def decide(self, end: End, restarts: int) -> Restart | Wait | GiveUp:
        """Decides what to do after an end.

        Args:
            end: how the generation ended.
            restarts: automatic restarts since a batch or a healthy period, up to the generation that ended.
        """
        if end.exit_code in NO_RESTART:
            why = f": {end.reason}" if end.reason else ""
            return GiveUp(f"exit code {end.exit_code} says that a restart would not help{why}")
        counted = 0 if end.committed or self.recovered(end.ran_s) else restarts
        if end.exit_code == DISK_FULL:  # it lasts until somebody frees space, and restarts do no harm
            counted = min(counted, self.limit - 1)
        if counted >= self.limit:
            return GiveUp(f"{counted} restarts without a batch or {self.healthy_s / 60:.0f} healthy minutes")
        left = self.pause_s(counted) - end.ago_s
        return Wait(left) if left > 0 else Restart(counted)

    def pause_s(self, restarts: int) -> float:
        """Seconds from the end to the next restart."""
        return float(min(self.longest_s, self.first_s * 2 ** min(restarts - 1, 64))) if restarts else 0.0

    def recovered(self, ran_s: float | None) -> bool:
        """Whether the stream ran long enough to reset the count of restarts."""
        return ran_s is not None and ran_s >= self.healthy_s
