-- The results of jobs/enrichment.py as they are, in the columns of enrichment.sql.
--
-- Given:  instant, dead_letters_in                                              common.sql
--         one relation "table <name>" per Delta table
--         outputs  topic, "partition", "offset", timestamp_ms, key, value, headers     the output topics, read committed
-- Gives:  "found <result>", one view per Delta table and output topic.

CREATE OR REPLACE VIEW "found enrichment_checked" AS SELECT * FROM "table enrichment_checked";
CREATE OR REPLACE VIEW "found enrichment_customers" AS SELECT * FROM "table enrichment_customers";
CREATE OR REPLACE VIEW "found enrichment_customers_changelog" AS SELECT * FROM "table enrichment_customers_changelog";
CREATE OR REPLACE VIEW "found enrichment_current" AS SELECT * FROM "table enrichment_current";
CREATE OR REPLACE VIEW "found enrichment_tiers" AS SELECT * FROM "table enrichment_tiers";
CREATE OR REPLACE VIEW "found enrichment_dead_letters" AS SELECT * FROM "table enrichment_dead_letters";

CREATE OR REPLACE VIEW "found enrichment-checked" AS
SELECT key, "partition", row_number() OVER (PARTITION BY key, customer_id ORDER BY "partition", "offset") AS nth,
    order_id, customer_id, amount, ordered_at, customer_name, tier, credit_limit, credit, timestamp
FROM (
    SELECT decode(key) AS key, "partition", "offset", instant(timestamp_ms) AS timestamp,
        unnest(from_json_strict(decode(value), '{"order_id": "VARCHAR", "customer_id": "VARCHAR",
            "amount": "DECIMAL(38, 18)", "ordered_at": "TIMESTAMPTZ", "customer_name": "VARCHAR", "tier": "VARCHAR",
            "credit_limit": "DECIMAL(38, 18)", "credit": "VARCHAR"}'))
    FROM outputs WHERE topic = 'enrichment-checked'
);

CREATE OR REPLACE VIEW "found enrichment-dead-letters" AS FROM dead_letters_in('outputs', 'enrichment-dead-letters');
