"""The suite for the tables of `jobs/invoices.py`; `deltaworks quality invoices` checks it.

It checks what analysts and customers rely on (masking, money and points) from the tables alone. Rules between tables
also hold while the stream runs.
"""

from __future__ import annotations

import great_expectations.expectations as gxe

from jobs.quality.rules import Suite, never, never_null, one_row_per

RECORD = ("source_partition", "source_offset")
_INVOICES_AS_SOLD = """
    SELECT invoice_number, customer_type, sum(total_value) AS amount
    FROM invoices_line_items GROUP BY invoice_number, customer_type, source_partition, source_offset"""

line_items: Suite = [
    gxe.ExpectTableRowCountToBeBetween(min_value=1, meta={"why": "Every other rule holds in an empty table."}),
    gxe.ExpectTableColumnsToMatchSet(
        column_set=[
            *("store_id", "invoice_number", "created_time", "pos_id", "customer_type", "payment_method"),
            *("delivery_type", "city", "state", "pin_code", "item_code", "item_description", "item_price", "item_qty"),
            *("total_value", "timestamp", "source_topic", *RECORD),
        ],
        meta={"why": "Another column could reveal the customer: privacy has agreed to these."},
    ),
    one_row_per(*RECORD, "item_code", why="A till lists an item once, and each record is read exactly once."),
    *never_null(
        *("invoice_number", "created_time", "pos_id", "item_code", "item_description", "item_price", "total_value"),
        why="An invoice that lacks a field becomes a dead letter and never gets here.",
    ),
    *(
        gxe.ExpectColumnValuesToBeInSet(column=column, value_set=values, meta={"why": why})
        for column, values, why in (
            ("customer_type", ["PRIME", "NONPRIME"], "Another type of customer would silently get no points."),
            ("payment_method", ["CASH", "CARD"], "Accounting closes cash and card, and nothing else."),
            ("delivery_type", ["HOME-DELIVERY", "TAKEAWAY"], "No shipper would get another type of delivery."),
        )
    ),
    gxe.ExpectColumnValuesToBeBetween(
        column="item_price", min_value=0, strict_min=True, meta={"why": "Items without a price are not for sale."}
    ),
    gxe.ExpectColumnValuesToNotBeInSet(
        column="item_qty", value_set=[0], meta={"why": "Nothing was bought: the line is an error of the till."}
    ),
    gxe.ExpectColumnValuesToMatchRegex(
        column="pin_code",
        regex=r"^[0-9][0-9-]{4,8}$",
        meta={"why": "A pin code that was once a number has lost its leading 0, and so its place on the map."},
    ),
    never(
        "the value is price times quantity, in whole cents",
        "SELECT * FROM {batch} WHERE total_value <> item_price * item_qty OR total_value <> round(total_value, 2)",
        why="Revenue is the sum of values, and price and quantity have to explain it.",
    ),
    never(
        "a home delivery has a place, and a place is whole",
        "SELECT * FROM {batch} WHERE (city IS NULL) <> (state IS NULL) OR (city IS NULL) <> (pin_code IS NULL) "
        "OR delivery_type = 'HOME-DELIVERY' AND city IS NULL",
        why="Deliveries are planned by place, which half an address does not give.",
    ),
    never(
        "an invoice is of one store",
        "SELECT invoice_number FROM {batch} GROUP BY invoice_number HAVING count(DISTINCT store_id) > 1",
        why="Two sales of two stores with one number would be taken for a repeated sale.",
    ),
    never(
        "the clocks of the tills are right",
        "SELECT * FROM {batch} WHERE abs(date_diff('minute', created_time, timestamp)) > 60",
        why="Daily reports use the time that the till has written.",
    ),
]
loyalty_points: Suite = [
    one_row_per(
        *("customer_card_no", *RECORD),
        why="A credit comes from one record of the exchange, however often its batch was repeated.",
    ),
    *never_null(
        *("store_id", "invoice_number", "total_amount", "earned_loyalty_points", "total_loyalty_points", "timestamp"),
        why="A customer who asks gets the invoice, the amount and both numbers of points.",
    ),
    gxe.ExpectColumnValueLengthsToBeBetween(
        column="customer_card_no", min_value=1, meta={"why": "Invoices without a card would share one account."}
    ),
    gxe.ExpectCompoundColumnsToBeUnique(
        column_list=["customer_card_no", "invoice_number"],
        mostly=0.95,
        meta={"why": "An account knows ten invoices: if a till repeats an older one, it is credited again."},
    ),
    never(
        "two percent of the amount are earned",
        "SELECT * FROM {batch} WHERE earned_loyalty_points <> total_amount * 0.02",
        why="This is what the shop has promised.",
    ),
    never(
        "each total follows from another one, or is the first",
        "SELECT * FROM {batch} c WHERE total_loyalty_points <> earned_loyalty_points AND NOT EXISTS (FROM {batch} b "
        "WHERE b.customer_card_no = c.customer_card_no "
        "AND b.total_loyalty_points = c.total_loyalty_points - c.earned_loyalty_points)",
        why="A gap in the chain is a credit that was counted but never reported, or reported twice.",
    ),
    never(
        "what a customer has earned is one of the totals",
        "SELECT customer_card_no, sum(earned_loyalty_points) AS earned FROM {batch} GROUP BY customer_card_no "
        "HAVING NOT list_contains(list(total_loyalty_points), earned)",
        why="The last total is the sum of all credits: a lost account would start from 0 again.",
    ),
    never(
        "what is credited was sold, for this amount, to a PRIME customer",
        f"SELECT * FROM {{batch}} p ANTI JOIN ({_INVOICES_AS_SOLD}) s ON p.invoice_number = s.invoice_number "
        "AND p.total_amount = s.amount AND s.customer_type = 'PRIME' WHERE p.total_amount <> 0",
        why="Two tables of one stream must agree; points without a sale would be a gift.",
    ),
    never(
        "what PRIME customers buy is credited",
        f"SELECT * FROM ({_INVOICES_AS_SOLD}) ANTI JOIN {{batch}} USING (invoice_number) WHERE customer_type = 'PRIME'",
        why="Both tables are committed with every batch: a sale without points is a record lost between tasks.",
    ),
]
dead_letters: Suite = [
    one_row_per("topic", "partition", "offset", why="A record becomes a dead letter once, where it first failed."),
    *never_null(
        *("topic", "partition", "offset", "timestamp", "value", "error_class", "message", "stacktrace"),
        why="To repair an invoice, people need its bytes, where it was and what was wrong with it.",
    ),
    never(
        "what is set aside fails where the pipeline can fail",
        "SELECT * FROM {batch} ANTI JOIN (VALUES ('pos', 'pos-source', 'deltaworks.errors.SerializationError'), "
        "('pos', 'check-invoice', 'ValueError')) AS known(topic, operator, error_class) "
        "USING (topic, operator, error_class)",
        why="Any other error is a bug in the pipeline, not a bad invoice.",
    ),
    never(
        "an invoice is set aside or sold, not both",
        'SELECT d.* FROM {batch} d JOIN invoices_line_items i ON d."partition" = i.source_partition '
        'AND d."offset" = i.source_offset',
        why="If it were repaired and sent again, it would be sold twice.",
    ),
    never(
        "dead letters are rare",
        "SELECT * FROM (SELECT (SELECT count(*) FROM {batch}) AS dead, (SELECT count(DISTINCT (source_partition, "
        "source_offset)) FROM invoices_line_items) AS sold) WHERE dead > sold / 8",
        why="One invoice in sixteen is bad; one in eight means that new software of the tills writes something else.",
    ),
]
suites: dict[str, Suite] = {
    "invoices_line_items": line_items,
    "invoices_loyalty_points": loyalty_points,
    "invoices_dead_letters": dead_letters,
}
