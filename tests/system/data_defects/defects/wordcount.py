"""Defects of `jobs/wordcount.py`."""

from __future__ import annotations

from tests.support.data_defects import defect

CUT = "(SELECT quantile_disc(window_start, 0.6) FROM original_wordcount_hours)"
COUNTS, CHANGELOG, HOURS, LETTERS = (
    "wordcount_counts",
    "wordcount_counts_changelog",
    "wordcount_hours",
    "wordcount_dead_letters",
)

DEFECTS = (
    defect("an hour lost", HOURS, "DELETE FROM {} WHERE window_start = time_bucket(INTERVAL 1 HOUR, " + CUT + ")"),
    defect("a word lost in its hours", HOURS, "DELETE FROM {} WHERE word = 'the'"),
    defect("words of a task lost in their hours", HOURS, "DELETE FROM {} WHERE hash(word) % 4 = 1"),
    defect("an hour counted twice", HOURS, "UPDATE {} SET count = count * 2 WHERE window_start < " + CUT),
    defect(
        "windows shifted by half an hour",
        HOURS,
        "UPDATE {} SET window_start = window_start + INTERVAL 30 MINUTE, window_end = window_end + INTERVAL 30 MINUTE",
    ),
    defect(
        "windows shifted by a whole one",
        HOURS,
        "UPDATE {} SET window_start = window_start + INTERVAL 1 HOUR, window_end = window_end + INTERVAL 1 HOUR, "
        "window_date = (window_start + INTERVAL 1 HOUR)::DATE",
    ),
    defect(
        "a day in the wrong partition: local time",
        HOURS,
        "UPDATE {} SET window_date = (window_start + INTERVAL 2 HOUR)::DATE",
    ),
    defect("wrong words: with upper case", HOURS, "UPDATE {} SET word = upper(word) WHERE word = 'river'"),
    defect(
        "wrong words: signs are part of them",
        *(CHANGELOG, "UPDATE {} SET word = word || '!' WHERE word = 'river'"),
        *(COUNTS, "UPDATE {} SET word = word || '!' WHERE word = 'river'"),
    ),
    defect(
        "key mixed up: counts of the next word", COUNTS, "UPDATE {} SET word = reverse(word) WHERE word = 'lantern'"
    ),
    defect(
        "key mixed up in hours",
        HOURS,
        "UPDATE {} SET word = CASE word WHEN 'the' THEN 'window' ELSE 'the' END WHERE word IN ('the', 'window')",
    ),
    defect("stale: counts are some batches old", COUNTS, "DELETE FROM {} WHERE batch_id > 3"),
    defect(
        "stale: a count is the one before",
        COUNTS,
        "UPDATE {} SET count = c.count, timestamp = c.timestamp, batch_id = c.batch_id, "
        "source_partition = c.source_partition, source_offset = c.source_offset FROM (FROM wordcount_counts_changelog "
        "QUALIFY row_number() OVER (PARTITION BY word ORDER BY batch_id DESC) = 2) c WHERE c.word = {}.word",
    ),
    defect(
        "state lost: counts begin again",
        CHANGELOG,
        "UPDATE {} SET count = count - before FROM (SELECT word AS k, max(count) AS before FROM "
        "original_wordcount_counts_changelog WHERE batch_id <= 4 GROUP BY k) WHERE word = k AND batch_id > 4",
        COUNTS,
        "UPDATE {} SET count = c.count FROM wordcount_counts_changelog c WHERE c.word = {}.word "
        "AND c.batch_id = {}.batch_id",
    ),
    defect(
        "a batch lost in the changelog", CHANGELOG, "DELETE FROM {} WHERE batch_id = (SELECT max(batch_id) FROM {})"
    ),
    defect("a batch twice in the changelog", CHANGELOG, "INSERT INTO {} FROM {} WHERE batch_id = 2"),
    defect(
        "late words counted twice",
        *(HOURS, "UPDATE {} SET count = count + 20 WHERE is_final AND word IN ('of', 'and')"),
    ),
    defect("truncated day", HOURS, f"DELETE FROM {{}} WHERE window_start > {CUT}"),
    defect("premature: hours are final as soon as they begin", HOURS, "UPDATE {} SET is_final = true"),
    defect("never final", HOURS, "UPDATE {} SET is_final = false"),
    defect("good lines set aside", LETTERS, "UPDATE {} SET value = 'the river'::BLOB WHERE rowid = 1"),
    defect("dead letters written twice", LETTERS, "INSERT INTO {} FROM {} LIMIT 3"),
)
