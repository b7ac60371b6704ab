-- Recomputes every result of jobs/enrichment.py from its two input topics, in plain DuckDB; shares no code with it.
--
-- Given:  processed, partition_of, instant, money                             common.sql
--         tasks    variable                  partitions of each input topic, tasks before and after the hop
-- Gives:  "expected <result>", one view per Delta table and output topic.
--
-- Of enrichment_current only what the snapshot holds in the end is here: which updates it passes through on the way
-- (enrichment_current_changelog) depends on which records share a micro-batch, as do those of enrichment_tiers. Both ways a foreign-key join has, from
-- the order and from the customer, lead to the same end.

-- 1. What decodes ----------------------------------------------------------------------------------------------------

-- From 0 to a million, in whole cents.
CREATE OR REPLACE MACRO is_money(text) AS
    TRY_CAST(text AS DECIMAL(38, 18)) >= 0 AND TRY_CAST(text AS DECIMAL(38, 18)) < 1000000
    AND TRY_CAST(text AS DECIMAL(38, 18)) = round(TRY_CAST(text AS DECIMAL(38, 18)), 2);

CREATE OR REPLACE TABLE events AS
SELECT *, key_text IS NOT NULL = (key IS NOT NULL) AND (value IS NULL OR fields IS NOT NULL) AS readable
FROM (
    SELECT * EXCLUDE (position, running_max_ms), TRY(decode(key)) AS key_text,
        TRY_CAST(TRY(decode(value)) AS JSON) AS document,
        CASE
            WHEN topic = 'enrichment-customers'
                AND json_type(document, ['$.name', '$.credit_limit']) = ['VARCHAR', 'VARCHAR']
                AND document->>'$.tier' IN ('gold', 'silver', 'basic')
                AND is_money(document->>'$.credit_limit')
            THEN document
            -- A JSON number passes through a double here: exact for up to 15 digits, and no amount has more.
            WHEN topic = 'enrichment-orders'
                AND json_type(document, '$.order_id') = 'VARCHAR'
                AND json_type(document, '$.customer_id') IN ('VARCHAR', 'NULL')
                AND json_type(document, '$.amount') IN ('VARCHAR', 'DOUBLE', 'BIGINT', 'UBIGINT')
                AND is_money(document->>'$.amount') AND TRY_CAST(document->>'$.amount' AS DECIMAL(38, 18)) > 0
                AND TRY_CAST(document->>'$.ordered_at' AS TIMESTAMPTZ) IS NOT NULL
            THEN document
        END AS fields
    FROM processed
);

-- 2. Stage 0, a task per partition of the orders: the stream goes on by customer, the table keeps the last order -----
-- What does not decode is set aside before the order of records is decided.

CREATE OR REPLACE TABLE orders AS
SELECT *, fields->>'$.order_id' AS order_id, fields->>'$.customer_id' AS customer_id,
    (fields->>'$.amount')::DECIMAL(38, 18) AS amount, (fields->>'$.ordered_at')::TIMESTAMPTZ AS ordered_at,
    row_number() OVER (PARTITION BY task ORDER BY batch, "offset") AS position
FROM events WHERE topic = 'enrichment-orders' AND readable;

-- 3. Stage 1, a task per partition of the customers ------------------------------------------------------------------
-- A guest's order has no key, and stays with the task of its number. Each upstream task counts as a partition of the
-- hop, whose offsets begin again with each batch; heads are merged, ties by name of the topic, then partition.

CREATE OR REPLACE TABLE arrivals AS
SELECT *, row_number() OVER (PARTITION BY target ORDER BY batch, running_max_ms, input, task, position) AS arrival
FROM (
    SELECT *, max(timestamp_ms) OVER way AS running_max_ms, (batch << 32) + row_number() OVER way - 1 AS hop_offset
    FROM (
        SELECT 'customer-of-order-repartition' AS input, batch, task, position, "partition", "offset", timestamp_ms,
            coalesce(partition_of(encode(customer_id), getvariable('tasks')), task) AS target
        FROM orders WHERE fields IS NOT NULL
        UNION ALL
        SELECT 'enrichment-customers', batch, task, "offset", "partition", "offset", timestamp_ms, task
        FROM events WHERE topic = 'enrichment-customers' AND readable
    )
    WINDOW way AS (PARTITION BY batch, input, task, target ORDER BY position)
);

CREATE OR REPLACE TABLE customer_updates AS
SELECT a.target, a.arrival, e.batch, e."partition", e."offset", e.timestamp_ms, e.key_text AS customer_id, e.fields,
    e.fields->>'$.name' AS name, e.fields->>'$.tier' AS tier,
    (e.fields->>'$.credit_limit')::DECIMAL(38, 18) AS credit_limit
FROM arrivals a JOIN events e ON a.input = e.topic AND a."partition" = e."partition" AND a."offset" = e."offset"
WHERE a.input = 'enrichment-customers' AND e.key IS NOT NULL;

CREATE OR REPLACE MACRO credit_check(tier, amount, credit_limit) AS
    CASE WHEN tier IS NULL THEN 'no credit' WHEN amount <= credit_limit THEN 'approved' ELSE 'rejected' END;

-- The customer as of the order's arrival, in the order in which the task took both.
CREATE OR REPLACE TABLE checked AS
SELECT o.order_id, o.customer_id, o.amount, o.ordered_at, o.timestamp_ms, o.batch, o.task, a.arrival, a.hop_offset,
    c.name AS customer_name, coalesce(c.tier, 'unknown') AS tier, c.credit_limit,
    credit_check(c.tier, o.amount, c.credit_limit) AS credit
FROM orders o
JOIN arrivals a ON a.input = 'customer-of-order-repartition' AND a.task = o.task AND a.position = o.position
ASOF LEFT JOIN customer_updates c ON a.target = c.target AND o.customer_id = c.customer_id AND a.arrival > c.arrival;

-- 4. What must be in the tables and topics --------------------------------------------------------------------------

CREATE OR REPLACE VIEW "expected enrichment_checked" AS
SELECT order_id, customer_id, money(amount) AS amount, ordered_at, customer_name, tier,
    money(credit_limit) AS credit_limit, credit, instant(timestamp_ms) AS timestamp,
    'customer-of-order-repartition' AS source_topic, task AS source_partition, hop_offset AS source_offset
FROM checked;

-- Results of one order by way of different customers come from different tasks, in any order.
CREATE OR REPLACE VIEW "expected enrichment-checked" AS
SELECT order_id AS key, partition_of(encode(order_id), getvariable('tasks')) AS "partition",
    row_number() OVER (PARTITION BY order_id, customer_id ORDER BY batch, arrival) AS nth,
    order_id, customer_id, money(amount) AS amount, ordered_at, customer_name, tier, money(credit_limit) AS credit_limit,
    credit, instant(timestamp_ms) AS timestamp
FROM checked;

-- Every update is forwarded, not only the last one of a batch, and so is a delete of what was not there.
CREATE OR REPLACE VIEW "expected enrichment_customers_changelog" AS
SELECT customer_id, name, tier, money(credit_limit) AS credit_limit, if(fields IS NULL, 'delete', 'upsert') AS op,
    instant(timestamp_ms) AS timestamp, 'enrichment-customers' AS source_topic, "partition" AS source_partition,
    "offset" AS source_offset, batch AS batch_id
FROM customer_updates;

CREATE OR REPLACE VIEW "expected enrichment_customers" AS
SELECT * EXCLUDE op FROM (
    SELECT * FROM "expected enrichment_customers_changelog"
    QUALIFY row_number() OVER (PARTITION BY customer_id ORDER BY source_offset DESC) = 1
) WHERE op = 'upsert';

-- A tier that once had a customer keeps its row, with a count of 0 when the last one has left.
CREATE OR REPLACE VIEW "expected enrichment_tiers" AS
SELECT u.tier, count(c.customer_id) AS customers
FROM (SELECT DISTINCT tier FROM customer_updates WHERE tier IS NOT NULL) u
LEFT JOIN "expected enrichment_customers" c USING (tier) GROUP BY ALL;

-- The last order of each key with the last state of its customer.
CREATE OR REPLACE VIEW "expected enrichment_current" AS
SELECT o.key_text AS order_key, o.order_id, o.customer_id, money(o.amount) AS amount, o.ordered_at, c.name AS customer_name,
    coalesce(c.tier, 'unknown') AS tier, money(c.credit_limit) AS credit_limit,
    credit_check(c.tier, o.amount, c.credit_limit) AS credit
FROM (SELECT * FROM orders WHERE key IS NOT NULL
      QUALIFY row_number() OVER (PARTITION BY key ORDER BY position DESC) = 1) o
LEFT JOIN (SELECT * FROM customer_updates
           QUALIFY row_number() OVER (PARTITION BY customer_id ORDER BY arrival DESC) = 1) c
    ON o.customer_id = c.customer_id
WHERE o.fields IS NOT NULL;

CREATE OR REPLACE VIEW "expected enrichment_dead_letters" AS
SELECT key, value, topic, "partition", "offset", instant(timestamp_ms) AS timestamp,
    'deltaworks.errors.SerializationError' AS error_class,
    if(topic = 'enrichment-orders', 'orders-source', 'customers-source') AS operator
FROM events WHERE NOT readable;

CREATE OR REPLACE VIEW "expected enrichment-dead-letters" AS
SELECT * EXCLUDE operator FROM "expected enrichment_dead_letters";
