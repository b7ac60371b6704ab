-- The results of jobs/invoices.py as they are, in the columns of invoices.sql.
--
-- Given:  instant, dead_letters_in                                              common.sql
--         one relation "table <name>" per Delta table
--         outputs  topic, "partition", "offset", timestamp_ms, key, value, headers     the output topics, read committed
-- Gives:  "found <result>", one view per Delta table and output topic.

CREATE OR REPLACE VIEW "found invoices_line_items" AS SELECT * FROM "table invoices_line_items";
CREATE OR REPLACE VIEW "found invoices_loyalty_points" AS SELECT * FROM "table invoices_loyalty_points";
CREATE OR REPLACE VIEW "found invoices_dead_letters" AS
SELECT key, value, topic, "partition", "offset", timestamp, error_class, operator FROM "table invoices_dead_letters";

CREATE OR REPLACE VIEW "found shipment" AS
SELECT "partition", row_number() OVER (PARTITION BY key ORDER BY "partition", "offset") AS nth,
    decode(key) AS key, instant(timestamp_ms) AS timestamp, invoice.InvoiceNumber AS invoice_number,
    invoice.CreatedTime AS created_time, invoice.StoreID AS store_id, invoice.PosID AS pos_id,
    invoice.CustomerType AS customer_type, invoice.PaymentMethod AS payment_method,
    invoice.DeliveryType AS delivery_type, invoice.TotalAmount AS total_amount,
    invoice.NumberOfItems AS number_of_items, invoice.TaxableAmount AS taxable_amount, invoice.CGST AS cgst,
    invoice.SGST AS sgst, invoice.CESS AS cess, invoice.CustomerCardNo AS customer_card_no,
    {'address_line': invoice.DeliveryAddress.AddressLine, 'city': invoice.DeliveryAddress.City,
     'state': invoice.DeliveryAddress.State, 'pin_code': invoice.DeliveryAddress.PinCode,
     'contact_number': invoice.DeliveryAddress.ContactNumber} AS delivery_address,
    list_transform(invoice.InvoiceLineItems, lambda item: {
        'item_code': item.ItemCode, 'item_description': item.ItemDescription, 'item_price': item.ItemPrice,
        'item_qty': item.ItemQty, 'total_value': item.TotalValue}) AS line_items
FROM (
    SELECT *, from_json_strict(decode(value), '{"InvoiceNumber": "VARCHAR", "CreatedTime": "TIMESTAMPTZ",
        "StoreID": "VARCHAR", "PosID": "VARCHAR", "CustomerType": "VARCHAR", "PaymentMethod": "VARCHAR",
        "DeliveryType": "VARCHAR", "TotalAmount": "DECIMAL(38, 18)", "NumberOfItems": "BIGINT",
        "TaxableAmount": "DECIMAL(38, 18)", "CGST": "DECIMAL(38, 18)", "SGST": "DECIMAL(38, 18)",
        "CESS": "DECIMAL(38, 18)", "CustomerCardNo": "VARCHAR",
        "DeliveryAddress": {"AddressLine": "VARCHAR", "City": "VARCHAR", "State": "VARCHAR", "PinCode": "VARCHAR",
            "ContactNumber": "VARCHAR"},
        "InvoiceLineItems": [{"ItemCode": "VARCHAR", "ItemDescription": "VARCHAR", "ItemPrice": "DECIMAL(38, 18)",
            "ItemQty": "BIGINT", "TotalValue": "DECIMAL(38, 18)"}]}') AS invoice
    FROM outputs WHERE topic = 'shipment'
);

CREATE OR REPLACE VIEW "found notification" AS
SELECT "partition", row_number() OVER (PARTITION BY told.CustomerCardNo ORDER BY "partition", "offset") AS nth,
    decode(key) AS key, instant(timestamp_ms) AS timestamp, told.InvoiceNumber AS invoice_number,
    told.CustomerCardNo AS customer_card_no, told.TotalAmount AS total_amount,
    told.EarnedLoyaltyPoints AS earned_loyalty_points, told.TotalLoyaltyPoints AS total_loyalty_points
FROM (
    SELECT *, from_json_strict(decode(value), '{"InvoiceNumber": "VARCHAR", "CustomerCardNo": "VARCHAR",
        "TotalAmount": "DECIMAL(38, 18)", "EarnedLoyaltyPoints": "DECIMAL(38, 18)",
        "TotalLoyaltyPoints": "DECIMAL(38, 18)"}') AS told
    FROM outputs WHERE topic = 'notification'
);

CREATE OR REPLACE VIEW "found hadoop-sink" AS
SELECT "partition", row_number() OVER (PARTITION BY key ORDER BY "partition", "offset") AS nth, decode(key) AS key,
    instant(timestamp_ms) AS timestamp, item.InvoiceNumber AS invoice_number, item.CreatedTime AS created_time,
    item.StoreID AS store_id, item.PosID AS pos_id, item.CustomerType AS customer_type,
    item.PaymentMethod AS payment_method, item.DeliveryType AS delivery_type, item.City AS city, item.State AS state,
    item.PinCode AS pin_code, item.ItemCode AS item_code, item.ItemDescription AS item_description,
    item.ItemPrice AS item_price, item.ItemQty AS item_qty, item.TotalValue AS total_value
FROM (
    SELECT *, from_json_strict(decode(value), '{"InvoiceNumber": "VARCHAR", "CreatedTime": "TIMESTAMPTZ",
        "StoreID": "VARCHAR", "PosID": "VARCHAR", "CustomerType": "VARCHAR", "PaymentMethod": "VARCHAR",
        "DeliveryType": "VARCHAR", "City": "VARCHAR", "State": "VARCHAR", "PinCode": "VARCHAR", "ItemCode": "VARCHAR",
        "ItemDescription": "VARCHAR", "ItemPrice": "DECIMAL(38, 18)", "ItemQty": "BIGINT",
        "TotalValue": "DECIMAL(38, 18)"}') AS item
    FROM outputs WHERE topic = 'hadoop-sink'
);

CREATE OR REPLACE VIEW "found invoices-dead-letters" AS FROM dead_letters_in('outputs', 'invoices-dead-letters');
