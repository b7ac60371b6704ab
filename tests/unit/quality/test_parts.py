"""A table that does not fit as one data frame gets the verdicts, counts and samples of one that does."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import great_expectations.expectations as gxe
import pyarrow as pa
import pyarrow.dataset as pads
import pytest
from great_expectations.expectations.expectation import Expectation
from great_expectations.expectations.row_conditions import Column

from deltaworks.lakehouse.sandbox import Limits
from deltaworks.quality import Outcome, Verdict, parts, validate

START = datetime(2026, 1, 1, tzinfo=UTC)
NAN = float("nan")
ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3, 3, None, 6, 7, 1, 9, 10], pa.int64()),
        "city": ["Lyon", None, "Boston", "Lyon", "Oslo\n", "Bonn", "", "Lyon", "Kyoto", "Bonn"],
        "amount": pa.array([*map(Decimal, ("1.50", "-0.25", "0", "9.99", "10", "10.01", "3", "4", "5")), None]),
        "rate": pa.array([0.5, NAN, None, 2.0, -1.0, 0.0, 2.0, 1.0, 7.5, 0.1]),
        "begin": [START + timedelta(hours=hour) for hour in range(10)],
        "end": [*(START + timedelta(hours=hour + 1) for hour in range(8)), START, None],
        "day": [date(2026, 1, 1 + number % 3) for number in range(10)],
        "flag": [True, False] * 5,
    }
)


class Positive(gxe.ExpectColumnValuesToBeBetween):
    """Sets arguments only."""

    min_value: float = 1


EXPECTATIONS: Sequence[Expectation] = [
    gxe.ExpectColumnValuesToNotBeNull(column="city"),
    gxe.ExpectColumnValuesToNotBeNull(column="rate"),
    gxe.ExpectColumnValuesToNotBeNull(column="id", mostly=0.9),
    gxe.ExpectColumnValuesToNotBeNull(column="id", mostly=0.95),
    gxe.ExpectColumnValuesToBeNull(column="rate"),
    gxe.ExpectColumnValuesToBeBetween(column="id", min_value=2, max_value=7),
    gxe.ExpectColumnValuesToBeBetween(column="id", min_value=2, max_value=7, strict_min=True, strict_max=True),
    gxe.ExpectColumnValuesToBeBetween(column="id", min_value=1, max_value=10),
    gxe.ExpectColumnValuesToBeBetween(column="id", min_value=1.5),
    gxe.ExpectColumnValuesToBeBetween(column="amount", min_value=0, max_value=10),
    gxe.ExpectColumnValuesToBeBetween(column="amount", min_value=0.5),
    gxe.ExpectColumnValuesToBeBetween(column="rate", min_value=0, max_value=2),
    gxe.ExpectColumnValuesToBeBetween(column="rate", min_value=0.5),
    gxe.ExpectColumnValuesToBeBetween(column="city", min_value=0),
    Positive(column="rate"),
    gxe.ExpectColumnValuesToBeInSet(column="city", value_set=["Lyon", "Bonn"]),
    gxe.ExpectColumnValuesToBeInSet(column="id", value_set=[1, 2, 3]),
    gxe.ExpectColumnValuesToBeInSet(column="rate", value_set=[0.5, 2]),
    gxe.ExpectColumnValuesToBeInSet(column="flag", value_set=[True]),
    gxe.ExpectColumnValuesToNotBeInSet(column="city", value_set=["Lyon"]),
    gxe.ExpectColumnValuesToMatchRegex(column="city", regex=r"^\w+$"),
    gxe.ExpectColumnValuesToMatchRegex(column="city", regex=r"^[A-Z]\w+$", mostly=0.8),
    gxe.ExpectColumnValuesToMatchRegex(column="city", regex="("),
    gxe.ExpectColumnValuesToNotMatchRegex(column="city", regex="o"),
    gxe.ExpectColumnValueLengthsToBeBetween(column="city", min_value=1, max_value=5),
    gxe.ExpectColumnPairValuesAToBeGreaterThanB(column_A="end", column_B="begin"),
    gxe.ExpectColumnPairValuesAToBeGreaterThanB(column_A="id", column_B="rate", or_equal=True),
    gxe.ExpectColumnPairValuesAToBeGreaterThanB(column_A="city", column_B="id"),
    gxe.ExpectColumnPairValuesToBeEqual(column_A="end", column_B="begin", ignore_row_if="either_value_is_missing"),
    gxe.ExpectColumnPairValuesToBeEqual(column_A="day", column_B="day"),
    gxe.ExpectColumnValuesToNotBeNull(column="city", row_condition=Column("id") == 2),
    gxe.ExpectColumnValuesToBeUnique(column="id"),
    gxe.ExpectColumnValuesToBeUnique(column="id", mostly=0.5),
    gxe.ExpectColumnValuesToBeUnique(column="rate"),
    gxe.ExpectColumnValuesToBeUnique(column="begin"),
    gxe.ExpectCompoundColumnsToBeUnique(column_list=["id", "city"]),
    gxe.ExpectCompoundColumnsToBeUnique(column_list=["city", "day"], ignore_row_if="any_value_is_missing"),
    gxe.ExpectCompoundColumnsToBeUnique(column_list=["begin", "day"]),
    gxe.ExpectColumnMaxToBeBetween(column="amount", max_value=10),
    gxe.ExpectColumnMaxToBeBetween(column="rate", max_value=8),
    gxe.ExpectColumnMinToBeBetween(column="id", min_value=1),
    gxe.ExpectColumnMaxToBeBetween(column="city", max_value=3),
    gxe.ExpectColumnSumToBeBetween(column="id", min_value=42, max_value=42),
    gxe.ExpectColumnSumToBeBetween(column="amount", min_value=50),
    gxe.ExpectTableRowCountToEqual(value=10),
    gxe.ExpectTableRowCountToBeBetween(min_value=11),
    gxe.ExpectTableRowCountToBeBetween(min_value=10, max_value=10),
    gxe.ExpectTableRowCountToBeBetween(min_value=10, strict_min=True),
    gxe.ExpectTableRowCountToBeBetween(max_value=10),
    gxe.ExpectTableRowCountToBeBetween(max_value=10, strict_max=True),
    gxe.ExpectTableRowCountToBeBetween(max_value=9),
    gxe.ExpectTableRowCountToBeBetween(),
    gxe.ExpectTableRowCountToEqual(value=9),
    gxe.ExpectTableColumnsToMatchSet(column_set=["id", "town"]),
    gxe.ExpectColumnToExist(column="city"),
    gxe.ExpectColumnToExist(column="town"),
    gxe.ExpectColumnValuesToNotBeNull(column="town"),
    gxe.UnexpectedRowsExpectation(unexpected_rows_query="SELECT * FROM {batch} WHERE id > 7"),
]


def verdicts(table: pa.Table, suite: Sequence[Expectation], frame_mb: int, samples: int = 2) -> list[Verdict]:
    return validate({"t": table}, {"t": suite}, samples=samples, limits=Limits(frame_mb=frame_mb))


@pytest.mark.parametrize("rows", [3, 100])
def test_every_kind_of_expectation_is_judged_as_in_one_data_frame(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(parts, "ROWS", rows)

    whole, divided = verdicts(ROWS, EXPECTATIONS, 100), verdicts(ROWS, EXPECTATIONS, 0)

    for expectation, one, other in zip(EXPECTATIONS, whole, divided, strict=True):
        assert repr(other) == repr(one), expectation  # NaN does not equal itself
    assert {verdict.outcome for verdict in whole} == set(Outcome)


def test_a_table_without_rows_is_judged_as_well() -> None:
    suite = [
        gxe.ExpectColumnValuesToNotBeNull(column="city"),
        gxe.ExpectColumnValuesToBeUnique(column="id"),
        gxe.ExpectTableRowCountToBeBetween(min_value=1),
    ]

    assert verdicts(ROWS.slice(0, 0), suite, -1) == verdicts(ROWS.slice(0, 0), suite, 100)


class Own(gxe.ExpectColumnValuesToNotBeNull):
    """Computes on its own."""

    def _validate(self, *arguments: Any, **named: Any) -> Any:
        return super()._validate(*arguments, **named)


@pytest.mark.parametrize(
    ("expectation", "needs"),
    [
        (Own(column="id"), "Own needs the table in memory"),
        (gxe.ExpectColumnValuesToBeIncreasing(column="begin"), "needs the table in memory"),
        (gxe.ExpectColumnMedianToBeBetween(column="id", min_value=1), "needs the column in memory"),
    ],
)
def test_what_needs_the_whole_table_says_so_before_memory_ends(expectation: Expectation, needs: str) -> None:
    refused, fine = verdicts(ROWS, [expectation, gxe.ExpectColumnToExist(column="id")], 0)

    assert refused.outcome is Outcome.ERROR and refused.blocks
    assert needs in str(refused.error)
    assert "0 MB are allowed" in str(refused.error) and "DELTAWORKS_QUERY_FRAME_MB" in str(refused.error)
    assert fine.passed


def test_a_column_that_fits_is_enough_for_what_needs_only_that() -> None:
    table = pa.table({"id": range(20_000), "text": ["x" * 500] * 20_000})
    median = gxe.ExpectColumnMedianToBeBetween(column="id", min_value=1, max_value=10)

    assert verdicts(table, [median], 2) == verdicts(table, [median], 100)


def test_a_part_is_as_large_as_it_may_be_and_no_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "ROWS", 4)

    assert [len(part) for part in parts.parts_of(pads.dataset(ROWS))] == [4, 4, 2]
