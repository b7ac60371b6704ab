"""The suite of `jobs/batch/daily_sales.py`: the rows of a day, before they replace those in the table."""

from __future__ import annotations

import great_expectations.expectations as gxe

from jobs.quality.rules import Suite, never

_ORDERS = """
    SELECT 'web' AS channel, order_id, any_value(amount) AS amount FROM enriched_orders
    WHERE timestamp::DATE IN (SELECT day FROM {batch}) GROUP BY order_id
    UNION ALL
    SELECT 'store', order_id, any_value(amount) FROM inventory_customer_orders
    WHERE timestamp::DATE IN (SELECT day FROM {batch}) GROUP BY order_id
"""

daily_sales: Suite = [
    gxe.ExpectColumnValuesToBeInSet(
        column="channel", value_set=["web", "store"], meta={"why": "Reports know these two channels."}
    ),
    gxe.ExpectColumnValuesToBeBetween(
        column="orders", min_value=1, meta={"why": "A row is there because somebody has ordered."}
    ),
    never(
        "there are no more customers than orders",
        "SELECT * FROM {batch} WHERE customers NOT BETWEEN 1 AND orders",
        why="Each order has one customer.",
    ),
    never(
        "each channel has the orders and the revenue of the tables that it is from",
        f"""
        SELECT * FROM (SELECT channel, sum(orders) AS orders, sum(revenue) AS revenue FROM {{batch}} GROUP BY channel)
        FULL JOIN (SELECT channel, count(*) AS there, sum(amount) AS worth FROM ({_ORDERS}) GROUP BY channel)
            USING (channel)
        WHERE (orders, revenue) IS DISTINCT FROM (there, worth)
        """,
        why="Money that is in only one of the tables is lost or made up.",
    ),
]
suites: dict[str, Suite] = {"daily_sales": daily_sales}
