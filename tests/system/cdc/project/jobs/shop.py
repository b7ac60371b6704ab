"""Orders of a shop: orders and their lines from PostgreSQL, customers from MariaDB, joined, in tables and an index.

```
PostgreSQL orders ------> cdc.orders ---------> orders --> with lines --> with its customer -> shop_orders (Delta)
PostgreSQL order_lines -> cdc.order_lines -> by order --------'             |      |       `-> shop-orders (search)
MariaDB customers ------> cdc.customers --> customers ----------------------'      '-> by customer -> shop_totals
```
"""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Annotated

import msgspec

from deltaworks import (
    Column,
    DeadLetters,
    Debezium,
    DebeziumKey,
    DecimalDigits,
    Pipeline,
    StreamsBuilder,
)
from deltaworks.settings import Settings

Euros = Annotated[Decimal, DecimalDigits(20, 2)]


class Customer(msgspec.Struct, frozen=True):
    """A row of `customers`."""

    name: str
    city: str
    vip: bool
    since: date


class Order(msgspec.Struct, frozen=True):
    """A row of `orders`."""

    customer_id: int | None
    status: str
    ordered_at: datetime
    note: str | None = None


class LineKey(msgspec.Struct, frozen=True):
    """The primary key of `order_lines`."""

    order_id: int
    number: int


class Line(msgspec.Struct, frozen=True):
    """A row of `order_lines`."""

    article: str
    quantity: int
    price: Decimal


class Lines(msgspec.Struct, frozen=True):
    """What the lines of an order come to."""

    lines: int
    amount: Euros


class ShopOrder(msgspec.Struct, frozen=True):
    """An order with its lines and its customer."""

    customer_id: int | None
    status: str
    ordered_at: datetime
    note: str | None
    lines: int
    amount: Euros
    customer_name: str | None = None
    city: str | None = None
    vip: bool | None = None


class Total(msgspec.Struct, frozen=True):
    """All orders of a customer."""

    orders: int
    amount: Euros


KEY = DebeziumKey(int, field="id")
NOTHING = Decimal("0.00")


def with_lines(order: Order, lines: Lines | None) -> ShopOrder:
    """An order and what its lines come to."""
    count, amount = (0, NOTHING) if lines is None else (lines.lines, lines.amount)
    return ShopOrder(order.customer_id, order.status, order.ordered_at, order.note, count, amount)


def with_customer(order: ShopOrder, customer: Customer | None) -> ShopOrder:
    """An order and who has ordered."""
    if customer is None:
        return order
    return msgspec.structs.replace(order, customer_name=customer.name, city=customer.city, vip=customer.vip)


def _added(_: int, line: Line, so_far: Lines) -> Lines:
    return Lines(so_far.lines + 1, so_far.amount + line.quantity * line.price)


def _removed(_: int, line: Line, so_far: Lines) -> Lines:
    return Lines(so_far.lines - 1, so_far.amount - line.quantity * line.price)


def _by_customer(_: int, order: ShopOrder) -> tuple[int, ShopOrder]:
    assert order.customer_id is not None, "guests have been left out"
    return order.customer_id, order


def topology(builder: StreamsBuilder) -> None:
    """Follows the picture above."""
    customers = builder.table("cdc.customers", key=KEY, value=Debezium(Customer), store="customers")
    orders = builder.table("cdc.orders", key=KEY, value=Debezium(Order, unit="us"), store="orders")
    lines = builder.table("cdc.order_lines", key=DebeziumKey(LineKey), value=Debezium(Line), store="lines")
    of_orders = lines.group_by(
        lambda key, line: (key.order_id, line), key=KEY, value=Line, name="lines-by-order"
    ).aggregate(lambda: Lines(0, NOTHING), _added, _removed, store="lines-of-orders", value=Lines)
    current = orders.left_join(of_orders, with_lines, name="with-lines").left_join(
        customers, with_customer, foreign_key=lambda _, order: order.customer_id, name="with-customer", store="current"
    )
    current.to_delta("shop_orders", key=Column("order_id"))
    current.to_search("shop-orders", url=f"http://127.0.0.1:{Settings.from_environment().opensearch_port}")
    (
        current.filter(lambda _, order: order.customer_id is not None, name="no-guests")
        .group_by(_by_customer, key=int, value=ShopOrder, name="by-customer")
        .aggregate(
            lambda: Total(0, NOTHING),
            lambda _, order, so_far: Total(so_far.orders + 1, so_far.amount + order.amount),
            lambda _, order, so_far: Total(so_far.orders - 1, so_far.amount - order.amount),
            store="totals",
            value=Total,
        )
        .filter(lambda _, total: total.orders > 0, name="with-orders")
        .to_delta("shop_totals", key=Column("customer_id"))
    )


pipeline = Pipeline(
    name="shop",
    topology=topology,
    on_error="continue",
    dead_letters=DeadLetters(topic="shop-dead-letters", table="shop_dead_letters", keep_bytes=True),
    max_trigger_interval=timedelta(seconds=5),
    cores=1,
)
