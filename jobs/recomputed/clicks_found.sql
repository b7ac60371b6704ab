-- The results of jobs/clicks.py as they are, in the columns of clicks.sql.
--
-- Given:  instant, dead_letters_in                                              common.sql
--         one relation "table <name>" per Delta table
--         outputs  topic, "partition", "offset", timestamp_ms, key, value, headers     the output topics, read committed
-- Gives:  "found <result>", one view per Delta table and output topic.

CREATE OR REPLACE VIEW "found clicks_pages" AS SELECT * EXCLUDE window_date FROM "table clicks_pages";
CREATE OR REPLACE VIEW "found clicks_late" AS SELECT * FROM "table clicks_late";
CREATE OR REPLACE VIEW "found clicks_visits" AS SELECT * EXCLUDE window_date FROM "table clicks_visits";
CREATE OR REPLACE VIEW "found clicks_dead_letters" AS
SELECT key, value, topic, "partition", "offset", timestamp, error_class, operator FROM "table clicks_dead_letters";

CREATE OR REPLACE VIEW "found clicks-visits" AS
SELECT "partition", decode(key) AS key, row_number() OVER (PARTITION BY key ORDER BY "partition", "offset") AS nth,
    instant(timestamp_ms) AS timestamp, unnest(from_json_strict(decode(value), '{"clicks": "BIGINT",
        "started": "TIMESTAMPTZ", "ended": "TIMESTAMPTZ", "first_page": "VARCHAR", "last_page": "VARCHAR",
        "duration_ms": "BIGINT"}'))
FROM outputs WHERE topic = 'clicks-visits';

CREATE OR REPLACE VIEW "found clicks in visits" AS
SELECT user_id, sum(clicks)::BIGINT AS clicks FROM (
    SELECT user_id, clicks FROM "found clicks_visits" UNION ALL SELECT user_id, 1 FROM "found clicks_late"
) GROUP BY user_id;

CREATE OR REPLACE VIEW "found clicks-dead-letters" AS FROM dead_letters_in('outputs', 'clicks-dead-letters');
