"""What builders, handles and pipelines show in a REPL; nothing is built for it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from deltaworks import KStream, Pipeline, Processor, Record, StreamsBuilder, TimeWindows, Topic, Topology
from deltaworks.dsl.mistakes import Handle

HOURS = TimeWindows(size=timedelta(hours=1), grace=timedelta(0))


class Order(msgspec.Struct, frozen=True):
    user: str
    amount: int


@pytest.fixture
def builder() -> StreamsBuilder:
    return StreamsBuilder("shop", explicit_names="none")


@pytest.fixture
def orders(builder: StreamsBuilder) -> KStream[str, Order]:
    return builder.stream("orders", key=str, value=Order, name="orders-source")


def topology(builder: StreamsBuilder) -> None:
    builder.stream("in", key=str, value=str).to("out")


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (lambda orders: orders, "KStream[str, Order] from orders-source (orders)"),
        (
            lambda orders: orders.filter(lambda *_: True),
            "KStream[str, Order] from KSTREAM-FILTER-0000000001 (orders)",
        ),
        (
            lambda orders: orders.map_values(lambda order: order.amount),
            "KStream[str, ?] from KSTREAM-MAPVALUES-0000000001 (orders)",
        ),
        (lambda orders: orders.group_by_key(), "KGroupedStream[str, Order] from orders-source (orders)"),
        (
            lambda orders: orders.group_by_key().windowed_by(HOURS),
            f"TimeWindowedKStream[str, Order] from orders-source (orders), {HOURS!r}",
        ),
        (
            lambda orders: orders.group_by_key().windowed_by(HOURS).count(store="counts"),
            "KTable[Windowed[str], int] from KSTREAM-AGGREGATE-0000000001 (orders), store 'counts'",
        ),
        (
            lambda orders: orders.select_key(lambda _, order: order.user, key=str, name="by-user").to_table(store="t"),
            "KTable[str, Order] from KSTREAM-TOTABLE-0000000002 (orders), store 't'",
        ),
        (
            lambda orders: orders.to_table(store="t").group_by(
                lambda key, order: (order.user, order), key=str, value=Order
            ),
            "KGroupedTable[str, Order] from KTABLE-SELECT-0000000002 (orders)",
        ),
        (
            lambda orders: orders.group_by_key().cogroup(lambda key, order, total: total, value=int),
            "CogroupedKStream[str, int] of 1 stream (orders)",
        ),
        (
            lambda orders: (
                orders.group_by_key()
                .cogroup(lambda key, order, total: total)
                .cogroup(orders.group_by_key(), lambda key, order, total: total)
                .windowed_by(HOURS)
            ),
            f"TimeWindowedCogroupedKStream[str, ?] of 2 streams (orders), {HOURS!r}",
        ),
        (
            lambda orders: orders.split("sizes").branch(lambda *_: True, name="big"),
            "BranchedKStream[str, Order] from orders-source (orders), branches: big; not ended",
        ),
    ],
)
def test_a_handle_shows_its_types_its_node_and_what_it_reads(
    orders: KStream[str, Order], made: Callable[[KStream[str, Order]], Handle], text: str
) -> None:
    assert repr(made(orders)) == text


def test_what_is_behind_an_exchange_and_a_join_is_read_too(
    builder: StreamsBuilder, orders: KStream[str, Order]
) -> None:
    users = builder.table("users", key=str, value=str, store="users")
    names = builder.table("names", key=str, value=str, store="names")

    def second(first: object, second: str) -> str:
        return second

    joined = orders.group_by(lambda _, order: order.user, key=str).count(store="n").join(users, second)
    far = joined.join(names, str.__add__, foreign_key=second, value=str, store="far")

    assert repr(joined).endswith(" (orders, users)")
    assert repr(far).endswith(" (names, orders, users), store 'far'")
    assert repr(users) == "KTable[str, str] from KTABLE-SOURCE-0000000002 (users), store 'users'"


def test_a_global_table_shows_its_store(builder: StreamsBuilder) -> None:
    cities = builder.global_table("cities", key=str, value=str, store="cities")

    assert repr(cities) == "GlobalKTable[str, str] from KTABLE-SOURCE-0000000001 (cities), store 'cities'"


def test_a_builder_shows_what_it_has_so_far(builder: StreamsBuilder, orders: KStream[str, Order]) -> None:
    assert repr(StreamsBuilder("new")) == "StreamsBuilder 'new': empty"
    orders.group_by_key().count(store="counts").to_delta("order_counts")
    assert repr(builder) == "StreamsBuilder 'shop': reads orders; writes table order_counts; keeps counts"
    mistaken: Any = orders
    mistaken.filter(lambda order: True)
    assert repr(builder).endswith("; keeps counts; 1 problem, see build()")
    mistaken.filter(lambda order: True)
    assert repr(builder).endswith("; keeps counts; 2 problems, see build()")


def test_a_low_level_topology_shows_what_it_has_so_far() -> None:
    class Idle(Processor[str, str, str, str]):
        def process(self, record: Record[str, str]) -> None:
            pass

    low = Topology("low").add_source("read", "in", key=str, value=str).add_processor("work", Idle, "read")
    low.add_sink("write", "out", "work", key=str, value=str)

    assert repr(low) == "Topology 'low': reads in; writes topic out"


def test_a_pipeline_shows_what_differs_from_the_defaults() -> None:
    line = topology.__code__.co_firstlineno

    assert repr(Pipeline(name="words", topology=topology)) == (
        f"Pipeline 'words', built by topology at tests/unit/dsl/test_shown.py:{line}"
    )
    assert repr(Pipeline(name="words", topology=topology, topics=(Topic("in"),), on_error="continue")).endswith(
        f"test_shown.py:{line}; topics=({Topic('in')!r},); on_error='continue'"
    )


def test_a_pipeline_shows_itself_without_building_its_topology() -> None:
    def fails(builder: StreamsBuilder) -> None:
        raise AssertionError("built")

    assert repr(Pipeline(name="words", topology=fails)).startswith("Pipeline 'words', built by test_a_pipeline_shows")


def test_a_handle_has_no_notebook_form_but_its_text(builder: StreamsBuilder, orders: KStream[str, Order]) -> None:
    for shown in (builder, orders):
        assert not hasattr(shown, "_repr_html_")
        assert not hasattr(shown, "_ipython_canary_method_should_not_exist_")
