-- The results of jobs/customers.py as they are, in the columns of customers.sql.
--
-- Given:  instant, dead_letters_in                                              common.sql
--         one relation "table <name>" per Delta table
--         outputs  topic, "partition", "offset", timestamp_ms, key, value, headers     the output topics, read committed
-- Gives:  "found <result>", one view per Delta table and output topic.

CREATE OR REPLACE VIEW "found customers" AS SELECT * FROM "table customers";
CREATE OR REPLACE VIEW "found customers_changelog" AS SELECT * FROM "table customers_changelog";
CREATE OR REPLACE VIEW "found customers_orders" AS SELECT * FROM "table customers_orders";
CREATE OR REPLACE VIEW "found customers_totals" AS SELECT * FROM "table customers_totals";
CREATE OR REPLACE VIEW "found customers_dead_letters" AS SELECT * FROM "table customers_dead_letters";

CREATE OR REPLACE VIEW "found customers-orders" AS
SELECT key, "partition", unnest(from_json_strict(value, '{"customer_id": "BIGINT", "status": "VARCHAR",
    "ordered_at": "TIMESTAMPTZ", "note": "VARCHAR", "lines": "BIGINT", "amount": "DECIMAL(20, 2)",
    "customer_name": "VARCHAR", "city": "VARCHAR"}'))
FROM (
    SELECT decode(key) AS key, "partition", decode(value) AS value FROM outputs WHERE topic = 'customers-orders'
    QUALIFY row_number() OVER (PARTITION BY outputs.key ORDER BY "offset" DESC) = 1
)
WHERE value IS NOT NULL;

CREATE OR REPLACE VIEW "found customers-dead-letters" AS FROM dead_letters_in('outputs', 'customers-dead-letters');
