"""Exchanges that one exchange can replace."""

from __future__ import annotations

from deltaworks import KStream, Plan, Processor, Record, StreamsBuilder
from deltaworks.testing import TopologyTestDriver
from deltaworks.topology.nodes import ExchangeSink, Source


def upper(builder: StreamsBuilder, topic: str = "in") -> KStream[str, str]:
    return builder.stream(topic, key=str, value=str).select_key(lambda _, value: value.upper(), key=str)


class Shorten(Processor[str, str, str, str]):
    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record.with_key(record.key[:1]))


def exchanges(plan: Plan) -> list[tuple[str, tuple[str, ...], list[str]]]:
    """`(exchange, operators before its guard, operators behind it)`"""
    nodes = {node.name: node for node in plan.nodes}
    return [
        (
            sink.exchange,
            nodes[sink.parents[0]].parents,
            [node.name for node in nodes.values() for source in node.parents if reads(nodes[source], sink.exchange)],
        )
        for sink in nodes.values()
        if isinstance(sink, ExchangeSink)
    ]


def reads(node: object, exchange: str) -> bool:
    return isinstance(node, Source) and exchange in node.topics


def two_counts(builder: StreamsBuilder) -> None:
    stream = upper(builder)
    stream.group_by_key(name="first").count(store="a", name="count-a").to_stream().to("a")
    behind = stream.filter(lambda _, value: value != "x", name="some")
    behind.group_by_key(name="second").count(store="b", name="count-b").to_stream().to("b")
    behind.to("rest", name="rest")


def test_exchanges_behind_one_change_of_key_are_one_and_it_has_the_name_of_the_first() -> None:
    plain, optimized = StreamsBuilder(), StreamsBuilder(optimize=True)
    two_counts(plain)
    two_counts(optimized)

    assert [exchange for exchange, _, _ in exchanges(plain.build())] == ["first-repartition", "second-repartition"]
    plan = optimized.build()
    assert exchanges(plan) == [("first-repartition", ("KSTREAM-KEY-SELECT-0000000001",), ["count-a", "some"])]
    assert [stage.exchanges_in for stage in plan.stages] == [(), ("first-repartition",)]


def test_the_results_are_the_same() -> None:
    results: list[object] = []
    for optimize in (False, True):
        builder = StreamsBuilder(optimize=optimize)
        two_counts(builder)
        driver = TopologyTestDriver(builder.build())
        for value in ("x", "y", "Y", "x"):
            driver.create_input_topic("in").pipe_input("k", value)
        results.append([driver.create_output_topic(topic).read_key_values_to_list() for topic in ("a", "b", "rest")])

    assert results[0] == results[1]


def test_what_lies_before_an_exchange_that_has_its_name_already_is_still_passed() -> None:
    builder = StreamsBuilder(optimize=True, explicit_names="none")
    stream = upper(builder).filter(lambda _, value: value != "x", name="some")
    stream.group_by_key().cogroup(lambda _, value, total: total + value, value=str).aggregate(
        lambda: ""
    ).to_stream().to("out")
    driver = TopologyTestDriver(builder.build())
    for value in ("x", "y"):
        driver.create_input_topic("in").pipe_input("k", value)

    assert driver.create_output_topic("out").read_key_values_to_list() == [("Y", "y")]


def test_an_operator_before_two_exchanges_is_passed_once() -> None:
    builder = StreamsBuilder(optimize=True)
    stream = upper(builder).filter(lambda _, value: value != "x", name="some")
    stream.group_by_key(name="a").count(store="a", name="count-a").to_stream().to("a")
    stream.group_by_key(name="b").count(store="b", name="count-b").to_stream().to("b")
    plan = builder.build()

    assert exchanges(plan) == [("a-repartition", ("KSTREAM-KEY-SELECT-0000000001",), ["some"])]
    assert [node.name for node in plan.nodes if node.parents == ("some",)] == ["count-a", "count-b"]


def test_a_processor_may_change_the_key_so_exchanges_behind_it_stay() -> None:
    builder = StreamsBuilder(optimize=True)
    stream = upper(builder)
    stream.process(Shorten, key=str, value=str, name="p").group_by_key(name="a").count(store="a").to_stream().to("a")
    stream.group_by_key(name="b").count(store="b").to_stream().to("b")

    assert [(exchange, before) for exchange, before, _ in exchanges(builder.build())] == [
        ("b-repartition", ("KSTREAM-KEY-SELECT-0000000001",)),
        ("a-repartition", ("p",)),
    ]


def test_a_change_of_the_value_in_between_keeps_the_exchanges_apart() -> None:
    builder = StreamsBuilder(optimize=True)
    stream = upper(builder)
    stream.map_values(str.lower).group_by_key(name="a").count(store="a").to_stream().to("a")
    stream.group_by_key(name="b").count(store="b").to_stream().to("b")

    assert [exchange for exchange, _, _ in exchanges(builder.build())] == ["b-repartition", "a-repartition"]


def test_a_repartition_of_the_users_own_stays() -> None:
    builder = StreamsBuilder(optimize=True)
    stream = upper(builder)
    stream.repartition(name="mine").group_by_key().count(store="a").to_stream().to("a")
    stream.group_by_key(name="b").count(store="b").to_stream().to("b")

    assert sorted(exchange for exchange, _, _ in exchanges(builder.build())) == ["b-repartition", "mine-repartition"]


def test_behind_a_merge_there_is_one_exchange() -> None:
    builder = StreamsBuilder(optimize=True)
    merged = upper(builder, "one").merge(upper(builder, "two"), name="both")
    merged.group_by_key(name="a").count(store="a", name="count-a").to_stream().to("a")
    merged.group_by_key(name="b").count(store="b", name="count-b").to_stream().to("b")

    assert exchanges(builder.build()) == [("a-repartition", ("both",), ["count-a", "count-b"])]


def test_behind_two_merges_the_exchange_comes_after_the_second() -> None:
    builder = StreamsBuilder(optimize=True)
    merged = upper(builder, "one").merge(upper(builder, "two"), name="both").merge(upper(builder, "three"), name="all")
    merged.group_by_key(name="a").count(store="a", name="count-a").to_stream().to("a")

    assert exchanges(builder.build()) == [("a-repartition", ("all",), ["count-a"])]


def test_an_exchange_that_other_records_reach_too_stays() -> None:
    builder = StreamsBuilder(optimize=True)
    one = upper(builder, "one")
    one.group_by_key(name="a").count(store="a", name="count-a").to_stream().to("a")
    one.merge(upper(builder, "two"), name="both").group_by_key(name="b").count(
        store="b", name="count-b"
    ).to_stream().to("b")

    found = {exchange: (before, behind) for exchange, before, behind in exchanges(builder.build())}
    assert found["b-repartition"] == (("both",), ["count-b"])
