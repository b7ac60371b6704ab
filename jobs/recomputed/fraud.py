"""What `jobs/fraud.py` must give: recomputed in SQL (`fraud.sql`), beside what it gave (`fraud_found.sql`)."""

from jobs.recomputed.results import Recomputation

recomputation = Recomputation(
    job="fraud",
    inputs=("payments",),
    topics=("fraud-alerts", "fraud-dead-letters"),
    tables=("fraud_alerts", "fraud_dead_letters"),
)
