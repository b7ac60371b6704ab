-- The results of jobs/orders.py as they are, in the columns of orders.sql.
--
-- Given:  instant, dead_letters_in                                              common.sql
--         one relation "table <name>" per Delta table
--         outputs  topic, "partition", "offset", timestamp_ms, key, value, headers     the output topics, read committed
-- Gives:  "found <result>", one view per Delta table and output topic.

CREATE OR REPLACE VIEW "found enriched_orders" AS SELECT * FROM "table enriched_orders";
CREATE OR REPLACE VIEW "found order_counts" AS SELECT * EXCLUDE window_date FROM "table order_counts";
CREATE OR REPLACE VIEW "found user_revenue" AS SELECT * EXCLUDE window_date FROM "table user_revenue";
CREATE OR REPLACE VIEW "found user_sessions" AS SELECT * EXCLUDE window_date FROM "table user_sessions";
CREATE OR REPLACE VIEW "found users_changelog" AS SELECT * FROM "table users_changelog";
CREATE OR REPLACE VIEW "found users" AS SELECT * FROM "table users";
CREATE OR REPLACE VIEW "found dead_letters" AS
SELECT key, value, topic, "partition", "offset", timestamp, error_class, operator FROM "table dead_letters";

CREATE OR REPLACE VIEW found_in_topics AS
SELECT topic, "partition", row_number() OVER (PARTITION BY topic, key ORDER BY "partition", "offset") AS nth,
    decode(key) AS key, instant(timestamp_ms) AS timestamp,
    order_id, user_id, user_name, user_country, amount, type, item, location, country, city, event_time
FROM (
    SELECT *, unnest(from_json_strict(decode(value), '{"order_id": "VARCHAR", "user_id": "VARCHAR",
        "user_name": "VARCHAR", "user_country": "VARCHAR", "amount": "DECIMAL(38, 18)", "type": "VARCHAR",
        "item": "VARCHAR", "location": "VARCHAR", "country": "VARCHAR", "city": "VARCHAR", "event_time": "TIMESTAMPTZ"}'))
    FROM outputs WHERE topic IN ('enriched-orders', 'premium-orders', 'standard-orders')
);

CREATE OR REPLACE VIEW "found enriched-orders" AS
SELECT * EXCLUDE topic FROM found_in_topics WHERE topic = 'enriched-orders';
CREATE OR REPLACE VIEW "found premium-orders" AS
SELECT * EXCLUDE topic FROM found_in_topics WHERE topic = 'premium-orders';
CREATE OR REPLACE VIEW "found standard-orders" AS
SELECT * EXCLUDE topic FROM found_in_topics WHERE topic = 'standard-orders';

CREATE OR REPLACE VIEW "found orders-dead-letters" AS FROM dead_letters_in('outputs', 'orders-dead-letters');

-- The two faces of the users: the snapshot is the changelog reduced to the last update per key.
CREATE OR REPLACE VIEW "expected users = users_changelog" AS
SELECT * EXCLUDE op FROM (
    SELECT * FROM "found users_changelog"
    QUALIFY row_number() OVER (PARTITION BY user_id ORDER BY batch_id DESC, source_offset DESC) = 1
) WHERE op = 'upsert';
CREATE OR REPLACE VIEW "found users = users_changelog" AS SELECT * FROM "found users";
