"""Every fault point that the orders pipeline reaches, by the process that reaches it."""

WORKER = (
    "task.start",
    "store.before_apply",
    "store.after_apply",
    "task.opened",
    "kafka.after_begin",
    "kafka.before_marker",
    "task.processed",
    "task.flushed",
    "delta.before_parquet",
    "delta.after_parquet",
    "task.tables_written",
    "kafka.before_commit",
    "kafka.after_commit",
    "store.after_append",
    "store.after_version",
    "task.end",
)
"""Reached by tasks of every batch, in this order (the transaction begins with the first record for a topic)."""

DRIVER = (
    "driver.before_tasks",
    "driver.after_tasks",
    "delta.before_commit:enriched_orders",
    "delta.after_commit:enriched_orders",
    "delta.before_commit:user_revenue",
    "delta.after_commit:user_revenue",
    "delta.before_pages",
    "driver.after_tables",
    "driver.before_cut",
    "driver.end",
)
"""Reached by the driver of every batch."""

RECOVERY = ("store.before_rebuild", "store.rebuilding", "store.after_rebuild")
"""Reached when a local store cannot be brought forward to the committed state."""
