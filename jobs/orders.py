"""Orders of a shop: joined with their users, split by tier, counted and summed per user. The manual by example.

```
raw-orders -> join users -> enriched-orders, enriched_orders
user-data  -> users --^            |-> premium-orders (10 % off), standard-orders
                                   |-> order_counts   (per user and hour)
                                   |-> user_revenue   (per user, 5 minutes, every minute)
                                   '-> user_sessions  (per user, 30 minutes of silence end a session)
```
"""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from typing import Literal

import msgspec

from deltaworks import Column, DeadLetters, Pipeline, SessionWindows, StreamsBuilder, TimeWindows

GRACE = timedelta(minutes=5)


class Order(msgspec.Struct, frozen=True):
    """A JSON value in `raw-orders`, keyed by user; unknown fields are ignored."""

    order_id: str
    """The shop's number of the order."""
    user_id: str
    """The user that the order names."""
    amount: Decimal
    """Price of the order in euros."""
    type: Literal["PREMIUM", "STANDARD"]
    """Tier of the order."""
    item: str
    """What was ordered."""
    location: str
    """Destination as it came, `COUNTRY/City`."""
    event_time: datetime
    """When the order was placed."""


class User(msgspec.Struct, frozen=True):
    """A row of `user-data`, keyed by user."""

    user_id: str
    """The user, whose id is also the key."""
    name: str
    """Full name."""
    country: str
    """ISO code of the country in which the user lives."""


class EnrichedOrder(Order, frozen=True):
    """An order with its user and its destination."""

    user_name: str
    """Name of the user when the order came."""
    user_country: str
    """Country of the user when the order came."""
    country: str
    """ISO code of the destination's country."""
    city: str
    """City of the destination."""


USER_ID = Column("user_id", "The user; `users` has the name.")
USER_KEY = Column("user_key", "The user in the key of the order, under whom it is enriched and counted.")
ORDERS = Column("orders", "Number of orders.")
REVENUE = Column("revenue", "Sum of the amounts of the orders, in euros.")


def enrich(order: Order, user: User) -> EnrichedOrder:
    """Adds the user; raises on a location that is not `COUNTRY/City`, so the order becomes a dead letter."""
    country, slash, city = order.location.partition("/")
    if not slash:
        raise ValueError(f"location {order.location!r} is not COUNTRY/City")
    fields = msgspec.structs.asdict(order)
    return EnrichedOrder(**fields, user_name=user.name, user_country=user.country, country=country, city=city)


def discounted(order: EnrichedOrder) -> EnrichedOrder:
    """Takes ten percent off, to the cent; raises on a gift card, which only this branch makes a dead letter."""
    if order.item == "gift card":
        raise ValueError("a gift card has no discount")
    amount = (order.amount * Decimal("0.9")).quantize(Decimal("0.01"), ROUND_HALF_UP)
    return msgspec.structs.replace(order, amount=amount)


def topology(builder: StreamsBuilder) -> None:
    """Follows the picture above from top to bottom."""
    users = builder.table("user-data", key=str, value=User, store="users", name="users-source")
    users.to_delta("users", key="user_id", doc="The users of the shop as they are now")
    enriched = (
        builder.stream("raw-orders", key=str, value=Order, on_null="skip_empty", name="orders-source")
        .filter(lambda _, order: order.amount > 0)
        .join(users, enrich, name="join-user")
    )
    enriched.to("enriched-orders")
    enriched.to_delta("enriched_orders", key=USER_KEY, doc="Every order, with its user and city")

    tiers = enriched.split("tier").branch(lambda _, order: order.type == "PREMIUM", name="premium").default_branch()
    tiers["premium"].map_values(discounted, name="discount").to("premium-orders")
    tiers["default"].to("standard-orders")

    (
        enriched.group_by_key()
        .windowed_by(TimeWindows(size=timedelta(hours=1), grace=GRACE))
        .count(store="order-count-store")
        .to_delta("order_counts", key=USER_ID, value=ORDERS, doc="Orders of a user per hour")
    )
    (
        enriched.group_by_key()
        .windowed_by(TimeWindows(size=timedelta(minutes=5), grace=GRACE, advance=timedelta(minutes=1)))
        .sum(lambda order: order.amount, value=Decimal, store="revenue-store")
        .to_delta(
            "user_revenue",
            key=USER_ID,
            value=REVENUE,
            doc="Revenue of a user in five minutes; a window begins every minute, so each order is in five of them",
        )
    )
    (  # Keyed by the user in the order, not in its key: records move to the task that owns this user.
        enriched.group_by(lambda _, order: order.user_id, key=str, name="by-user")
        .windowed_by(SessionWindows(gap=timedelta(minutes=30), grace=timedelta(minutes=30)))
        .count(store="session-store")
        .to_delta(
            "user_sessions",
            key=USER_ID,
            value=ORDERS,
            doc="Sessions: orders of a user with pauses of less than half an hour",
        )
    )


pipeline = Pipeline(
    name="orders",
    topology=topology,
    on_error="continue",
    dead_letters=DeadLetters(topic="orders-dead-letters", table="dead_letters", keep_bytes=True),
    max_trigger_interval=timedelta(seconds=5),
)
