"""The expected results of `jobs/fraud.py`, recomputed in SQL (`fraud.sql`), and its results (`fraud_found.sql`)."""

from jobs.recomputed.results import Recomputation

recomputation = Recomputation(
    job="fraud",
    inputs=("payments",),
    topics=("fraud-alerts", "fraud-dead-letters"),
    tables=("fraud_alerts", "fraud_dead_letters"),
)
