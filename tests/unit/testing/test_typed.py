"""Types of topics and stores in a test are claims that the driver checks; serdes are bytes that it takes as given."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, NewType

import msgspec
import pytest

from deltaworks import (
    Integer,
    Json,
    Long,
    Materialized,
    Plan,
    Processor,
    Record,
    SessionWindows,
    Stores,
    StreamsBuilder,
    String,
    TimeWindows,
    Windowed,
)
from deltaworks.testing import (
    TestKeyValueStore,
    TestSessionStore,
    TestVersionedStore,
    TestWindowStore,
    TopologyTestDriver,
)

UserId = NewType("UserId", str)
HOUR = timedelta(hours=1)


class Order(msgspec.Struct, frozen=True):
    amount: int


class Idle(Processor[str, Order, str, Order]):
    def process(self, record: Record[str, Order]) -> None:
        pass


def plan() -> Plan:
    builder = StreamsBuilder("shop")
    orders = builder.stream("orders", key=str, value=Order)
    orders.to("copies")
    amounts = orders.map_values(lambda order: order.amount, value=Integer())
    amounts.to("amounts")
    grouped = orders.group_by_key()
    grouped.count(store="counts")
    hours = grouped.windowed_by(TimeWindows(size=HOUR, grace=timedelta(0))).count(store="hours")
    hours.to_stream().to("hours")
    grouped.windowed_by(SessionWindows(gap=HOUR, grace=timedelta(0))).count(store="visits")
    builder.table("users", key=str, value=str, store=Materialized("users", history=HOUR))
    builder.add_state_store(Stores.key_value("seen", key=str, value=Order))
    builder.add_state_store(Stores.lru("recent", key=str, value=Order, max_entries=2))
    orders.process(Idle, "seen", "recent")
    return builder.build()


def driver() -> TopologyTestDriver:
    return TopologyTestDriver(plan())


def test_a_type_stands_for_the_serde_of_the_topology() -> None:
    shop = driver()
    orders = shop.create_input_topic("orders", key=str, value=Order)
    copies = shop.create_output_topic("copies", key=UserId, value=Order)
    amounts = shop.create_output_topic("amounts", key=str, value=int)
    hours = shop.create_output_topic("hours", key=Windowed[UserId], value=int)

    orders.pipe_input("ann", Order(5))

    assert copies.read_key_value() == ("ann", Order(5))
    assert amounts.read_value() == 5  # four bytes, as `Integer` writes, not the eight that `int` alone stands for
    assert hours.read_key_value() == (Windowed("ann", 0, 3_600_000), 1)


def test_an_optional_type_is_the_type() -> None:
    optional: Any = Order | None
    shop = driver()

    shop.create_input_topic("orders", key=str, value=optional).pipe_input("ann", Order(5))

    assert shop.create_output_topic("copies", key=str, value=optional).read_value() == Order(5)


def test_a_serde_reads_and_writes_its_own_bytes() -> None:
    shop = driver()
    shop.create_input_topic("orders", key=str, value=Json(dict[str, int])).pipe_input("ann", {"amount": 7})

    assert shop.create_output_topic("copies", key=String(), value=String()).read_value() == '{"amount":7}'


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (
            lambda shop: shop.create_input_topic("orders", key=str, value=int),
            (
                "topic 'orders' has values of type Order (json(Order)), not int.\n"
                "  Hint: value=Order, or a serde, such as value=Long(), to write or read other bytes"
            ),
        ),
        (
            lambda shop: shop.create_output_topic("hours", key=str, value=int),
            (
                "topic 'hours' has keys of type Windowed[str] (time-windowed(string)), not str.\n"
                "  Hint: key=Windowed[str], or a serde, such as key=Long(), to write or read other bytes"
            ),
        ),
        (
            lambda shop: shop.create_output_topic("hours", key=Windowed[int], value=int),
            (
                "topic 'hours' has keys of type Windowed[str] (time-windowed(string)), not Windowed[int].\n"
                "  Hint: key=Windowed[str], or a serde, such as key=Long(), to write or read other bytes"
            ),
        ),
        (
            lambda shop: shop.key_value_store("counts", key=int, value=int),
            "store 'counts' has keys of type str (string), not int.\n  Hint: key=str",
        ),
        (
            lambda shop: shop.window_store("hours", key=str, value=Integer()),
            "store 'hours' has values of type int (long), not integer.\n  Hint: value=int",
        ),
        (
            lambda shop: shop.key_value_store("hours", key=str, value=int),
            (
                "store 'hours' is a window store (key=str, value=int), not a key-value store.\n"
                "  Hint: driver.window_store('hours', key=str, value=int)"
            ),
        ),
        (
            lambda shop: shop.window_store("visits", key=str, value=int),
            (
                "store 'visits' is a session store (key=str, value=int), not a window store.\n"
                "  Hint: driver.session_store('visits', key=str, value=int)"
            ),
        ),
        (
            lambda shop: shop.session_store("users", key=str, value=str),
            (
                "store 'users' is a versioned store (key=str, value=str), not a session store.\n"
                "  Hint: driver.versioned_store('users', key=str, value=str)"
            ),
        ),
        (
            lambda shop: shop.versioned_store("seen", key=str, value=Order),
            (
                "store 'seen' is a key-value store (key=str, value=Order), not a versioned store.\n"
                "  Hint: driver.key_value_store('seen', key=str, value=Order)"
            ),
        ),
        (
            lambda shop: shop.versioned_store("recent", key=str, value=Order),
            (
                "store 'recent' is a key-value store (key=str, value=Order), not a versioned store.\n"
                "  Hint: driver.key_value_store('recent', key=str, value=Order)"
            ),
        ),
    ],
)
def test_a_wrong_type_or_kind_is_answered_with_what_is_there(
    code: Callable[[TopologyTestDriver], object], text: str
) -> None:
    with pytest.raises(TypeError) as caught:
        code(driver())

    assert str(caught.value) == text


def test_the_class_of_a_serde_is_a_slip() -> None:
    with pytest.raises(TypeError, match=r"topic 'orders': value=Long is the class of a serde, not a serde.") as caught:
        driver().create_input_topic("orders", key=str, value=Long)

    assert "test_typed.py:" in str(caught.value)


def test_a_store_that_is_not_there_is_answered_with_those_that_are() -> None:
    with pytest.raises(KeyError, match="no store 'count'; it has: counts, hours, recent, seen, users, visits"):
        driver().key_value_store("count", key=str, value=int)


def test_each_kind_of_store_has_its_view() -> None:
    shop = driver()
    shop.create_input_topic("orders").pipe_input("ann", Order(5))
    shop.create_input_topic("users").pipe_input("ann", "Ann", timestamp_ms=3)

    assert shop.key_value_store("counts", key=str, value=int).all() == [("ann", 1)]
    assert shop.window_store("hours", key=UserId, value=int).fetch(UserId("ann"), 0) == 1
    assert shop.session_store("visits", key=String(), value=Long()).fetch("ann") == [(Windowed("ann", 0, 0), 1)]
    assert shop.versioned_store("users", key=str, value=str).all_with_timestamps() == [("ann", "Ann", 3)]
    shop.key_value_store("recent", key=str, value=Order).put("bob", Order(1))
    assert {type(store) for store in shop.stores.values()} == {
        TestKeyValueStore,
        TestWindowStore,
        TestSessionStore,
        TestVersionedStore,
    }


def test_a_topic_whose_types_nobody_knows_needs_them() -> None:
    shop = TopologyTestDriver(plan(), dead_letter_topic="dead")

    with pytest.raises(TypeError, match=r"topic 'dead': the topology does not say what its keys are.\n  Hint: key=byt"):
        shop.create_output_topic("dead", value=bytes)
    assert shop.create_output_topic("dead", key=bytes, value=bytes).is_empty
