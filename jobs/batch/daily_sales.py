"""Sales per day, channel, place and item, from the orders of the web shop and of the stores.

```
enriched_orders (orders), inventory_customer_orders (inventory) -> one row per order -> daily_sales
```
"""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from deltaworks import Doc
from deltaworks.batch import BatchJob

if TYPE_CHECKING:  # so that Airflow parses this file without Spark
    from pyspark.sql import DataFrame


class DailySales(msgspec.Struct, frozen=True):
    day: Annotated[date, Doc("UTC day of the orders.")]
    channel: Annotated[Literal["web", "store"], Doc("Where it was ordered.")]
    place: Annotated[str, Doc("Web: ISO code of the country it goes to; store: the store.")]
    item: Annotated[str, Doc("What was ordered.")]
    orders: Annotated[int, Doc("Number of orders; one that was delivered twice counts once.")]
    customers: Annotated[int, Doc("Number of customers who ordered it.")]
    revenue: Annotated[Decimal, Doc("Sum of the amounts of the orders, in euros.")]


def daily_sales(day: date, enriched_orders: DataFrame, inventory_customer_orders: DataFrame) -> DataFrame:
    """Takes an order that was delivered twice once: deliveries are equal, so it does not matter which of them."""
    from pyspark.sql import functions as F

    web, store = enriched_orders, inventory_customer_orders
    sales = _sales("web", web, day, at="timestamp", place="country", item="item", customer="user_key").union(
        _sales("store", store, day, at="timestamp", place="shelf.store", item="shelf.item", customer="customer_id")
    )
    once = sales.groupBy("channel", "order_id").agg(
        F.min(F.struct("place", "item", "customer", "amount")).alias("sale")
    )
    return (
        once.groupBy("channel", "sale.place", "sale.item")
        .agg(
            F.count("*").alias("orders"),
            F.count_distinct("sale.customer").alias("customers"),
            F.sum("sale.amount").alias("revenue"),
        )
        .withColumn("day", F.lit(day))
    )


def _sales(channel: str, orders: DataFrame, day: date, *, at: str, **columns: str) -> DataFrame:
    """The orders of a day, with the same columns for both channels."""
    from pyspark.sql import functions as F

    named = [F.col(column).alias(name) for name, column in columns.items()]
    return orders.where(F.to_date(at) == F.lit(day)).select(
        F.lit(channel).alias("channel"), "order_id", *named, "amount"
    )


job = BatchJob(
    name="daily_sales",
    pipelines=["orders", "inventory"],
    compute=daily_sales,
    row=DailySales,
    key=["day", "channel", "place", "item"],
    doc="Sales per day, channel, place and item",
)
