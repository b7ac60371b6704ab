-- The results of jobs/fraud.py as they are, in the columns of fraud.sql.
--
-- Given:  instant, dead_letters_in                                              common.sql
--         one relation "table <name>" per Delta table
--         outputs  topic, "partition", "offset", timestamp_ms, key, value, headers     the output topics, read committed
-- Gives:  "found <result>", one view per Delta table and output topic.

CREATE OR REPLACE VIEW "found fraud_alerts" AS SELECT * FROM "table fraud_alerts";

CREATE OR REPLACE VIEW "found fraud-alerts" AS
SELECT decode(key) AS user_id, "partition", row_number() OVER (PARTITION BY key ORDER BY "partition", "offset") AS nth,
    instant(timestamp_ms) AS timestamp,
    unnest(from_json_strict(decode(value), '{"payment_id": "VARCHAR", "amount": "DECIMAL(38, 18)", "country": "VARCHAR",
        "rule": "VARCHAR", "payments": "BIGINT", "total": "DECIMAL(38, 18)", "last_country": "VARCHAR",
        "last_ms": "BIGINT", "in_five_minutes": "BIGINT", "in_hour_before": "BIGINT"}'))
FROM outputs WHERE topic = 'fraud-alerts';

CREATE OR REPLACE VIEW "found fraud_dead_letters" AS
SELECT key, value, topic, "partition", "offset", timestamp, error_class, operator FROM "table fraud_dead_letters";

CREATE OR REPLACE VIEW "found fraud-dead-letters" AS FROM dead_letters_in('outputs', 'fraud-dead-letters');
