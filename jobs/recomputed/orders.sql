-- Recomputes every result of jobs/orders.py from its two input topics, in plain DuckDB; shares no code with the pipeline.
--
-- Given:  processed, partition_of, instant, money                             common.sql
--         tasks    variable                  partitions of each input topic, tasks before and after the hop
-- Gives:  "expected <result>", one view per Delta table and output topic.

-- 1. What decodes ----------------------------------------------------------------------------------------------------
-- What does not is set aside before the order of records is decided; of the others the lowest head goes first.

CREATE OR REPLACE TABLE decoded AS
SELECT * EXCLUDE (position, running_max_ms), TRY(decode(key)) AS key_text,
    TRY_CAST(TRY(decode(value)) AS JSON) AS document
FROM processed;

CREATE OR REPLACE TABLE user_events AS
SELECT *, (key IS NOT NULL AND key_text IS NULL) OR (value IS NOT NULL AND fields IS NULL) AS malformed
FROM (
    SELECT *,
        CASE WHEN json_type(document, ['$.user_id', '$.name', '$.country']) = ['VARCHAR', 'VARCHAR', 'VARCHAR']
            THEN {'user_id': document->>'$.user_id', 'name': document->>'$.name', 'country': document->>'$.country'}
        END AS fields
    FROM decoded WHERE topic = 'user-data'
);

CREATE OR REPLACE TABLE judged AS
WITH typed AS (
    SELECT * EXCLUDE document,
        CASE WHEN json_type(document, ['$.order_id', '$.user_id', '$.item', '$.location'])
                    = ['VARCHAR', 'VARCHAR', 'VARCHAR', 'VARCHAR']
                AND json_type(document, '$.amount') IN ('VARCHAR', 'DOUBLE', 'BIGINT', 'UBIGINT')
                AND document->>'$.type' IN ('PREMIUM', 'STANDARD')
            THEN document END AS fields,
        -- A JSON number passes through a double here: exact for up to 15 digits, and no amount has more.
        TRY_CAST(fields->>'$.amount' AS DECIMAL(38, 18)) AS amount,
        TRY_CAST(fields->>'$.event_time' AS TIMESTAMPTZ) AS event_time
    FROM decoded WHERE topic = 'raw-orders'
)
SELECT *, CASE
    WHEN key IS NOT NULL AND key_text IS NULL THEN 'malformed key'
    WHEN value IS NULL OR octet_length(value) = 0 THEN 'empty'
    WHEN fields IS NULL OR amount IS NULL OR event_time IS NULL THEN 'malformed'
    WHEN amount <= 0 THEN 'not positive'
    WHEN key IS NULL THEN 'no key'
    ELSE 'order' END AS verdict
FROM typed;

CREATE OR REPLACE TABLE taken AS
SELECT topic, "partition", "offset", row_number() OVER (PARTITION BY task ORDER BY batch, running_max_ms, topic, "offset") AS position
FROM (
    SELECT *, max(timestamp_ms) OVER (PARTITION BY batch, topic, task ORDER BY "offset") AS running_max_ms
    FROM (
        SELECT topic, "partition", "offset", task, batch, timestamp_ms FROM user_events WHERE NOT malformed
        UNION ALL SELECT topic, "partition", "offset", task, batch, timestamp_ms FROM judged
        WHERE verdict NOT IN ('malformed', 'malformed key')
    )
);

-- 2. Users: a row per key, the last offset wins ----------------------------------------------------------------------

CREATE OR REPLACE TABLE user_updates AS
SELECT task, position, batch, "partition", "offset", timestamp_ms, key_text AS user_id, fields
FROM user_events JOIN taken USING (topic, "partition", "offset") WHERE key IS NOT NULL;

-- 3. Orders: filtered, joined with the user as of that moment in the processed order ---------------------------------

CREATE OR REPLACE TABLE order_events AS
SELECT o.* EXCLUDE verdict, u.fields AS "user", CASE
    WHEN o.verdict <> 'order' THEN o.verdict
    WHEN u.fields IS NULL THEN 'no user'
    WHEN NOT contains(o.fields->>'$.location', '/') THEN 'bad location'
    ELSE 'enriched' END AS verdict
FROM (FROM judged LEFT JOIN taken USING (topic, "partition", "offset")) o ASOF LEFT JOIN user_updates u
    ON o.task = u.task AND o.key_text = u.user_id AND o.position > u.position;

CREATE OR REPLACE TABLE enriched AS
SELECT task, batch, position, timestamp_ms, key, value, "partition", "offset", key_text,
    fields->>'$.order_id' AS order_id, fields->>'$.user_id' AS user_id,
    "user".name AS user_name, "user".country AS user_country,
    amount, fields->>'$.type' AS type, fields->>'$.item' AS item,
    fields->>'$.location' AS location, split_part(fields->>'$.location', '/', 1) AS country, substr(fields->>'$.location', instr(fields->>'$.location', '/') + 1) AS city,
    event_time
FROM order_events WHERE verdict = 'enriched';

-- 4. Windows: late is what ends at or before the task's stream time less grace, the record itself included -----------

CREATE OR REPLACE TABLE timed AS
SELECT *, max(timestamp_ms) OVER (PARTITION BY task ORDER BY position) AS stream_time_ms FROM enriched;

CREATE OR REPLACE MACRO windows_of(timestamp_ms, size_ms, advance_ms) AS
    range(greatest(0, timestamp_ms - size_ms + advance_ms) // advance_ms * advance_ms, timestamp_ms + 1, advance_ms);

CREATE OR REPLACE TABLE in_windows AS
SELECT *, end_ms <= stream_time_ms - grace_ms AS late FROM (
    SELECT w.*, t.*, start_ms, start_ms + size_ms AS end_ms
    FROM (VALUES ('order_counts', 3600000, 3600000, 300000), ('user_revenue', 300000, 60000, 300000))
            AS w("table", size_ms, advance_ms, grace_ms),
        timed t, unnest(windows_of(timestamp_ms, size_ms, advance_ms)) AS s(start_ms)
);

CREATE OR REPLACE VIEW order_count_windows AS
SELECT key_text, start_ms, end_ms, count(*) AS orders, max(timestamp_ms) AS at_ms
FROM in_windows WHERE "table" = 'order_counts' AND NOT late GROUP BY ALL;

CREATE OR REPLACE VIEW revenue_windows AS
SELECT key_text, start_ms, end_ms, sum(amount) AS amount, max(timestamp_ms) AS at_ms
FROM in_windows WHERE "table" = 'user_revenue' AND NOT late GROUP BY ALL;

-- 5. Sessions: re-keyed by the user named in the order, so orders hop to the task that owns this user ---------------

-- What arrives is merged by heads again: each upstream task counts as a partition.
CREATE OR REPLACE TABLE hopped AS
SELECT *, row_number() OVER (PARTITION BY target ORDER BY batch, running_max_ms, task, position) AS arrival
FROM (
    SELECT *, max(timestamp_ms) OVER (PARTITION BY batch, task, target ORDER BY position) AS running_max_ms
    FROM (SELECT *, partition_of(encode(user_id), getvariable('tasks')) AS target FROM enriched)
);

-- Per user, record by record: sessions in reach are merged; the result is dropped if it ends before the task's stream
-- time less gap and grace. A session that ended `retention` ago has left the store (but stays in the table).
CREATE OR REPLACE MACRO session_gap_ms() AS 1800000;
CREATE OR REPLACE MACRO session_retention_ms() AS 1800000 + 1800000;  -- gap + grace
CREATE OR REPLACE MACRO in_reach(s, r) AS
    s.end_ms > r.seen_ms - session_retention_ms()
    AND s.end_ms >= r.timestamp_ms - session_gap_ms() AND s.start_ms <= r.timestamp_ms + session_gap_ms();
CREATE OR REPLACE MACRO joined(sessions, r) AS {
    'start_ms': least(r.timestamp_ms, list_min(list_transform(sessions, lambda s: s.start_ms))),
    'end_ms': greatest(r.timestamp_ms, list_max(list_transform(sessions, lambda s: s.end_ms))),
    'orders': 1 + coalesce(list_sum(list_transform(sessions, lambda s: s.orders)), 0)::BIGINT,
    'at_ms': greatest(r.timestamp_ms, list_max(list_transform(sessions, lambda s: s.end_ms)))};
CREATE OR REPLACE MACRO replaced(sessions, r, new) AS
    CASE WHEN new.end_ms < r.stream_time_ms - session_retention_ms() THEN sessions
    ELSE list_append(list_filter(sessions,
        lambda s: NOT in_reach(s, r) AND NOT (s.start_ms = new.start_ms AND s.end_ms = new.end_ms)), new) END;

CREATE OR REPLACE TABLE sessions AS
SELECT user_id, unnest(list_reduce(
    list({'timestamp_ms': timestamp_ms, 'seen_ms': seen_ms, 'stream_time_ms': stream_time_ms} ORDER BY arrival),
    lambda sessions, r: replaced(sessions, r, joined(list_filter(sessions, lambda s: in_reach(s, r)), r)),
    []::STRUCT(start_ms BIGINT, end_ms BIGINT, orders BIGINT, at_ms BIGINT)[]), recursive := true)
FROM (
    SELECT user_id, timestamp_ms, arrival,
        coalesce(max(timestamp_ms) OVER before, -1) AS seen_ms,
        max(timestamp_ms) OVER (PARTITION BY target ORDER BY arrival) AS stream_time_ms
    FROM hopped
    WINDOW before AS (PARTITION BY target ORDER BY arrival ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
)
GROUP BY user_id;

-- 6. What must be in the tables and topics --------------------------------------------------------------------------

CREATE OR REPLACE VIEW "expected enriched_orders" AS
SELECT key_text AS user_key, order_id, user_id, user_name, user_country, money(amount) AS amount, type, item,
    location, country, city, event_time, instant(timestamp_ms) AS timestamp, 'raw-orders' AS source_topic,
    "partition" AS source_partition, "offset" AS source_offset
FROM enriched;

-- Records of one key are compared in order: `nth` counts them.
CREATE OR REPLACE VIEW enriched_to_topics AS
SELECT unnest(CASE WHEN type = 'STANDARD' THEN ['enriched-orders', 'standard-orders']
                   WHEN item = 'gift card' THEN ['enriched-orders']
                   ELSE ['enriched-orders', 'premium-orders'] END) AS topic, *
FROM enriched;

CREATE OR REPLACE VIEW expected_in_topics AS
SELECT topic, partition_of(key, getvariable('tasks')) AS "partition",
    row_number() OVER (PARTITION BY topic, key ORDER BY position) AS nth, key_text AS key, instant(timestamp_ms) AS timestamp,
    order_id, user_id, user_name, user_country,
    money(CASE WHEN topic = 'premium-orders' THEN round(amount::DECIMAL(18, 4) * 0.9, 2) ELSE amount END) AS amount,
    type, item, location, country, city, event_time
FROM enriched_to_topics;

CREATE OR REPLACE VIEW "expected enriched-orders" AS
SELECT * EXCLUDE topic FROM expected_in_topics WHERE topic = 'enriched-orders';
CREATE OR REPLACE VIEW "expected premium-orders" AS
SELECT * EXCLUDE topic FROM expected_in_topics WHERE topic = 'premium-orders';
CREATE OR REPLACE VIEW "expected standard-orders" AS
SELECT * EXCLUDE topic FROM expected_in_topics WHERE topic = 'standard-orders';

-- A window is final when no record can be in time for it any more, by the stream time of its key's task.
CREATE OR REPLACE VIEW final_before AS
SELECT task, max(timestamp_ms) AS stream_time_ms FROM enriched GROUP BY task;

CREATE OR REPLACE VIEW "expected order_counts" AS
SELECT key_text AS user_id, instant(start_ms) AS window_start, instant(end_ms) AS window_end, orders,
    instant(at_ms) AS timestamp, end_ms <= stream_time_ms - 300000 AS is_final
FROM order_count_windows JOIN final_before ON task = partition_of(encode(key_text), getvariable('tasks'));

CREATE OR REPLACE VIEW "expected user_revenue" AS
SELECT key_text AS user_id, instant(start_ms) AS window_start, instant(end_ms) AS window_end, money(amount) AS revenue,
    instant(at_ms) AS timestamp, end_ms <= stream_time_ms - 300000 AS is_final
FROM revenue_windows JOIN final_before ON task = partition_of(encode(key_text), getvariable('tasks'));

CREATE OR REPLACE VIEW "expected user_sessions" AS
SELECT user_id, instant(start_ms) AS window_start, instant(end_ms) AS window_end, orders,
    instant(at_ms) AS timestamp, end_ms < stream_time_ms - session_retention_ms() AS is_final
FROM sessions
JOIN (SELECT target, max(timestamp_ms) AS stream_time_ms FROM hopped GROUP BY target)
    ON target = partition_of(encode(user_id), getvariable('tasks'));

-- A commit forwards the last update per key; a key that was neither there before nor is there now has none.
CREATE OR REPLACE VIEW "expected users_changelog" AS
SELECT user_id, fields.name, fields.country, if(fields IS NULL, 'delete', 'upsert') AS op,
    instant(timestamp_ms) AS timestamp, 'user-data' AS source_topic, "partition" AS source_partition,
    "offset" AS source_offset, batch AS batch_id
FROM (
    SELECT *, lag(fields) OVER (PARTITION BY user_id ORDER BY position) AS old
    FROM (SELECT * FROM user_updates
          QUALIFY row_number() OVER (PARTITION BY user_id, batch ORDER BY position DESC) = 1)
)
WHERE fields IS NOT NULL OR old IS NOT NULL;

CREATE OR REPLACE VIEW "expected users" AS
SELECT * EXCLUDE op FROM (
    SELECT * FROM "expected users_changelog" QUALIFY row_number() OVER (PARTITION BY user_id ORDER BY batch_id DESC) = 1
) WHERE op = 'upsert';

CREATE OR REPLACE VIEW "expected dead_letters" AS
SELECT key, value, topic, "partition", "offset", instant(timestamp_ms) AS timestamp, error_class, operator
FROM (
    SELECT *, 'deltaworks.errors.SerializationError' AS error_class,
        'orders-source' AS operator
    FROM (SELECT topic, "partition", "offset", timestamp_ms, key, value, verdict FROM order_events)
    WHERE verdict IN ('malformed', 'malformed key')
    UNION ALL
    SELECT topic, "partition", "offset", timestamp_ms, key, value, verdict, 'ValueError', 'join-user'
    FROM order_events WHERE verdict = 'bad location'
    UNION ALL
    SELECT 'raw-orders', "partition", "offset", timestamp_ms, key, value, NULL, 'ValueError', 'discount'
    FROM enriched WHERE type = 'PREMIUM' AND item = 'gift card'
    UNION ALL
    SELECT topic, "partition", "offset", timestamp_ms, key, value, NULL, 'deltaworks.errors.SerializationError', 'users-source'
    FROM user_events WHERE malformed
);

CREATE OR REPLACE VIEW "expected orders-dead-letters" AS SELECT * EXCLUDE operator FROM "expected dead_letters";
