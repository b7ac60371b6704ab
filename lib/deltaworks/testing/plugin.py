"""The pytest plugin `deltaworks`: a fixture that makes test drivers and closes them."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from deltaworks.dsl.pipeline import Pipeline
    from deltaworks.testing.driver import TopologyTestDriver
    from deltaworks.topology.plan import Plan


@pytest.fixture
def driver_for() -> Iterator[Callable[..., TopologyTestDriver]]:
    """Makes a test driver for a pipeline or a plan, closed at the end of the test: `driver = driver_for(pipeline)`.

    It takes the arguments of `TopologyTestDriver`.
    """
    # Imported here, so that projects with the plugin do not pay for the import in other tests.
    from deltaworks.testing.driver import TopologyTestDriver

    with ExitStack() as drivers:

        def make(topology: Pipeline | Plan, **options: Any) -> TopologyTestDriver:
            return drivers.enter_context(TopologyTestDriver(topology, **options))

        yield make
