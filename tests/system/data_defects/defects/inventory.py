"""Defects of `jobs/inventory.py`."""

from __future__ import annotations

from tests.support.data_defects import defect

CUT = "(SELECT quantile_disc(timestamp, 0.6) FROM original_inventory_customer_orders)"
ORDERS, HOURS, STOCK, STOCK_LOG, LETTERS = (
    "inventory_customer_orders",
    "inventory_customer_hours",
    "inventory_stock",
    "inventory_stock_changelog",
    "inventory_dead_letters",
)
LEVEL = "CASE WHEN {0} < 0 THEN 'negative' WHEN {0} < 10 THEN 'low' ELSE 'ok' END"
FIRST = "SELECT {} FROM inventory_customer_orders ORDER BY source_partition, source_offset LIMIT 1"

DEFECTS = (
    defect("orders lost: one in forty", ORDERS, "DELETE FROM {} WHERE source_offset % 40 = 7"),
    defect("orders written twice", ORDERS, "INSERT INTO {} FROM {} WHERE source_offset % 40 = 7"),
    defect("one bad partition", ORDERS, "DELETE FROM {} WHERE source_partition = 3"),
    defect(
        "one bad partition, in all that was made of its orders",
        *(ORDERS, "DELETE FROM {} WHERE source_partition = 3"),
        *(HOURS, "DELETE FROM {} WHERE customer_id NOT IN (SELECT customer_id FROM inventory_customer_orders)"),
    ),
    defect("hours of a task lost", HOURS, "DELETE FROM {} WHERE hash(customer_id) % 4 = 1"),
    defect("hours counted twice", HOURS, "UPDATE {} SET orders = 2 * orders, amount = 2 * amount"),
    defect(
        "hours shifted",
        HOURS,
        "UPDATE {} SET window_start = window_start + INTERVAL 1 HOUR, window_end = window_end + INTERVAL 1 HOUR, "
        "window_date = (window_start + INTERVAL 1 HOUR)::DATE",
    ),
    defect("wrong rounding: hours in whole euros", HOURS, "UPDATE {} SET amount = round(amount)"),
    defect(
        "wrong rounding: amounts without cents, and hours made of them",
        *(ORDERS, "UPDATE {} SET amount = trunc(amount)"),
        HOURS,
        "UPDATE {} SET amount = s.amount FROM (SELECT customer_id, h.window_start, sum(o.amount) AS amount FROM "
        "original_inventory_customer_hours h JOIN inventory_customer_orders o USING (customer_id) WHERE o.timestamp >= "
        "h.window_start AND o.timestamp < h.window_end GROUP BY ALL) s WHERE s.customer_id = {}.customer_id "
        "AND s.window_start = {}.window_start",
    ),
    defect(
        "late orders counted: hours have orders from beyond the grace",
        HOURS,
        "UPDATE {} SET orders = n FROM (SELECT customer_id AS k, time_bucket(INTERVAL 1 HOUR, timestamp) AS s, "
        "count(*) AS n FROM inventory_customer_orders GROUP BY ALL) WHERE k = customer_id AND s = window_start",
    ),
    defect(
        "wrong join: the summary of another customer",
        ORDERS,
        "UPDATE {} SET day = b.day FROM original_inventory_customer_orders b WHERE b.source_partition = "
        "{}.source_partition AND b.source_offset = {}.source_offset - 1",
    ),
    defect(
        "wrong join: no summary is found",
        ORDERS,
        "UPDATE {} SET day = struct_pack(orders := 0, amount := 0)",
    ),
    defect(
        "summaries keep a week",
        ORDERS,
        "UPDATE {} SET day = struct_pack(orders := n, amount := a) FROM (SELECT customer_id AS k, "
        "source_offset AS o, count(*) OVER w AS n, sum(amount) OVER w AS a FROM original_inventory_customer_orders "
        "WINDOW w AS (PARTITION BY customer_id ORDER BY source_offset)) WHERE k = customer_id AND o = source_offset",
    ),
    defect("customer_id mixed up: orders by order", ORDERS, "UPDATE {} SET customer_id = order_id"),
    defect("truncated day: orders end early", ORDERS, f"DELETE FROM {{}} WHERE timestamp > {CUT}"),
    defect("truncated day: hours end early", HOURS, f"DELETE FROM {{}} WHERE timestamp > {CUT}"),
    defect(
        "truncated day: stock ends early",
        *(STOCK_LOG, "DELETE FROM {} WHERE batch_id > 8"),
        STOCK,
        "DELETE FROM {}",
        STOCK,
        "INSERT INTO {} SELECT * EXCLUDE op FROM inventory_stock_changelog "
        "QUALIFY row_number() OVER (PARTITION BY store, item ORDER BY batch_id DESC, source_offset DESC) = 1",
    ),
    defect("stale: shelves are some batches old", STOCK, "DELETE FROM {} WHERE batch_id > 5"),
    defect("sales counted twice", STOCK, f"UPDATE {{}} SET pieces = pieces - 3, level = {LEVEL.format('pieces - 3')}"),
    defect("shelves mixed up", STOCK, "UPDATE {} SET store = 'lyon' WHERE store = 'berlin'"),
    defect("an item is lost", STOCK, "DELETE FROM {} WHERE item = 'lamp'"),
    defect("movements lost", STOCK_LOG, "DELETE FROM {} WHERE batch_id = (SELECT mode(batch_id) FROM {})"),
    defect(
        "state lost: shelves begin again", STOCK_LOG, "UPDATE {} SET was = 'ok', counted_at = NULL WHERE batch_id > 6"
    ),
    defect(
        "movements written twice", STOCK_LOG, "INSERT INTO {} FROM {} WHERE batch_id = (SELECT mode(batch_id) FROM {})"
    ),
    defect("alerts lost: a level is not that of the pieces", STOCK_LOG, "UPDATE {} SET level = 'ok' WHERE pieces < 10"),
    defect("premature: hours are final at once", HOURS, "UPDATE {} SET is_final = true"),
    defect(
        "orders are joined and set aside",
        LETTERS,
        f'INSERT INTO {{}} SELECT * REPLACE (({FIRST.format("source_offset")}) AS "offset", '
        f"({FIRST.format('source_partition')}) AS \"partition\", 'inventory-orders' AS topic) FROM {{}} LIMIT 1",
    ),
)
