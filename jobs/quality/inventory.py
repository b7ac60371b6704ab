"""The suite for the tables of `jobs/inventory.py`; `deltaworks quality inventory` checks it."""

from __future__ import annotations

from datetime import timedelta

import great_expectations.expectations as gxe
from great_expectations.expectations.metadata_types import FailureSeverity

from jobs.quality.rules import Suite, in_order, never, never_null, one_row_per, windows

HOUR = timedelta(hours=1)
SOURCE = ("source_topic", "source_partition", "source_offset")
LEVELS = ["ok", "low", "negative"]
STOCK: Suite = [
    *never_null("store", "item", "pieces", "level", "was", "timestamp", "batch_id", why="A shelf has all of them."),
    *(
        gxe.ExpectColumnValuesToBeInSet(
            column=column, value_set=LEVELS, meta={"why": "Receivers of the alerts know these three."}
        )
        for column in ("level", "was")
    ),
    never(
        "the level is that of the pieces",
        "SELECT * FROM {batch} "
        "WHERE level <> CASE WHEN pieces < 0 THEN 'negative' WHEN pieces < 10 THEN 'low' ELSE 'ok' END",
        why="An alert that does not fit the stock sends somebody to a full shelf, or nobody to an empty one.",
    ),
    never(
        "a shelf was counted before its last movement",
        "SELECT * FROM {batch} WHERE counted_at > timestamp",
        why="A count in the future would swallow every movement until then.",
    ),
]
"""The rules for the stock and for each of its updates."""

stock_changelog: Suite = [
    *STOCK,
    gxe.ExpectColumnValuesToBeInSet(
        column="op", value_set=["upsert"], meta={"why": "A shelf is never deleted: it becomes empty."}
    ),
    never(
        "every update begins at the level where one has ended",
        """
        WITH ends AS (
            SELECT store, item, level, 1 AS ended FROM {batch}
            UNION ALL SELECT store, item, was, -1 FROM {batch}
            UNION ALL SELECT DISTINCT store, item, 'ok', 1 FROM {batch}
        ), levels AS (
            SELECT store, item, level, sum(ended) AS left_over FROM ends GROUP BY ALL
        )
        SELECT store, item FROM levels GROUP BY ALL HAVING min(left_over) < 0 OR sum(left_over) <> 1
        """,
        why="If a level ends that never began, an update, and perhaps an alert, was lost.",
    ),
    never(
        "no shelf is behind its orders",
        "SELECT o.* FROM inventory_customer_orders o ANTI JOIN (SELECT store, item, max(timestamp) AS newest "
        "FROM {batch} GROUP BY store, item) s "
        "ON o.shelf.store = s.store AND o.shelf.item = s.item AND o.timestamp <= s.newest",
        why="An order is also a sale, which moves its shelf in the same batch.",
    ),
    never(
        "the last count of a shelf is never forgotten",
        "SELECT *, max(counted_at) OVER (PARTITION BY store, item ORDER BY batch_id RANGE BETWEEN UNBOUNDED PRECEDING "
        "AND 1 PRECEDING) AS known FROM {batch} QUALIFY counted_at IS NULL AND known IS NOT NULL OR counted_at < known",
        why="A count that is older than the last one is ignored, so the last count never goes back.",
    ),
]
stock: Suite = [
    one_row_per("store", "item", why="A shelf has one stock: that after its last movement."),
    *STOCK,
    never(
        "each shelf is as the changelog says",
        "SELECT s.* FROM {batch} s ANTI JOIN inventory_stock_changelog c "
        "USING (store, item, pieces, level, was, timestamp, batch_id)",
        why="A snapshot is its changelog, reduced to the last update per key; it has no other rows.",
    ),
    never(
        "at most half of the shelves owe goods",
        "SELECT * FROM (SELECT count(*) FILTER (pieces < 0) AS owing, count(*) AS shelves FROM {batch}) "
        "WHERE owing > shelves / 2",
        why="Some have late deliveries or unknown items; if most owe goods, deliveries no longer arrive here.",
        severity=FailureSeverity.WARNING,
    ),
]
customer_hours: Suite = [
    *windows(HOUR, key="customer_id", values=("orders", "amount"), grace=HOUR),
    gxe.ExpectColumnValuesToBeBetween(
        column="orders", min_value=1, meta={"why": "An hour begins with an order: without one there is no row."}
    ),
    never(
        "amounts are whole cents",
        "SELECT * FROM {batch} WHERE amount <> round(amount, 2)",
        why="A fraction of a cent means that an amount went through a float.",
    ),
    never(
        "final hours are those of the orders",
        """
        WITH seen AS (
            SELECT customer_id, amount, time_bucket(INTERVAL 1 HOUR, timestamp) AS window_start,
                epoch_ms(window_start) + 7200000 AS closes_ms,
                max(epoch_ms(timestamp)) OVER (PARTITION BY source_partition) AS now_ms,
                max(epoch_ms(timestamp)) OVER (PARTITION BY source_partition ORDER BY source_offset) AS stream_time_ms
            FROM inventory_customer_orders
        ), expected AS (
            SELECT customer_id, window_start,
                nullif(count(*) FILTER (closes_ms > stream_time_ms), 0) AS expected_orders,
                sum(amount) FILTER (closes_ms > stream_time_ms) AS expected_amount,
                count(*) AS by_time_orders, sum(amount) AS by_time_amount, bool_and(closes_ms <= now_ms) AS closed
            FROM seen GROUP BY customer_id, window_start
        )
        SELECT customer_id, window_start, orders, expected_orders, amount, expected_amount
        FROM {batch} FULL JOIN expected USING (customer_id, window_start)
        WHERE coalesce(is_final, closed)
            AND NOT """
        + in_order(
            "(orders IS NOT DISTINCT FROM expected_orders AND amount IS NOT DISTINCT FROM expected_amount)",
            "(orders IS NOT DISTINCT FROM by_time_orders AND amount IS NOT DISTINCT FROM by_time_amount)",
        ),
        why="Two tables of one stream must agree; a difference is a lost or duplicate update.",
    ),
    never(
        "the newest order is there",
        "SELECT * FROM (SELECT max(timestamp) AS newest FROM {batch}) "
        "WHERE newest IS DISTINCT FROM (SELECT max(timestamp) FROM inventory_customer_orders)",
        why="The newest order is never late: a table without it is behind the orders.",
    ),
]
customer_orders: Suite = [
    one_row_per(*SOURCE, why="Each order gives one row, however often its batch was repeated."),
    *never_null(
        *("customer_id", "order_id", "shelf", "pieces", "amount", "ordered_at", "day", "timestamp"),
        why="An order that lacks a field does not decode, and one without a customer has no day.",
    ),
    gxe.ExpectColumnValuesToMatchRegex(
        column="order_id",
        regex=r"^i-\d{7}$",
        meta={"why": "The shop numbers its orders like this and finds them by number."},
    ),
    gxe.ExpectColumnValuesToBeBetween(
        column="pieces", min_value=0, max_value=1_000_000, meta={"why": "Nothing else decodes."}
    ),
    gxe.ExpectColumnPairValuesToBeEqual(
        column_A="ordered_at",
        column_B="timestamp",
        meta={"why": "Stock uses one time, hours use the other: the shop sets both to the time of the order."},
    ),
    never(
        "an order on time is in its own summary",
        "SELECT * FROM (SELECT *, max(timestamp) OVER (PARTITION BY source_partition ORDER BY source_offset) AS newest "
        "FROM {batch}) WHERE timestamp = newest AND (day.orders < 1 OR day.amount < amount)",
        why="The join reads the hours only after the order was counted.",
    ),
    never(
        "a summary has no more orders and no more money than the customer has ordered so far",
        "SELECT * FROM (SELECT *, count(*) OVER so_far AS orders, sum(amount) OVER so_far AS spent, "
        "count(*) OVER by_time AS earlier, sum(amount) OVER by_time AS spent_earlier FROM {batch} "
        "WINDOW so_far AS (PARTITION BY customer_id ORDER BY source_offset), "
        "by_time AS (PARTITION BY customer_id ORDER BY timestamp, source_offset)) WHERE NOT "
        + in_order(
            "(day.orders BETWEEN 0 AND orders AND day.amount BETWEEN 0 AND spent)",
            "(day.orders BETWEEN 0 AND earlier AND day.amount BETWEEN 0 AND spent_earlier)",
        ),
        why="More of either belongs to somebody else or was counted twice.",
    ),
    never(
        "a summary has no orders from before its 24 hours",
        "SELECT o.customer_id, o.order_id, any_value(o.day) AS day, count(*) AS possible FROM {batch} o JOIN {batch} e "
        "ON o.customer_id = e.customer_id AND e.timestamp >= o.timestamp - INTERVAL 24 HOURS "
        "GROUP BY o.customer_id, o.order_id, o.source_offset HAVING NOT "
        + in_order(
            "any_value(o.day.orders) <= count(*) FILTER (e.source_offset <= o.source_offset)",
            "any_value(o.day.orders) <= count(*) FILTER (e.timestamp <= o.timestamp)",
        ),
        why="The store keeps 24 hours; a longer memory would limit a customer for more than a day.",
    ),
    never(
        "money and orders come together",
        "SELECT * FROM {batch} WHERE day.orders = 0 AND day.amount <> 0",
        why="A summary is one sum of hours, and every hour has both.",
    ),
]
dead_letters: Suite = [
    one_row_per("topic", "partition", "offset", "operator", why="An operator makes one dead letter of a record."),
    *never_null(
        *("topic", "partition", "offset", "timestamp", "error_class", "message", "operator"),
        why="To repair a record, people need to know where it was and what was wrong with it.",
    ),
    never(
        "what is set aside fails where the pipeline can fail",
        'SELECT topic, "partition", "offset", operator, error_class, message FROM {batch} ANTI JOIN (VALUES '
        "('inventory-orders', 'orders-source', 'deltaworks.errors.SerializationError'), "
        "('inventory-movements', 'movements-source', 'deltaworks.errors.SerializationError'), "
        "('inventory-orders', 'last-day', 'ValueError'), "
        "('inventory-movements', 'inventory-by-shelf', 'AttributeError')) "
        "AS known(topic, operator, error_class) USING (topic, operator, error_class)",
        why="Any other error is a bug in the pipeline, not a bad record.",
    ),
    never(
        "only an order without a customer has no day",
        'SELECT topic, "partition", "offset" FROM {batch} WHERE operator = \'last-day\' AND key IS NOT NULL',
        why="Every other order has a key, which finds the hours.",
    ),
    never(
        "an order is set aside or joined",
        "SELECT d.* FROM {batch} d JOIN inventory_customer_orders o ON d.topic = o.source_topic "
        'AND d."partition" = o.source_partition AND d."offset" = o.source_offset',
        why="Repaired dead letters are sent again; an order that had gone through would count twice.",
    ),
    never(
        "dead letters are rare",
        "SELECT * FROM (SELECT count(*) AS dead FROM {batch}), (SELECT count(*) AS orders "
        "FROM inventory_customer_orders) WHERE dead > orders / 10",
        why="One record in thirty is bad; one in ten means that a producer has changed its format.",
    ),
]
suites: dict[str, Suite] = {
    "inventory_stock_changelog": stock_changelog,
    "inventory_stock": stock,
    "inventory_customer_hours": customer_hours,
    "inventory_customer_orders": customer_orders,
    "inventory_dead_letters": dead_letters,
}
