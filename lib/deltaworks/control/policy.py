"""When a stream that ended is started again: at once, from the second failure in a row on with growing pauses, not for
ever, and not if it cannot help."""

from __future__ import annotations

from dataclasses import dataclass

from deltaworks.exits import DISK_FULL, NO_RESTART


@dataclass(frozen=True)
class Restart:
    """Start it now."""

    restarts: int
    """Automatic restarts that count, before this one."""


@dataclass(frozen=True)
class Wait:
    """Not yet."""

    seconds: float


@dataclass(frozen=True)
class GiveUp:
    """Somebody has to look."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class End:
    """How a generation ended."""

    exit_code: int | None
    """None if it was killed, or said nothing."""
    reason: str | None
    ago_s: float
    """How long ago."""
    ran_s: float | None
    """How long it had run; None if it never processed batches."""
    committed: bool = False
    """Whether it committed a batch: then its failure is the first one in a row."""


@dataclass(frozen=True, kw_only=True)
class RestartPolicy:
    """Pauses and limits, in seconds."""

    first_s: float = 5.0
    """Before the second restart in a row, the first one comes at once; doubled with each one that follows."""
    longest_s: float = 300.0
    limit: int = 5
    """Restarts in a row, of which none has led to a batch."""
    healthy_s: float = 600.0
    """Who ran this long has recovered, with batches or without: what was before does not count."""

    def decide(self, end: End, restarts: int) -> Restart | Wait | GiveUp:
        """What to do about an end.

        Args:
            restarts: automatic ones since a batch or a healthy period, up to the generation that ended.
        """
        if end.exit_code in NO_RESTART:
            why = f": {end.reason}" if end.reason else ""
            return GiveUp(f"exit code {end.exit_code} says that a restart would not help{why}")
        counted = 0 if end.committed or self.recovered(end.ran_s) else restarts
        if end.exit_code == DISK_FULL:  # lasts until somebody makes room, and no restart does harm
            counted = min(counted, self.limit - 1)
        if counted >= self.limit:
            return GiveUp(f"{counted} restarts without a batch or {self.healthy_s / 60:.0f} healthy minutes")
        left = self.pause_s(counted) - end.ago_s
        return Wait(left) if left > 0 else Restart(counted)

    def pause_s(self, restarts: int) -> float:
        """How long after the end the next restart comes."""
        return float(min(self.longest_s, self.first_s * 2 ** min(restarts - 1, 64))) if restarts else 0.0

    def recovered(self, ran_s: float | None) -> bool:
        """Whether it ran long enough for earlier restarts to be forgotten."""
        return ran_s is not None and ran_s >= self.healthy_s
