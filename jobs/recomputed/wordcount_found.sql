-- The results of jobs/wordcount.py as they are, in the columns of wordcount.sql.
--
-- Given:  instant, dead_letters_in                                              common.sql
--         one relation "table <name>" per Delta table
--         outputs  topic, "partition", "offset", timestamp_ms, key, value, headers     the output topics, read committed
-- Gives:  "found <result>", one view per Delta table and output topic.

CREATE OR REPLACE VIEW "found wordcount_counts" AS SELECT * FROM "table wordcount_counts";
CREATE OR REPLACE VIEW "found wordcount_counts_changelog" AS SELECT * FROM "table wordcount_counts_changelog";
CREATE OR REPLACE VIEW "found wordcount_hours" AS SELECT * EXCLUDE window_date FROM "table wordcount_hours";
CREATE OR REPLACE VIEW "found wordcount_dead_letters" AS
SELECT key, value, topic, "partition", "offset", timestamp, error_class, operator FROM "table wordcount_dead_letters";

CREATE OR REPLACE VIEW "found wordcount-counts" AS
SELECT "partition", decode(key) AS key, row_number() OVER (PARTITION BY key ORDER BY "partition", "offset") AS nth,
    ('0x' || hex(value))::BIGINT AS value, instant(timestamp_ms) AS timestamp
FROM outputs WHERE topic = 'wordcount-counts';

CREATE OR REPLACE VIEW "found wordcount-dead-letters" AS FROM dead_letters_in('outputs', 'wordcount-dead-letters');
