-- Recomputes every result of jobs/invoices.py from its input topic, in plain DuckDB; shares no code with the pipeline.
--
-- Given:  processed, partition_of, instant, money                             common.sql
--         tasks    variable                  partitions of each topic, tasks before and after the hop
-- Gives:  "expected <result>", one view per Delta table and output topic.

-- 1. Invoices: decoded, then checked ---------------------------------------------------------------------------------

-- A JSON number passes through a double here: exact for up to 15 digits. An amount with more than 20 of them before
-- the point has none here, and is refused below.
CREATE OR REPLACE MACRO amount(document, path) AS TRY_CAST(document->>path AS DECIMAL(38, 18));
CREATE OR REPLACE MACRO is_amount(document, path) AS
    json_type(document, path) IN ('VARCHAR', 'DOUBLE', 'BIGINT', 'UBIGINT')
    AND TRY_CAST(document->>path AS DOUBLE) IS NOT NULL;
CREATE OR REPLACE MACRO whole(document, path) AS
    CASE WHEN json_type(document, path) IN ('BIGINT', 'UBIGINT') THEN (document->>path)::BIGINT END;

CREATE OR REPLACE MACRO line_item(item) AS
    CASE WHEN json_type(item, ['$.ItemCode', '$.ItemDescription']) = ['VARCHAR', 'VARCHAR']
            AND whole(item, '$.ItemQty') IS NOT NULL
            AND is_amount(item, '$.ItemPrice') AND is_amount(item, '$.TotalValue')
        THEN {'item_code': item->>'$.ItemCode', 'item_description': item->>'$.ItemDescription',
              'item_price': amount(item, '$.ItemPrice'), 'item_qty': whole(item, '$.ItemQty'),
              'total_value': amount(item, '$.TotalValue')} END;

CREATE OR REPLACE MACRO is_plausible(item) AS coalesce(
    item.item_price > 0 AND item.item_price < 1000000 AND item.item_price = round(item.item_price, 2)
    AND item.item_qty <> 0 AND abs(item.item_qty) < 1000000
    AND item.total_value = item.item_price::DECIMAL(18, 2) * item.item_qty::DECIMAL(18, 0), false);

CREATE OR REPLACE MACRO address(given) AS
    CASE WHEN json_type(given, ['$.AddressLine', '$.City', '$.State', '$.PinCode', '$.ContactNumber'])
            = ['VARCHAR', 'VARCHAR', 'VARCHAR', 'VARCHAR', 'VARCHAR']
        THEN {'address_line': given->>'$.AddressLine', 'city': given->>'$.City', 'state': given->>'$.State',
              'pin_code': given->>'$.PinCode', 'contact_number': given->>'$.ContactNumber'} END;

CREATE OR REPLACE TABLE pos_events AS
WITH decoded AS (
    SELECT *, TRY(decode(key)) AS key_text, TRY_CAST(TRY(decode(value)) AS JSON) AS document FROM processed
), typed AS (
    SELECT * EXCLUDE document,
        document->>'$.InvoiceNumber' AS invoice_number,
        TRY_CAST(document->>'$.CreatedTime' AS TIMESTAMPTZ) AS created_time,
        document->>'$.StoreID' AS store_id,
        document->>'$.PosID' AS pos_id,
        document->>'$.CustomerType' AS customer_type,
        document->>'$.PaymentMethod' AS payment_method,
        document->>'$.DeliveryType' AS delivery_type,
        amount(document, '$.TotalAmount') AS total_amount,
        whole(document, '$.NumberOfItems') AS number_of_items,
        amount(document, '$.TaxableAmount') AS taxable_amount,
        amount(document, '$.CGST') AS cgst,
        amount(document, '$.SGST') AS sgst,
        amount(document, '$.CESS') AS cess,
        coalesce(document->>'$.CustomerCardNo', '') AS customer_card_no,
        address(document->'$.DeliveryAddress') AS delivery_address,
        CASE WHEN json_type(document, '$.InvoiceLineItems') = 'ARRAY'
            THEN list_transform(from_json(document->'$.InvoiceLineItems', '["JSON"]'), lambda item: line_item(item))
        END AS line_items,
        coalesce(
            json_type(document, ['$.InvoiceNumber', '$.StoreID', '$.PosID']) = ['VARCHAR', 'VARCHAR', 'VARCHAR']
            AND created_time IS NOT NULL AND customer_type IN ('PRIME', 'NONPRIME')
            AND payment_method IN ('CASH', 'CARD') AND delivery_type IN ('HOME-DELIVERY', 'TAKEAWAY')
            AND is_amount(document, '$.TotalAmount') AND is_amount(document, '$.TaxableAmount')
            AND is_amount(document, '$.CGST') AND is_amount(document, '$.SGST') AND is_amount(document, '$.CESS')
            AND number_of_items IS NOT NULL
            AND coalesce(json_type(document, '$.CustomerCardNo'), 'VARCHAR') = 'VARCHAR'
            AND (coalesce(json_type(document, '$.DeliveryAddress'), 'NULL') = 'NULL' OR delivery_address IS NOT NULL)
            AND len(list_filter(line_items, lambda item: item IS NULL)) = 0,
            false) AS is_invoice
    FROM decoded
)
SELECT *, CASE
    WHEN key IS NOT NULL AND key_text IS NULL THEN 'malformed'
    WHEN value IS NULL THEN 'nothing'
    WHEN NOT is_invoice THEN 'malformed'
    WHEN key_text IS DISTINCT FROM store_id THEN 'refused'
    WHEN len(list_filter(line_items, lambda item: NOT is_plausible(item))) > 0 THEN 'refused'
    WHEN total_amount IS DISTINCT FROM coalesce(list_sum(list_transform(line_items, lambda item: item.total_value)), 0) THEN 'refused'
    WHEN customer_type = 'PRIME' AND customer_card_no = '' THEN 'refused'
    WHEN delivery_type = 'HOME-DELIVERY' AND delivery_address IS NULL THEN 'refused'
    ELSE 'invoice' END AS verdict
FROM typed;

CREATE OR REPLACE VIEW invoices AS SELECT * FROM pos_events WHERE verdict = 'invoice';

-- 2. Points: a customer's invoices meet in the task that the CRC-32 of the card names --------------------------------

CREATE OR REPLACE MACRO crc32_bit(crc) AS xor(crc >> 1, (crc & 1) * 3988292384::UBIGINT);
CREATE OR REPLACE MACRO crc32_byte(crc, byte) AS
    list_reduce(range(8), lambda c, _: crc32_bit(c), xor(crc, byte));
CREATE OR REPLACE MACRO crc32(hexadecimal) AS xor(4294967295::UBIGINT, list_reduce(
    list_transform(regexp_extract_all(hexadecimal, '..'), lambda pair: ('0x' || pair)::UBIGINT),
    lambda crc, byte: crc32_byte(crc, byte),
    4294967295::UBIGINT));
CREATE OR REPLACE MACRO task_of(card) AS (crc32(hex(encode(card))) % getvariable('tasks'))::INTEGER;

-- What arrives is merged by heads again: each upstream task counts as a partition.
CREATE OR REPLACE TABLE arrived AS
SELECT *, row_number() OVER (PARTITION BY target ORDER BY batch, running_max_ms, task, position) AS arrival
FROM (
    SELECT * REPLACE (max(timestamp_ms) OVER (PARTITION BY batch, task, target ORDER BY position) AS running_max_ms)
    FROM (SELECT *, task_of(customer_card_no) AS target FROM invoices WHERE customer_type = 'PRIME')
);

-- Per customer, invoice by invoice: it is credited unless it is among the last ten that were.
CREATE OR REPLACE TABLE credited AS
SELECT customer_card_no, unnest(list_reduce(
    list({'number': invoice_number, 'arrival': arrival} ORDER BY arrival),
    lambda known, new: if(list_contains(list_transform(known[-10:], lambda k: k.number), new.number),
        known, list_append(known, new)),
    []::STRUCT(number VARCHAR, arrival BIGINT)[])).arrival AS arrival
FROM arrived GROUP BY customer_card_no;

CREATE OR REPLACE TABLE points AS
SELECT arrived.*, total_amount * 0.02 AS earned,
    sum(total_amount * 0.02) OVER (PARTITION BY customer_card_no ORDER BY arrival) AS total
FROM arrived JOIN credited USING (customer_card_no, arrival);

-- 3. Line items: without card, street and telephone ------------------------------------------------------------------

CREATE OR REPLACE TABLE sold_items AS
SELECT key, key_text, task, position, "partition", "offset", timestamp_ms, invoice_number, created_time, store_id, pos_id,
    customer_type, payment_method, delivery_type, delivery_address.city AS city, delivery_address.state AS state,
    delivery_address.pin_code AS pin_code, item_number, item.item_code AS item_code,
    item.item_description AS item_description, money(item.item_price) AS item_price, item.item_qty AS item_qty,
    money(item.total_value) AS total_value
FROM (SELECT *, unnest(line_items) AS item, generate_subscripts(line_items, 1) AS item_number FROM invoices);

-- 4. What must be in the tables and topics; records of one key are compared in order: `nth` counts them --------------

CREATE OR REPLACE VIEW "expected shipment" AS
SELECT partition_of(key, getvariable('tasks')) AS "partition", row_number() OVER (PARTITION BY key ORDER BY position) AS nth,
    key_text AS key, instant(timestamp_ms) AS timestamp, invoice_number, created_time, store_id, pos_id, customer_type,
    payment_method, delivery_type, total_amount, number_of_items, taxable_amount, cgst, sgst, cess, customer_card_no,
    delivery_address, line_items
FROM invoices WHERE delivery_type = 'HOME-DELIVERY';

-- Keyed by store, but placed and in order by customer.
CREATE OR REPLACE VIEW "expected notification" AS
SELECT target AS "partition", row_number() OVER (PARTITION BY customer_card_no ORDER BY arrival) AS nth,
    key_text AS key, instant(timestamp_ms) AS timestamp, invoice_number, customer_card_no, total_amount,
    money(earned) AS earned_loyalty_points, money(total) AS total_loyalty_points
FROM points;

CREATE OR REPLACE VIEW "expected hadoop-sink" AS
SELECT partition_of(key, getvariable('tasks')) AS "partition",
    row_number() OVER (PARTITION BY key ORDER BY position, item_number) AS nth, key_text AS key,
    instant(timestamp_ms) AS timestamp, invoice_number, created_time, store_id, pos_id, customer_type, payment_method,
    delivery_type, city, state, pin_code, item_code, item_description, item_price, item_qty, total_value
FROM sold_items;

CREATE OR REPLACE VIEW "expected invoices_line_items" AS
SELECT store_id, invoice_number, created_time, pos_id, customer_type, payment_method, delivery_type,
    city, state, pin_code, item_code, item_description, item_price, item_qty, total_value,
    instant(timestamp_ms) AS timestamp, 'pos' AS source_topic, "partition" AS source_partition, "offset" AS source_offset
FROM sold_items;

-- After a hop a record comes from the hop: from the task that sent it, in that micro-batch, as its nth record there.
CREATE OR REPLACE VIEW "expected invoices_loyalty_points" AS
SELECT store_id, invoice_number, customer_card_no, total_amount, money(earned) AS earned_loyalty_points,
    money(total) AS total_loyalty_points, instant(timestamp_ms) AS timestamp,
    'invoices-by-customer-repartition' AS source_topic, task AS source_partition,
    (batch << 32) + sent - 1 AS source_offset
FROM points JOIN (
    SELECT task, position, row_number() OVER (PARTITION BY batch, task, target ORDER BY position) AS sent FROM arrived
) USING (task, position);

CREATE OR REPLACE VIEW "expected invoices_dead_letters" AS
SELECT key, value, topic, "partition", "offset", instant(timestamp_ms) AS timestamp,
    if(verdict = 'refused', 'ValueError', 'deltaworks.errors.SerializationError') AS error_class,
    if(verdict = 'refused', 'check-invoice', 'pos-source') AS operator
FROM pos_events WHERE verdict IN ('malformed', 'refused');

CREATE OR REPLACE VIEW "expected invoices-dead-letters" AS
SELECT * EXCLUDE operator FROM "expected invoices_dead_letters";
