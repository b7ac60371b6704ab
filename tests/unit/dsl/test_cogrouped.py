"""Cogroups: one store, a node per stream, and what cannot be put together."""

from __future__ import annotations

import pytest

from deltaworks import StreamsBuilder, TopologyError
from deltaworks.testing import TopologyTestDriver
from deltaworks.topology.nodes.aggregates import CogroupMerge, StreamAggregate


def added(_: object, value: int, total: int) -> int:
    return total + value


def subtracted(_: object, value: int, total: int) -> int:
    return total - value


def test_the_streams_share_a_store_and_one_stage() -> None:
    builder = StreamsBuilder()
    left, right = (builder.stream(topic, key=str, value=int).group_by_key() for topic in ("left", "right"))
    left.cogroup(added).cogroup(right, subtracted).aggregate(int, store="sums", name="sums")

    plan = builder.build()
    aggregates = [node for node in plan.nodes if isinstance(node, StreamAggregate)]
    assert [node.name for node in aggregates] == ["sums-cogroup-agg-0", "sums-cogroup-agg-1"]
    assert [node.clock for node in aggregates] == ["sums", "sums/1"]
    assert [node.name for node in plan.nodes if isinstance(node, CogroupMerge)] == ["sums-cogroup-merge"]
    assert len(plan.stages) == 1
    assert [store.value.type for store in plan.stores] == [int]


def test_a_stream_that_comes_again_keeps_its_place_and_gets_the_new_aggregator() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=int).group_by_key()
    first = stream.cogroup(added)
    first.cogroup(stream, subtracted).aggregate(int, store="less").to_stream().to("less")
    first.aggregate(int, store="more").to_stream().to("more")
    driver = TopologyTestDriver(builder.build())

    driver.create_input_topic("in").pipe_input("a", 2)

    assert driver.create_output_topic("less").read_value() == -2
    assert driver.create_output_topic("more").read_value() == 2


def test_streams_with_keys_of_different_types_cannot_share_a_store() -> None:
    builder = StreamsBuilder()
    texts = builder.stream("texts", key=str, value=int).group_by_key()
    numbers = builder.stream("numbers", key=int, value=int).group_by_key()
    texts.cogroup(added).cogroup(numbers, subtracted).aggregate(int, store="s")  # type: ignore[arg-type]

    with pytest.raises(TopologyError, match="cogroup: keys of the first stream are string, of another one long"):
        builder.build()


def test_two_exchanges_of_a_cogroup_need_names() -> None:
    builder = StreamsBuilder()
    left, right = (builder.stream(topic, key=str, value=int) for topic in ("left", "right"))
    groups = [stream.group_by(lambda _, value: str(value), key=str) for stream in (left, right)]
    groups[0].cogroup(added).cogroup(groups[1], subtracted).aggregate(int, store="s")

    with pytest.raises(TopologyError, match="the name 's' is already taken by another exchange"):
        builder.build()


def test_a_table_of_a_cogroup_can_be_joined_and_sends_old_values() -> None:
    builder = StreamsBuilder(record_cache=False)
    left, right = (builder.stream(topic, key=str, value=int) for topic in ("left", "right"))
    table = left.group_by_key().cogroup(added).cogroup(right.group_by_key(), subtracted).aggregate(int, store="s")
    left.join(table, lambda value, total: f"{value} of {total}", value=str).to("joined")
    table.filter(lambda _, total: total > 2).to_stream().to("large")
    driver = TopologyTestDriver(builder.build())

    for value in (1, 2):
        driver.create_input_topic("left").pipe_input("a", value)
    driver.create_input_topic("right").pipe_input("a", 3)

    assert driver.create_output_topic("joined").read_values_to_list() == ["1 of 1", "2 of 3"]
    assert driver.create_output_topic("large").read_key_values_to_list() == [("a", 3), ("a", None)]
