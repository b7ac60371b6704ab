-- Recomputes every result of jobs/clicks.py from its input topic, in plain DuckDB; shares no code with the pipeline.
--
-- Given:  processed, partition_of, instant                                    common.sql
--         tasks    variable                  partitions of the input topic, tasks before and after the hop
-- Gives:  "expected <result>", one view per Delta table and output topic.

CREATE OR REPLACE MACRO pause_ms() AS 1800000;
CREATE OR REPLACE MACRO grace_ms() AS 1800000;
CREATE OR REPLACE MACRO longest_ms() AS 86400000;

-- 1. Clicks: decoded ------------------------------------------------------------------------------------------------

CREATE OR REPLACE TABLE click_events AS
SELECT *, CASE
    WHEN key IS NOT NULL AND key_text IS NULL THEN 'malformed'
    WHEN value IS NULL THEN 'nothing'
    WHEN json_type(document, ['$.request_id', '$.page']) <> ['VARCHAR', 'VARCHAR']
        OR coalesce(json_type(document, '$.user_id'), 'NULL') NOT IN ('VARCHAR', 'NULL')
        OR document IS NULL OR json_type(document) <> 'OBJECT' OR request_id IS NULL OR page IS NULL THEN 'malformed'
    ELSE 'click' END AS verdict
FROM (
    SELECT *, document->>'$.request_id' AS request_id, document->>'$.page' AS page, document->>'$.user_id' AS user_id
    FROM (SELECT *, TRY(decode(key)) AS key_text, TRY_CAST(TRY(decode(value)) AS JSON) AS document FROM processed)
);

CREATE OR REPLACE VIEW clicks AS SELECT * FROM click_events WHERE verdict = 'click';

-- 2. Pages: clicks per hour; late is what ends at or before the task's stream time less grace -------------------------

CREATE OR REPLACE TABLE on_pages AS
SELECT *, timestamp_ms // 3600000 * 3600000 AS start_ms,
    max(timestamp_ms) OVER (PARTITION BY task ORDER BY position) AS stream_time_ms
FROM clicks WHERE key IS NOT NULL;

CREATE OR REPLACE VIEW "expected clicks_pages" AS
SELECT key_text AS page, instant(start_ms) AS window_start, instant(start_ms + 3600000) AS window_end,
    count(*) AS clicks, instant(max(timestamp_ms)) AS timestamp,
    start_ms + 3600000 <= (SELECT max(stream_time_ms) FROM on_pages AS t WHERE t.task = p.task) - grace_ms() AS is_final
FROM on_pages AS p
WHERE start_ms + 3600000 > stream_time_ms - grace_ms()
GROUP BY key_text, task, start_ms;

-- 3. Users: clicks hop to the task that owns the user; what arrives is merged by heads, each upstream task a partition -

CREATE OR REPLACE TABLE arrivals AS
SELECT *, max(timestamp_ms) OVER (PARTITION BY target ORDER BY arrival) - timestamp_ms AS behind_ms
FROM (
    SELECT *, row_number() OVER (PARTITION BY target ORDER BY batch, highest_ms, task, place) AS arrival
    FROM (
        SELECT *, max(timestamp_ms) OVER sent AS highest_ms, row_number() OVER sent - 1 AS place
        FROM (SELECT *, partition_of(encode(user_id), getvariable('tasks')) AS target FROM clicks WHERE user_id <> '')
        WINDOW sent AS (PARTITION BY batch, task, target ORDER BY position ROWS UNBOUNDED PRECEDING)
    )
);

CREATE OR REPLACE VIEW "expected clicks_late" AS
SELECT user_id, request_id, page, instant(timestamp_ms) AS at, behind_ms, instant(timestamp_ms) AS timestamp,
    'clicks-by-user-repartition' AS source_topic, task AS source_partition, batch * 4294967296 + place AS source_offset
FROM arrivals WHERE behind_ms >= grace_ms();

CREATE OR REPLACE VIEW in_time AS SELECT * FROM arrivals WHERE behind_ms < grace_ms();

-- 4. Visits: click by click, in the order of arrival ------------------------------------------------------------------
-- A click joins the visit that it falls into, then the others at most a pause away, the earlier ones first, as long as
-- the whole is not too long. Only the bounds are followed here: visits never overlap, so they say whose a click is.

CREATE OR REPLACE MACRO near(visits, at_ms) AS list_filter(visits,
    lambda v: v.end_ms >= at_ms - pause_ms() AND v.start_ms <= at_ms + pause_ms());
CREATE OR REPLACE MACRO in_turn(visits, at_ms) AS list_sort(list_transform(visits,
    lambda v: {'elsewhere': NOT at_ms BETWEEN v.start_ms AND v.end_ms, 'end_ms': v.end_ms, 'start_ms': v.start_ms}));
CREATE OR REPLACE MACRO grown(visits, at_ms) AS list_reduce(in_turn(near(visits, at_ms), at_ms),
    lambda whole, v: CASE WHEN greatest(whole.end_ms, v.end_ms) - least(whole.start_ms, v.start_ms) <= longest_ms()
        THEN {'start_ms': least(whole.start_ms, v.start_ms), 'end_ms': greatest(whole.end_ms, v.end_ms)}
        ELSE whole END,
    {'start_ms': at_ms, 'end_ms': at_ms});
CREATE OR REPLACE MACRO replaced(visits, new) AS list_append(
    list_filter(visits, lambda v: v.end_ms < new.start_ms OR v.start_ms > new.end_ms), new);

CREATE OR REPLACE TABLE visit_bounds AS
SELECT user_id, target, unnest(list_reduce(
    list(timestamp_ms ORDER BY arrival),
    lambda visits, at_ms: replaced(visits, grown(visits, at_ms)),
    []::STRUCT(start_ms BIGINT, end_ms BIGINT)[]), recursive := true)
FROM in_time GROUP BY user_id, target;

-- Of several clicks in the same millisecond the first to arrive is the first page and the last page.
CREATE OR REPLACE TABLE visits AS
SELECT v.*, count(*) AS clicks, arg_min(page, (timestamp_ms, arrival)) AS first_page,
    arg_max(page, (timestamp_ms, -arrival)) AS last_page, end_ms < time_ms - pause_ms() - grace_ms() AS is_final
FROM visit_bounds AS v
JOIN in_time AS c ON c.user_id = v.user_id AND c.timestamp_ms BETWEEN v.start_ms AND v.end_ms
JOIN (SELECT target, max(timestamp_ms) AS time_ms FROM in_time GROUP BY target) AS t ON t.target = v.target
GROUP BY ALL;

CREATE OR REPLACE VIEW "expected clicks_visits" AS
SELECT user_id, instant(start_ms) AS window_start, instant(end_ms) AS window_end, clicks,
    instant(start_ms) AS started, instant(end_ms) AS ended, first_page, last_page, end_ms - start_ms AS duration_ms,
    instant(end_ms) AS timestamp, is_final
FROM visits;

CREATE OR REPLACE VIEW "expected clicks-visits" AS
SELECT partition_of(encode(user_id), getvariable('tasks')) AS "partition", user_id AS key,
    row_number() OVER (PARTITION BY user_id ORDER BY end_ms) AS nth, instant(end_ms) AS timestamp,
    clicks, instant(start_ms) AS started, instant(end_ms) AS ended, first_page, last_page, end_ms - start_ms AS duration_ms
FROM visits WHERE is_final;

-- No click is lost: every one of a known user is in a visit or among the late ones.
CREATE OR REPLACE VIEW "expected clicks in visits" AS
SELECT user_id, count(*) AS clicks FROM clicks WHERE user_id <> '' GROUP BY user_id;

-- 5. What does not decode ---------------------------------------------------------------------------------------------

CREATE OR REPLACE VIEW "expected clicks_dead_letters" AS
SELECT key, value, topic, "partition", "offset", instant(timestamp_ms) AS timestamp,
    'deltaworks.errors.SerializationError' AS error_class, 'clicks' AS operator
FROM click_events WHERE verdict = 'malformed';

CREATE OR REPLACE VIEW "expected clicks-dead-letters" AS SELECT * EXCLUDE operator FROM "expected clicks_dead_letters";
