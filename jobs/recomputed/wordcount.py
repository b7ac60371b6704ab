"""The expected results of `jobs/wordcount.py`, recomputed in `wordcount.sql`, and its own (`wordcount_found.sql`)."""

from jobs.recomputed.results import Recomputation

recomputation = Recomputation(
    job="wordcount",
    inputs=("wordcount-lines",),
    topics=("wordcount-counts", "wordcount-dead-letters"),
    tables=("wordcount_counts", "wordcount_counts_changelog", "wordcount_hours", "wordcount_dead_letters"),
)
