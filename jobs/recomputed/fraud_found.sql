-- The results of jobs/fraud.py as they are, in the columns of fraud.sql.
--
-- Given:  one relation "table <name>" per Delta table
--         outputs  topic, "partition", "offset", timestamp_ms, key, value, headers     the output topics, read committed
-- Gives:  "found <result>", one view per Delta table and output topic.

CREATE OR REPLACE VIEW "found fraud_alerts" AS SELECT * FROM "table fraud_alerts";

CREATE OR REPLACE VIEW "found fraud-alerts" AS
SELECT decode(key) AS key, "partition", row_number() OVER (PARTITION BY key ORDER BY "partition", "offset") AS nth,
    make_timestamptz(timestamp_ms * 1000) AS timestamp,
    unnest(from_json_strict(decode(value), '{"payment_id": "VARCHAR", "amount": "DECIMAL(38, 18)", "country": "VARCHAR",
        "rule": "VARCHAR", "payments": "BIGINT", "total": "DECIMAL(38, 18)", "last_country": "VARCHAR",
        "last_ms": "BIGINT", "in_five_minutes": "BIGINT", "in_hour_before": "BIGINT"}'))
FROM outputs WHERE topic = 'fraud-alerts';

CREATE OR REPLACE VIEW "found fraud_dead_letters" AS
SELECT key, value, topic, "partition", "offset", timestamp, error_class, operator FROM "table fraud_dead_letters";

CREATE OR REPLACE MACRO header(headers, name) AS
    decode(list_filter(headers, lambda h: h.name = '__streams.errors.' || name)[1].value);

CREATE OR REPLACE VIEW "found fraud-dead-letters" AS
SELECT key, value, header(headers, 'topic') AS topic, header(headers, 'partition')::INTEGER AS "partition",
    header(headers, 'offset')::BIGINT AS "offset", make_timestamptz(timestamp_ms * 1000) AS timestamp,
    header(headers, 'exception') AS error_class
FROM outputs WHERE topic = 'fraud-dead-letters';
