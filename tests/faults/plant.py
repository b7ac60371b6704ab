"""A plugin of pytest that plants a breakage before any test is collected: `-p tests.faults.plant`.

The name of the breakage is in the environment, so processes that tests start can plant it, too (`from_environment`).
"""

from __future__ import annotations

import os

VARIABLE = "DELTAWORKS_TEST_BREAKAGE"


def pytest_configure() -> None:
    from_environment()


def from_environment() -> None:
    """Plants what the environment names, if it does."""
    name = os.environ.get(VARIABLE)
    if name is not None:
        from tests.faults import breakages

        breakages.plant(name)
