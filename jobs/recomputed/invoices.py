"""The expected results of `jobs/invoices.py`, recomputed in `invoices.sql`, and its results (`invoices_found.sql`)."""

from jobs.recomputed.results import Recomputation

recomputation = Recomputation(
    job="invoices",
    inputs=("pos",),
    topics=("shipment", "notification", "hadoop-sink", "invoices-dead-letters"),
    tables=("invoices_line_items", "invoices_loyalty_points", "invoices_dead_letters"),
)
