-- Recomputes every result of jobs/fraud.py from its input topic, in plain DuckDB; shares no code with the pipeline.
--
-- Given:  processed, partition_of, instant, money                             common.sql
--         clock    batch, wall_clock_ms, tick
--         tasks    variable                  partitions of the input topic
-- Gives:  "expected <result>", one view per Delta table and output topic;
--         profiles, waiting_bursts: what the stores hold in the end, which only tests can see.

-- 1. Payments: decoded and judged; stream time is the latest timestamp of what decoded ------------------------------

CREATE OR REPLACE TABLE payment_events AS
WITH decoded AS (
    SELECT *, TRY(decode(key)) AS "user", TRY_CAST(TRY(decode(value)) AS JSON) AS document FROM processed
), typed AS (
    SELECT * EXCLUDE document,
        CASE WHEN json_type(document, ['$.payment_id', '$.country']) = ['VARCHAR', 'VARCHAR']
                AND json_type(document, '$.amount') IN ('VARCHAR', 'DOUBLE', 'BIGINT', 'UBIGINT')
            THEN document END AS fields,
        -- Cents are enough: no amount has a smaller part. What is infinite or no number does not convert.
        TRY_CAST(fields->>'$.amount' AS DECIMAL(18, 2)) AS amount
    FROM decoded
)
SELECT *,
    CASE
        WHEN key IS NOT NULL AND "user" IS NULL THEN 'malformed key'
        WHEN value IS NULL OR octet_length(value) = 0 THEN 'dropped'
        WHEN coalesce(amount <= 0 OR amount >= 1000000, true) THEN 'malformed'
        WHEN coalesce("user", '') = '' THEN 'dropped'
        ELSE 'payment' END AS verdict,
    max(timestamp_ms) FILTER (verdict IN ('payment', 'dropped')) OVER (PARTITION BY task ORDER BY position)
        AS stream_time_ms
FROM typed;

-- 2. Profiles: what is known of a user before each payment. They begin anew when the latest payment so far is more than
--    a day behind stream time. (That is so exactly when the profile's own latest is: if it was forgotten in between and
--    made again by a late payment, that one is even older.)

CREATE OR REPLACE TABLE payments AS
SELECT *, sum(coalesce(latest_before_ms < stream_time_ms - 86400000, false)::INTEGER)
    OVER (PARTITION BY "user" ORDER BY position) AS life
FROM (
    SELECT task, batch, position, "partition", "offset", timestamp_ms, stream_time_ms, key, "user",
        fields->>'$.payment_id' AS payment_id, amount, fields->>'$.country' AS country,
        timestamp_ms - timestamp_ms % 60000 AS minute_ms,
        max(timestamp_ms) OVER (
            PARTITION BY "user" ORDER BY position ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS latest_before_ms,
        max(minute_ms) OVER (PARTITION BY task ORDER BY position) AS newest_minute_ms
    FROM payment_events WHERE verdict = 'payment'
);

CREATE OR REPLACE TABLE known AS
SELECT *,
    count(*) OVER before AS payments,
    coalesce(sum(amount) OVER before, 0) AS total,
    -- Of the latest payment so far; of equally late ones, that which came last.
    arg_max(country, timestamp_ms * 1000000000::HUGEINT + position) OVER before AS last_country,
    coalesce(max(timestamp_ms) OVER before, 0) AS last_ms
FROM payments
WINDOW before AS (PARTITION BY "user", life ORDER BY position ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING);

-- 3. Velocity: payments of the user so far, by minute; minutes are gone two hours behind the newest of the task ------

CREATE OR REPLACE TABLE judged AS
SELECT p.*,
    count(*) FILTER (q.minute_ms BETWEEN p.minute_ms - 4 * 60000 AND p.minute_ms) AS in_five_minutes,
    count(*) FILTER (q.minute_ms BETWEEN p.minute_ms - 64 * 60000 AND p.minute_ms - 5 * 60000) AS in_hour_before
FROM known p LEFT JOIN (SELECT "user", position, minute_ms FROM payments) q
    ON q."user" = p."user" AND q.position <= p.position AND q.minute_ms > p.newest_minute_ms - 7200000
GROUP BY ALL;

-- 4. The clock: a task runs in the batches that have records for it, and in ticks. Its punctuators are due one interval
--    after its first run and then at multiples; runs that were missed are one run.

CREATE OR REPLACE TABLE runs AS
SELECT t.task, batch, wall_clock_ms,
    wall_clock_ms - first_value(wall_clock_ms) OVER (PARTITION BY t.task ORDER BY batch) AS running_ms
FROM clock, (SELECT unnest(range(getvariable('tasks'))) AS task) t
WHERE tick OR (t.task, batch) IN (SELECT (task, batch) FROM processed);

CREATE OR REPLACE MACRO punctuations(every_ms) AS TABLE
SELECT task, batch FROM runs
QUALIFY running_ms // every_ms > coalesce(max(running_ms // every_ms) OVER (
    PARTITION BY task ORDER BY batch ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0);

-- 5. Alerts: those of a payment at once, bursts with the next look at the clock: the last per user and five minutes ---

CREATE OR REPLACE TABLE bursts AS
SELECT *, 'HIGH_VELOCITY' AS rule, timestamp_ms // 300000 AS slot,
    (SELECT min(look.batch) FROM punctuations(10000) look WHERE look.task = judged.task AND look.batch >= judged.batch)
        AS told_in
FROM judged WHERE 12 * in_five_minutes >= 5 * greatest(12, in_hour_before)
QUALIFY row_number() OVER (PARTITION BY "user", slot, told_in ORDER BY position DESC) = 1;

CREATE OR REPLACE VIEW waiting_bursts AS SELECT * FROM bursts WHERE told_in IS NULL;

CREATE OR REPLACE TABLE alerts AS
SELECT *, row_number() OVER (
    PARTITION BY "user" ORDER BY told_in, rule = 'HIGH_VELOCITY', slot, position, rule = 'GEO_ANOMALY') AS nth
FROM (
    SELECT *, 'HIGH_AMOUNT' AS rule, NULL AS slot, batch AS told_in
    FROM judged WHERE payments >= 5 AND amount * payments >= 3 * total
    UNION ALL BY NAME
    SELECT *, 'GEO_ANOMALY' AS rule, NULL AS slot, batch AS told_in
    FROM judged WHERE country <> last_country AND abs(timestamp_ms - last_ms) < 3600000
    UNION ALL BY NAME
    SELECT * FROM bursts WHERE told_in IS NOT NULL
);

-- 6. What must be in the tables and topics --------------------------------------------------------------------------

CREATE OR REPLACE MACRO told(alert) AS {
    'user_id': alert."user", 'payment_id': alert.payment_id, 'amount': money(alert.amount), 'country': alert.country,
    'rule': alert.rule, 'payments': alert.payments, 'total': money(alert.total), 'last_country': alert.last_country,
    'last_ms': alert.last_ms, 'in_five_minutes': alert.in_five_minutes, 'in_hour_before': alert.in_hour_before,
    'timestamp': instant(alert.timestamp_ms)};

-- What the clock has told comes from no record.
CREATE OR REPLACE VIEW "expected fraud_alerts" AS
SELECT unnest(told(alerts)), if(slot IS NULL, 'payments', '') AS source_topic,
    if(slot IS NULL, "partition", -1) AS source_partition, if(slot IS NULL, "offset", -1) AS source_offset
FROM alerts;

-- Alerts of one user are compared in order: `nth` counts them.
CREATE OR REPLACE VIEW "expected fraud-alerts" AS
SELECT unnest(told(alerts)), nth, partition_of(key, getvariable('tasks')) AS "partition" FROM alerts;

CREATE OR REPLACE VIEW "expected fraud_dead_letters" AS
SELECT key, value, topic, "partition", "offset", instant(timestamp_ms) AS timestamp,
    'deltaworks.errors.SerializationError' AS error_class,
    'payments-source' AS operator
FROM payment_events WHERE verdict IN ('malformed', 'malformed key');

CREATE OR REPLACE VIEW "expected fraud-dead-letters" AS SELECT * EXCLUDE operator FROM "expected fraud_dead_letters";

-- The last profile of each user, unless it was forgotten when its task last cleaned up, and that was after it.
CREATE OR REPLACE VIEW profiles AS
WITH latest AS (
    SELECT task, "user", max(batch) AS batch, count(*) AS payments, sum(amount) AS total,
        arg_max(country, timestamp_ms * 1000000000::HUGEINT + position) AS last_country, max(timestamp_ms) AS last_ms
    FROM payments GROUP BY task, "user", life
    QUALIFY row_number() OVER (PARTITION BY "user" ORDER BY life DESC) = 1
), cleaned AS (
    SELECT c.task, max(c.batch) AS batch, max(e.stream_time_ms) AS stream_time_ms
    FROM (SELECT task, max(batch) AS batch FROM punctuations(3600000) GROUP BY task) c
    JOIN payment_events e ON e.task = c.task AND e.batch <= c.batch GROUP BY c.task
)
SELECT "user", payments, money(total) AS total, last_country, last_ms
FROM latest LEFT JOIN cleaned ON cleaned.task = latest.task AND cleaned.batch >= latest.batch
WHERE NOT coalesce(last_ms < stream_time_ms - 86400000, false);
