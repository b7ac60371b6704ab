"""The expected results of `jobs/clicks.py`, recomputed in SQL (`clicks.sql`), and its results (`clicks_found.sql`)."""

from jobs.recomputed.results import Recomputation

recomputation = Recomputation(
    job="clicks",
    inputs=("page-clicks",),
    topics=("clicks-visits", "clicks-dead-letters"),
    tables=("clicks_pages", "clicks_late", "clicks_visits", "clicks_dead_letters"),
    others=("clicks in visits",),
)
