"""The process of a test is killed at a named point, as far as the code in it can tell."""

from __future__ import annotations

from deltaworks import faults


class Killed(BaseException):
    """Stands for the end of the process."""


def kill_at(point: str, times: int) -> None:
    """When a point is reached for this time, and once only."""
    reached = 0

    def hook(at: str) -> None:
        nonlocal reached
        reached += at == point
        if at == point and reached == times:
            faults.arm(None)
            raise Killed(point)

    faults.arm(hook)
