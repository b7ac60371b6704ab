"""Serdes come from arguments, types and annotations; where nobody knows, the build says what to do."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any, NewType, Optional

import msgspec
import pytest

from deltaworks import (
    DeltaworksError,
    Double,
    Json,
    KStream,
    Long,
    Plan,
    Serde,
    SessionWindowed,
    SessionWindows,
    StreamsBuilder,
    String,
    TimeWindowed,
    TimeWindows,
    TopologyError,
    Windowed,
)
from deltaworks.topology.nodes import DeltaSink, ExchangeSink, TopicSink

UserId = NewType("UserId", str)


class Order(msgspec.Struct, frozen=True):
    amount: Decimal


class Receipt(msgspec.Struct, frozen=True):
    total: Decimal


def receipt(order: Order) -> Receipt | None:
    return Receipt(order.amount)


def by_amount(key: str, order: Order) -> tuple[int, Order]:
    return int(order.amount), order


def halves(order: Order) -> Iterator[Order]:
    yield Order(order.amount / 2)
    yield Order(order.amount / 2)


def sink(plan: Plan) -> TopicSink:
    (node,) = (node for node in plan.nodes if isinstance(node, TopicSink))
    return node


@pytest.fixture
def builder() -> StreamsBuilder:
    return StreamsBuilder("orders")


@pytest.fixture
def orders(builder: StreamsBuilder) -> KStream[str, Order]:
    return builder.stream("orders", key=str, value=Order)


def test_a_type_stands_for_its_serde(builder: StreamsBuilder, orders: KStream[str, Order]) -> None:
    orders.to("out")

    assert (sink(builder.build()).key, sink(builder.build()).value) == (String(), Json(Order))


def test_annotations_give_the_types_that_functions_return(builder: StreamsBuilder, orders: KStream[str, Order]) -> None:
    orders.flat_map_values(halves).map(by_amount).map_values(receipt).to("out")

    assert (sink(builder.build()).key, sink(builder.build()).value) == (Long(), Json(Receipt))


def test_an_argument_wins_over_an_annotation(builder: StreamsBuilder, orders: KStream[str, Order]) -> None:
    numbers: Serde[Receipt | None] = Json(Receipt, decimals="number")
    orders.map_values(receipt, value=numbers).to("out")

    assert sink(builder.build()).value == numbers


def test_what_keeps_the_value_keeps_its_type(builder: StreamsBuilder, orders: KStream[str, Order]) -> None:
    kept = orders.filter(lambda _, order: order.amount > 0).peek(print).select_key(lambda key, _: key, key=str)
    kept.merge(kept.filter_not(lambda _, order: order.amount > 9)).to("out")

    assert sink(builder.build()).value == Json(Order)


@pytest.mark.parametrize(
    ("function", "serde"),
    [(str.upper, String()), (len, Long()), (repr, String()), (float, Double()), (Decimal, Json(Decimal))],
)
def test_builtins_need_no_type(builder: StreamsBuilder, function: Any, serde: Serde[Any]) -> None:
    builder.stream("in", key=str, value=str).map_values(function).to("out")

    assert sink(builder.build()).value == serde


@pytest.mark.parametrize("type", [Receipt | None, Optional[Receipt]])  # noqa: UP045
def test_a_type_or_none_has_the_serde_of_the_type(
    builder: StreamsBuilder, orders: KStream[str, Order], type: Any
) -> None:
    orders.map_values(receipt, value=type).to("out")

    assert sink(builder.build()).value == Json(Receipt)


@pytest.mark.parametrize(
    ("function", "hint"),
    [
        (lambda order: order.amount, "map_values(..., value=Decimal)"),
        (lambda order: f"{order.amount} EUR", "map_values(..., value=str)"),
        (lambda order: order.amount > 0, "map_values(..., value=bool)"),
        (lambda order: str(order.amount).strip(), "map_values(..., value=str)"),
        (lambda order: Receipt(order.amount), "map_values(..., value=Receipt)"),
        (lambda order: [1], "map_values(..., value=list[int])"),
        (lambda order: order.amount / 2, "map_values(..., value=str), with the type that it returns"),
        (eval("lambda order: 1"), "map_values(..., value=str), with the type that it returns"),
    ],
)
def test_the_example_is_the_type_that_is_meant(
    builder: StreamsBuilder, orders: KStream[str, Order], function: Any, hint: str
) -> None:
    orders.map_values(function).to("out")

    with pytest.raises(TopologyError) as error:
        builder.build()
    assert [problem.hint for problem in error.value.problems] == [hint]


def test_each_half_of_a_pair_has_its_own_example(builder: StreamsBuilder, orders: KStream[str, Order]) -> None:
    orders.map(lambda key, order: (order.amount, key)).to("out")

    with pytest.raises(TopologyError) as error:
        builder.build()
    assert [problem.hint for problem in error.value.problems] == ["map(..., key=Decimal)", "map(..., value=str)"]


def test_windowed_keys_that_are_passed_on_keep_their_serde(
    builder: StreamsBuilder, orders: KStream[str, Order]
) -> None:
    def same(key: Windowed[str], count: int) -> tuple[Windowed[str], int]:
        return key, count

    windows = TimeWindows(size=timedelta(seconds=1), grace=timedelta(0))
    group = orders.group_by_key().windowed_by(windows)
    group.count(store="a").to_stream().map(same).to("a")

    assert sink(builder.build()).key == TimeWindowed(String(), windows)


def test_an_unknown_type_is_no_problem_until_bytes_are_needed(
    builder: StreamsBuilder, orders: KStream[str, Order]
) -> None:
    orders.map_values(lambda order: order.amount).filter(lambda _, amount: amount > 0).map_values(
        lambda amount: str(amount), value=str
    ).to("out")

    assert sink(builder.build()).value == String()


def test_an_unknown_type_is_told_with_both_lines(builder: StreamsBuilder, orders: KStream[str, Order]) -> None:
    orders.map_values(lambda order: order.amount).to("out")

    with pytest.raises(TopologyError) as error:
        builder.build()

    (problem,) = error.value.problems
    assert problem.what.startswith("to('out') needs the type of the value, but map_values at ")
    assert problem.what.endswith(" does not say what its function returns.")
    assert problem.hint == "map_values(..., value=Decimal)"


def test_one_unknown_type_is_told_once_per_operator(builder: StreamsBuilder, orders: KStream[str, Order]) -> None:
    unknown = orders.map(lambda key, order: (order.amount, key))
    unknown.group_by_key().reduce(lambda old, new: new, store="last")

    with pytest.raises(TopologyError) as error:
        builder.build()

    assert [problem.what.split(",")[0] for problem in error.value.problems] == [
        "reduce needs the type of the key",
        "reduce needs the type of the value",
    ]


def test_a_type_without_a_serde_is_refused(builder: StreamsBuilder) -> None:
    builder.stream("in", key=str, value=complex)

    with pytest.raises(DeltaworksError, match="stream: there is no serde for value=complex"):
        builder.build()


def test_a_new_type_is_its_type_and_a_class_of_serdes_is_a_slip(builder: StreamsBuilder) -> None:
    builder.stream("in", key=UserId, value=str).to("out")
    assert sink(builder.build()).key == String()

    builder.stream("other", key=String, value=str)
    with pytest.raises(TopologyError, match="stream: key=String is the class of a serde, not a serde") as error:
        builder.build()
    assert error.value.problems[0].hint == "key=String(...)"


def test_counts_are_longs_and_windowed_keys_have_the_serde_of_their_windows(
    builder: StreamsBuilder, orders: KStream[str, Order]
) -> None:
    group = orders.group_by_key()
    seconds = TimeWindows(size=timedelta(seconds=1), grace=timedelta(0))
    group.windowed_by(seconds).count(store="a").to_stream().to("a")
    sessions = SessionWindows(gap=timedelta(seconds=1), grace=timedelta(0))
    group.windowed_by(sessions).count(store="b").to_stream().to("b")

    a, b = (node for node in builder.build().nodes if isinstance(node, TopicSink))
    assert (a.key, a.value) == (TimeWindowed(String(), seconds), Long())
    assert (b.key, b.value) == (SessionWindowed(String()), Long())


@pytest.mark.parametrize(
    ("initializer", "aggregator", "value"),
    [
        (lambda: Decimal(0), lambda _, order, total: total + order.amount, Decimal),
        (Decimal, lambda _, order, total: total + order.amount, None),
    ],
    ids=["argument", "initializer is a class"],
)
def test_the_type_of_an_aggregate(
    builder: StreamsBuilder, orders: KStream[str, Order], initializer: Any, aggregator: Any, value: Any
) -> None:
    orders.group_by_key().aggregate(initializer, aggregator, value=value, store="total")

    (store,) = builder.build().stores
    assert store.value == Json(Decimal)


def test_exchanges_carry_the_types_that_were_given_to_the_grouping(
    builder: StreamsBuilder, orders: KStream[str, Order]
) -> None:
    orders.map_values(lambda order: order.amount).group_by(lambda _, amount: int(amount), key=int, value=Decimal).count(
        store="counts"
    )

    (exchange,) = (node for node in builder.build().nodes if isinstance(node, ExchangeSink))
    assert (exchange.key, exchange.value) == (Long(), Json(Decimal))


def test_delta_tables_get_python_types(builder: StreamsBuilder, orders: KStream[str, Order]) -> None:
    orders.to_delta("all_orders")
    orders.to_table(store="last").to_delta("last_orders")

    tables = [(node.table, node.key, node.value) for node in builder.build().nodes if isinstance(node, DeltaSink)]
    assert tables == [("all_orders", str, Order), ("last_orders", str, Order)]
