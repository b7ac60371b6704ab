"""Orders of a shop with their customers, from what Debezium writes of the tables of its database.
Sample data: `sample_data/customers.py`. Expected results: `recomputed/customers.sql`.

```
cdc.customers ----> customers ------------------------> customers, customers_changelog
                        |
cdc.orders -------> orders ---> with lines ---> with its customer -> customers_orders, customers-orders
                                    |                    |
cdc.order_lines --> by order -------'                    '-> by customer -> customers_totals
```

Each topic is a table of the database: a deleted row is deleted in all results, and a customer who moves changes all
of their orders. `customers-orders` is keyed by the number of the order and has a null for an order that is gone, so a
sink keeps a search index of it.

The topics have each of the forms that Debezium has: changes with `before` and `after` (orders), the same with a schema
in each record (lines), and rows (customers, which were changes at first).
"""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Literal

import msgspec

from deltaworks import (
    Column,
    DeadLetters,
    Debezium,
    DebeziumKey,
    DecimalDigits,
    Doc,
    Materialized,
    Pipeline,
    StreamsBuilder,
)

Status = Literal["new", "paid", "shipped"]
Euros = Annotated[Decimal, DecimalDigits(20, 2)]


class Customer(msgspec.Struct, frozen=True):
    """A row of `customers`."""

    name: Annotated[str, Doc("Full name.")]
    city: Annotated[str, Doc("Where the customer lives.")]
    vip: Annotated[bool, Doc("Whether the customer is served first.")]
    since: Annotated[date, Doc("First day as a customer.")]


class Order(msgspec.Struct, frozen=True):
    """A row of `orders`."""

    customer_id: int | None
    """None: a guest."""
    status: Status
    ordered_at: datetime
    note: str | None = None
    """So long at times that the database does not send it with each update."""


class Line(msgspec.Struct, frozen=True):
    """A row of `order_lines`."""

    article: str
    quantity: int
    price: Decimal


class LineKey(msgspec.Struct, frozen=True):
    """The primary key of `order_lines`."""

    order_id: int
    number: int


class Lines(msgspec.Struct, frozen=True):
    """What the lines of an order come to."""

    lines: int
    amount: Euros


class CustomerOrder(msgspec.Struct, frozen=True):
    """An order with its lines and its customer."""

    customer_id: Annotated[int | None, Doc("The customer; null: a guest.")]
    status: Annotated[Status, Doc("How far the order is.")]
    ordered_at: Annotated[datetime, Doc("When it was ordered.")]
    note: Annotated[str | None, Doc("What the customer wants us to know.")]
    lines: Annotated[int, Doc("Number of its lines.")]
    amount: Annotated[Euros, Doc("Price of all lines, in euros.")]
    customer_name: Annotated[str | None, Doc("Name of the customer; null: unknown.")] = None
    city: Annotated[str | None, Doc("Where the customer lives; null: unknown.")] = None


class Total(msgspec.Struct, frozen=True):
    """All orders of a customer."""

    orders: Annotated[int, Doc("Number of orders.")]
    amount: Annotated[Euros, Doc("Price of all orders, in euros.")]


KEY = DebeziumKey(int, field="id")
CUSTOMER_ID = Column("customer_id", "Number of the customer.")
ORDER_ID = Column("order_id", "Number of the order.")
NOTHING = Decimal("0.00")


def with_lines(order: Order, lines: Lines | None) -> CustomerOrder:
    """An order and what its lines come to."""
    fields = {name: getattr(order, name) for name in Order.__struct_fields__}
    return CustomerOrder(**fields, lines=lines.lines if lines else 0, amount=lines.amount if lines else NOTHING)


def with_customer(order: CustomerOrder, customer: Customer | None) -> CustomerOrder:
    """An order and who has ordered."""
    if customer is None:
        return order
    return msgspec.structs.replace(order, customer_name=customer.name, city=customer.city)


def _line_added(_: int, line: Line, so_far: Lines) -> Lines:
    return Lines(so_far.lines + 1, so_far.amount + line.quantity * line.price)


def _line_removed(_: int, line: Line, so_far: Lines) -> Lines:
    return Lines(so_far.lines - 1, so_far.amount - line.quantity * line.price)


def _by_customer(_: int, order: CustomerOrder) -> tuple[int, CustomerOrder]:
    assert order.customer_id is not None, "guests have been left out"
    return order.customer_id, order


def _order_added(_: int, order: CustomerOrder, so_far: Total) -> Total:
    return Total(so_far.orders + 1, so_far.amount + order.amount)


def _order_removed(_: int, order: CustomerOrder, so_far: Total) -> Total:
    return Total(so_far.orders - 1, so_far.amount - order.amount)


def topology(builder: StreamsBuilder) -> None:
    """Follows the picture above from top to bottom."""
    # Not cached: every change is an update of its table.
    customers = builder.table(
        "cdc.customers",
        key=KEY,
        value=Debezium(Customer),
        store=Materialized("customers", caching=False),
        name="customers-source",
    )
    customers.to_delta("customers", key=CUSTOMER_ID, doc="The customers as they are now")
    orders = builder.table(
        "cdc.orders", key=KEY, value=Debezium(Order, unit="us"), store="customers-orders", name="orders-source"
    )
    lines = builder.table(
        "cdc.order_lines",
        key=DebeziumKey(LineKey),
        value=Debezium(Line),
        store="customers-lines",
        name="lines-source",
    )
    of_orders = lines.group_by(
        lambda key, line: (key.order_id, line), key=KEY, value=Line, name="lines-by-order"
    ).aggregate(lambda: Lines(0, NOTHING), _line_added, _line_removed, store="customers-lines-of-orders", value=Lines)
    current = orders.left_join(of_orders, with_lines, name="with-lines").left_join(
        customers,
        with_customer,
        foreign_key=lambda _, order: order.customer_id,
        name="with-customer",
        store="customers-current",
    )
    current.to_delta("customers_orders", key=ORDER_ID, doc="The orders as they are now, with lines and customer")
    current.to_stream().select_key(lambda order, _: str(order), key=str, name="by-number").to("customers-orders")
    (
        current.filter(lambda _, order: order.customer_id is not None, name="no-guests")
        .group_by(_by_customer, key=int, value=CustomerOrder, name="by-customer")
        .aggregate(lambda: Total(0, NOTHING), _order_added, _order_removed, store="customers-totals", value=Total)
        .filter(lambda _, total: total.orders > 0, name="with-orders")
        .to_delta("customers_totals", key=CUSTOMER_ID, doc="The orders of each customer")
    )


pipeline = Pipeline(
    name="customers",
    topology=topology,
    on_error="continue",  # a truncated table, a value that was not sent, a column of another type
    dead_letters=DeadLetters(topic="customers-dead-letters", table="customers_dead_letters", keep_bytes=True),
    max_trigger_interval=timedelta(seconds=5),
    cores=1,
)
