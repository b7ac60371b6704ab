-- Recomputes every result of jobs/inventory.py from its two input topics, in plain DuckDB; shares no code with it.
--
-- Given:  processed, partition_of, instant, money                             common.sql
--         tasks    variable                  partitions of each input topic, tasks before and after the hop
-- Gives:  "expected <result>", one view per Delta table and output topic.

-- 1. What decodes ----------------------------------------------------------------------------------------------------

CREATE OR REPLACE MACRO is_pieces(number) AS
    json_type(number) IN ('BIGINT', 'UBIGINT') AND TRY_CAST(number AS BIGINT) BETWEEN 0 AND 1000000;
-- A time must say in which zone it is.
CREATE OR REPLACE MACRO is_instant(text) AS regexp_matches(text, '(Z|[+-]\d\d:\d\d)$') AND TRY_CAST(text AS TIMESTAMPTZ) IS NOT NULL;

CREATE OR REPLACE TABLE events AS
SELECT *, (key_text IS NOT NULL) = (key IS NOT NULL) AND (value IS NULL OR fields IS NOT NULL) AS readable
FROM (
    SELECT * EXCLUDE (position, running_max_ms), TRY(decode(key)) AS key_text,
        TRY_CAST(TRY(decode(value)) AS JSON) AS document,
        CASE WHEN json_type(document, ['$.shelf.store', '$.shelf.item']) = ['VARCHAR', 'VARCHAR']
            AND is_pieces(document->'$.pieces') AND CASE topic
                WHEN 'inventory-movements' THEN is_instant(document->>'$.moved_at')
                    AND document->>'$.kind' IN ('delivery', 'sale', 'count')
                -- A JSON number passes through a double here: exact for up to 15 digits, and no amount has more.
                ELSE is_instant(document->>'$.ordered_at') AND json_type(document, '$.order_id') = 'VARCHAR'
                    AND json_type(document, '$.amount') IN ('VARCHAR', 'DOUBLE', 'BIGINT', 'UBIGINT')
                    AND TRY_CAST(document->>'$.amount' AS DECIMAL(38, 18)) IS NOT NULL
                END
        THEN document END AS fields
    FROM processed
);

-- 2. Stage 0, a task per partition of both topics --------------------------------------------------------------------
-- What does not decode is set aside before the order of records is decided; of the others the lowest head goes first.

CREATE OR REPLACE TABLE taken AS
SELECT * EXCLUDE running_max_ms,
    row_number() OVER (PARTITION BY task ORDER BY batch, running_max_ms, topic, "offset") AS position,
    fields->>'$.shelf.store' AS store, fields->>'$.shelf.item' AS item,
    (fields->'$.pieces')::BIGINT AS pieces, coalesce(fields->>'$.moved_at', fields->>'$.ordered_at')::TIMESTAMPTZ AS happened_at
FROM (
    SELECT *, max(timestamp_ms) OVER (PARTITION BY batch, topic, task ORDER BY "offset") AS running_max_ms
    FROM events WHERE readable
);

CREATE OR REPLACE TABLE orders AS
SELECT *, fields->>'$.order_id' AS order_id, (fields->>'$.amount')::DECIMAL(38, 18) AS amount
FROM taken WHERE topic = 'inventory-orders' AND fields IS NOT NULL;

-- 3. A customer's hours: late is what ends an hour or more before the task's stream time -----------------------------

CREATE OR REPLACE TABLE in_hours AS
SELECT *, start_ms + 3600000 <= stream_time_ms - 3600000 AS late
FROM (
    SELECT *, timestamp_ms // 3600000 * 3600000 AS start_ms,
        max(timestamp_ms) OVER (PARTITION BY task ORDER BY position) AS stream_time_ms
    FROM orders WHERE key IS NOT NULL
);

-- Each order with the hours of its customer as they were then: the order's own hour and the 23 before, of those which
-- are not older than the 24 newest hours of the task.
CREATE OR REPLACE TABLE customer_orders AS
SELECT o.*, coalesce(d.orders, 0) AS day_orders, coalesce(d.amount, 0) AS day_amount
FROM in_hours o LEFT JOIN (
    SELECT o.task, o.position, count(*) AS orders, sum(e.amount) AS amount
    FROM in_hours o JOIN in_hours e
        ON o.task = e.task AND o.key = e.key AND e.position <= o.position AND NOT e.late
        AND e.start_ms BETWEEN o.timestamp_ms - 86400000 AND o.timestamp_ms
        AND e.start_ms > o.stream_time_ms // 3600000 * 3600000 - 86400000
    GROUP BY ALL
) d ON o.task = d.task AND o.position = d.position;

-- 4. Stage 1: movements and sales come to the task that owns their shelf ---------------------------------------------
-- Each upstream task counts as a partition. The key of a shelf is its JSON.

CREATE OR REPLACE TABLE moved AS
SELECT *, row_number() OVER (PARTITION BY target ORDER BY batch, running_max_ms, task, position) AS arrival
FROM (
    SELECT *, max(timestamp_ms) OVER (PARTITION BY batch, task, target ORDER BY position) AS running_max_ms
    FROM (
        SELECT batch, task, position, timestamp_ms, store, item, pieces, happened_at,
            if(topic = 'inventory-orders', 'sale', fields->>'$.kind') AS kind,
            partition_of(encode(to_json({'store': store, 'item': item})), getvariable('tasks')) AS target
        FROM taken WHERE fields IS NOT NULL
    )
);

-- A count begins a new sum; what is not younger than the last count is in it already. Every update is forwarded.
CREATE OR REPLACE TABLE stock_updates AS
WITH known AS (
    SELECT *, max(happened_at) FILTER (kind = 'count') OVER (
        PARTITION BY store, item ORDER BY arrival ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS last_count
    FROM moved
), summed AS (
    SELECT *, last_count IS NULL OR happened_at > last_count AS counts,
        count(*) FILTER (kind = 'count' AND counts) OVER (PARTITION BY store, item ORDER BY arrival) AS since
    FROM known
), totals AS (
    SELECT store, item, arrival, batch, if(kind = 'count' AND counts, happened_at, last_count) AS counted_at,
        sum(CASE WHEN counts THEN if(kind = 'sale', -pieces, pieces) ELSE 0 END)
            OVER (PARTITION BY store, item, since ORDER BY arrival)::BIGINT AS pieces,
        max(timestamp_ms) OVER (PARTITION BY store, item ORDER BY arrival) AS at_ms
    FROM summed
)
SELECT *, CASE WHEN pieces < 0 THEN 'negative' WHEN pieces < 10 THEN 'low' ELSE 'ok' END AS level,
    lag(CASE WHEN pieces < 0 THEN 'negative' WHEN pieces < 10 THEN 'low' ELSE 'ok' END, 1, 'ok')
        OVER (PARTITION BY store, item ORDER BY arrival) AS was
FROM totals;

-- 5. What must be in the tables and topics --------------------------------------------------------------------------

CREATE OR REPLACE VIEW "expected inventory_stock_changelog" AS
SELECT store, item, pieces, level, was, counted_at, 'upsert' AS op, instant(at_ms) AS timestamp, batch AS batch_id
FROM stock_updates;

CREATE OR REPLACE VIEW "expected inventory_stock" AS
SELECT store, item, pieces, level, was, counted_at, instant(at_ms) AS timestamp, batch AS batch_id
FROM stock_updates QUALIFY row_number() OVER (PARTITION BY store, item ORDER BY arrival DESC) = 1;

CREATE OR REPLACE VIEW "expected inventory-alerts" AS
SELECT store, item, partition_of(encode(to_json({'store': store, 'item': item})), getvariable('tasks')) AS "partition",
    row_number() OVER (PARTITION BY store, item ORDER BY arrival) AS nth,
    pieces, level, was, counted_at, instant(at_ms) AS timestamp
FROM stock_updates WHERE level <> was;

-- Final is an hour that no order can be in time for any more, by the stream time of its customer's task.
CREATE OR REPLACE VIEW "expected inventory_customer_hours" AS
SELECT key_text AS customer_id, instant(start_ms) AS window_start, instant(start_ms + 3600000) AS window_end,
    count(*) AS orders, money(sum(amount)) AS amount, instant(max(timestamp_ms)) AS timestamp,
    start_ms + 3600000 <= any_value(now_ms) - 3600000 AS is_final
FROM in_hours JOIN (SELECT task, max(timestamp_ms) AS now_ms FROM in_hours GROUP BY task) USING (task)
WHERE NOT late GROUP BY key_text, start_ms;

CREATE OR REPLACE VIEW "expected inventory_customer_orders" AS
SELECT key_text AS customer_id, order_id, {'store': store, 'item': item} AS shelf, pieces, money(amount) AS amount, happened_at AS ordered_at,
    {'orders': day_orders, 'amount': money(day_amount)} AS day, instant(timestamp_ms) AS timestamp,
    topic AS source_topic, "partition" AS source_partition, "offset" AS source_offset
FROM customer_orders;

CREATE OR REPLACE VIEW "expected inventory-customer-orders" AS
SELECT key_text AS key, partition_of(key, getvariable('tasks')) AS "partition",
    row_number() OVER (PARTITION BY key ORDER BY position) AS nth, order_id, store, item, pieces,
    money(amount) AS amount, happened_at AS ordered_at, day_orders, money(day_amount) AS day_amount, instant(timestamp_ms) AS timestamp
FROM customer_orders;

-- An order without a key is sold, but has no customer whose hours could be looked up; a movement without a value has no
-- shelf.
CREATE OR REPLACE VIEW "expected inventory_dead_letters" AS
SELECT e.key, e.value, e.topic, e."partition", e."offset", instant(e.timestamp_ms) AS timestamp, f.*
FROM events e, (VALUES
    ('deltaworks.errors.SerializationError', 'orders-source'),
    ('deltaworks.errors.SerializationError', 'movements-source'),
    ('ValueError', 'last-day'),
    ('AttributeError', 'inventory-by-shelf')) f(error_class, operator)
WHERE CASE operator
    WHEN 'orders-source' THEN topic = 'inventory-orders' AND NOT readable
    WHEN 'movements-source' THEN topic = 'inventory-movements' AND NOT readable
    WHEN 'last-day' THEN topic = 'inventory-orders' AND readable AND key IS NULL AND fields IS NOT NULL
    WHEN 'inventory-by-shelf' THEN topic = 'inventory-movements' AND readable AND value IS NULL
    END;

CREATE OR REPLACE VIEW "expected inventory-dead-letters" AS
SELECT * EXCLUDE operator FROM "expected inventory_dead_letters";
