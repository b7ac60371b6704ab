-- The results of jobs/deliveries.py as they are, in the columns of deliveries.sql.
--
-- Given:  instant, dead_letters_in                                              common.sql
--         one relation "table <name>" per Delta table
--         outputs  topic, "partition", "offset", timestamp_ms, key, value, headers     the output topics, read committed
--         "decoded outputs"  partition, offset and fields of each parcel                      deliveries.py
-- Gives:  "found <result>", one view per Delta table and output topic.

CREATE OR REPLACE VIEW "found deliveries_scans" AS SELECT * FROM "table deliveries_scans";
CREATE OR REPLACE VIEW "found deliveries_parcels" AS SELECT * FROM "table deliveries_parcels";
CREATE OR REPLACE VIEW "found deliveries_parcels_changelog" AS SELECT * FROM "table deliveries_parcels_changelog";
CREATE OR REPLACE VIEW "found deliveries_dead_letters" AS
SELECT key, value, topic, "partition", "offset", timestamp, error_class, operator FROM "table deliveries_dead_letters";

CREATE OR REPLACE VIEW "found deliveries-parcels" AS
SELECT "partition", decode(key) AS key, row_number() OVER (PARTITION BY key ORDER BY "partition", "offset") AS nth,
    instant(timestamp_ms) AS timestamp, status, scanned_at, destination, scans, fees
FROM (FROM outputs WHERE topic = 'deliveries-parcels') JOIN "decoded outputs" USING ("partition", "offset");

CREATE OR REPLACE VIEW "found deliveries-dead-letters" AS FROM dead_letters_in('outputs', 'deliveries-dead-letters');
