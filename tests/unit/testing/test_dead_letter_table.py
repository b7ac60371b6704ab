"""The table of dead letters in the test driver."""

from __future__ import annotations

import pytest

from deltaworks import DeadLetters, Pipeline, StreamsBuilder
from deltaworks.testing import TopologyTestDriver


def test_the_table_of_dead_letters_is_named_with_where_to_look() -> None:
    def topology(builder: StreamsBuilder) -> None:
        builder.stream("in", key=str, value=int).to("out")

    pipeline = Pipeline(name="p", topology=topology, on_error="continue", dead_letters=DeadLetters(table="failed"))
    with TopologyTestDriver(pipeline) as driver, pytest.raises(KeyError, match=r"driver\.dead_letters has them"):
        driver.table("failed")
