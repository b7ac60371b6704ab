"""Stages are the sub-topologies of Kafka Streams, in the order data flows."""

from __future__ import annotations

from deltaworks import Plan, StreamsBuilder


def test_nodes_without_an_exchange_between_them_are_one_stage() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str).group_by_key().count(store="counts").to_stream().to("out")

    (stage,) = builder.build().stages

    assert stage.topics == ("in",)
    assert [store.name for store in stage.stores] == ["counts"]
    assert stage.stateful


def test_streams_that_never_meet_are_stages_of_their_own() -> None:
    builder = StreamsBuilder()
    builder.stream("a", key=str, value=str).to("b")
    builder.stream("c", key=str, value=str).to("d")

    plan = builder.build()

    assert [stage.topics for stage in plan.stages] == [("a",), ("c",)]
    assert plan.source_topics == ("a", "c")
    assert plan.sink_topics == ("b", "d")
    assert not plan.stages[0].stateful


def test_a_shared_store_joins_stages() -> None:
    builder = StreamsBuilder()
    table = builder.table("users", key=str, value=str, store="users")
    builder.stream("orders", key=str, value=str).join(table, str.__add__, value=str).to("out")

    (stage,) = builder.build().stages

    assert stage.topics == ("orders", "users")


def rekeyed_join() -> Plan:
    builder = StreamsBuilder()
    table = builder.table("users", key=str, value=str, store="users")
    stream = builder.stream("orders", key=str, value=str).select_key(lambda _, value: value, key=str)
    stream.join(table, str.__add__, value=str, name="enrich").to("out")
    return builder.build()


def test_the_stage_that_writes_an_exchange_comes_before_the_one_that_reads_it() -> None:
    first, second = rekeyed_join().stages

    assert first.topics == ("orders",)
    assert first.exchanges_out == ("enrich-repartition",)
    assert second.topics == ("users",)
    assert second.exchanges_in == ("enrich-repartition",)
    assert (first.index, second.index) == (0, 1)


def test_describe_numbers_them_as_kafka_streams_does_all_the_same() -> None:
    text = rekeyed_join().describe()

    assert text.index("Sub-topology: 0") < text.index("users") < text.index("Sub-topology: 1") < text.index("orders")


def test_sub_topologies_are_numbered_as_they_were_made_whatever_their_names() -> None:
    builder = StreamsBuilder()
    counts = (
        builder.stream("words", key=str, value=str).group_by(lambda _, word: word, key=str, name="g").count(store="c")
    )
    counts.to_stream().select_key(lambda _, count: str(count), key=str).repartition().to("out")

    lines = builder.build().describe().splitlines()

    sources = [line.split()[1] for line in lines if "Source:" in line]
    assert sources == ["KSTREAM-SOURCE-0000000000", "g-repartition-source", "KSTREAM-SOURCE-0000000011"]


def test_a_stage_may_feed_itself_and_the_plan_says_so() -> None:
    builder = StreamsBuilder()
    table = builder.table("users", key=str, value=str, store="users")
    stream = table.to_stream().select_key(lambda _, name: name, key=str)
    stream.join(table, str.__add__, value=str, name="friends").to("out")

    assert builder.build().loops == ("friends-repartition",)
    assert rekeyed_join().loops == ()


def test_what_comes_after_a_loop_is_not_a_part_of_it() -> None:
    builder = StreamsBuilder()
    left = builder.table("left", key=str, value=str, store="left")
    right = builder.table("right", key=str, value=str, store="right")
    joined = left.join(right, str.__add__, foreign_key=lambda _, value: value, value=str, name="join")
    joined.to_stream().select_key(lambda _, value: value, key=str).repartition(name="after").to("out")

    plan = builder.build()

    assert plan.loops == ("join-subscription-response-topic",)
    assert [stage.exchanges_in for stage in plan.stages] == [
        ("join-subscription-response-topic",),
        ("join-subscription-registration-topic",),
        ("after-repartition",),
    ]


def test_parents_come_before_children_in_the_order_of_the_calls() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=str)
    stream.filter(lambda _, value: bool(value)).to("first")
    stream.peek(print).to("second")

    (stage,) = builder.build().stages
    names = [node.name for node in stage.nodes]

    assert all(names.index(parent) < names.index(node.name) for node in stage.nodes for parent in node.parents)
    assert [node.name for node in stage.nodes if "KSTREAM-SOURCE-0000000000" in node.parents] == [
        "KSTREAM-FILTER-0000000001",
        "KSTREAM-PEEK-0000000003",
    ]
