"""The suite for the tables of `jobs/customers.py`; `deltaworks quality customers` checks it."""

from __future__ import annotations

import great_expectations.expectations as gxe
from great_expectations.expectations.expectation import Expectation
from great_expectations.expectations.row_conditions import Column

from jobs.quality.rules import Suite, never, never_null, one_row_per

SOURCE = ("source_topic", "source_partition", "source_offset")
CUSTOMER = ("name", "city", "vip", "since")
ORDER = ("status", "ordered_at", "lines", "amount")
"""Columns of every order; a guest has no customer_id, an unknown customer neither name nor city."""
STATUSES = ["new", "paid", "shipped"]


def whole_deletes(*columns: str) -> Suite:
    """Expects complete rows in a changelog, and deletes with nothing but the key."""
    return [
        gxe.ExpectColumnValuesToBeInSet(
            column="op", value_set=["upsert", "delete"], meta={"why": "Readers of the changelog know these two."}
        ),
        *(
            gxe.ExpectColumnValuesToNotBeNull(
                column=column, row_condition=Column("op") == "upsert", meta={"why": "An upsert brings the whole row."}
            )
            for column in columns
        ),
        *(
            gxe.ExpectColumnValuesToBeNull(
                column=column, row_condition=Column("op") == "delete", meta={"why": "A delete leaves nothing behind."}
            )
            for column in columns
        ),
    ]


def as_changelog(table: str, columns: str) -> Expectation:
    """Expects that a snapshot has only rows of its changelog."""
    return never(
        "each row is an update that the changelog has",
        f"SELECT s.* FROM {{batch}} s ANTI JOIN (FROM {table}_changelog WHERE op = 'upsert') c ON "
        + " AND ".join(f"s.{column} IS NOT DISTINCT FROM c.{column}" for column in columns.split(", ")),
        why="A snapshot is its changelog, reduced to the last update per key; it has no other rows.",
    )


def orders_rules(of: str = "true") -> Suite:
    """The rules for rows with an order.

    Args:
        of: condition for such rows; deletes in a changelog are not.
    """
    return [
        gxe.ExpectColumnValuesToBeInSet(
            column="status", value_set=STATUSES, meta={"why": "An order with another status does not decode."}
        ),
        never(
            "an order without lines costs nothing, one with lines something",
            f"SELECT * FROM {{batch}} WHERE {of} AND (lines < 0 OR amount < 0 OR (lines = 0) <> (amount = 0))",
            why="The amount is what the lines come to; a rest means that a deleted line was subtracted wrongly.",
        ),
        never(
            "a customer has a name and a city, a guest neither",
            f"SELECT * FROM {{batch}} WHERE {of} AND ((customer_name IS NULL) <> (city IS NULL) "
            "OR (customer_id IS NULL AND customer_name IS NOT NULL))",
            why="Both come from one row of the customers; half of one means that two were mixed up.",
        ),
        never(
            "no note is the text for a value that was not sent",
            f"SELECT * FROM {{batch}} WHERE {of} AND note LIKE '\\_\\_debezium%' ESCAPE '\\'",
            why="The text stands for a value that the database has; as a note, it would replace it.",
        ),
    ]


customers_changelog: Suite = [
    one_row_per(*SOURCE, why="An update comes from one record, however often its batch was repeated."),
    *never_null(
        "customer_id", "timestamp", *SOURCE, "batch_id", why="An update belongs to a customer, a record and a batch."
    ),
    *whole_deletes(*CUSTOMER),
    never(
        "a customer is deleted once, and only if there was one",
        "SELECT * FROM (SELECT *, lag(op, 1, 'delete') OVER (PARTITION BY customer_id ORDER BY source_offset) AS known "
        "FROM {batch}) WHERE op = 'delete' AND known = 'delete'",
        why="Debezium writes a null after each deletion; it is not a second one.",
    ),
    never(
        "later batches have later records of a customer",
        "SELECT * FROM (SELECT *, max(batch_id) OVER (PARTITION BY customer_id ORDER BY source_offset) AS newest "
        "FROM {batch}) WHERE batch_id < newest",
        why="The last offset wins; out of order, a replay of the changelog would bring back old customers.",
    ),
]
customers: Suite = [
    gxe.ExpectColumnValuesToBeUnique(
        column="customer_id", meta={"why": "The snapshot has one row per customer: the latest."}
    ),
    *never_null("customer_id", *CUSTOMER, why="Deleted customers are gone, all others are complete."),
    as_changelog("customers", "customer_id, name, city, vip, since, source_partition, source_offset, batch_id"),
    never(
        "nobody is a customer from a day that is to come",
        "SELECT * FROM {batch} WHERE since > timestamp::DATE",
        why="Days are numbers in the topic; with another beginning or unit, they would be in another century.",
    ),
]
orders: Suite = [
    gxe.ExpectColumnValuesToBeUnique(column="order_id", meta={"why": "An order has one row: as it is now."}),
    *never_null("order_id", *ORDER, why="Deleted orders are gone, all others are complete."),
    *orders_rules(),
    as_changelog("customers_orders", "order_id, customer_id, status, note, lines, amount, customer_name, city"),
    never(
        "nothing was ordered before there was the shop",
        "SELECT * FROM {batch} WHERE ordered_at < TIMESTAMPTZ '2020-01-01 00:00:00+00'",
        why="Times are microseconds in the topic; taken for another unit, they would be in another century.",
    ),
    never(
        "most customers are known",
        "SELECT * FROM (SELECT count(*) FILTER (customer_name IS NULL) AS unknown, count(*) AS orders FROM {batch}) "
        "WHERE unknown > orders / 2",
        why="With keys of other bytes, orders look for their customers in other partitions and find few of them.",
    ),
]
orders_changelog: Suite = [
    *never_null("order_id", "timestamp", "batch_id", why="An update belongs to an order and a batch."),
    *whole_deletes(*ORDER),
    *orders_rules("op = 'upsert'"),
    never(
        "every order is as its customer is, at the end of the last batch",
        """
        WITH last_batch AS (
            SELECT min(batch_id) AS batch FROM (
                SELECT max(batch_id) AS batch_id FROM {batch}
                UNION ALL SELECT max(batch_id) FROM customers_changelog)
        ), customers AS (
            SELECT * FROM customers_changelog, last_batch WHERE batch_id <= batch
            QUALIFY row_number() OVER (PARTITION BY customer_id ORDER BY batch_id DESC, source_offset DESC) = 1
        ), orders AS (
            SELECT * FROM {batch}, last_batch WHERE batch_id <= batch
            QUALIFY rank() OVER (PARTITION BY order_id ORDER BY batch_id DESC) = 1
        )
        SELECT o.order_id FROM orders o LEFT JOIN customers c ON o.customer_id = c.customer_id GROUP BY o.order_id
        HAVING NOT bool_or(o.op = 'delete' OR (o.customer_name IS NOT DISTINCT FROM c.name
            AND o.city IS NOT DISTINCT FROM c.city))
        """,
        why="A customer who moves changes all of their orders, which is the purpose of the join.",
    ),
]
totals: Suite = [
    gxe.ExpectColumnValuesToBeUnique(column="customer_id", meta={"why": "A customer has one total."}),
    *never_null("customer_id", "orders", "amount", why="A customer without orders has no row."),
    as_changelog("customers_totals", "customer_id, orders, amount, batch_id"),
]
totals_changelog: Suite = [
    *never_null("customer_id", "timestamp", "batch_id", why="An update belongs to a customer and a batch."),
    *whole_deletes("orders", "amount"),
    never(
        "who has a total has an order",
        "SELECT * FROM {batch} WHERE op = 'upsert' AND (orders < 1 OR amount < 0)",
        why="Below one, an order was subtracted that had not been added.",
    ),
    never(
        "all orders are in the totals, at the end of the last batch",
        """
        WITH last_batch AS (
            SELECT min(batch_id) AS batch FROM (
                SELECT max(batch_id) AS batch_id FROM {batch}
                UNION ALL SELECT max(batch_id) FROM customers_orders_changelog)
        ), updates AS (
            SELECT * FROM customers_orders_changelog, last_batch WHERE batch_id <= batch
            QUALIFY rank() OVER (PARTITION BY order_id ORDER BY batch_id DESC) = 1
        ), totals AS (
            SELECT *, if(op = 'upsert', orders, 0) AS counted FROM {batch}, last_batch WHERE batch_id <= batch
            QUALIFY rank() OVER (PARTITION BY customer_id ORDER BY batch_id DESC) = 1
        ), per_order AS (
            SELECT bool_and(op = 'upsert' AND customer_id IS NOT NULL) AS surely,
                bool_or(op = 'upsert' AND customer_id IS NOT NULL) AS perhaps
            FROM updates GROUP BY order_id
        ), per_customer AS (
            SELECT min(counted) AS least, max(counted) AS most FROM totals GROUP BY customer_id
        )
        SELECT * FROM (SELECT count_if(surely) AS surely, count_if(perhaps) AS perhaps FROM per_order),
            (SELECT sum(least) AS least, sum(most) AS most FROM per_customer)
        WHERE perhaps < least OR surely > most
        """,
        why="Orders are added to the total of their customer and leave it; of updates within a batch, any may be last.",
    ),
]
dead_letters: Suite = [
    one_row_per("topic", "partition", "offset", why="A record becomes a dead letter once."),
    *never_null(
        *("topic", "partition", "offset", "timestamp", "error_class", "message", "operator"),
        why="To repair a record, people need to know where it was and what was wrong with it.",
    ),
    never(
        "what is set aside does not decode",
        'SELECT topic, "partition", "offset", operator, error_class FROM {batch} WHERE (topic, operator) NOT IN '
        "(('cdc.customers', 'customers-source'), ('cdc.orders', 'orders-source'), "
        "('cdc.order_lines', 'lines-source')) OR error_class <> 'deltaworks.errors.SerializationError'",
        why="Nothing can fail after the sources; any other error is a bug in the pipeline, not a bad record.",
    ),
    never(
        "dead letters are rare",
        "SELECT * FROM (SELECT count(*) AS dead FROM {batch}), "
        "(SELECT count(*) AS orders FROM customers_orders) WHERE orders >= 100 AND dead > orders / 6",
        why="One record in forty is bad; more means that a table has been changed, or that its connector has.",
    ),
]
suites: dict[str, Suite] = {
    "customers": customers,
    "customers_changelog": customers_changelog,
    "customers_orders": orders,
    "customers_orders_changelog": orders_changelog,
    "customers_totals": totals,
    "customers_totals_changelog": totals_changelog,
    "customers_dead_letters": dead_letters,
}
