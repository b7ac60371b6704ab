"""The expected results of `jobs/inventory.py`, recomputed in `inventory.sql`, and its own (`inventory_found.sql`)."""

from jobs.recomputed.results import Recomputation

recomputation = Recomputation(
    job="inventory",
    inputs=("inventory-orders", "inventory-movements"),
    topics=("inventory-alerts", "inventory-customer-orders", "inventory-dead-letters"),
    tables=(
        "inventory_stock",
        "inventory_stock_changelog",
        "inventory_customer_hours",
        "inventory_customer_orders",
        "inventory_dead_letters",
    ),
)
