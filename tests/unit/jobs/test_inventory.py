from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from deltaworks import Windowed
from deltaworks.testing import TopologyTestDriver
from jobs.inventory import CustomerOrder, Shelf, Stock, Summary, pipeline

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
LAMP = Shelf("lyon", "lamp")


def iso(at: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at)).isoformat()


class Store:
    """The pipeline, with movements and orders made from what matters."""

    def __init__(self) -> None:
        self.driver = TopologyTestDriver(pipeline)
        self.movements = self.driver.create_input_topic("inventory-movements")
        self.orders = self.driver.create_input_topic("inventory-orders")

    def move(self, kind: str, pieces: int, at: int = 0, shelf: Shelf = LAMP, **fields: Any) -> None:
        movement = {
            "kind": kind,
            "shelf": {"store": shelf.store, "item": shelf.item},
            "pieces": pieces,
            "moved_at": iso(at),
        } | fields
        self.movements.pipe_raw(shelf.store.encode(), json.dumps(movement).encode(), timestamp_ms=at)

    def order(self, pieces: int = 1, at: int = 0, customer: str | None = "ann", **fields: Any) -> None:
        order = {
            "order_id": "o-1",
            "shelf": {"store": LAMP.store, "item": LAMP.item},
            "pieces": pieces,
            "amount": "10.00",
            "ordered_at": iso(at),
        } | fields
        key = None if customer is None else customer.encode()
        self.orders.pipe_raw(key, json.dumps(order).encode(), timestamp_ms=at)

    def stock(self, shelf: Shelf = LAMP) -> Stock:
        stock: Stock = self.driver.table("inventory_stock").rows[shelf]
        return stock

    def alerts(self) -> list[tuple[str, str]]:
        alerts = self.driver.create_output_topic("inventory-alerts").read_values_to_list()
        return [(stock.was, stock.level) for stock in alerts if stock is not None]

    def customer_orders(self) -> list[CustomerOrder]:
        values = self.driver.create_output_topic("inventory-customer-orders").read_values_to_list()
        return [value for value in values if value is not None]

    def days(self) -> list[tuple[int, Decimal]]:
        return [(order.day.orders, order.day.amount) for order in self.customer_orders()]

    def operators_of_dead_letters(self) -> list[str]:
        return [letter.operator for letter in self.driver.dead_letters]


def test_deliveries_add_and_orders_and_sales_at_the_till_take_away() -> None:
    store = Store()

    store.move("delivery", 40)
    store.order(pieces=3)
    store.move("sale", 5)

    assert store.stock().pieces == 32


def test_stock_is_per_store_and_item() -> None:
    store = Store()

    for shelf, pieces in ((LAMP, 20), (Shelf("lyon", "book"), 30), (Shelf("köln", "lamp"), 40)):
        store.move("delivery", pieces, shelf=shelf)

    rows = store.driver.table("inventory_stock").rows
    assert {(key.store, key.item): stock.pieces for key, stock in rows.items()} == {
        ("lyon", "lamp"): 20,
        ("lyon", "book"): 30,
        ("köln", "lamp"): 40,
    }


def test_a_count_says_what_is_there() -> None:
    store = Store()

    store.move("delivery", 40, at=1)
    store.move("count", 37, at=2)
    store.order(pieces=1, at=3)

    assert store.stock().pieces == 36


@pytest.mark.parametrize("kind", ["delivery", "sale", "count"])
def test_what_happened_before_the_last_count_is_in_it(kind: str) -> None:
    store = Store()

    store.move("count", 30, at=5 * MINUTE)
    store.move(kind, 7, at=5 * MINUTE)
    store.order(pieces=2, at=4 * MINUTE)

    assert (store.stock().pieces, store.stock().counted_at) == (30, datetime(1970, 1, 1, 0, 5, tzinfo=UTC))


def test_an_alert_begins_and_ends_as_the_level_changes() -> None:
    store = Store()

    for kind, pieces in (("delivery", 12), ("sale", 3), ("sale", 1), ("sale", 9), ("delivery", 2), ("delivery", 30)):
        store.move(kind, pieces)

    assert store.alerts() == [("ok", "low"), ("low", "negative"), ("negative", "low"), ("low", "ok")]


def test_a_movement_that_changes_nothing_repeats_no_alert() -> None:
    store = Store()

    store.move("count", 4, at=MINUTE)
    store.move("delivery", 50, at=0)

    assert store.alerts() == [("ok", "low")]
    assert (store.stock().was, store.stock().level) == ("low", "low")


def test_more_can_be_sold_than_is_known_to_be_there() -> None:
    store = Store()

    store.order(pieces=2)

    assert (store.stock().pieces, store.alerts()) == (-2, [("ok", "negative")])


def test_an_order_is_in_its_own_summary() -> None:
    store = Store()

    store.order(amount="10.00")
    store.order(amount="0.10")
    store.order(amount=5, customer="bob")

    assert store.days() == [(1, Decimal("10.00")), (2, Decimal("10.10")), (1, Decimal(5))]
    assert [row.key for row in store.driver.table("inventory_customer_orders").rows] == ["ann", "ann", "bob"]


def test_the_summary_is_the_hour_of_the_order_and_the_23_before() -> None:
    store = Store()

    for at in (0, HOUR - 1, 23 * HOUR, DAY - 1, DAY, DAY + HOUR):
        store.order(at=at)

    assert [orders for orders, _ in store.days()] == [1, 2, 3, 4, 3, 4]


def test_hours_are_a_table_that_an_order_may_reach_an_hour_late() -> None:
    store = Store()

    store.order(at=0)
    store.order(at=2 * HOUR - 1)
    store.order(at=HOUR - 1)
    store.order(at=2 * HOUR)
    store.order(at=HOUR - 1)  # too late

    hours = store.driver.table("inventory_customer_hours").rows
    assert {hour.start_ms // HOUR: summary.orders for hour, summary in hours.items()} == {0: 2, 1: 1, 2: 1}
    assert hours[Windowed("ann", 0, HOUR)] == Summary(2, Decimal("20.00"))


def test_an_order_too_late_for_its_hour_is_joined_but_not_counted() -> None:
    store = Store()

    store.order(at=0)
    store.order(at=5 * HOUR)
    store.order(at=30 * MINUTE)
    store.order(at=2 * HOUR)

    assert [orders for orders, _ in store.days()] == [1, 2, 1, 1]


def test_after_24_hours_the_store_has_forgotten() -> None:
    store = Store()

    store.order(at=0)
    store.order(at=3 * DAY, customer="bob")
    store.order(at=0)

    assert [orders for orders, _ in store.days()] == [1, 1, 0]
    assert [key.key for key, _ in store.driver.store("inventory-customer-hours").all()] == ["bob"]


def test_an_order_without_customer_is_sold_and_set_aside() -> None:
    store = Store()

    store.order(pieces=2, customer=None)

    assert store.stock().pieces == -2
    assert store.customer_orders() == []
    assert store.operators_of_dead_letters() == ["last-day"]


def test_a_null_value_is_no_order_and_no_movement() -> None:
    store = Store()

    store.orders.pipe_raw(b"ann", None)
    store.movements.pipe_raw(b"lyon", None)

    assert store.customer_orders() == []
    assert store.operators_of_dead_letters() == ["inventory-by-shelf"]


@pytest.mark.parametrize(
    "field",
    [
        {"pieces": -1},
        {"pieces": "3"},
        {"pieces": 10**30},
        {"ordered_at": "2026-03-01T12:00:00"},
        {"shelf": "lyon/lamp"},
        {"amount": "12,50"},
    ],
)
def test_a_field_that_does_not_fit_makes_a_dead_letter_at_the_source(field: dict[str, Any]) -> None:
    store = Store()

    store.order(**field)

    assert store.operators_of_dead_letters() == ["orders-source"]
    assert store.driver.table("inventory_stock").rows == {}


def test_a_movement_of_another_kind_makes_a_dead_letter() -> None:
    store = Store()

    store.move("theft", 1)

    (letter,) = store.driver.dead_letters
    assert (letter.operator, letter.error_class) == ("movements-source", "deltaworks.errors.SerializationError")
    assert letter.key == b"lyon"
