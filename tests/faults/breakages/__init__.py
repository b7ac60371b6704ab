"""Planted breakages: each takes one safeguard of the product away, and tests must turn red.

`tests/faults/test_breakages.py` proves that of every one, in a process of its own. The same can be planted into all
processes of a stream that is killed (`orders_under_kills`) or soaked (`python -m tests.soak --breakage NAME`); only
some of them show there, where chance brings what the safeguard is against.
"""

from __future__ import annotations

from tests.faults.breakages import anew, checkpoint, driver, kafka, planning, stores, tables
from tests.faults.breakages.breakage import Breakage, Hole, Patch, Stall

__all__ = ["BREAKAGES", "Breakage", "Hole", "Patch", "Stall", "plant"]

_PARTS = (stores, tables, checkpoint, kafka, planning, anew, driver)
BREAKAGES: dict[str, Breakage] = {name: breakage for part in _PARTS for name, breakage in part.BREAKAGES.items()}


def plant(name: str, patch: Patch = setattr) -> None:
    """Installs a breakage in this process; in a stream that is the driver, or a worker."""
    BREAKAGES[name].plant(patch)
