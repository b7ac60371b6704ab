-- Recomputes every result of jobs/ads.py from its three input topics, in plain DuckDB; shares no code with the pipeline.
--
-- Given:  processed, partition_of, instant, money                             common.sql
--         tasks    variable                  partitions of each input topic, tasks before and after the hops
-- Gives:  "expected <result>", one view per Delta table and output topic.
--
-- Which campaign a click meets depends on the batches, and so do the pairs that are found and what is late. All of it
-- follows from the record of the batches: every task sees the campaigns as of the end of its batch.

CREATE OR REPLACE MACRO grace_ms() AS 3600000;
CREATE OR REPLACE MACRO near_ms() AS 1800000;
CREATE OR REPLACE MACRO kept_ms() AS near_ms() + 86400000;
CREATE OR REPLACE MACRO minute_ms() AS 60000;
CREATE OR REPLACE MACRO hour_ms() AS 3600000;

-- 1. What decodes ----------------------------------------------------------------------------------------------------

-- A JSON number passes through a double here: exact for up to 15 digits, and no price has more.
CREATE OR REPLACE MACRO is_number(number) AS json_type(number) IN ('VARCHAR', 'DOUBLE', 'BIGINT', 'UBIGINT')
    AND TRY_CAST(number->>'$' AS DECIMAL(38, 18)) IS NOT NULL;
-- From 0 to a thousand, in whole cents.
CREATE OR REPLACE MACRO is_price(text) AS
    TRY_CAST(text AS DECIMAL(38, 18)) >= 0 AND TRY_CAST(text AS DECIMAL(38, 18)) < 1000
    AND TRY_CAST(text AS DECIMAL(38, 18)) = round(TRY_CAST(text AS DECIMAL(38, 18)), 2);
-- A time must say in which zone it is.
CREATE OR REPLACE MACRO is_instant(text) AS regexp_matches(text, '(Z|[+-]\d\d:\d\d)$') AND TRY_CAST(text AS TIMESTAMPTZ) IS NOT NULL;

CREATE OR REPLACE TABLE events AS
SELECT *, (key_text IS NOT NULL) = (key IS NOT NULL) AND (value IS NULL OR fields IS NOT NULL) AS readable
FROM (
    SELECT * EXCLUDE (position, running_max_ms), TRY(decode(key)) AS key_text,
        TRY_CAST(TRY(decode(value)) AS JSON) AS document,
        CASE WHEN CASE topic
            WHEN 'ads-impressions' THEN json_type(document, '$.campaign_id') = 'VARCHAR'
                AND json_type(document, '$.user_id') IN ('VARCHAR', 'NULL')
                AND is_number(document->'$.price') AND is_price(document->>'$.price') AND is_instant(document->>'$.shown_at')
            WHEN 'ads-clicks' THEN json_type(document, '$.click_id') = 'VARCHAR' AND is_instant(document->>'$.clicked_at')
            ELSE json_type(document, ['$.name', '$.advertiser']) = ['VARCHAR', 'VARCHAR']
                AND is_number(document->'$.hourly_budget')
            END
        THEN document END AS fields
    FROM processed
);

-- 2. Campaigns: the row that tasks see in a batch is the last one of that batch or of an earlier one -------------------
-- What does not decode is skipped; it is no dead letter, as every machine reads all of them.

CREATE OR REPLACE TABLE campaigns AS
SELECT key_text AS campaign_id, batch, fields->>'$.name' AS name, fields->>'$.advertiser' AS advertiser,
    (fields->>'$.hourly_budget')::DECIMAL(38, 18) AS hourly_budget
FROM events WHERE topic = 'ads-campaigns' AND readable AND key IS NOT NULL
QUALIFY row_number() OVER (PARTITION BY key, batch ORDER BY "offset" DESC) = 1;

-- 3. Stage 0, a task per partition of impressions and clicks ----------------------------------------------------------
-- What does not decode is set aside before the order of records is decided; of the others the lowest head goes first.

CREATE OR REPLACE TABLE taken AS
SELECT * EXCLUDE running_max_ms,
    row_number() OVER (PARTITION BY task ORDER BY batch, running_max_ms, topic, "offset") AS position,
    fields->>'$.campaign_id' AS campaign_id, fields->>'$.user_id' AS user_id,
    (fields->>'$.price')::DECIMAL(38, 18) AS price, (fields->>'$.shown_at')::TIMESTAMPTZ AS shown_at,
    fields->>'$.click_id' AS click_id, (fields->>'$.clicked_at')::TIMESTAMPTZ AS clicked_at
FROM (
    SELECT *, max(timestamp_ms) OVER (PARTITION BY batch, topic, task ORDER BY "offset") AS running_max_ms
    FROM events WHERE readable AND topic <> 'ads-campaigns'
);

-- Of a pair, the record that comes second finds the first one, unless a record of that side has come meanwhile, or
-- before, that is younger by the time for which the join keeps records.
CREATE OR REPLACE TABLE kept AS
SELECT *, max(timestamp_ms) FILTER (topic = 'ads-impressions') OVER so_far AS newest_shown_ms,
    max(timestamp_ms) FILTER (topic = 'ads-clicks') OVER so_far AS newest_clicked_ms
FROM taken WHERE key IS NOT NULL AND fields IS NOT NULL
WINDOW so_far AS (PARTITION BY task ORDER BY position ROWS UNBOUNDED PRECEDING);

CREATE OR REPLACE TABLE pairs AS
SELECT i.key_text AS impression_id, i.campaign_id, i.user_id, i.price, i.shown_at, c.click_id, c.clicked_at,
    epoch_ms(c.clicked_at) - epoch_ms(i.shown_at) AS delay_ms, c.timestamp_ms, i.task,
    unnest(if(c.position > i.position,
        {'batch': c.batch, 'topic': c.topic, 'offset': c."offset", 'position': c.position,
         'turn': {'ms': i.timestamp_ms, 'position': i.position}},
        {'batch': i.batch, 'topic': i.topic, 'offset': i."offset", 'position': i.position,
         'turn': {'ms': c.timestamp_ms, 'position': c.position}}))
FROM kept AS i JOIN kept AS c
    ON i.topic = 'ads-impressions' AND c.topic = 'ads-clicks' AND i.task = c.task AND i.key = c.key
    AND c.timestamp_ms BETWEEN i.timestamp_ms AND i.timestamp_ms + near_ms()
WHERE if(c.position > i.position, i.timestamp_ms > c.newest_shown_ms - kept_ms(), c.timestamp_ms > i.newest_clicked_ms - kept_ms());

CREATE OR REPLACE TABLE ad_clicks AS
SELECT p.*, c.name AS campaign, c.advertiser
FROM pairs AS p ASOF LEFT JOIN campaigns AS c ON p.campaign_id = c.campaign_id AND p.batch >= c.batch;

-- 4. Hops: to the task of the user, and to the task of the campaign; each upstream task counts as a partition ----------
-- Late is what is an hour or more behind the newest record that the task has seen, itself included.

CREATE OR REPLACE TABLE arrivals AS
SELECT *, max(timestamp_ms) OVER (PARTITION BY hop, target ORDER BY arrival) AS newest_ms,
    newest_ms - timestamp_ms < grace_ms() AS on_time
FROM (
    SELECT *, row_number() OVER (PARTITION BY hop, target ORDER BY batch, highest_ms, exchange, task, place) AS arrival
    FROM (
        SELECT *, max(timestamp_ms) OVER sent AS highest_ms, row_number() OVER sent - 1 AS place
        FROM (
            SELECT *, partition_of(encode(target_key), getvariable('tasks')) AS target
            FROM (
                SELECT 'user' AS hop, 'ads-by-user-repartition' AS exchange, user_id AS target_key, * FROM ad_clicks
                WHERE user_id <> ''
                UNION ALL BY NAME
                SELECT 'campaign' AS hop, 'ads-clicks-repartition' AS exchange, campaign_id AS target_key, * FROM ad_clicks
                UNION ALL BY NAME
                SELECT 'campaign' AS hop, 'ads-impressions-repartition' AS exchange, campaign_id AS target_key,
                    task, batch, position, timestamp_ms, campaign_id
                FROM taken WHERE topic = 'ads-impressions' AND fields IS NOT NULL
            )
        )
        WINDOW sent AS (PARTITION BY batch, exchange, task, target ORDER BY position, turn ROWS UNBOUNDED PRECEDING)
    )
);

-- 5. Minutes: one ends with each click, one begins right after it; those with five clicks or more are bursts -----------

CREATE OR REPLACE TABLE of_users AS SELECT * FROM arrivals WHERE hop = 'user' AND on_time;

CREATE OR REPLACE VIEW "expected ads_bursts" AS
SELECT w.user_id, instant(start_ms) AS window_start, instant(start_ms + minute_ms()) AS window_end, count(*) AS clicks,
    instant(max(c.timestamp_ms)) AS timestamp, start_ms + minute_ms() < any_value(now_ms) - grace_ms() AS is_final
FROM (
    SELECT user_id, timestamp_ms - minute_ms() AS start_ms FROM of_users UNION SELECT user_id, timestamp_ms + 1 FROM of_users
) AS w
JOIN of_users AS c ON c.user_id = w.user_id AND c.timestamp_ms BETWEEN w.start_ms AND w.start_ms + minute_ms()
JOIN (SELECT target, max(timestamp_ms) AS now_ms FROM of_users GROUP BY target) AS t ON t.target = c.target
GROUP BY w.user_id, start_ms HAVING count(*) >= 5;

-- 6. Hours: impressions and clicks on time; the table calls them final when they are for both streams ------------------

CREATE OR REPLACE TABLE of_campaigns AS SELECT * FROM arrivals WHERE hop = 'campaign' AND on_time;

CREATE OR REPLACE TABLE hours AS
SELECT campaign_id, target, timestamp_ms // hour_ms() * hour_ms() AS start_ms, start_ms + hour_ms() AS end_ms,
    count(*) FILTER (click_id IS NULL) AS impressions, count(click_id) AS clicks,
    coalesce(sum(price) FILTER (click_id IS NOT NULL), 0) AS spent, max(timestamp_ms) AS at_ms
FROM of_campaigns GROUP BY ALL;

CREATE OR REPLACE VIEW "expected ads_hours" AS
SELECT campaign_id, instant(start_ms) AS window_start, instant(end_ms) AS window_end, impressions, clicks,
    money(spent) AS spent, instant(at_ms) AS timestamp,
    coalesce(end_ms <= shown_ms - grace_ms() AND end_ms <= clicked_ms - grace_ms(), false) AS is_final
FROM hours JOIN (
    SELECT target, max(timestamp_ms) FILTER (click_id IS NULL) AS shown_ms,
        max(timestamp_ms) FILTER (click_id IS NOT NULL) AS clicked_ms
    FROM of_campaigns GROUP BY target
) USING (target);

-- An hour closes with the first record, of either stream, that is an hour past its end.
CREATE OR REPLACE TABLE closed_hours AS
SELECT h.*, t.batch
FROM hours AS h ASOF JOIN (SELECT target, newest_ms, min(batch) AS batch FROM of_campaigns GROUP BY ALL) AS t
    ON h.target = t.target AND h.end_ms + grace_ms() <= t.newest_ms;

CREATE OR REPLACE VIEW "expected ads-hours" AS
SELECT h.campaign_id AS key, target AS "partition", row_number() OVER (PARTITION BY h.campaign_id ORDER BY start_ms) AS nth,
    instant(start_ms) AS hour, impressions, clicks, money(spent) AS spent, c.name AS campaign,
    money(c.hourly_budget - spent) AS left, instant(at_ms) AS timestamp
FROM closed_hours AS h ASOF LEFT JOIN campaigns AS c ON h.campaign_id = c.campaign_id AND h.batch >= c.batch;

-- 7. Clicks ----------------------------------------------------------------------------------------------------------

CREATE OR REPLACE VIEW "expected ads_clicks" AS
SELECT impression_id, campaign_id, user_id, money(price) AS price, shown_at, click_id, clicked_at, delay_ms, campaign,
    advertiser, instant(timestamp_ms) AS timestamp, topic AS source_topic, task AS source_partition, "offset" AS source_offset
FROM ad_clicks;

CREATE OR REPLACE VIEW "expected ads_late" AS
SELECT campaign_id, user_id, money(price) AS price, shown_at, impression_id, click_id, clicked_at, delay_ms, campaign,
    advertiser, instant(timestamp_ms) AS timestamp, exchange AS source_topic, task AS source_partition,
    batch * 4294967296 + place AS source_offset
FROM arrivals WHERE exchange = 'ads-clicks-repartition' AND NOT on_time;

-- No money is lost: every click is in an hour or late.
CREATE OR REPLACE VIEW "expected money of clicks" AS
SELECT campaign_id, count(*) AS clicks, money(sum(price)) AS price FROM ad_clicks GROUP BY campaign_id;

-- 8. What does not decode ---------------------------------------------------------------------------------------------

CREATE OR REPLACE VIEW "expected ads_dead_letters" AS
SELECT key, value, topic, "partition", "offset", instant(timestamp_ms) AS timestamp,
    'deltaworks.errors.SerializationError' AS error_class, topic[5:] AS operator
FROM events WHERE NOT readable AND topic <> 'ads-campaigns';

CREATE OR REPLACE VIEW "expected ads-dead-letters" AS SELECT * EXCLUDE operator FROM "expected ads_dead_letters";
