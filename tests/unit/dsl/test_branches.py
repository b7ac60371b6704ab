"""A split gives named branches."""

from __future__ import annotations

import pytest

from deltaworks import StreamsBuilder, TopologyError
from deltaworks.topology.nodes import Branch, Passthrough


def even(_key: str, number: int) -> bool:
    return number % 2 == 0


def big(_key: str, number: int) -> bool:
    return number > 10


def test_branches_are_streams_by_name_in_the_order_they_were_added() -> None:
    builder = StreamsBuilder()
    numbers = builder.stream("numbers", key=str, value=int)

    branches = numbers.split("size").branch(big, name="big").branch(even, name="even").default_branch(name="rest")
    for name, stream in branches.items():
        stream.to(name)

    plan = builder.build()
    (branch,) = (node for node in plan.nodes if isinstance(node, Branch))
    assert list(branches) == ["big", "even", "rest"]
    assert branch.name == "size-"
    assert branch.predicates == (big, even)
    assert branch.children == ("size-big", "size-even")
    assert branch.default == "size-rest"
    assert plan.sink_topics == ("big", "even", "rest")
    assert sum(isinstance(node, Passthrough) for node in plan.nodes) == 3


def test_without_a_default_branch_the_rest_is_dropped() -> None:
    builder = StreamsBuilder()
    branches = builder.stream("numbers", key=str, value=int).split().branch(big, name="big").no_default_branch()

    (branch,) = (node for node in builder.build().nodes if isinstance(node, Branch))
    assert list(branches) == ["big"]
    assert branch.default is None


def test_a_split_that_is_not_ended_is_told() -> None:
    builder = StreamsBuilder()
    builder.stream("numbers", key=str, value=int).split("size").branch(big, name="big")

    with pytest.raises(TopologyError, match="the split 'size-' is not ended, so its branches do not exist"):
        builder.build()


def test_two_branches_of_one_name_are_told() -> None:
    builder = StreamsBuilder()
    numbers = builder.stream("numbers", key=str, value=int)
    numbers.split("size").branch(big, name="x").branch(even, name="x").no_default_branch()

    with pytest.raises(TopologyError, match="split has two branches named 'x'"):
        builder.build()
