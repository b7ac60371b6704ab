-- Recomputes every result of jobs/customers.py from its three input topics, in plain DuckDB; shares no code with it.
--
-- Given:  processed, partition_of, instant                                    common.sql
--         tasks    variable                  partitions of each input topic, and tasks
-- Gives:  "expected <result>", one view per Delta table and output topic.
--
-- Of customers_orders and customers_totals only what the snapshot holds in the end is here, and of customers-orders what
-- each key has last: which updates they pass through depends on which records share a micro-batch.

-- 1. What a record is ------------------------------------------------------------------------------------------------

CREATE OR REPLACE MACRO euros(base64) AS
    ((('0x' || hex(from_base64(base64)))::UBIGINT)::DECIMAL(20, 2) / 100)::DECIMAL(20, 2);

-- An envelope says its operation, a row of ExtractNewRecordState whether it is deleted. A null value deletes, too.
CREATE OR REPLACE TABLE events AS
SELECT *, CASE WHEN form = 'envelope' THEN document->'$.after' ELSE document END AS fields,
    CASE WHEN value IS NULL THEN 'delete'
         WHEN document IS NULL THEN 'malformed'
         WHEN form = 'envelope' AND document->>'$.op' = 't' THEN 'malformed'
         WHEN form = 'envelope' AND document->>'$.op' = 'd' THEN 'delete'
         WHEN form = 'row' AND document->>'$.__deleted' = 'true' THEN 'delete'
         ELSE 'row' END AS what
FROM (
    SELECT * EXCLUDE (whole), if(json_exists(whole, '$.payload.op'), whole->'$.payload', whole) AS document,
        if(json_exists(document, '$.source.connector'), 'envelope', 'row') AS form
    FROM (
        SELECT * EXCLUDE (position, running_max_ms), TRY(decode(key)) AS key_text,
            TRY_CAST(TRY(decode(value)) AS JSON) AS whole
        FROM processed
    )
);

-- A note that was not sent is that of the row before.
CREATE OR REPLACE MACRO note_of(document) AS if(
    document->>'$.after.note' = '__debezium_unavailable_value', document->>'$.before.note', document->>'$.after.note');

CREATE OR REPLACE TABLE readable AS
SELECT *, (key IS NULL OR coalesce(regexp_full_match(key_text,
        if(topic = 'cdc.order_lines', '\{"order_id":\d+,"number":\d+\}', '\{"id":\d+\}')), false))
    AND (what = 'delete' OR (what = 'row' AND coalesce(CASE topic
        WHEN 'cdc.customers' THEN json_type(fields, ['$.name', '$.city', '$.vip', '$.since'])
            IN (['VARCHAR', 'VARCHAR', 'BOOLEAN', 'UBIGINT'])
        WHEN 'cdc.orders' THEN json_type(fields, '$.customer_id') IN ('UBIGINT', 'NULL')
            AND fields->>'$.status' IN ('new', 'paid', 'shipped')
            AND json_type(fields, '$.ordered_at') = 'UBIGINT'
            AND (fields->>'$.note' IS NULL OR note_of(document) IS NOT NULL)
        ELSE true END, false))) AS reads
FROM events;

-- 2. Customers: each update once, so not the null after a deletion, and no deletion of who is not there ----------------

CREATE OR REPLACE TABLE customer_updates AS
SELECT *, (key_text->>'$.id')::BIGINT AS customer_id
FROM (
    SELECT *, lag(what, 1, 'delete') OVER (PARTITION BY key ORDER BY "offset") AS known
    FROM readable WHERE topic = 'cdc.customers' AND reads AND key IS NOT NULL
)
WHERE what = 'row' OR known = 'row';

CREATE OR REPLACE VIEW "expected customers_changelog" AS
SELECT customer_id, if(what = 'row', fields->>'$.name', NULL) AS name, if(what = 'row', fields->>'$.city', NULL) AS city,
    if(what = 'row', (fields->>'$.vip')::BOOLEAN, NULL) AS vip,
    if(what = 'row', DATE '1970-01-01' + (fields->>'$.since')::INTEGER, NULL) AS since,
    if(what = 'row', 'upsert', 'delete') AS op, instant(timestamp_ms) AS timestamp, topic AS source_topic,
    "partition" AS source_partition, "offset" AS source_offset, batch AS batch_id
FROM customer_updates;

CREATE OR REPLACE VIEW "expected customers" AS
SELECT * EXCLUDE op FROM (
    FROM "expected customers_changelog"
    QUALIFY row_number() OVER (PARTITION BY customer_id ORDER BY source_offset DESC) = 1
) WHERE op = 'upsert';

-- 3. Orders as they are now, with what their lines come to ------------------------------------------------------------

CREATE OR REPLACE TABLE orders AS
SELECT (key_text->>'$.id')::BIGINT AS order_id, (fields->>'$.customer_id')::BIGINT AS customer_id,
    fields->>'$.status' AS status, make_timestamptz((fields->>'$.ordered_at')::BIGINT) AS ordered_at,
    note_of(document) AS note
FROM (
    FROM readable WHERE topic = 'cdc.orders' AND reads AND key IS NOT NULL
    QUALIFY row_number() OVER (PARTITION BY key ORDER BY "offset" DESC) = 1
)
WHERE what = 'row';

CREATE OR REPLACE TABLE lines AS
SELECT (key_text->>'$.order_id')::BIGINT AS order_id,
    ((fields->>'$.quantity')::INTEGER * euros(fields->>'$.price'))::DECIMAL(20, 2) AS amount
FROM (
    FROM readable WHERE topic = 'cdc.order_lines' AND reads AND key IS NOT NULL
    QUALIFY row_number() OVER (PARTITION BY key ORDER BY "offset" DESC) = 1
)
WHERE what = 'row';

CREATE OR REPLACE VIEW "expected customers_orders" AS
SELECT o.order_id, o.customer_id, o.status, o.ordered_at, o.note, coalesce(l.lines, 0) AS lines,
    coalesce(l.amount, 0)::DECIMAL(20, 2) AS amount, c.name AS customer_name, c.city
FROM orders o
LEFT JOIN (SELECT order_id, count(*) AS lines, sum(amount)::DECIMAL(20, 2) AS amount FROM lines GROUP BY order_id) l
    USING (order_id)
LEFT JOIN "expected customers" c ON o.customer_id = c.customer_id;

CREATE OR REPLACE VIEW "expected customers-orders" AS
SELECT order_id::VARCHAR AS key, partition_of(encode(order_id::VARCHAR), getvariable('tasks')) AS "partition",
    * EXCLUDE order_id
FROM "expected customers_orders";

CREATE OR REPLACE VIEW "expected customers_totals" AS
SELECT customer_id, count(*) AS orders, sum(amount)::DECIMAL(20, 2) AS amount
FROM "expected customers_orders" WHERE customer_id IS NOT NULL GROUP BY customer_id;

-- 4. What is not read -------------------------------------------------------------------------------------------------

CREATE OR REPLACE VIEW "expected customers_dead_letters" AS
SELECT key, value, topic, "partition", "offset", instant(timestamp_ms) AS timestamp,
    'deltaworks.errors.SerializationError' AS error_class,
    if(topic = 'cdc.order_lines', 'lines', replace(topic, 'cdc.', '')) || '-source' AS operator
FROM readable WHERE NOT reads;

CREATE OR REPLACE VIEW "expected customers-dead-letters" AS
SELECT * EXCLUDE operator FROM "expected customers_dead_letters";
