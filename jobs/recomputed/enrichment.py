"""The expected results of `jobs/enrichment.py`, from `enrichment.sql`, and its own, from `enrichment_found.sql`."""

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
        "enrichment_tiers",
    ),
)
