-- Recomputes every result of jobs/wordcount.py from its input topic, in plain DuckDB; shares no code with the pipeline.
--
-- Given:  processed, partition_of, instant                                    common.sql
--         tasks    variable                  partitions of the input topic, tasks before and after the hop
-- Gives:  "expected <result>", one view per Delta table and output topic.

-- 1. Words: runs of letters, marks and digits, apostrophes inside, folded to one case and one way to write an accent --

-- Where folding is more than lower case: sharp s, the sigma at the end of a word, the Turkish capital I with its dot.
-- (DuckDB's normalization ends at a NUL, which is no part of a word anyway.)
CREATE OR REPLACE MACRO folded(line) AS
    nfc_normalize(replace(replace(lower(replace(replace(line, chr(0), ' '), 'İ', 'i̇')), 'ß', 'ss'), 'ς', 'σ'));
CREATE OR REPLACE MACRO words_of(line) AS list_filter(list_transform(
    regexp_extract_all(replace(folded(line), '’', ''''), '[\p{L}\p{M}\p{N}'']+'), lambda run: trim(run, '''')),
    lambda word: word <> '');

CREATE OR REPLACE TABLE lines AS
SELECT *, TRY(decode(value)) AS line FROM processed;

CREATE OR REPLACE TABLE words AS
SELECT task, batch, timestamp_ms, unnest(words_of(line)) AS word, position,
    generate_subscripts(words_of(line), 1) AS nth_in_line
FROM lines WHERE line IS NOT NULL;

-- 2. Each word hops to the task that owns it; what arrives is merged by heads, each upstream task is a partition ------

CREATE OR REPLACE TABLE hopped AS
SELECT *, row_number() OVER (PARTITION BY target ORDER BY batch, running_max_ms, task, place) AS arrival
FROM (
    SELECT *, max(timestamp_ms) OVER sent AS running_max_ms, row_number() OVER sent - 1 AS place
    FROM (SELECT *, partition_of(encode(word), getvariable('tasks')) AS target FROM words)
    WINDOW sent AS (PARTITION BY batch, task, target ORDER BY position, nth_in_line ROWS UNBOUNDED PRECEDING)
);

CREATE OR REPLACE TABLE timed AS
SELECT *, max(timestamp_ms) OVER (PARTITION BY target ORDER BY arrival) AS stream_time_ms FROM hopped;

-- 3. Counts for ever: a commit forwards the last update per word ------------------------------------------------------

CREATE OR REPLACE TABLE updates AS
SELECT * FROM (
    SELECT *, count(*) OVER so_far AS counted, max(timestamp_ms) OVER so_far AS at_ms FROM hopped
    WINDOW so_far AS (PARTITION BY word ORDER BY arrival)
)
QUALIFY row_number() OVER (PARTITION BY word, batch ORDER BY arrival DESC) = 1;

CREATE OR REPLACE VIEW "expected wordcount-counts" AS
SELECT partition_of(encode(word), getvariable('tasks')) AS "partition", word AS key,
    row_number() OVER (PARTITION BY word ORDER BY batch) AS nth, counted AS value, instant(at_ms) AS timestamp
FROM updates;

CREATE OR REPLACE VIEW "expected wordcount_counts_changelog" AS
SELECT word, counted AS count, 'upsert' AS op, instant(at_ms) AS timestamp, 'by-word-repartition' AS source_topic,
    task AS source_partition, batch * 4294967296 + place AS source_offset, batch AS batch_id
FROM updates;

CREATE OR REPLACE VIEW "expected wordcount_counts" AS
SELECT * EXCLUDE op FROM "expected wordcount_counts_changelog"
QUALIFY row_number() OVER (PARTITION BY word ORDER BY batch_id DESC) = 1;

-- 4. Counts per hour, ten minutes of grace: late is what ends at or before the task's stream time less grace ----------

CREATE OR REPLACE VIEW "expected wordcount_hours" AS
SELECT word, instant(start_ms) AS window_start, instant(start_ms + 3600000) AS window_end,
    count(*) AS count, instant(max(timestamp_ms)) AS timestamp,
    start_ms + 3600000 <= (SELECT max(stream_time_ms) FROM timed AS t WHERE t.target = w.target) - 600000 AS is_final
FROM (SELECT *, timestamp_ms // 3600000 * 3600000 AS start_ms FROM timed) AS w
WHERE start_ms + 3600000 > stream_time_ms - 600000
GROUP BY word, target, start_ms;

-- 5. Lines that are no UTF-8 ------------------------------------------------------------------------------------------

CREATE OR REPLACE VIEW "expected wordcount_dead_letters" AS
SELECT key, value, topic, "partition", "offset", instant(timestamp_ms) AS timestamp,
    'deltaworks.errors.SerializationError' AS error_class, 'lines' AS operator
FROM lines WHERE value IS NOT NULL AND line IS NULL;

CREATE OR REPLACE VIEW "expected wordcount-dead-letters" AS
SELECT * EXCLUDE operator FROM "expected wordcount_dead_letters";
