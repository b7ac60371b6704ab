-- What every recomputation begins with: the order in which tasks took the input records, and Kafka's partitioner.
--
-- Given:  records  topic, "partition", "offset", timestamp_ms, key, value, headers         the input topics
--         batches  batch, topic, "partition", from_offset, to_offset                       what the stream read, when
--         clock    batch, wall_clock_ms, tick       one row per batch; tick: tasks without records ran too, if the clock matters
--         tasks    variable                         partitions of each input topic, and so tasks of a stage

-- The processed order ------------------------------------------------------------------------------------------------
-- Of the records at hand, a task takes the head with the lowest timestamp, ties by topic and partition. The head that
-- follows an out-of-order record is never higher, so sorting by the running maximum is the same as merging heads.

CREATE OR REPLACE TABLE processed AS
SELECT *, row_number() OVER (PARTITION BY task ORDER BY batch, running_max_ms, topic, "offset") AS position
FROM (
    SELECT r.*, b.batch, r."partition" AS task,
        max(r.timestamp_ms) OVER (PARTITION BY b.batch, r.topic, r."partition" ORDER BY r."offset") AS running_max_ms
    FROM records r JOIN batches b
        ON r.topic = b.topic AND r."partition" = b."partition" AND r."offset" >= b.from_offset AND r."offset" < b.to_offset
);

-- Where a key goes ---------------------------------------------------------------------------------------------------
-- Kafka's murmur2 of a key given as hexadecimal text: words of 4 bytes, little endian, then the 1 to 3 bytes left over.
CREATE OR REPLACE MACRO times_m(a) AS (a * 1540483477) & 4294967295;
CREATE OR REPLACE MACRO stirred(a, bits) AS xor(a, a >> bits);
CREATE OR REPLACE MACRO word(hexadecimal) AS
    ('0x0' || hexadecimal[7:8] || hexadecimal[5:6] || hexadecimal[3:4] || hexadecimal[1:2])::UBIGINT;
CREATE OR REPLACE MACRO murmur2_words(hexadecimal) AS list_reduce(
    list_transform(regexp_extract_all(hexadecimal, '.{8}'), lambda w: times_m(stirred(times_m(word(w)), 24))),
    lambda h, k: xor(times_m(h), k),
    xor(2538058380::UBIGINT, (length(hexadecimal) // 2)::UBIGINT));
CREATE OR REPLACE MACRO murmur2_tail(h, rest) AS if(rest = '', h, times_m(xor(h, word(rest))));
CREATE OR REPLACE MACRO murmur2(hexadecimal) AS stirred(times_m(stirred(
    murmur2_tail(murmur2_words(hexadecimal), hexadecimal[length(hexadecimal) // 8 * 8 + 1:]), 13)), 15);
CREATE OR REPLACE MACRO partition_of(key, partitions) AS ((murmur2(hex(key)) & 2147483647) % partitions)::INTEGER;

-- Times and money as the tables have them ----------------------------------------------------------------------------
CREATE OR REPLACE MACRO instant(ms) AS make_timestamptz(ms * 1000);
CREATE OR REPLACE MACRO money(amount) AS amount::DECIMAL(38, 18);

-- Dead letters as they are -------------------------------------------------------------------------------------------
CREATE OR REPLACE MACRO header(headers, name) AS
    decode(list_filter(headers, lambda h: h.name = '__streams.errors.' || name)[1].value);
CREATE OR REPLACE MACRO dead_letters_in(records, dead_letter_topic) AS TABLE
SELECT key, value, header(headers, 'topic') AS topic, header(headers, 'partition')::INTEGER AS "partition",
    header(headers, 'offset')::BIGINT AS "offset", instant(timestamp_ms) AS timestamp,
    header(headers, 'exception') AS error_class
FROM query_table(records) WHERE topic = dead_letter_topic;
