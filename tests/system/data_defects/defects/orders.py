"""Defects of `jobs/orders.py`."""

from __future__ import annotations

from tests.support.data_defects import defect

CUT = "(SELECT quantile_disc(timestamp, 0.7) FROM original_enriched_orders)"
"""A moment within the data."""
HALF = "INTERVAL 30 MINUTE"

DEFECTS = (
    defect("orders lost: one in fifty", "enriched_orders", "DELETE FROM {} WHERE source_offset % 50 = 7"),
    defect(
        "orders doubled: a batch was written twice",
        *("enriched_orders", "INSERT INTO {} FROM {} WHERE source_partition = 1 AND source_offset BETWEEN 100 AND 150"),
    ),
    defect(
        "orders doubled under new offsets, and in nothing made of them",
        "enriched_orders",
        "INSERT INTO {} SELECT * REPLACE (source_offset + 100000 AS source_offset) FROM {} WHERE source_offset < 30",
    ),
    defect(
        "one bad partition: its orders are not there", *("enriched_orders", "DELETE FROM {} WHERE source_partition = 2")
    ),
    defect(
        "one bad partition: nothing that was made of its orders is there",
        *("enriched_orders", "DELETE FROM {} WHERE source_partition = 2"),
        *("order_counts", "DELETE FROM {} WHERE user_id NOT IN (SELECT user_key FROM enriched_orders)"),
        *("user_revenue", "DELETE FROM {} WHERE user_id NOT IN (SELECT user_key FROM enriched_orders)"),
        *("user_sessions", "DELETE FROM {} WHERE user_id NOT IN (SELECT user_id FROM enriched_orders)"),
    ),
    defect("truncated day: orders end early", "enriched_orders", f"DELETE FROM {{}} WHERE timestamp > {CUT}"),
    defect("truncated day: hours end early", "order_counts", f"DELETE FROM {{}} WHERE window_start > {CUT}"),
    defect(
        "truncated day: everything ends early but the dead letters",
        *("enriched_orders", f"DELETE FROM {{}} WHERE timestamp > {CUT}"),
        *("order_counts", f"DELETE FROM {{}} WHERE timestamp > {CUT}"),
        *("user_revenue", f"DELETE FROM {{}} WHERE timestamp > {CUT}"),
        *("user_sessions", f"DELETE FROM {{}} WHERE timestamp > {CUT}"),
    ),
    defect(
        "windows shifted by half an hour",
        "order_counts",
        f"UPDATE {{}} SET window_start = window_start + {HALF}, window_end = window_end + {HALF}",
    ),
    defect(
        "windows shifted by a whole one",
        "order_counts",
        "UPDATE {} SET window_start = window_start - INTERVAL 1 HOUR, window_end = window_end - INTERVAL 1 HOUR, "
        "window_date = (window_start - INTERVAL 1 HOUR)::DATE",
    ),
    defect(
        "windows missing: every fifth minute was not begun",
        *("user_revenue", "DELETE FROM {} WHERE minute(window_start) % 5 = 3"),
    ),
    defect(
        "wrong join: each order has the user of the one before it",
        "enriched_orders",
        "UPDATE {} SET user_name = b.user_name, user_country = b.user_country FROM original_enriched_orders b "
        "WHERE b.source_partition = {}.source_partition AND b.source_offset = {}.source_offset - 1",
    ),
    defect(
        "wrong join: every order has the same user",
        *("enriched_orders", "UPDATE {} SET user_name = 'Ada 1', user_country = 'DE' WHERE timestamp > " + CUT),
    ),
    defect(
        "wrong rounding: amounts without cents, and revenue made of them",
        *("enriched_orders", "UPDATE {} SET amount = trunc(amount)"),
        "user_revenue",
        "UPDATE {} SET revenue = s.revenue FROM (SELECT w.user_id, w.window_start, sum(o.amount) AS revenue "
        "FROM original_user_revenue w JOIN enriched_orders o ON o.user_key = w.user_id "
        "AND o.timestamp >= w.window_start AND o.timestamp < w.window_end GROUP BY ALL) s "
        "WHERE s.user_id = {}.user_id AND s.window_start = {}.window_start",
    ),
    defect("wrong rounding: revenue in tenths", "user_revenue", "UPDATE {} SET revenue = round(revenue, 1)"),
    defect("key mixed up: orders by order", "enriched_orders", "UPDATE {} SET user_key = order_id"),
    defect(
        "key mixed up: orders by item, and counted by it",
        *("enriched_orders", "UPDATE {} SET user_key = item"),
        "order_counts",
        "UPDATE {} SET user_id = (SELECT min(item) FROM original_enriched_orders o WHERE o.user_key = {}.user_id)",
    ),
    defect(
        "late orders counted: hours have orders from beyond the grace",
        "order_counts",
        "UPDATE {} SET orders = n FROM (SELECT user_key AS k, time_bucket(INTERVAL 1 HOUR, timestamp) AS s, "
        "count(*) AS n FROM original_enriched_orders GROUP BY ALL) a WHERE k = {}.user_id AND s = window_start",
    ),
    defect(
        "late orders counted twice",
        "order_counts",
        "UPDATE {} SET orders = orders + n FROM (SELECT user_key AS k, "
        "time_bucket(INTERVAL 1 HOUR, timestamp) AS s, count(*) AS n FROM (SELECT *, "
        "max(timestamp) OVER (PARTITION BY source_partition ORDER BY source_offset) AS newest "
        "FROM original_enriched_orders) WHERE timestamp < newest GROUP BY ALL) a "
        "WHERE k = {}.user_id AND s = window_start",
    ),
    defect(
        "sessions not merged: a session has a second row",
        "user_sessions",
        "INSERT INTO {} SELECT * REPLACE (window_start + INTERVAL 1 SECOND AS window_start) FROM {} WHERE orders > 3",
    ),
    defect("sessions of a task lost", "user_sessions", "DELETE FROM {} WHERE hash(user_id) % 4 = 1"),
    defect("sessions counted twice", "user_sessions", "UPDATE {} SET orders = orders * 2"),
    defect(
        "premature: hours are final as soon as they begin",
        "order_counts",
        "UPDATE {} SET is_final = true",
    ),
    defect(
        "stale: the snapshot of users is some batches old",
        *("users", "DELETE FROM {} WHERE batch_id > (SELECT max(batch_id) - 3 FROM original_users)"),
    ),
    defect(
        "stale: a user is as before the last change",
        "users",
        "UPDATE {} SET name = c.name, country = c.country, batch_id = c.batch_id, source_offset = c.source_offset, "
        "timestamp = c.timestamp FROM (FROM users_changelog WHERE op = 'upsert' QUALIFY row_number() OVER "
        "(PARTITION BY user_id ORDER BY batch_id DESC) = 2) c WHERE c.user_id = {}.user_id",
    ),
    defect("updates of users lost", "users_changelog", "DELETE FROM {} WHERE batch_id = 1"),
    defect("deleted users are back", "users_changelog", "DELETE FROM {} WHERE op = 'delete'"),
    defect("dead letters lost", "dead_letters", 'DELETE FROM {} WHERE "offset" % 3 = 0'),
    defect(
        "foreign rows: orders that the replay has not read",
        "enriched_orders",
        "INSERT INTO {} SELECT * REPLACE (source_offset + 1000000 AS source_offset, timestamp + INTERVAL 1 SECOND AS "
        "timestamp, event_time + INTERVAL 1 SECOND AS event_time, 'o-9999999' AS order_id) FROM {} LIMIT 1",
    ),
)
