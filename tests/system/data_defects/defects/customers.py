"""Defects of `jobs/customers.py`."""

from __future__ import annotations

from tests.support.data_defects import defect

CUSTOMERS, CUSTOMERS_LOG = "customers", "customers_changelog"
ORDERS, ORDERS_LOG = "customers_orders", "customers_orders_changelog"
TOTALS, TOTALS_LOG = "customers_totals", "customers_totals_changelog"
LETTERS = "customers_dead_letters"

DEFECTS = (
    defect("customers written twice", CUSTOMERS, "INSERT INTO {} FROM {} WHERE hash(customer_id) % 30 = 3"),
    defect("wrong unit: days are seconds", CUSTOMERS, "UPDATE {} SET since = DATE '2199-01-01'"),
    defect(
        "the null after a deletion is a second one",
        CUSTOMERS_LOG,
        "INSERT INTO {} SELECT * REPLACE (source_offset + 1 AS source_offset) FROM {} WHERE op = 'delete'",
    ),
    defect("deletions keep the row", CUSTOMERS_LOG, "UPDATE {} SET name = 'Ada' WHERE op = 'delete'"),
    defect("wrong join: no customer is found", ORDERS, "UPDATE {} SET customer_name = NULL, city = NULL"),
    defect(
        "wrong join: guests are somebody",
        ORDERS_LOG,
        "UPDATE {} SET customer_name = 'Ada', city = 'Ulm' WHERE customer_id IS NULL AND op = 'upsert'",
    ),
    defect(
        "stale: orders do not follow their customers",
        ORDERS_LOG,
        "UPDATE {} SET city = 'Nowhere' WHERE hash(order_id) % 2 = 0 AND city IS NOT NULL",
    ),
    defect("wrong unit: times are milliseconds", ORDERS, "UPDATE {} SET ordered_at = TIMESTAMPTZ '1970-01-21 00:00Z'"),
    defect(
        "a value that was not sent is taken for one",
        ORDERS_LOG,
        "UPDATE {} SET note = '__debezium_unavailable_value' WHERE note IS NOT NULL",
    ),
    defect("wrong sum: a deleted line is not subtracted", ORDERS, "UPDATE {} SET amount = amount + 1 WHERE lines = 0"),
    defect("orders are counted twice", TOTALS_LOG, "UPDATE {} SET orders = 2 * orders WHERE op = 'upsert'"),
    defect("totals lost: one in three", TOTALS_LOG, "DELETE FROM {} WHERE customer_id % 3 = 1"),
    defect("totals of other customers", TOTALS, "UPDATE {} SET amount = amount + 1"),
    defect("a dead letter twice", LETTERS, "INSERT INTO {} FROM {} LIMIT 1"),
)
