"""The expected results of `jobs/orders.py`, recomputed in SQL (`orders.sql`), and its results (`orders_found.sql`)."""

from jobs.recomputed.results import Recomputation

recomputation = Recomputation(
    job="orders",
    inputs=("raw-orders", "user-data"),
    topics=("enriched-orders", "premium-orders", "standard-orders", "orders-dead-letters"),
    tables=(
        "enriched_orders",
        "order_counts",
        "user_revenue",
        "user_sessions",
        "users",
        "users_changelog",
        "dead_letters",
    ),
    others=("users = users_changelog",),
)
