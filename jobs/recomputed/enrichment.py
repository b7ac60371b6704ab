"""What `jobs/enrichment.py` must give: recomputed in SQL (`enrichment.sql`), beside what it gave."""

from jobs.recomputed.results import Recomputation

recomputation = Recomputation(
    job="enrichment",
    inputs=("enrichment-orders", "enrichment-customers"),
    topics=("enrichment-checked", "enrichment-dead-letters"),
    tables=(
        "enrichment_checked",
        "enrichment_customers",
        "enrichment_customers_changelog",
        "enrichment_current",
        "enrichment_dead_letters",
    ),
)
