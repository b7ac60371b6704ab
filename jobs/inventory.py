"""Stock per store and item, and orders enriched with what their customer has ordered in the last 24 hours.
Sample data: `sample_data/inventory.py`. Expected results: `recomputed/inventory.sql`.

```
inventory-movements, by store -+-> by shelf -> stock -> inventory_stock, inventory-alerts (low, negative, ok again)
inventory-orders, by customer -+
                      |-> hours of the customer, kept for 24 h -> inventory_customer_hours
                      '-> order + those hours -> inventory-customer-orders, inventory_customer_orders
```
"""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Annotated, Literal

import msgspec

from deltaworks import (
    Column,
    DeadLetters,
    Doc,
    FixedKeyProcessor,
    FixedKeyRecord,
    Materialized,
    Pipeline,
    StreamsBuilder,
    TimestampedWindowStore,
    TimeWindows,
)

HOUR, DAY, DAY_MS = timedelta(hours=1), timedelta(hours=24), 86_400_000
HOURS = "inventory-customer-hours"
Pieces = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
Instant = Annotated[datetime, msgspec.Meta(tz=True)]
Level = Literal["ok", "low", "negative"]


class Shelf(msgspec.Struct, frozen=True):
    store: Annotated[str, Doc("The store.")]
    item: Annotated[str, Doc("The item.")]


class Movement(msgspec.Struct, frozen=True):
    kind: Literal["delivery", "sale", "count"]
    shelf: Shelf
    pieces: Pieces
    moved_at: Instant


class Order(msgspec.Struct, frozen=True):
    order_id: Annotated[str, Doc("Number of the order.")]
    shelf: Annotated[Shelf, Doc("Store and item.")]
    pieces: Annotated[Pieces, Doc("Number of pieces.")]
    amount: Annotated[Decimal, Doc("Price of the order in euros.")]
    ordered_at: Annotated[Instant, Doc("When it was ordered.")]


class Summary(msgspec.Struct, frozen=True):
    orders: Annotated[int, Doc("Number of orders.")] = 0
    amount: Annotated[Decimal, Doc("Sum of their prices in euros.")] = Decimal(0)

    def __add__(self, other: Summary) -> Summary:
        return Summary(self.orders + other.orders, self.amount + other.amount)


class CustomerOrder(Order, frozen=True):
    day: Annotated[Summary, Doc("Orders of the customer in the 24 hours up to this one, which is included.")]


class Stock(msgspec.Struct, frozen=True):
    """The stock that should be on a shelf. Where `level` differs from what it `was`, an alert begins or ends."""

    pieces: Annotated[int, Doc("Pieces that should be on the shelf.")] = 0
    level: Annotated[Level, Doc("`low`: fewer than ten pieces; `negative`: more were sold than there were.")] = "ok"
    was: Annotated[Level, Doc("The level before the last movement.")] = "ok"
    counted_at: Annotated[Instant | None, Doc("When the pieces were last counted; null: never.")] = None

    def after(self, moved: Movement) -> Stock:
        """Adds a movement, unless it is older than the last count, which already includes it."""
        if self.counted_at is not None and moved.moved_at <= self.counted_at:
            return msgspec.structs.replace(self, was=self.level)
        change = {"delivery": moved.pieces, "sale": -moved.pieces, "count": moved.pieces - self.pieces}[moved.kind]
        now, counted_at = self.pieces + change, moved.moved_at if moved.kind == "count" else self.counted_at
        return Stock(now, "negative" if now < 0 else "low" if now < 10 else "ok", self.level, counted_at)


CUSTOMER_ID = Column("customer_id", "The customer.")


class LastDay(FixedKeyProcessor[str, Order, CustomerOrder]):
    """Adds up the hour of the order and the 23 before: a stream cannot join a windowed table but can read its store."""

    def process(self, record: FixedKeyRecord[str, Order]) -> None:
        hours: TimestampedWindowStore[str, Summary] = self.context.state_store(HOURS)
        at_ms = record.timestamp_ms
        day = sum((hour.value for _, hour in hours.fetch_range(record.key, at_ms - DAY_MS, at_ms)), Summary())
        self.context.forward(record.with_value(CustomerOrder(**msgspec.structs.asdict(record.value), day=day)))


def topology(builder: StreamsBuilder) -> None:
    movements = builder.stream("inventory-movements", key=str, value=Movement, name="movements-source")
    orders = builder.stream("inventory-orders", key=str, value=Order, on_null="skip", name="orders-source")
    every_update = Materialized("inventory-stock", caching=False)  # otherwise alerts between two commits are lost
    stock = (
        orders.map_values(lambda order: Movement("sale", order.shelf, order.pieces, order.ordered_at), value=Movement)
        .merge(movements)
        .group_by(lambda _, moved: moved.shelf, key=Shelf, name="inventory-by-shelf")
        .aggregate(Stock, lambda _, moved, stock: stock.after(moved), store=every_update)
    )
    stock.to_delta("inventory_stock", doc="Stock of an item in a store")
    stock.to_stream().filter(lambda _, stock: stock.level != stock.was).to("inventory-alerts")

    # Windows expire from their store; a plain table would keep every customer who ever ordered.
    hours = orders.group_by_key().windowed_by(TimeWindows(size=HOUR, grace=HOUR))
    hourly = hours.aggregate(Summary, lambda _, order, old: old + Summary(1, order.amount), store=HOURS, retention=DAY)
    hourly.to_delta("inventory_customer_hours", key=CUSTOMER_ID, doc="Orders of a customer per hour")
    # Connected after the aggregate, so it runs after it: an order is in its own summary, unless late for its hour.
    customer_orders = orders.process_values(LastDay, HOURS, name="last-day")
    customer_orders.to("inventory-customer-orders")
    customer_orders.to_delta(
        "inventory_customer_orders", key=CUSTOMER_ID, doc="Every order, with what its customer has ordered in 24 hours"
    )


pipeline = Pipeline(
    name="inventory",
    topology=topology,
    on_error="continue",
    dead_letters=DeadLetters(topic="inventory-dead-letters", table="inventory_dead_letters", keep_bytes=True),
    max_trigger_interval=timedelta(seconds=5),
    cores=1,
)
