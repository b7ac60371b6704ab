"""The pytest plugin `deltaworks`: a fixture that makes test drivers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from deltaworks.dsl.pipeline import Pipeline
    from deltaworks.testing.driver import TopologyTestDriver
    from deltaworks.topology.stages import Plan


@pytest.fixture
def driver_for() -> Callable[[Pipeline | Plan], TopologyTestDriver]:
    """Makes a test driver for a pipeline or a plan: `driver = driver_for(pipeline)`."""
    # Here, so that a project that has the plugin installed does not pay for the import in other tests.
    from deltaworks.testing.driver import TopologyTestDriver

    return TopologyTestDriver
