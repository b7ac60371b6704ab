"""Waits for what happens elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(fact: Callable[[], object], timeout_s: float = 30.0) -> None:
    """Polls for a fact."""
    end = time.monotonic() + timeout_s
    while not fact():
        assert time.monotonic() < end, f"it did not happen within {timeout_s:g} s"
        time.sleep(0.02)
