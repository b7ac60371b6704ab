"""The suite for the tables of `jobs/orders.py`; `deltaworks quality orders` checks it.

It checks what readers of the tables rely on, from the tables alone; `recomputed/orders.sql` recomputes them from the
topics. Rules between tables also hold while the stream runs.
"""

from __future__ import annotations

from datetime import timedelta

import great_expectations.expectations as gxe
from great_expectations.expectations.expectation import Expectation
from great_expectations.expectations.row_conditions import Column

from deltaworks.quality import Freshness, RecentVolume, SumsReconciled
from jobs.quality.rules import Suite, in_order, never, never_null, one_row_per, sessions, windows

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
SOURCE = ("source_topic", "source_partition", "source_offset")


def recounted(what: str, column: str, size: timedelta, advance: timedelta, result: str, why: str) -> Expectation:
    """Compares closed windows with the orders that were on time, by the stream time of their partition's task."""
    size_ms, advance_ms = (round(duration / timedelta(milliseconds=1)) for duration in (size, advance))
    return never(
        what,
        f"""
        WITH seen AS (
            SELECT *, epoch_ms(timestamp) AS ms, max(ms) OVER (PARTITION BY source_partition) AS now_ms,
                max(ms) OVER (PARTITION BY source_partition ORDER BY source_offset) AS stream_time_ms
            FROM enriched_orders
        ), expected AS (
            SELECT user_key AS user_id, make_timestamptz(start_ms * 1000) AS window_start,
                nullif({result} FILTER (start_ms + {size_ms} > stream_time_ms - 300000), 0) AS expected,
                {result} AS by_time, start_ms + {size_ms} <= any_value(now_ms) - 300000 AS closed
            FROM seen, unnest(range(ms // {advance_ms} * {advance_ms} - {size_ms - advance_ms}, ms + 1, {advance_ms}))
                AS starts(start_ms)
            GROUP BY user_key, start_ms
        )
        SELECT user_id, window_start, {column}, expected FROM {{batch}} FULL JOIN expected USING (user_id, window_start)
        WHERE coalesce(is_final, closed)
            AND NOT {in_order(f"{column} IS NOT DISTINCT FROM expected", f"{column} IS NOT DISTINCT FROM by_time")}
        """,
        why=why,
    )


def not_behind() -> Expectation:
    """Checks freshness against the newest order, not the clock, because the sample data is from another year."""
    return never(
        "the newest order is there",
        "SELECT * FROM (SELECT max(timestamp) AS newest FROM {batch}) "
        "WHERE newest IS DISTINCT FROM (SELECT max(timestamp) FROM enriched_orders)",
        why="The newest order is never late: a table without it is behind the orders.",
    )


enriched_orders: Suite = [
    gxe.ExpectTableRowCountToBeBetween(min_value=1, meta={"why": "Every other rule holds in an empty table."}),
    Freshness(
        within=HOUR,
        by="progress",
        why="The stream runs a batch whenever there are records: without one, it is stuck, or nobody orders.",
        severity="warning",
    ),
    RecentVolume(
        period="day",
        why="A shop sells about as much each day; a day with a third of it has lost orders on the way to us.",
        severity="warning",
    ),
    one_row_per(*SOURCE, why="Each record of raw-orders gives one row, however often its batch was repeated."),
    *never_null(
        *("user_key", "order_id", "user_id", "user_name", "user_country", "amount", "item", "timestamp", "event_time"),
        why="An order that lacks a field or has an unknown user becomes a dead letter and never gets here.",
    ),
    gxe.ExpectColumnValuesToBeInSet(
        column="type",
        value_set=["PREMIUM", "STANDARD"],
        meta={"why": "An order of another tier would be in neither output topic."},
    ),
    gxe.ExpectColumnValuesToMatchRegex(
        column="order_id",
        regex=r"^o-\d{7}$",
        meta={"why": "The shop numbers its orders like this and finds them by number."},
    ),
    *(
        gxe.ExpectColumnValuesToMatchRegex(
            column=column, regex=r"^[A-Z]{2}$", meta={"why": "Reports join countries by their ISO code."}
        )
        for column in ("country", "user_country")
    ),
    never(
        "amounts are positive and whole cents",
        "SELECT * FROM {batch} WHERE amount <= 0 OR amount <> round(amount, 2)",
        why="Other amounts are filtered out; a fraction of a cent means that an amount went through a float.",
    ),
    never(
        "the location is COUNTRY/City, taken apart",
        "SELECT * FROM {batch} WHERE location IS DISTINCT FROM country || '/' || city",
        why="Country and city come from the location; if they differ, columns were mixed up.",
    ),
    gxe.ExpectColumnPairValuesToBeEqual(
        column_A="event_time",
        column_B="timestamp",
        meta={"why": "Windows use the record's timestamp, which the shop sets to the time of the order."},
    ),
    never(
        "deliveries of an order are equal",
        "SELECT order_id, count(*) AS deliveries FROM {batch} GROUP BY order_id "
        "HAVING count(DISTINCT (user_key, user_id, amount, type, item, location, event_time)) > 1",
        why="An order can be delivered twice; if the second differs, one of them was changed on the way.",
    ),
    never(
        "orders know their users as the table of users had them, or as it had them within a batch",
        """
        WITH strangers AS (
            SELECT DISTINCT user_key, user_name, user_country FROM {batch} o
            ANTI JOIN (FROM users_changelog WHERE op = 'upsert') u
                ON o.user_key = u.user_id AND o.user_name = u.name AND o.user_country = u.country
        ), hidden AS (
            SELECT max(source_offset) + 1 - count(*) AS updates FROM users_changelog GROUP BY source_partition
        )
        FROM strangers WHERE (SELECT count(*) FROM strangers) > (SELECT coalesce(sum(updates), 0) FROM hidden)
        """,
        why="If a user changes twice within a batch, the changelog has only the last state. More unknown states than "
        "updates that it does not show mean that orders got somebody else's user.",
    ),
]
order_counts: Suite = [
    *windows(HOUR, key="user_id", values=("orders",), grace=5 * MINUTE),
    gxe.ExpectColumnValuesToBeBetween(
        column="orders", min_value=1, meta={"why": "A window begins with an order: without one there is no row."}
    ),
    recounted(
        *("final counts are those of the enriched orders", "orders", HOUR, HOUR, "count(*)"),
        why="Two tables of one stream must agree; a difference is a lost or duplicate update.",
    ),
    not_behind(),
]
user_revenue: Suite = [
    *windows(5 * MINUTE, key="user_id", values=("revenue",), advance=MINUTE, grace=5 * MINUTE),
    never(
        "revenue is positive and whole cents",
        "SELECT * FROM {batch} WHERE revenue <= 0 OR revenue <> round(revenue, 2)",
        why="It is a sum of positive amounts in cents.",
    ),
    recounted(
        *("final revenue is that of the enriched orders", "revenue", 5 * MINUTE, MINUTE, "sum(amount)"),
        why="Money that is in only one of the tables is lost or made up.",
    ),
    not_behind(),
]
user_sessions: Suite = [
    *sessions(gap=30 * MINUTE, grace=30 * MINUTE, key="user_id", values=("orders",)),
    gxe.ExpectColumnValuesToBeBetween(
        column="orders", min_value=1, meta={"why": "A session begins with an order: without one there is no row."}
    ),
    never(
        "a session begins and ends with an order of its user, and has no more orders than lie between",
        "SELECT s.* FROM {batch} s LEFT JOIN enriched_orders o "
        "ON o.user_id = s.user_id AND o.timestamp BETWEEN s.window_start AND s.window_end GROUP BY ALL "
        "HAVING min(o.timestamp) IS DISTINCT FROM s.window_start OR max(o.timestamp) IS DISTINCT FROM s.window_end "
        "OR s.orders > count(o.timestamp)",
        why="Sessions are by the user that the order names, so records move between tasks; none may be lost.",
    ),
    never(
        "orders of the last hour are in a session",
        "SELECT o.* FROM enriched_orders o ANTI JOIN {batch} s "
        "ON o.user_id = s.user_id AND o.timestamp BETWEEN s.window_start AND s.window_end "
        "WHERE o.timestamp > (SELECT max(timestamp) FROM {batch}) - INTERVAL 1 HOUR",
        why="Gap and grace are an hour, so none of them can be late, however far the other partitions are.",
    ),
    SumsReconciled(
        column="orders",
        other="enriched_orders",
        other_column=None,
        tolerance=0.1,
        why="Orders an hour late are dropped; there are many if some partitions are read far ahead of others.",
        severity="warning",
    ),
    not_behind(),
]
users_changelog: Suite = [
    one_row_per("user_id", "batch_id", why="A commit forwards only the last update of a key."),
    one_row_per(*SOURCE, why="An update comes from one record of user-data, however often its batch was repeated."),
    *never_null(
        "user_id", "op", "timestamp", *SOURCE, "batch_id", why="An update belongs to a user, a record and a batch."
    ),
    gxe.ExpectColumnValuesToBeInSet(
        column="op", value_set=["upsert", "delete"], meta={"why": "Readers of the changelog know these two."}
    ),
    *(
        gxe.ExpectColumnValuesToNotBeNull(
            column=column, row_condition=Column("op") == "upsert", meta={"why": "An upsert brings the whole user."}
        )
        for column in ("name", "country")
    ),
    *(
        gxe.ExpectColumnValuesToBeNull(
            column=column, row_condition=Column("op") == "delete", meta={"why": "A delete leaves no personal data."}
        )
        for column in ("name", "country")
    ),
    never(
        "later batches have later records of a key, and a delete has something to delete",
        "SELECT * FROM (SELECT *, lag(source_offset) OVER updates AS before, lag(op) OVER updates AS op_before "
        "FROM {batch} WINDOW updates AS (PARTITION BY user_id ORDER BY batch_id)) "
        "WHERE source_offset <= before OR op = 'delete' AND op_before IS DISTINCT FROM 'upsert'",
        why="The last offset wins; out of order, a replay of the changelog would bring back old users.",
    ),
]
users: Suite = [
    gxe.ExpectColumnValuesToBeUnique(column="user_id", meta={"why": "The snapshot has one row per user: the latest."}),
    *never_null("user_id", "name", "country", why="Reports greet people by name; deleted users are gone."),
    gxe.ExpectColumnValuesToMatchRegex(
        column="country", regex=r"^[A-Z]{2}$", meta={"why": "Reports join countries by their ISO code."}
    ),
    never(
        "each user is as the changelog says",
        "SELECT u.* FROM {batch} u ANTI JOIN (FROM users_changelog WHERE op = 'upsert') c "
        "USING (user_id, name, country, timestamp, batch_id, source_partition, source_offset)",
        why="The snapshot is the changelog reduced to the last update per user.",
    ),
    never(
        "users whose last change the snapshot has are as of that change",
        "SELECT c.*, u.batch_id AS found FROM (FROM users_changelog "
        "QUALIFY row_number() OVER (PARTITION BY user_id ORDER BY batch_id DESC) = 1) c "
        "LEFT JOIN {batch} u USING (user_id) WHERE c.batch_id <= (SELECT max(batch_id) FROM {batch}) "
        "AND u.batch_id IS DISTINCT FROM CASE c.op WHEN 'upsert' THEN c.batch_id END",
        why="A user who is missing, outdated or should be deleted means that the snapshot was only half written.",
    ),
]
dead_letters: Suite = [
    one_row_per("topic", "partition", "offset", "operator", why="An operator makes one dead letter of a record."),
    *never_null(
        *("value", "topic", "partition", "offset", "timestamp", "error_class", "message", "operator"),
        why="To repair a record, people need its bytes, where it was and what was wrong with it.",
    ),
    never(
        "what is set aside fails where the pipeline can fail",
        'SELECT topic, "partition", "offset", operator, error_class, message FROM {batch} ANTI JOIN (VALUES '
        "('raw-orders', 'orders-source', 'deltaworks.errors.SerializationError'), "
        "('raw-orders', 'join-user', 'ValueError'), ('raw-orders', 'discount', 'ValueError'), "
        "('user-data', 'users-source', 'deltaworks.errors.SerializationError')) "
        "AS known(topic, operator, error_class) USING (topic, operator, error_class)",
        why="Any other error is a bug in the pipeline, not a bad record.",
    ),
    never(
        "a record is set aside or enriched; premium gift cards are both",
        "SELECT source_partition, source_offset, type, item, d.operator FROM enriched_orders o "
        "FULL JOIN (FROM {batch} WHERE topic = 'raw-orders') d "
        'ON o.source_partition = d."partition" AND o.source_offset = d."offset" '
        "WHERE coalesce(type = 'PREMIUM' AND item = 'gift card', false) <> coalesce(operator = 'discount', false) "
        "OR operator <> 'discount' AND type IS NOT NULL",
        why="The discount fails after an order is enriched; everything else fails before.",
    ),
    never(
        "dead letters are rare",
        "SELECT * FROM (SELECT count(*) AS dead FROM {batch}), (SELECT count(*) AS orders FROM enriched_orders) "
        "WHERE dead > orders / 10",
        why="One record in thirty is bad; one in ten means that a producer has changed its format.",
    ),
]
suites: dict[str, Suite] = {
    "enriched_orders": enriched_orders,
    "order_counts": order_counts,
    "user_revenue": user_revenue,
    "user_sessions": user_sessions,
    "users_changelog": users_changelog,
    "users": users,
    "dead_letters": dead_letters,
}
