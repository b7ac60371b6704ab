from __future__ import annotations

import json
import logging
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from deltaworks import StreamsBuilder
from deltaworks.testing import TopologyTestDriver
from jobs.enrichment import CheckedOrder, Customer, Order, check, pipeline


class Shop:
    """The pipeline with one customer, whose limit is 100, and orders made from what matters."""

    def __init__(self) -> None:
        self.driver = TopologyTestDriver(pipeline)
        self.orders = self.driver.create_input_topic("enrichment-orders", key=str, value=Order)
        self.customers = self.driver.create_input_topic("enrichment-customers", key=str, value=Customer)
        self.customer("ann")

    def customer(self, customer: str, limit: str = "100.00", **fields: Any) -> None:
        profile = {"name": "Ann", "tier": "silver", "credit_limit": limit} | fields
        self.customers.pipe_raw(customer.encode(), json.dumps(profile).encode())

    def order(self, order: str = "o-1", customer: str | None = "ann", key: bytes | None = None, **fields: Any) -> None:
        content = {
            "order_id": order,
            "customer_id": customer,
            "amount": "10.00",
            "ordered_at": "2026-03-01T12:00:00Z",
        } | fields
        self.orders.pipe_raw(key or order.encode(), json.dumps(content).encode(), timestamp_ms=7)

    def checked(self) -> list[CheckedOrder]:
        values = self.driver.create_output_topic(
            "enrichment-checked", key=str, value=CheckedOrder
        ).read_values_to_list()
        return [value for value in values if value is not None]

    def current(self) -> dict[str, CheckedOrder]:
        return dict(self.driver.table("enrichment_current").rows)


def test_an_order_finds_its_customer_under_another_key_and_is_keyed_by_order_again() -> None:
    shop = Shop()

    shop.order("o-1", "ann")

    result = shop.driver.create_output_topic("enrichment-checked").read_record()
    assert (result.key, result.timestamp_ms) == ("o-1", 7)
    assert result.value is not None
    assert (result.value.customer_name, result.value.tier) == ("Ann", "silver")
    assert [row.key for row in shop.driver.table("enrichment_checked").rows] == ["o-1"]


def test_joined_under_its_own_key_every_order_is_unknown() -> None:
    builder = StreamsBuilder()
    customers = builder.table("customers", key=str, value=Customer, store="customers")
    builder.stream("orders", key=str, value=Order).left_join(customers, check).to("checked")
    driver = TopologyTestDriver(builder.build())

    driver.create_input_topic("customers").pipe_raw(b"ann", b'{"name":"Ann","tier":"gold","credit_limit":"1"}')
    driver.create_input_topic("orders").pipe_raw(
        b"o-1", b'{"order_id":"o-1","customer_id":"ann","amount":"1","ordered_at":"2026-03-01T12:00:00Z"}'
    )

    assert [order and order.tier for order in driver.create_output_topic("checked").read_values_to_list()] == [
        "unknown"
    ]


@pytest.mark.parametrize("customer", ["bob", None], ids=["unknown", "guest"])
def test_without_a_customer_the_tier_is_unknown_and_there_is_no_credit(customer: str | None) -> None:
    shop = Shop()

    shop.order(customer=customer)

    (order,) = shop.checked()
    assert (order.tier, order.credit, order.credit_limit, order.customer_name) == ("unknown", "no credit", None, None)


def test_a_deleted_customer_is_unknown() -> None:
    shop = Shop()

    shop.customers.pipe_raw(b"ann", None)
    shop.order(customer="ann")

    assert [order.tier for order in shop.checked()] == ["unknown"]


@pytest.mark.parametrize(("amount", "credit"), [("100.00", "approved"), ("100.01", "rejected"), (99.99, "approved")])
def test_credit_reaches_up_to_the_limit_and_no_cent_further(amount: object, credit: str) -> None:
    shop = Shop()

    shop.order(amount=amount)

    assert [order.credit for order in shop.checked()] == [credit]


def test_the_stream_keeps_what_was_known_when_the_order_came() -> None:
    shop = Shop()

    shop.order("early", "bob")
    shop.customer("bob", limit="5.00")
    shop.customer("bob", limit="50.00")
    shop.order("late", "bob")

    assert [(order.order_id, order.credit) for order in shop.checked()] == [
        ("early", "no credit"),
        ("late", "approved"),
    ]


def test_the_view_follows_the_customer() -> None:
    shop = Shop()
    credits = []

    shop.order("o-1", "bob")
    credits.append(shop.current()["o-1"].credit)
    for limit in ("5.00", "50.00"):
        shop.customer("bob", limit)
        credits.append(shop.current()["o-1"].credit)
    shop.customers.pipe_raw(b"bob", None)
    credits.append(shop.current()["o-1"].credit)

    assert credits == ["no credit", "rejected", "approved", "no credit"]


def test_an_order_that_changes_its_customer_is_sent_twice_but_one_row_of_the_view() -> None:
    shop = Shop()
    shop.customer("bob", name="Bob")

    shop.order("o-1", "ann")
    shop.order("o-1", "bob")
    shop.customer("ann", name="Ann B.")  # is not its customer any more

    assert [order.customer_name for order in shop.checked()] == ["Ann", "Bob"]
    assert {key: order.customer_name for key, order in shop.current().items()} == {"o-1": "Bob"}


def test_a_cancelled_order_leaves_the_view_and_nothing_goes_by_the_stream() -> None:
    shop = Shop()

    shop.order("o-1")
    shop.orders.pipe_raw(b"o-1", None)

    assert len(shop.checked()) == 1
    assert shop.current() == {}
    assert shop.driver.dead_letters == []


def test_an_order_without_key_goes_by_the_stream_but_is_no_row() -> None:
    shop = Shop()

    shop.orders.pipe_raw(
        None, b'{"order_id":"o-1","customer_id":"ann","amount":"1","ordered_at":"2026-03-01T12:00:00Z"}'
    )

    assert [order.credit for order in shop.checked()] == ["approved"]
    assert shop.current() == {}


@pytest.mark.parametrize("amount", ["0", "-1.00", "0.001", "1000000", "1e30", "Infinity", "NaN", "12,50", True, None])
def test_an_amount_that_is_none_makes_a_dead_letter_at_the_source(amount: object) -> None:
    shop = Shop()

    shop.order(amount=amount)

    assert [letter.operator for letter in shop.driver.dead_letters] == ["orders-source"]
    assert shop.checked() == []


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b'{"order_id":"o', b"[]", b'{"order_id":"o-1"}'])
def test_an_order_that_does_not_decode_becomes_a_dead_letter_as_it_was_read(content: bytes) -> None:
    shop = Shop()

    shop.orders.pipe_raw(b"o-1", content, timestamp_ms=7)

    (letter,) = shop.driver.dead_letters
    assert (letter.key, letter.value, letter.timestamp_ms, letter.operator) == (b"o-1", content, 7, "orders-source")
    assert letter.error_class == "deltaworks.errors.SerializationError"


def test_a_customer_that_does_not_decode_leaves_the_row_as_it_was() -> None:
    shop = Shop()

    shop.customer("ann", limit="much")
    shop.customer("ann", limit="-1")
    shop.customer("ann", tier="tin")
    shop.order()

    assert [letter.operator for letter in shop.driver.dead_letters] == ["customers-source"] * 3
    assert [order.credit_limit for order in shop.checked()] == [Decimal("100.00")]


def test_tiers_count_their_customers() -> None:
    shop = Shop()
    shop.customer("bob", tier="gold")
    shop.customer("eve", tier="gold")
    assert shop.driver.table("enrichment_tiers").rows == {"silver": 1, "gold": 2}

    shop.customer("ann", tier="gold")
    shop.customers.pipe_raw(b"eve", None)

    assert shop.driver.table("enrichment_tiers").rows == {"silver": 0, "gold": 2}


def test_unknown_customers_are_a_warning_in_a_micro_batch_and_guests_are_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shop = Shop()
    with caplog.at_level(logging.WARNING, "jobs.enrichment"):
        shop.order("o-1")
        shop.order("o-2", customer=None)
        assert caplog.messages == []

        shop.order("o-3", customer="zoe")
        shop.order("o-4", customer="zoe")
        assert caplog.messages == ["no customer zoe: order o-3 is checked without"]

        shop.driver.advance_wall_clock_time(timedelta(seconds=1))
        shop.order("o-5", customer="zoe")
        assert caplog.messages[1:] == ["no customer zoe: order o-5 is checked without"]

    assert [order.tier for order in shop.checked()] == ["silver", *["unknown"] * 4]
