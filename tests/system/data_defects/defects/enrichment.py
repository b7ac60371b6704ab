"""Defects of `jobs/enrichment.py`."""

from __future__ import annotations

from tests.support.data_defects import defect

CUT = "(SELECT quantile_disc(timestamp, 0.6) FROM original_enrichment_checked)"
CHECKED, CURRENT, CURRENT_LOG = "enrichment_checked", "enrichment_current", "enrichment_current_changelog"
CUSTOMERS, CUSTOMERS_LOG, LETTERS = "enrichment_customers", "enrichment_customers_changelog", "enrichment_dead_letters"
TIERS, TIERS_LOG = "enrichment_tiers", "enrichment_tiers_changelog"
NOBODY = "customer_name = NULL, tier = 'unknown', credit_limit = NULL, credit = 'no credit'"

DEFECTS = (
    defect("orders lost: one in twenty", CHECKED, "DELETE FROM {} WHERE hash(order_id) % 20 = 3"),
    defect("orders written twice", CHECKED, "INSERT INTO {} FROM {} WHERE hash(order_id) % 30 = 3"),
    defect("wrong join: no customer is found", CHECKED, f"UPDATE {{}} SET {NOBODY}"),
    defect(
        "wrong join: half of the customers are not found",
        CHECKED,
        f"UPDATE {{}} SET {NOBODY} WHERE hash(order_id) % 2 = 0",
    ),
    defect(
        "wrong join: another customer is found",
        CHECKED,
        "UPDATE {} SET customer_name = c.name, tier = c.tier, credit_limit = c.credit_limit, credit = "
        "if(amount <= c.credit_limit, 'approved', 'rejected') FROM (FROM enrichment_customers LIMIT 1) c "
        "WHERE {}.tier <> 'unknown'",
    ),
    defect(
        "wrong join: guests are somebody",
        CHECKED,
        "UPDATE {} SET customer_name = c.name, tier = c.tier, credit_limit = c.credit_limit, credit = 'approved' "
        "FROM (FROM enrichment_customers LIMIT 1) c WHERE {}.customer_id IS NULL",
    ),
    defect("key mixed up: by customer", CHECKED, "UPDATE {} SET order_id = customer_id WHERE customer_id IS NOT NULL"),
    defect(
        "wrong limit: orders at the limit are rejected",
        CHECKED,
        "UPDATE {} SET credit = 'rejected' WHERE amount = credit_limit",
    ),
    defect("wrong rounding: thirds of cents", CHECKED, "UPDATE {} SET amount = amount / 3"),
    defect(
        "wrong rounding: amounts without cents",
        CHECKED,
        "UPDATE {} SET amount = ceil(amount), credit = CASE WHEN credit_limit IS NULL THEN credit "
        "WHEN ceil(amount) <= credit_limit THEN 'approved' ELSE 'rejected' END",
    ),
    defect("truncated day: orders end early", CHECKED, f"DELETE FROM {{}} WHERE timestamp > {CUT}"),
    defect("one bad partition: orders of a task are lost", CHECKED, "DELETE FROM {} WHERE source_partition = 1"),
    defect(
        "stale: customers are some batches old",
        CUSTOMERS,
        "DELETE FROM {} WHERE batch_id >= (SELECT max(batch_id) FROM original_enrichment_customers)",
    ),
    defect("tiers count a customer too many", TIERS_LOG, "UPDATE {} SET customers = customers + 1"),
    defect("tiers lost", TIERS_LOG, "DELETE FROM {} WHERE tier = 'gold'"),
    defect("a tier is not in the table", TIERS, "DELETE FROM {} WHERE tier = 'gold'"),
    defect(
        "stale: orders do not follow their customers",
        CURRENT_LOG,
        "UPDATE {} SET credit_limit = credit_limit + 1, credit = if(amount <= credit_limit + 1, 'approved', "
        "'rejected') WHERE credit_limit IS NOT NULL",
        CURRENT,
        "UPDATE {} SET credit_limit = credit_limit + 1, credit = if(amount <= credit_limit + 1, 'approved', "
        "'rejected') WHERE credit_limit IS NOT NULL",
    ),
    defect("cancelled orders are still there", CURRENT_LOG, "DELETE FROM {} WHERE op = 'delete'"),
    defect(
        "a corrected order is as it was before, in both",
        *(CURRENT, f"UPDATE {{}} SET {NOBODY} WHERE tier = 'gold'"),
        *(CURRENT_LOG, f"UPDATE {{}} SET {NOBODY} WHERE tier = 'gold'"),
    ),
    defect("orders of a task are not in the table", CURRENT, "DELETE FROM {} WHERE hash(order_key) % 4 = 1"),
    defect(
        "orders of a task are not in the table, nor in its changelog",
        *(CURRENT, "DELETE FROM {} WHERE hash(order_key) % 4 = 1"),
        *(CURRENT_LOG, "DELETE FROM {} WHERE hash(order_key) % 4 = 1"),
    ),
    defect("orders are there twice", CURRENT, "INSERT INTO {} FROM {} LIMIT 3"),
    defect("updates of customers lost", CUSTOMERS_LOG, "DELETE FROM {} WHERE batch_id % 3 = 1"),
    defect(
        "updates of customers in a wrong order",
        CUSTOMERS_LOG,
        "UPDATE {} SET batch_id = 12 - batch_id WHERE batch_id < 12",
    ),
    defect(
        "dead letters: a bug of ours sets good orders aside",
        LETTERS,
        "UPDATE {} SET operator = 'customer-of-order', error_class = 'TypeError' WHERE topic = 'enrichment-orders'",
    ),
    defect("dead letters written twice", LETTERS, "INSERT INTO {} FROM {} LIMIT 3"),
)
