"""The suite for the tables of `jobs/enrichment.py`; `deltaworks quality enrichment` checks it."""

from __future__ import annotations

import great_expectations.expectations as gxe
from great_expectations.expectations.expectation import Expectation
from great_expectations.expectations.metadata_types import FailureSeverity
from great_expectations.expectations.row_conditions import Column

from jobs.quality.rules import Suite, never, never_null, one_row_per

SOURCE = ("source_topic", "source_partition", "source_offset")
CHECKED = ("order_id", "amount", "ordered_at", "tier", "credit")
"""Columns of every checked order; a guest has no customer_id, an unknown customer neither name nor limit."""
LAST_BATCH = """
        WITH last_batch AS (
            SELECT min(batch_id) AS batch FROM (
                SELECT max(batch_id) AS batch_id FROM {batch}
                UNION ALL SELECT max(batch_id) FROM enrichment_customers_changelog)
        )"""
"""The last batch that both a table and the customers have; the beginning of a query."""
TIERS = ["gold", "silver", "basic"]


def checked_orders(of: str = "true") -> Suite:
    """The rules for rows with an order and its customer.

    Args:
        of: condition for such rows; deletes in a changelog are not.
    """
    return [
        gxe.ExpectColumnValuesToBeInSet(
            column="tier",
            value_set=[*TIERS, "unknown"],
            meta={"why": "Offers are sent by tier; a customer in another tier gets none."},
        ),
        gxe.ExpectColumnValuesToBeInSet(
            column="credit",
            value_set=["approved", "rejected", "no credit"],
            meta={"why": "The till knows these three answers."},
        ),
        never(
            "amounts are positive, below a million and whole cents",
            f"SELECT * FROM {{batch}} WHERE {of} AND (amount <= 0 OR amount >= 1000000 OR amount <> round(amount, 2))",
            why="Anything else does not decode; a fraction of a cent means that an amount went through a float.",
        ),
        never(
            "unknown is who has no name, no limit and no credit",
            f"SELECT * FROM {{batch}} WHERE {of} AND ((tier = 'unknown') <> (customer_name IS NULL) "
            "OR (tier = 'unknown') <> (credit_limit IS NULL) OR (tier = 'unknown') <> (credit = 'no credit'))",
            why="These come from one customer or from none; half a customer means that two were mixed up.",
        ),
        never(
            "credit is approved up to the limit",
            f"SELECT * FROM {{batch}} WHERE {of} AND credit_limit IS NOT NULL "
            "AND credit <> if(amount <= credit_limit, 'approved', 'rejected')",
            why="Credit above the limit may never be paid back; refusing it below the limit turns a customer away.",
        ),
        never(
            "a guest is unknown",
            f"SELECT * FROM {{batch}} WHERE {of} AND customer_id IS NULL AND tier <> 'unknown'",
            why="An order without a customer matches nobody; a match is somebody else.",
        ),
    ]


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


checked: Suite = [
    *never_null("timestamp", *CHECKED, why="A record that lacks any of these becomes a dead letter."),
    *checked_orders(),
    never(
        "each order that came by the exchange gave one row",
        "SELECT order_id, customer_id, source_partition, source_offset, count(*) FROM {batch} GROUP BY ALL "
        "HAVING count(*) > 1",
        why="A repeated batch must not check an order twice.",
    ),
    gxe.ExpectColumnPairValuesAToBeGreaterThanB(
        column_A="timestamp",
        column_B="ordered_at",
        or_equal=True,
        meta={"why": "A correction comes after its order, never before."},
    ),
    never(
        "nearly every order that was checked is in the table of orders",
        "SELECT * FROM (SELECT count(DISTINCT order_id) AS checked, count(DISTINCT order_id) FILTER (NOT EXISTS "
        "(FROM enrichment_current_changelog c WHERE c.order_id = o.order_id)) AS missing FROM {batch} o) "
        "WHERE missing > checked / 20",
        why="Both joins get the same orders; only orders cancelled or replaced within a batch are in no table.",
    ),
    never(
        "each customer has been as the order found it",
        "SELECT o.* FROM {batch} o ANTI JOIN (FROM enrichment_customers_changelog WHERE op = 'upsert') c "
        "ON o.customer_id = c.customer_id AND o.customer_name = c.name AND o.tier = c.tier "
        "AND o.credit_limit = c.credit_limit "
        "WHERE o.tier <> 'unknown'",
        why="An order may only meet its own customer, as of some time.",
    ),
    never(
        "most customers are known",
        "SELECT * FROM (SELECT count(*) FILTER (tier = 'unknown') AS unknown, count(*) AS orders FROM {batch}) "
        "WHERE unknown > orders / 2",
        why="With the wrong join key, three of four customers are unknown, and nothing else looks wrong.",
    ),
    never(
        "at most one order in five is of nobody we know",
        "SELECT * FROM (SELECT count(*) FILTER (tier = 'unknown') AS unknown, count(*) AS orders FROM {batch}) "
        "WHERE unknown > orders / 5",
        why="More means that customers arrive late, or that nothing fills their topic any more.",
        severity=FailureSeverity.WARNING,
    ),
]
customers_changelog: Suite = [
    one_row_per(*SOURCE, why="An update comes from one record, however often its batch was repeated."),
    *never_null(
        "customer_id", "timestamp", *SOURCE, "batch_id", why="An update belongs to a customer, a record and a batch."
    ),
    *whole_deletes("name", "tier", "credit_limit"),
    gxe.ExpectColumnValuesToBeInSet(
        column="tier", value_set=TIERS, meta={"why": "'unknown' is for customers who are in no table."}
    ),
    never(
        "limits are between 0 and a million",
        "SELECT * FROM {batch} WHERE credit_limit < 0 OR credit_limit >= 1000000",
        why="A customer with another limit does not decode.",
    ),
    never(
        "later batches have later records of a key",
        "SELECT * FROM (SELECT *, max(batch_id) OVER (PARTITION BY source_partition ORDER BY source_offset) AS newest "
        "FROM {batch}) WHERE batch_id < newest",
        why="The last offset wins; out of order, a replay of the changelog would bring back old limits.",
    ),
]
customers: Suite = [
    gxe.ExpectColumnValuesToBeUnique(
        column="customer_id", meta={"why": "The snapshot has one row per customer: the latest."}
    ),
    *never_null(
        "customer_id", "name", "tier", "credit_limit", why="Deleted customers are gone, all others are complete."
    ),
    as_changelog(
        "enrichment_customers", "customer_id, name, tier, credit_limit, source_partition, source_offset, batch_id"
    ),
]
current: Suite = [
    gxe.ExpectColumnValuesToBeUnique(
        column="order_key", meta={"why": "An order has one customer: the one it names last."}
    ),
    *never_null("order_key", *CHECKED, why="Cancelled orders are gone, all others are complete."),
    *checked_orders(),
    as_changelog(
        "enrichment_current", "order_key, order_id, customer_id, amount, customer_name, tier, credit_limit, credit"
    ),
]
current_changelog: Suite = [
    *never_null("order_key", "timestamp", "batch_id", why="An update belongs to an order and a batch."),
    *whole_deletes(*CHECKED),
    *checked_orders("op = 'upsert'"),
    never(
        "every order in the table was checked when it came",
        "SELECT o.* FROM {batch} o ANTI JOIN enrichment_checked c ON c.order_id = o.order_id AND c.amount = o.amount "
        "AND c.customer_id IS NOT DISTINCT FROM o.customer_id WHERE o.op = 'upsert'",
        why="Both joins get the same orders in the same batch: a missing one was lost on its way to a customer.",
    ),
    never(
        "every order is as its customer is, at the end of the last batch",
        LAST_BATCH
        + """, customers AS (
            SELECT * FROM enrichment_customers_changelog, last_batch WHERE batch_id <= batch
            QUALIFY rank() OVER (PARTITION BY customer_id ORDER BY batch_id DESC) = 1
        ), orders AS (
            SELECT * FROM {batch}, last_batch WHERE batch_id <= batch
            QUALIFY rank() OVER (PARTITION BY order_key ORDER BY batch_id DESC) = 1
        )
        SELECT o.order_key FROM orders o LEFT JOIN customers c ON o.customer_id = c.customer_id GROUP BY o.order_key
        HAVING NOT bool_or(o.op = 'delete' OR (o.customer_name IS NOT DISTINCT FROM c.name
            AND o.credit_limit IS NOT DISTINCT FROM c.credit_limit))
        """,
        why="This is the purpose of the foreign-key join; of several updates within a batch, the last counts.",
    ),
]
tiers: Suite = [
    gxe.ExpectColumnValuesToBeUnique(column="tier", meta={"why": "A tier has one number of customers."}),
    gxe.ExpectColumnValuesToBeInSet(
        column="tier", value_set=TIERS, meta={"why": "Customers of other tiers do not decode."}
    ),
    *never_null("tier", "customers", why="A tier without a number says nothing."),
    as_changelog("enrichment_tiers", "tier, customers, batch_id"),
]
tiers_changelog: Suite = [
    *never_null("tier", "timestamp", "batch_id", why="An update belongs to a tier and a batch."),
    gxe.ExpectColumnValuesToBeInSet(
        column="op", value_set=["upsert"], meta={"why": "A tier without customers keeps a count of 0."}
    ),
    gxe.ExpectColumnValuesToBeBetween(
        column="customers", min_value=0, meta={"why": "Below 0 means that a customer left a tier twice."}
    ),
    never(
        "tiers count the customers, at the end of the last batch",
        LAST_BATCH
        + """, customers AS (
            SELECT * FROM enrichment_customers_changelog, last_batch WHERE batch_id <= batch
            QUALIFY row_number() OVER (PARTITION BY customer_id ORDER BY batch_id DESC, source_offset DESC) = 1
        ), tiers AS (
            SELECT * FROM {batch}, last_batch WHERE batch_id <= batch
            QUALIFY rank() OVER (PARTITION BY tier ORDER BY batch_id DESC) = 1
        ), counted AS (SELECT tier, count(*) AS customers FROM customers WHERE op = 'upsert' GROUP BY tier)
        SELECT * FROM tiers t FULL JOIN counted c ON t.tier = c.tier GROUP BY ALL
        HAVING coalesce(t.customers, -1) <> coalesce(c.customers, 0)
        """,
        why="A customer is in one tier: the sum over the tiers is the number of customers.",
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
        "(('enrichment-orders', 'orders-source'), ('enrichment-customers', 'customers-source')) "
        "OR error_class <> 'deltaworks.errors.SerializationError'",
        why="Nothing can fail after the sources; any other error is a bug in the pipeline, not a bad record.",
    ),
    never(
        "dead letters are rare",
        "SELECT * FROM (SELECT count(*) AS dead FROM {batch}), (SELECT count(*) AS orders FROM enrichment_checked) "
        "WHERE dead > orders / 10",
        why="One record in thirty is bad; one in ten means that a producer has changed its format.",
    ),
]
suites: dict[str, Suite] = {
    "enrichment_checked": checked,
    "enrichment_customers_changelog": customers_changelog,
    "enrichment_customers": customers,
    "enrichment_current": current,
    "enrichment_current_changelog": current_changelog,
    "enrichment_tiers": tiers,
    "enrichment_tiers_changelog": tiers_changelog,
    "enrichment_dead_letters": dead_letters,
}
