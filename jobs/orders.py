"""Orders of a shop: joined with their users, split by tier, counted and summed per user. The manual by example.

```
raw-orders -> decode -> join users -> enriched-orders, enriched_orders
user-data  -> users ------^            |-> premium-orders (10 % off), standard-orders
                                       |-> order_counts   (per user and hour)
                                       |-> user_revenue   (per user, 5 minutes, every minute)
                                       '-> user_sessions  (per user, 30 minutes of silence end a session)
```

Sample data: `orders_data.py`. What must come out: `orders_check.sql`.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from typing import Literal

import msgspec

from deltaworks import Bytes, Json, Pipeline, SessionWindows, StreamsBuilder, String, TimeWindows, Topic

GRACE = timedelta(minutes=5)
CENT = Decimal("0.01")


class Order(msgspec.Struct, frozen=True):
    """What `raw-orders` holds as JSON, keyed by user; unknown fields are ignored."""

    order_id: str
    user_id: str
    amount: Decimal
    type: Literal["PREMIUM", "STANDARD"]
    item: str
    location: str
    event_time: datetime


class User(msgspec.Struct, frozen=True):
    """A row of `user-data`."""

    user_id: str
    name: str
    country: str


class EnrichedOrder(msgspec.Struct, frozen=True):
    """An order that knows its user."""

    order_id: str
    user_id: str
    user_name: str
    user_country: str
    amount: Decimal
    type: Literal["PREMIUM", "STANDARD"]
    item: str
    country: str
    city: str
    event_time: datetime


def enrich(order: Order, user: User) -> EnrichedOrder:
    """Raises on a location that is not `COUNTRY/City`: the record becomes a dead letter."""
    country, slash, city = order.location.partition("/")
    if not slash:
        raise ValueError(f"location {order.location!r} is not COUNTRY/City")
    return EnrichedOrder(
        order_id=order.order_id,
        user_id=order.user_id,
        user_name=user.name,
        user_country=user.country,
        amount=order.amount,
        type=order.type,
        item=order.item,
        country=country,
        city=city,
        event_time=order.event_time,
    )


def discounted(order: EnrichedOrder) -> EnrichedOrder:
    """Ten percent off, to the cent; raises on a gift card, which only this branch sets aside."""
    if order.item == "gift card":
        raise ValueError("a gift card has no discount")
    return msgspec.structs.replace(order, amount=(order.amount * Decimal("0.9")).quantize(CENT, ROUND_HALF_UP))


def topology(builder: StreamsBuilder) -> None:
    """Reads top to bottom as the picture above."""
    users = builder.table("user-data", key=String(), value=Json(User), store="users")
    users.to_delta("users")

    # Read as bytes first: an order without content is dropped, and only bytes that are there can fail to decode.
    enriched = (
        builder.stream("raw-orders", key=String(), value=Bytes())
        .filter(lambda _, content: bool(content))
        .map_values(Json(Order).deserialize, name="decode-order")
        .filter(lambda _, order: order.amount > 0)
        .join(users, enrich, name="join-user")
    )
    enriched.to("enriched-orders", key=String(), value=Json(EnrichedOrder))
    enriched.to_delta("enriched_orders")

    tiers = enriched.split("tier").branch(lambda _, order: order.type == "PREMIUM", name="premium").default("standard")
    premium = tiers["premium"].map_values(discounted, name="discount")
    premium.to("premium-orders", key=String(), value=Json(EnrichedOrder))
    tiers["standard"].to("standard-orders", key=String(), value=Json(EnrichedOrder))

    by_key = enriched.group_by_key()
    hourly = by_key.windowed_by(TimeWindows.of_size_and_grace(timedelta(hours=1), GRACE))
    hourly.count(store="order-count-store").to_delta("order_counts")
    (
        enriched.map_values(lambda order: order.amount)
        .group_by_key()
        .windowed_by(TimeWindows.of_size_and_grace(timedelta(minutes=5), GRACE).advance_by(timedelta(minutes=1)))
        .reduce(lambda total, amount: total + amount, store="revenue-store")
        .to_delta("user_revenue")
    )
    (
        enriched.group_by(lambda _, order: order.user_id, name="by-user")
        .windowed_by(SessionWindows.of_inactivity_gap_and_grace(timedelta(minutes=30), GRACE))
        .count(store="session-store")
        .to_delta("user_sessions")
    )


pipeline = Pipeline(
    "orders",
    topology,
    topics=(Topic("raw-orders"), Topic("user-data", compacted=True)),
    on_error="continue",
    dead_letter_topic="orders-dead-letters",
    dead_letter_table="dead_letters",
)
