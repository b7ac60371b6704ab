"""What all unit tests share: no test finds the jobs of another one's project."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

_OURS = str(Path(__file__).parents[2] / "jobs")


@pytest.fixture(autouse=True)
def no_jobs_of_other_tests() -> Iterator[None]:
    """Forgets the jobs that a test has imported from a project of its own, and where that is."""
    before = [*sys.path]
    yield
    sys.path[:] = before
    for name, module in [*sys.modules.items()]:
        if name == "jobs" or (name.startswith("jobs.") and not str(getattr(module, "__file__", "")).startswith(_OURS)):
            del sys.modules[name]
