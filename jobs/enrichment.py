"""Orders enriched with their customer: by a join that needs a new key, and by a foreign-key join.
Sample data: `sample_data/enrichment.py`. Expected results: `recomputed/enrichment.sql`.

Orders are keyed by order id, customers by customer id. Joining them like this is the classic mistake: an order and its
customer are in different partitions, so different tasks hold them, and most customers would be unknown. There are two
ways out, which answer different questions:

```
enrichment-orders -+-> by customer -> left join ---> by order -> enrichment-checked, enrichment_checked
                   |                     ^             "what did we know when the order came?"
                   |  customers ---------+
                   |                     v
                   '-> orders ----> left join by foreign key -> enrichment_current
enrichment-customers -> customers        "what do we know today?" A new limit changes all orders of its customer.
                            '-> by tier -> enrichment_tiers (how many customers each tier has)
```

If an order later names another customer, the stream's results for it come from two tasks and may arrive in either
order; the table's cannot. On the other hand, the table's updates depend on which records share a micro-batch; its final
content does not.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Literal

import msgspec

from deltaworks import Column, DeadLetters, FixedKeyProcessor, FixedKeyRecord, Materialized, Pipeline, StreamsBuilder

_log = logging.getLogger(__name__)


class Order(msgspec.Struct, frozen=True):
    """A JSON value in `enrichment-orders`, keyed by order; a null value cancels the order."""

    order_id: str
    """Number of the order."""
    customer_id: str | None
    """The customer; None: a guest."""
    amount: Decimal
    """Price of the order in euros."""
    ordered_at: datetime
    """When it was ordered."""

    def __post_init__(self) -> None:
        """Makes an invalid order fail to decode, so that it becomes a dead letter at the source."""
        if not 0 < self.amount < 1_000_000 or self.amount != round(self.amount, 2):
            raise ValueError(f"amount {self.amount} is not between 0 and a million, in whole cents")


class Customer(msgspec.Struct, frozen=True):
    """A row of `enrichment-customers`, keyed by customer."""

    name: str
    """Full name."""
    tier: Literal["gold", "silver", "basic"]
    """Tier of the customer, by which offers are sent."""
    credit_limit: Decimal
    """The largest order, in euros, that the customer may pay later."""

    def __post_init__(self) -> None:
        if not 0 <= self.credit_limit < 1_000_000 or self.credit_limit != round(self.credit_limit, 2):
            raise ValueError(f"credit limit {self.credit_limit} is not between 0 and a million, in whole cents")


class CheckedOrder(Order, frozen=True):
    """An order with its customer and the answer whether it may be paid later."""

    customer_name: str | None
    """Name of the customer; None: unknown."""
    tier: Literal["gold", "silver", "basic", "unknown"]
    """Tier of the customer."""
    credit_limit: Decimal | None
    """Credit limit of the customer in euros; None: unknown."""
    credit: Literal["approved", "rejected", "no credit"]
    """Whether the order may be paid later; `no credit`: the customer is unknown."""


CUSTOMER_ID = Column("customer_id", "The customer.")
TIER = Column("tier", "A tier of customers.")
CUSTOMERS = Column("customers", "How many customers the tier has.")
ORDER_KEY = Column("order_key", "The order in the key of the record; a later record with this key replaces it.")


def check(order: Order, customer: Customer | None) -> CheckedOrder:
    """The credit check; both joins call it."""
    fields = msgspec.structs.asdict(order)
    if customer is None:
        return CheckedOrder(**fields, customer_name=None, tier="unknown", credit_limit=None, credit="no credit")
    return CheckedOrder(
        **fields,
        customer_name=customer.name,
        tier=customer.tier,
        credit_limit=customer.credit_limit,
        credit="approved" if order.amount <= customer.credit_limit else "rejected",
    )


class WarnOfUnknown(FixedKeyProcessor[str, CheckedOrder, CheckedOrder]):
    """Logs that an order's customer is unknown: one warning per task and micro-batch, so that a flood of such orders is
    no flood of warnings. A guest is nobody's mistake."""

    warned_ms = -1

    def process(self, record: FixedKeyRecord[str, CheckedOrder]) -> None:
        order, now_ms = record.value, self.context.current_system_time_ms
        if order.tier == "unknown" and order.customer_id is not None and now_ms > self.warned_ms:
            _log.warning("no customer %s: order %s is checked without", order.customer_id, order.order_id)
            self.warned_ms = now_ms
        self.context.forward(record)


def topology(builder: StreamsBuilder) -> None:
    """Follows the picture above from top to bottom."""
    orders = builder.stream("enrichment-orders", key=str, value=Order, name="orders-source")
    # Not cached, so every update is forwarded: for a customer that comes and goes within one micro-batch, a commit
    # would forward nothing, and an order that met it meanwhile would keep it for ever.
    rows = Materialized("enrichment-customers", caching=False)
    customers = builder.table("enrichment-customers", key=str, value=Customer, store=rows, name="customers-source")
    customers.to_delta("enrichment_customers", key=CUSTOMER_ID, doc="The customers as they are now")
    by_tier = customers.group_by(lambda _, customer: (customer.tier, customer.tier), key=str, value=str, name="by-tier")
    by_tier.count(store="enrichment-tiers").to_delta(
        "enrichment_tiers", key=TIER, value=CUSTOMERS, doc="Customers per tier"
    )

    # A guest's order has no key: a left join keeps it, while an inner join would drop it before the exchange.
    checked = (
        orders.filter(lambda _, order: order is not None)
        .select_key(lambda _, order: order.customer_id, key=str, name="by-customer")
        .left_join(customers, check, name="customer-of-order")
        .process_values(WarnOfUnknown, name="warn-of-unknown")
        .select_key(lambda _, order: order.order_id, key=str, name="by-order")
    )
    checked.to("enrichment-checked")
    checked.to_delta("enrichment_checked", key="order_id", doc="Every order, with its customer as known when it came")

    (
        orders.to_table(store="enrichment-orders")
        .left_join(customers, check, foreign_key=lambda _, order: order.customer_id, name="enrichment-current")
        .to_delta(
            "enrichment_current", key=ORDER_KEY, doc="The orders as they are now, with their customers as they are now"
        )
    )


pipeline = Pipeline(
    name="enrichment",
    topology=topology,
    on_error="continue",
    dead_letters=DeadLetters(topic="enrichment-dead-letters", table="enrichment_dead_letters", keep_bytes=True),
    max_trigger_interval=timedelta(seconds=5),
    cores=1,
)
