"""Exchanges are made where Kafka Streams makes repartition topics, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from deltaworks import KStream, KTable, Plan, StreamsBuilder, TopologyError
from deltaworks.topology.nodes import Filter

Words = KStream[str, str]


def exchanges(topology: Callable[[StreamsBuilder, Words], object]) -> list[str]:
    return [exchange for stage in plan(topology).stages for exchange in stage.exchanges_in]


def plan(topology: Callable[[StreamsBuilder, Words], object]) -> Plan:
    builder = StreamsBuilder()
    topology(builder, builder.stream("words", key=str, value=str))
    return builder.build()


def users(builder: StreamsBuilder) -> KTable[str, str]:
    return builder.table("users", key=str, value=str, store="users")


@pytest.mark.parametrize(
    "topology",
    [
        lambda _, words: words.map_values(str.upper).group_by_key().count(store="n"),
        lambda _, words: words.select_key(lambda _, word: word, key=str).to("out"),
        lambda _, words: words.select_key(lambda _, word: word, key=str).to_delta("words"),
        lambda builder, words: words.filter(bool).join(users(builder), str.__add__, value=str).to("out"),
    ],
    ids=["same key", "sink", "table sink", "join"],
)
def test_without_need_there_is_no_exchange(topology: Any) -> None:
    assert exchanges(topology) == []


@pytest.mark.parametrize(
    ("topology", "exchange"),
    [
        (lambda _, words: words.map(lambda k, v: (v, k), key=str, value=str).group_by_key().count(store="n"), "n"),
        (lambda _, words: words.flat_map(lambda k, v: [(v, k)], key=str, value=str).to_table(store="n", name="t"), "t"),
        (lambda _, words: words.group_by(lambda _, v: v, key=str).count(store="n"), "n"),
        (lambda _, words: words.group_by(lambda _, v: v, key=str, name="by-word").count(store="n"), "by-word"),
        (lambda _, words: words.repartition(name="spread"), "spread"),
        (
            lambda builder, words: words.select_key(lambda _, v: v, key=str).join(
                users(builder), str.__add__, value=str, name="j"
            ),
            "j",
        ),
        (
            lambda _, words: words.merge(words.select_key(lambda _, v: v, key=str)).group_by_key().count(store="n"),
            "n",
        ),
    ],
    ids=["map", "flat_map to_table", "group_by", "named", "repartition", "join", "merge"],
)
def test_an_operator_by_key_makes_an_exchange_when_the_key_may_have_changed(topology: Any, exchange: str) -> None:
    assert exchanges(topology) == [f"{exchange}-repartition"]


def test_a_second_operator_by_key_needs_no_second_exchange() -> None:
    def topology(builder: StreamsBuilder, words: Words) -> None:
        joined = words.select_key(lambda _, v: v, key=str).join(users(builder), str.__add__, value=str, name="j")
        joined.group_by_key().count(store="n")

    assert exchanges(topology) == ["j-repartition"]


def test_aggregates_of_one_grouping_share_an_exchange_that_has_a_name() -> None:
    def topology(words: Words, name: str | None) -> None:
        group = words.group_by(lambda _, v: v, key=str, name=name)
        group.count(store="a")
        group.reduce(lambda old, new: new, store="b")

    assert exchanges(lambda _, words: topology(words, "shared")) == ["shared-repartition"]
    assert exchanges(lambda _, words: topology(words, None)) == ["a-repartition", "b-repartition"]


def test_an_exchange_name_belongs_to_one_grouping() -> None:
    def topology(_: StreamsBuilder, words: Words) -> None:
        words.repartition(name="spread")
        words.map_values(str.upper).repartition(name="spread")

    with pytest.raises(TopologyError, match="the name 'spread' is already taken by another exchange"):
        plan(topology)


def lets_null_keys_pass(topology: Callable[[StreamsBuilder, Words], object]) -> bool:
    (guard,) = (node for node in plan(topology).nodes if node.name.endswith("-repartition-filter"))
    assert isinstance(guard, Filter)
    return guard.predicate(None, "value")


def test_an_exchange_drops_null_keys_unless_a_left_join_follows() -> None:
    def joined(builder: StreamsBuilder, words: Words, kind: str) -> None:
        rekeyed = words.select_key(lambda _, v: v, key=str)
        join = rekeyed.join if kind == "inner" else rekeyed.left_join
        join(users(builder), lambda word, user: word, value=str, name="j").to("out")

    assert not lets_null_keys_pass(lambda _, words: words.repartition(name="spread").to("out"))
    assert not lets_null_keys_pass(lambda builder, words: joined(builder, words, "inner"))
    assert lets_null_keys_pass(lambda builder, words: joined(builder, words, "left"))


@pytest.mark.parametrize(
    ("topology", "named"),
    [
        (lambda words: words.repartition().to("out"), False),
        (lambda words: words.repartition(name="mine").to("out"), True),
        (lambda words: words.group_by_key().count(store="n"), True),
        (lambda words: words.group_by_key(name="mine").count(store="n"), True),
        (lambda words: words.to_table(store="n"), False),
        (lambda words: words.to_table(store="n", name="mine"), True),
    ],
    ids=["repartition", "named repartition", "store", "grouping", "to_table", "named to_table"],
)
def test_a_builder_can_demand_a_name_for_every_exchange(topology: Callable[[Words], object], named: bool) -> None:
    builder = StreamsBuilder(explicit_names="all")
    topology(builder.stream("words", key=str, value=str).select_key(lambda _, word: word, key=str, name="by-word"))
    if named:
        builder.build()
        return
    with pytest.raises(TopologyError) as error:
        builder.build()

    (problem,) = error.value.problems
    assert problem.what.endswith(" sends records over an exchange that you have not named.")


def test_the_name_of_an_operator_before_a_join_is_not_the_name_of_its_exchange() -> None:
    builder = StreamsBuilder(explicit_names="all")
    words = builder.stream("words", key=str, value=str).select_key(lambda _, word: word, key=str, name="by-word")
    words.join(users(builder), str.__add__, value=str).to("out")

    with pytest.raises(TopologyError, match="join sends records over an exchange that you have not named"):
        builder.build()
