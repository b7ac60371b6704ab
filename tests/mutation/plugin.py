"""A plugin of pytest that applies a mutation before any test is collected: `-p tests.mutation.plugin`.

The name of the mutation is in the environment, so processes that tests start can apply it, too (`from_environment`).
"""

from __future__ import annotations

import os

VARIABLE = "DELTAWORKS_TEST_MUTATION"


def pytest_configure() -> None:
    from_environment()


def from_environment() -> None:
    """Applies what the environment names, if it does."""
    name = os.environ.get(VARIABLE)
    if name is not None:
        from tests import mutation

        mutation.apply(name)
