"""The expected results of `jobs/ads.py`, recomputed in SQL (`ads.sql`), and its results (`ads_found.sql`)."""

from jobs.recomputed.results import Recomputation

recomputation = Recomputation(
    job="ads",
    inputs=("ads-impressions", "ads-clicks", "ads-campaigns"),
    topics=("ads-hours", "ads-dead-letters"),
    tables=("ads_clicks", "ads_late", "ads_bursts", "ads_hours", "ads_dead_letters"),
    others=("money of clicks",),
)
