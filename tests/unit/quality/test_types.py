"""What Great Expectations sees of each type of a Delta column, and what it must not be asked."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import great_expectations.expectations as gxe
import pyarrow as pa
import pytest
from great_expectations.expectations.expectation import Expectation

from deltaworks.quality import Outcome, Verdict, validate

MONEY = pa.decimal128(38, 18)
INSTANT = pa.timestamp("us", tz="UTC")
LEAST = Decimal("0.000000000000000001")
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
BIG = 2**53 + 1
TYPES: list[tuple[pa.DataType, Any, Any]] = [
    (pa.string(), "Gdańsk", "大阪"),
    (pa.int64(), BIG, BIG + 1),
    (pa.int32(), 1, 2),
    (pa.float64(), 0.5, 1.5),
    (pa.bool_(), False, True),
    (MONEY, 3 + LEAST, 3 + LEAST + LEAST),
    (INSTANT, NOON, NOON.replace(microsecond=1)),
    (pa.date32(), date(2026, 3, 1), date(2026, 3, 2)),
    (pa.binary(), b"\xff", b""),
    (pa.list_(pa.int64()), [1], [1, 2]),
    (pa.struct([("x", pa.int64())]), {"x": 1}, {"x": 2}),
    (pa.map_(pa.string(), pa.int64()), [("x", 1)], [("x", 2)]),
]


def column(kind: pa.DataType, *cells: Any) -> pa.Table:
    return pa.table({"n": pa.array(range(len(cells))), "c": pa.array(cells, kind)})


def check(table: pa.Table, *suite: Expectation) -> list[Verdict]:
    return validate({"t": table}, {"t": suite})


@pytest.mark.parametrize(("kind", "one", "other"), TYPES, ids=lambda value: str(value))
def test_nulls_and_duplicates_are_found_in_every_type(kind: pa.DataType, one: Any, other: Any) -> None:
    null, unique = check(
        column(kind, one, None, other, one),
        gxe.ExpectColumnValuesToNotBeNull(column="c"),
        gxe.ExpectColumnValuesToBeUnique(column="c"),
    )

    assert [row["n"] for row in null.sample] == [1]
    assert [row["n"] for row in unique.sample] == [0, 3]
    assert unique.sample[0]["c"] == one, "exactly as it is in the table"


@pytest.mark.parametrize(("kind", "one", "other"), TYPES, ids=lambda value: str(value))
def test_values_that_hardly_differ_are_not_duplicates(kind: pa.DataType, one: Any, other: Any) -> None:
    alone, together = check(
        column(kind, one, None, other),
        gxe.ExpectColumnValuesToBeUnique(column="c"),
        gxe.ExpectCompoundColumnsToBeUnique(column_list=["n", "c"]),
    )

    assert alone.passed and alone.error is None
    assert together.passed or pa.types.is_nested(kind), together.error


@pytest.mark.parametrize(("kind", "one", "other"), TYPES, ids=lambda value: str(value))
def test_an_empty_table_passes_and_says_that_it_has_no_rows(kind: pa.DataType, one: Any, other: Any) -> None:
    null, unique, some = check(
        column(kind),
        gxe.ExpectColumnValuesToNotBeNull(column="c"),
        gxe.ExpectColumnValuesToBeUnique(column="c"),
        gxe.ExpectTableRowCountToBeBetween(min_value=1),
    )

    assert (null.passed, unique.passed, null.rows) == (True, True, 0)
    assert (some.outcome, some.observed) == (Outcome.FAILED, "0")


@pytest.mark.parametrize("kind", [pa.binary(), pa.list_(pa.int64()), pa.struct([("x", pa.int64())])], ids=str)
@pytest.mark.parametrize(
    "expectation",
    [
        gxe.ExpectColumnValueLengthsToEqual(column="c", value=1),
        gxe.ExpectColumnValuesToMatchRegex(column="c", regex="1"),
        gxe.ExpectColumnValuesToBeInSet(column="c", value_set=[1]),
    ],
    ids=lambda expectation: type(expectation).__name__,
)
def test_what_is_inside_bytes_and_nested_values_is_for_sql(kind: pa.DataType, expectation: Expectation) -> None:
    """Great Expectations would look at the text that Python prints: `[1]` has a length of 3."""
    (verdict,) = check(column(kind, None), expectation)

    assert verdict.outcome is Outcome.ERROR
    assert verdict.error == f"Column 'c' is {kind}: use SQL, with UnexpectedRowsExpectation"


def test_instants_are_compared_with_their_time_zone() -> None:
    table = column(INSTANT, NOON, None, NOON.replace(microsecond=1))

    above, known, naive = check(
        table,
        gxe.ExpectColumnValuesToBeBetween(column="c", max_value=NOON),
        gxe.ExpectColumnValuesToBeInSet(column="c", value_set=[NOON]),
        gxe.ExpectColumnValuesToBeBetween(column="c", max_value=NOON.replace(tzinfo=None)),
    )

    assert [row["n"] for row in above.sample] == [2]
    assert [row["n"] for row in known.sample] == [2]
    assert naive.outcome is Outcome.ERROR


def test_integers_beside_nulls_stay_exact() -> None:
    (verdict,) = check(column(pa.int64(), BIG, None), gxe.ExpectColumnValuesToBeInSet(column="c", value_set=[BIG - 1]))

    assert verdict.sample == ({"n": 0, "c": BIG},)


def test_decimals_are_compared_exactly_with_each_other_and_with_whole_numbers() -> None:
    table = pa.table({"a": pa.array([LEAST, Decimal(0)], MONEY), "b": pa.array([Decimal(0), Decimal(0)], MONEY)})

    greater, above = check(
        table,
        gxe.ExpectColumnPairValuesAToBeGreaterThanB(column_A="a", column_B="b"),
        gxe.ExpectColumnValuesToBeBetween(column="a", max_value=0),
    )

    assert greater.sample == ({"a": Decimal(0), "b": Decimal(0)},)
    assert above.sample == ({"a": LEAST, "b": Decimal(0)},)


def test_a_decimal_bound_becomes_a_float_so_that_money_is_for_sql() -> None:
    """Not what we would like, but what Great Expectations does before anything here sees it."""
    table = column(MONEY, Decimal("0.01"))
    bound = gxe.ExpectColumnValuesToBeBetween(column="c", min_value=float(Decimal("0.01")))
    exact = gxe.UnexpectedRowsExpectation(unexpected_rows_query="SELECT * FROM {batch} WHERE c < 0.01")

    verdicts = check(table, bound, exact)

    assert [verdict.outcome for verdict in verdicts] == [Outcome.FAILED, Outcome.PASSED]


def test_the_sum_of_decimals_beside_nulls_is_an_error() -> None:
    (verdict,) = check(column(MONEY, LEAST, None), gxe.ExpectColumnSumToBeBetween(column="c", min_value=0))

    assert verdict.outcome is Outcome.ERROR
