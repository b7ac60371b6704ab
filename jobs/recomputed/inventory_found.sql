-- The results of jobs/inventory.py as they are, in the columns of inventory.sql.
--
-- Given:  instant, dead_letters_in                                              common.sql
--         one relation "table <name>" per Delta table
--         outputs  topic, "partition", "offset", timestamp_ms, key, value, headers     the output topics, read committed
-- Gives:  "found <result>", one view per Delta table and output topic.

CREATE OR REPLACE VIEW "found inventory_stock" AS SELECT * FROM "table inventory_stock";
CREATE OR REPLACE VIEW "found inventory_stock_changelog" AS SELECT * FROM "table inventory_stock_changelog";
CREATE OR REPLACE VIEW "found inventory_customer_hours" AS SELECT * EXCLUDE window_date FROM "table inventory_customer_hours";
CREATE OR REPLACE VIEW "found inventory_customer_orders" AS SELECT * FROM "table inventory_customer_orders";
CREATE OR REPLACE VIEW "found inventory_dead_letters" AS SELECT * FROM "table inventory_dead_letters";

CREATE OR REPLACE VIEW "found inventory-alerts" AS
SELECT store, item, "partition", row_number() OVER (PARTITION BY store, item ORDER BY "partition", "offset") AS nth,
    pieces, level, was, counted_at, timestamp
FROM (
    SELECT "partition", "offset", instant(timestamp_ms) AS timestamp,
        unnest(from_json_strict(decode(key), '{"store": "VARCHAR", "item": "VARCHAR"}')),
        unnest(from_json_strict(decode(value), '{"pieces": "BIGINT", "level": "VARCHAR", "was": "VARCHAR",
            "counted_at": "TIMESTAMPTZ"}'))
    FROM outputs WHERE topic = 'inventory-alerts'
);

CREATE OR REPLACE VIEW "found inventory-customer-orders" AS
SELECT key, "partition", row_number() OVER (PARTITION BY key ORDER BY "partition", "offset") AS nth,
    order_id, shelf.store, shelf.item, pieces, amount, ordered_at, day.orders AS day_orders, day.amount AS day_amount, timestamp
FROM (
    SELECT decode(key) AS key, "partition", "offset", instant(timestamp_ms) AS timestamp,
        unnest(from_json_strict(decode(value), '{"order_id": "VARCHAR", "shelf": {"store": "VARCHAR", "item": "VARCHAR"},
            "pieces": "BIGINT", "amount": "DECIMAL(38, 18)", "ordered_at": "TIMESTAMPTZ",
            "day": {"orders": "BIGINT", "amount": "DECIMAL(38, 18)"}}'))
    FROM outputs WHERE topic = 'inventory-customer-orders'
);

CREATE OR REPLACE VIEW "found inventory-dead-letters" AS FROM dead_letters_in('outputs', 'inventory-dead-letters');
