"""What `jobs/wordcount.py` must give: in SQL (`wordcount.sql`), beside what it gave (`wordcount_found.sql`)."""

from jobs.recomputed.results import Recomputation

recomputation = Recomputation(
    job="wordcount",
    inputs=("wordcount-lines",),
    topics=("wordcount-counts", "wordcount-dead-letters"),
    tables=("wordcount_counts", "wordcount_counts_changelog", "wordcount_hours", "wordcount_dead_letters"),
)
