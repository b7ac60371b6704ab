"""The expected results of `jobs/customers.py`, from `customers.sql`, and its own, from `customers_found.sql`."""

from jobs.recomputed.results import Recomputation

recomputation = Recomputation(
    job="customers",
    inputs=("cdc.orders", "cdc.customers", "cdc.order_lines"),
    topics=("customers-orders", "customers-dead-letters"),
    tables=("customers", "customers_changelog", "customers_orders", "customers_totals", "customers_dead_letters"),
)
