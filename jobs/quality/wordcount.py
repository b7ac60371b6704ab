"""The suite for the tables of `jobs/wordcount.py`; `deltaworks quality wordcount` checks it."""

from __future__ import annotations

from datetime import timedelta

import great_expectations.expectations as gxe

from jobs.quality.rules import Suite, never, never_null, one_row_per, windows

SOURCE = ("source_topic", "source_partition", "source_offset")


def words() -> Suite:
    """The rules for words and their counts in every table."""
    return [
        gxe.ExpectTableRowCountToBeBetween(min_value=1, meta={"why": "Every other rule holds in an empty table."}),
        gxe.ExpectColumnValueLengthsToBeBetween(
            column="word", min_value=1, meta={"why": "An empty line has no words, not an empty word."}
        ),
        never(
            "words are letters, accents, digits and apostrophes, in one spelling",
            r"SELECT * FROM {batch} WHERE regexp_matches(word, '[^\p{{L}}\p{{M}}\p{{N}}'']') "
            "OR word LIKE '''%' OR word LIKE '%''' OR word <> nfc_normalize(lower(word))",
            why="Otherwise É and é, or a word with and without a comma, would be two words with half the count each.",
        ),
        gxe.ExpectColumnValuesToBeBetween(
            column="count", min_value=1, meta={"why": "A word is in the table because it was read."}
        ),
    ]


counts: Suite = [
    *words(),
    gxe.ExpectColumnValuesToBeUnique(column="word", meta={"why": "The snapshot has one row per word: the latest."}),
    *never_null("word", "count", "timestamp", why="A count belongs to a word and a time."),
    never(
        "each count is as the changelog says",
        "SELECT c.* FROM {batch} c ANTI JOIN wordcount_counts_changelog l USING (word, count, timestamp, batch_id)",
        why="The snapshot is the changelog reduced to the last update per word.",
    ),
    never(
        "no word of the changelog is missing or behind",
        "SELECT l.*, c.count AS found FROM (FROM wordcount_counts_changelog "
        "QUALIFY row_number() OVER (PARTITION BY word ORDER BY batch_id DESC) = 1) l LEFT JOIN {batch} c USING (word) "
        "WHERE l.batch_id <= (SELECT max(batch_id) FROM {batch}) AND c.count IS DISTINCT FROM l.count",
        why="A missing or outdated word means that the snapshot was only half written.",
    ),
]
changelog: Suite = [
    *words(),
    one_row_per("word", "batch_id", why="A commit forwards only the last update of a word."),
    one_row_per(
        "word", *SOURCE, why="An update comes from one record of the exchange, however often its batch was repeated."
    ),
    *never_null(
        "word", "count", "op", "timestamp", *SOURCE, "batch_id", why="An update belongs to a word and a record."
    ),
    gxe.ExpectColumnValuesToBeInSet(
        column="op", value_set=["upsert"], meta={"why": "A word that was read stays read: nothing deletes a count."}
    ),
    never(
        "counts only grow, and their time never goes back",
        "SELECT * FROM (SELECT *, lag(count) OVER updates AS before, lag(timestamp) OVER updates AS time_before "
        "FROM {batch} WINDOW updates AS (PARTITION BY word ORDER BY batch_id)) "
        "WHERE count <= before OR timestamp < time_before",
        why="If a count falls, state was lost or an old batch was written again.",
    ),
]
hours: Suite = [
    *words(),
    *windows(timedelta(hours=1), key="word", values=("count",), grace=timedelta(minutes=10)),
    never(
        "a word has no more in its hours than in all",
        "SELECT h.word, h.in_hours, l.count FROM (SELECT word, sum(count) AS in_hours FROM {batch} GROUP BY word) h "
        "LEFT JOIN (SELECT word, max(count) AS count FROM wordcount_counts_changelog GROUP BY word) l USING (word) "
        "WHERE in_hours > coalesce(count, 0)",
        why="Late words are in no hour, so hours may have fewer; more means a word was counted twice.",
    ),
    never(
        "hours have no more of a word than was counted in their time",
        """
        WITH counted AS (
            SELECT word, timestamp, min(count) AS first, max(count) AS last
            FROM wordcount_counts_changelog GROUP BY word, timestamp
        ), totals AS (
            SELECT word, max(last) AS total FROM counted GROUP BY word
        ), hours AS (
            SELECT word, window_start, window_end + INTERVAL 10 MINUTE AS closes, count,
                sum(count) OVER (PARTITION BY word ORDER BY window_start) AS until_then,
                sum(count) OVER (PARTITION BY word ORDER BY window_start DESC) AS since
            FROM {batch}
        )
        SELECT h.*, t.total FROM hours h LEFT JOIN totals t ON h.word = t.word
        ASOF LEFT JOIN counted a ON h.word = a.word AND h.closes <= a.timestamp
        ASOF LEFT JOIN counted b ON h.word = b.word AND h.window_start > b.timestamp
        WHERE h.until_then > coalesce(a.first, t.total, 0) OR h.since > coalesce(t.total, 0) - coalesce(b.last, 0)
        """,
        why="A word that comes ten minutes after an hour closes that hour, so the count then includes the whole hour; "
        "before its first word, nothing of an hour can have been counted.",
    ),
    never(
        "a word that was surely on time is in its hour",
        """
        WITH newest AS (
            SELECT *, max(timestamp) OVER (ORDER BY batch_id) AS latest,
                lag(timestamp) OVER (PARTITION BY word ORDER BY batch_id) AS time_before
            FROM wordcount_counts_changelog
        ), on_time AS (
            SELECT word, timestamp, time_bucket(INTERVAL 1 HOUR, timestamp) AS window_start FROM newest
            WHERE timestamp > coalesce(time_before, '-infinity')
            AND time_bucket(INTERVAL 1 HOUR, timestamp) + INTERVAL 70 MINUTE > latest
        )
        SELECT w.* FROM on_time w ANTI JOIN {batch} h
        ON w.word = h.word AND w.window_start = h.window_start AND w.timestamp <= h.timestamp
        """,
        why="Only words more than ten minutes after their hour, by the newest word of their batch, can be too late.",
    ),
    never(
        "the newest word is there",
        "SELECT * FROM (SELECT max(timestamp) AS newest FROM {batch}) "
        "WHERE newest IS DISTINCT FROM (SELECT max(timestamp) FROM wordcount_counts_changelog)",
        why="The newest word is never late: a table without it is behind.",
    ),
]
dead_letters: Suite = [
    one_row_per(
        "topic", "partition", "offset", why="A line becomes a dead letter once, at the source that cannot read it."
    ),
    *never_null(
        *("topic", "partition", "offset", "timestamp", "value", "error_class", "message", "operator"),
        why="To repair a line, people need its bytes, where it was and what was wrong with it.",
    ),
    never(
        "what is set aside is no UTF-8",
        "SELECT * FROM {batch} WHERE TRY(decode(value)) IS NOT NULL OR operator <> 'lines' "
        "OR topic <> 'wordcount-lines' OR error_class <> 'deltaworks.errors.SerializationError'",
        why="Nothing else can be wrong with a line; any other error is a bug in the pipeline.",
    ),
]
suites: dict[str, Suite] = {
    "wordcount_counts": counts,
    "wordcount_counts_changelog": changelog,
    "wordcount_hours": hours,
    "wordcount_dead_letters": dead_letters,
}
