-- The results of jobs/ads.py as they are, in the columns of ads.sql.
--
-- Given:  instant, money, dead_letters_in                                       common.sql
--         one relation "table <name>" per Delta table
--         outputs  topic, "partition", "offset", timestamp_ms, key, value, headers     the output topics, read committed
-- Gives:  "found <result>", one view per Delta table and output topic.

CREATE OR REPLACE VIEW "found ads_clicks" AS SELECT * FROM "table ads_clicks";
CREATE OR REPLACE VIEW "found ads_late" AS SELECT * FROM "table ads_late";
CREATE OR REPLACE VIEW "found ads_bursts" AS SELECT * EXCLUDE window_date FROM "table ads_bursts";
CREATE OR REPLACE VIEW "found ads_hours" AS SELECT * EXCLUDE window_date FROM "table ads_hours";
CREATE OR REPLACE VIEW "found ads_dead_letters" AS SELECT * FROM "table ads_dead_letters";

CREATE OR REPLACE VIEW "found ads-hours" AS
SELECT key, "partition", row_number() OVER (PARTITION BY key ORDER BY "partition", "offset") AS nth,
    hour, impressions, clicks, spent, campaign, "left", timestamp
FROM (
    SELECT decode(key) AS key, "partition", "offset", instant(timestamp_ms) AS timestamp,
        unnest(from_json_strict(decode(value), '{"impressions": "BIGINT", "clicks": "BIGINT", "spent": "DECIMAL(38, 18)",
            "hour": "TIMESTAMPTZ", "campaign": "VARCHAR", "left": "DECIMAL(38, 18)"}'))
    FROM outputs WHERE topic = 'ads-hours'
);

CREATE OR REPLACE VIEW "found money of clicks" AS
SELECT campaign_id, sum(clicks)::BIGINT AS clicks, money(sum(price)) AS price FROM (
    SELECT campaign_id, clicks, spent AS price FROM "found ads_hours" WHERE clicks > 0
    UNION ALL SELECT campaign_id, 1, price FROM "found ads_late"
) GROUP BY campaign_id;

CREATE OR REPLACE VIEW "found ads-dead-letters" AS FROM dead_letters_in('outputs', 'ads-dead-letters');
