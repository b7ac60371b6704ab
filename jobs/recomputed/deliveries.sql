-- Recomputes every result of jobs/deliveries.py from its input topic, in plain DuckDB; shares no code with the pipeline.
--
-- Given:  processed, partition_of, instant                                    common.sql
--         "decoded inputs"  partition, offset and fields of each scan that can be read         deliveries.py
--         tasks             variable         partitions of the input topic, and tasks
-- Gives:  "expected <result>", one view per Delta table and output topic.

-- 1. Scans: what is in them ------------------------------------------------------------------------------------------

-- An old scanner knows no fee, which is none.
CREATE OR REPLACE TABLE scan_events AS
SELECT * REPLACE (coalesce(fee, 0)::DECIMAL(10, 2) AS fee), CASE
    WHEN key IS NOT NULL AND parcel_id IS NULL THEN 'malformed'
    WHEN value IS NULL THEN 'nothing'
    WHEN scan_id IS NULL THEN 'malformed'
    ELSE 'scan' END AS verdict
FROM (SELECT *, TRY(decode(key)) AS parcel_id FROM processed) LEFT JOIN "decoded inputs" USING ("partition", "offset");

CREATE OR REPLACE VIEW scans AS SELECT * FROM scan_events WHERE verdict = 'scan';

CREATE OR REPLACE VIEW "expected deliveries_scans" AS
SELECT parcel_id, scan_id, carrier, status, scanned_at, destination, fee, instant(timestamp_ms) AS timestamp,
    topic AS source_topic, "partition" AS source_partition, "offset" AS source_offset
FROM scans;

-- 2. Parcels: the newest scan decides, all of them count; a commit forwards the last update per parcel -----------------

CREATE OR REPLACE TABLE updates AS
SELECT parcel_id, newest.status AS status, newest.scanned_at AS scanned_at, newest.destination AS destination,
    scans, fees, batch, task, "offset", instant(at_ms) AS timestamp
FROM (
    SELECT *, count(*) OVER so_far AS scans, (sum(fee) OVER so_far)::DECIMAL(20, 2) AS fees,
        max(timestamp_ms) OVER so_far AS at_ms,
        max({'scanned_at': scanned_at, 'position': position, 'status': status, 'destination': destination})
            OVER so_far AS newest
    FROM scans WHERE key IS NOT NULL
    WINDOW so_far AS (PARTITION BY parcel_id ORDER BY position)
)
QUALIFY row_number() OVER (PARTITION BY parcel_id, batch ORDER BY position DESC) = 1;

CREATE OR REPLACE VIEW "expected deliveries_parcels_changelog" AS
SELECT parcel_id, status, scanned_at, destination, scans, fees, 'upsert' AS op, timestamp,
    'deliveries-scans' AS source_topic, task AS source_partition, "offset" AS source_offset, batch AS batch_id
FROM updates;

CREATE OR REPLACE VIEW "expected deliveries_parcels" AS
SELECT * EXCLUDE op FROM "expected deliveries_parcels_changelog"
QUALIFY row_number() OVER (PARTITION BY parcel_id ORDER BY batch_id DESC) = 1;

CREATE OR REPLACE VIEW "expected deliveries-parcels" AS
SELECT partition_of(encode(parcel_id), getvariable('tasks')) AS "partition", parcel_id AS key,
    row_number() OVER (PARTITION BY parcel_id ORDER BY batch) AS nth, timestamp,
    status, scanned_at, destination, scans, fees
FROM updates;

-- 3. What nobody can read ---------------------------------------------------------------------------------------------

CREATE OR REPLACE VIEW "expected deliveries_dead_letters" AS
SELECT key, value, topic, "partition", "offset", instant(timestamp_ms) AS timestamp,
    'deltaworks.errors.SerializationError' AS error_class, 'scans' AS operator
FROM scan_events WHERE verdict = 'malformed';

CREATE OR REPLACE VIEW "expected deliveries-dead-letters" AS
SELECT * EXCLUDE operator FROM "expected deliveries_dead_letters";
