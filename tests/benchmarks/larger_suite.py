"""The suite that `larger` runs: what authors write for a windowed table, as in `jobs/quality`."""

from __future__ import annotations

from datetime import timedelta

import great_expectations.expectations as gxe

from jobs.quality.rules import Suite, never, windows

HOUR = timedelta(hours=1)
SUITE: Suite = [
    gxe.ExpectTableRowCountToBeBetween(min_value=1),
    *windows(HOUR, key="key", values=("orders", "items", "revenue", "weight"), grace=timedelta(0)),
    gxe.ExpectColumnValuesToMatchRegex(column="key", regex=r"^user-\d{8}$"),
    gxe.ExpectColumnValuesToBeBetween(column="orders", min_value=1, max_value=1000),
    gxe.ExpectColumnPairValuesAToBeGreaterThanB(column_A="items", column_B="orders", or_equal=True),
    gxe.ExpectColumnValuesToBeInSet(column="country", value_set=["DE", "FR", "US", "GB"]),
    gxe.ExpectColumnMaxToBeBetween(column="revenue", min_value=0),
    gxe.ExpectColumnSumToBeBetween(column="orders", min_value=1),
    never("revenue is in whole cents", "SELECT * FROM {batch} WHERE revenue <> round(revenue, 2)", why="It is money."),
]
