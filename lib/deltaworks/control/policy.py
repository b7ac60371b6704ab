"""When a stream that ended is started again: with growing pauses, not for ever, and not if it cannot help."""

from __future__ import annotations

from dataclasses import dataclass

from deltaworks.exits import NO_RESTART


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
    at: float
    """Unix seconds."""
    running_since: float | None
    """None if it never processed batches."""


@dataclass(frozen=True, kw_only=True)
class RestartPolicy:
    """Pauses and limits, in seconds."""

    first_s: float = 5.0
    """Before the first restart; doubled with each one that follows."""
    longest_s: float = 300.0
    limit: int = 5
    """Restarts in a row without a healthy period."""
    healthy_s: float = 600.0
    """Who ran this long has recovered: what was before does not count."""

    def decide(self, end: End, restarts: int, now: float) -> Restart | Wait | GiveUp:
        """What to do about an end.

        Args:
            restarts: automatic ones since the stream was healthy, up to the generation that ended.
        """
        if end.exit_code in NO_RESTART:
            why = f": {end.reason}" if end.reason else ""
            return GiveUp(f"exit code {end.exit_code} says that a restart would not help{why}")
        counted = 0 if self.recovered(end.running_since, end.at) else restarts
        if counted >= self.limit:
            return GiveUp(f"{counted} restarts without {self.healthy_s / 60:.0f} healthy minutes")
        left = end.at + self.pause_s(counted) - now
        return Wait(left) if left > 0 else Restart(counted)

    def pause_s(self, restarts: int) -> float:
        """How long after the end the next restart comes."""
        return float(min(self.longest_s, self.first_s * 2 ** min(restarts, 64)))

    def recovered(self, running_since: float | None, until: float) -> bool:
        """Whether it ran long enough for earlier restarts to be forgotten."""
        return running_since is not None and until - running_since >= self.healthy_s
