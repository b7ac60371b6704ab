"""Defects of `jobs/invoices.py`."""

from __future__ import annotations

from tests.support.data_defects import defect

CUT = "(SELECT quantile_disc(timestamp, 0.6) FROM original_invoices_line_items)"
ITEMS, POINTS, LETTERS = "invoices_line_items", "invoices_loyalty_points", "invoices_dead_letters"
FIRST = "SELECT {} FROM invoices_line_items ORDER BY source_partition, source_offset LIMIT 1"

DEFECTS = (
    defect("items lost: one in thirty", ITEMS, "DELETE FROM {} WHERE hash(invoice_number, item_code) % 30 = 3"),
    defect(
        "items lost: only the first of an invoice is there",
        ITEMS,
        "DELETE FROM {} WHERE rowid NOT IN (SELECT min(rowid) FROM {} GROUP BY source_partition, source_offset)",
    ),
    defect("items written twice", ITEMS, "INSERT INTO {} FROM {} WHERE source_offset < 10"),
    defect("one bad partition: its items are not there", ITEMS, "DELETE FROM {} WHERE source_partition = 1"),
    defect(
        "one bad partition: neither its items nor the points",
        *(ITEMS, "DELETE FROM {} WHERE source_partition = 1"),
        *(POINTS, "DELETE FROM {} WHERE source_partition = 1"),
    ),
    defect("points of a task lost", POINTS, "DELETE FROM {} WHERE source_partition = 2"),
    defect("points lost: one invoice in fifty", POINTS, "DELETE FROM {} WHERE hash(invoice_number) % 50 = 3"),
    defect(
        "points credited twice",
        POINTS,
        "INSERT INTO {} SELECT * REPLACE (source_offset + 500 AS source_offset) FROM {} "
        "WHERE hash(invoice_number) % 20 = 3",
    ),
    defect(
        "wrong rounding: points in whole cents",
        POINTS,
        "UPDATE {} SET earned_loyalty_points = round(earned_loyalty_points, 1)",
    ),
    defect(
        "wrong rounding: values of items without cents",
        *(ITEMS, "UPDATE {} SET total_value = round(total_value)"),
    ),
    defect(
        "wrong rounding: prices, values and points without cents",
        *(ITEMS, "UPDATE {} SET item_price = ceil(item_price), total_value = ceil(item_price) * item_qty"),
        POINTS,
        "UPDATE {} SET total_amount = s.amount, earned_loyalty_points = s.amount * 0.02 FROM (SELECT invoice_number "
        "AS n, min(amount) AS amount FROM (SELECT invoice_number, sum(total_value) AS amount FROM invoices_line_items "
        "GROUP BY invoice_number, source_partition, source_offset) GROUP BY n) s WHERE invoice_number = n",
    ),
    defect("points for everybody: three percent", POINTS, "UPDATE {} SET earned_loyalty_points = total_amount * 0.03"),
    defect(
        "key mixed up: accounts of two customers are one",
        POINTS,
        "UPDATE {} SET customer_card_no = "
        "(SELECT min(customer_card_no) FROM {}) "
        "WHERE customer_card_no IN (SELECT DISTINCT customer_card_no FROM {} LIMIT 9)",
    ),
    defect("key mixed up: items by till", ITEMS, "UPDATE {} SET store_id = pos_id"),
    defect(
        "state lost: accounts begin again",
        POINTS,
        "UPDATE {} SET total_loyalty_points = total_loyalty_points - b.earned FROM (SELECT customer_card_no AS card, "
        f"max(total_loyalty_points) AS earned FROM original_invoices_loyalty_points WHERE timestamp <= {CUT} GROUP BY "
        f"card) b WHERE customer_card_no = card AND timestamp > {CUT} AND total_loyalty_points > b.earned",
    ),
    defect("truncated day: items end early", ITEMS, f"DELETE FROM {{}} WHERE timestamp > {CUT}"),
    defect("truncated day: points end early", POINTS, f"DELETE FROM {{}} WHERE timestamp > {CUT}"),
    defect(
        "truncated day: everything ends early but the dead letters",
        *(ITEMS, f"DELETE FROM {{}} WHERE timestamp > {CUT}"),
        *(POINTS, f"DELETE FROM {{}} WHERE timestamp > {CUT}"),
    ),
    defect("privacy: the street is in the city", ITEMS, "UPDATE {} SET state = NULL WHERE city = 'Dresden'"),
    defect("pin codes became numbers", ITEMS, "UPDATE {} SET pin_code = ltrim(pin_code, '0')"),
    defect("times shifted by a time zone", ITEMS, "UPDATE {} SET created_time = created_time + INTERVAL 5 HOUR"),
    defect(
        "wrong join: items under the invoice before",
        ITEMS,
        "UPDATE {} SET invoice_number = b.n FROM (SELECT source_partition AS p, source_offset AS o, "
        "min(invoice_number) AS n FROM original_invoices_line_items GROUP BY ALL) b "
        "WHERE p = source_partition AND o = source_offset - 1",
    ),
    defect(
        "invoices are sold and set aside",
        LETTERS,
        f'INSERT INTO {{}} SELECT * REPLACE (({FIRST.format("source_offset")}) AS "offset", '
        f'({FIRST.format("source_partition")}) AS "partition") FROM {{}} LIMIT 1',
    ),
)
