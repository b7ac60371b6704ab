"""A process that ends at a named point."""

from __future__ import annotations

from deltaworks import faults


class Crash(Exception):
    """Stands for the end of the process."""


def crash_at(point: str) -> None:
    """The next time that it gets there, and once only."""

    def hook(reached: str) -> None:
        if reached == point:
            faults.arm(None)
            raise Crash(point)

    faults.arm(hook)
