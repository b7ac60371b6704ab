"""A verdict says what was checked, how it ended and which rows are to blame."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import great_expectations.expectations as gxe
import pandas as pd
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from great_expectations.expectations.expectation import Expectation
from great_expectations.expectations.metadata_types import FailureSeverity
from great_expectations.expectations.row_conditions import Column
from great_expectations.render.renderer.inline_renderer import InlineRenderer

from deltaworks.lakehouse.sandbox import Limits
from deltaworks.quality import Outcome, Verdict, validate, validation

NOT_COMPARABLE = "'>' not supported|Invalid comparison"
"""What pandas 2 and pandas 3 say."""
ORDERS = pa.table({"id": [1, 2, 2], "city": ["Lyon", None, "Boston"], "cents": [100, 5, -7]})


def verdict_on(table: pa.Table, expectation: Expectation) -> Verdict:
    (verdict,) = validate({"orders": table}, {"orders": [expectation]})
    return verdict


def no_rows(query: str) -> Expectation:
    return gxe.UnexpectedRowsExpectation(unexpected_rows_query=query)


def test_rows_that_are_not_as_expected_are_counted_and_shown_whole() -> None:
    verdict = verdict_on(ORDERS, gxe.ExpectColumnValuesToNotBeNull(column="city", meta={"why": "Orders go somewhere."}))

    assert verdict == Verdict(
        table="orders",
        expectation="ExpectColumnValuesToNotBeNull",
        expects="city values must never be null.",
        why="Orders go somewhere.",
        severity="critical",
        outcome=Outcome.FAILED,
        rows=3,
        unexpected=1,
        sample=({"id": 2, "city": None, "cents": 5},),
    )


def test_what_is_as_expected_passes() -> None:
    verdict = verdict_on(ORDERS, gxe.ExpectColumnValuesToBeBetween(column="cents", min_value=-10, max_value=100))

    assert verdict.passed and not verdict.blocks
    assert (verdict.unexpected, verdict.sample, verdict.error) == (0, (), None)


def test_an_expectation_about_the_table_as_a_whole_says_what_was_there() -> None:
    verdict = verdict_on(ORDERS, gxe.ExpectTableRowCountToEqual(value=4))

    assert (verdict.outcome, verdict.observed, verdict.unexpected) == (Outcome.FAILED, "3", None)


def test_a_set_of_columns_that_differs_is_named() -> None:
    verdict = verdict_on(ORDERS, gxe.ExpectTableColumnsToMatchSet(column_set=["id", "city", "amount"]))

    assert verdict.outcome is Outcome.FAILED
    assert verdict.observed is not None and "'missing': ['amount']" in verdict.observed


def test_a_condition_leaves_rows_out() -> None:
    expectation = gxe.ExpectColumnValuesToNotBeNull(column="city", row_condition=Column("cents") > 50)

    assert verdict_on(ORDERS, expectation).passed


def test_samples_are_as_long_as_asked_for() -> None:
    table = pa.table({"id": [1] * 50})
    suites = {"t": [gxe.ExpectColumnValuesToBeUnique(column="id"), no_rows("SELECT * FROM {batch}")]}

    for samples in (0, 3):
        verdicts = validate({"t": table}, suites, samples=samples)
        assert [(v.unexpected, len(v.sample)) for v in verdicts] == [(50, samples)] * 2


def test_a_rule_in_sql_finds_rows_and_shows_what_it_selects() -> None:
    verdict = verdict_on(ORDERS, no_rows("SELECT id, cents FROM {batch} WHERE cents < 0"))

    assert (verdict.outcome, verdict.unexpected, verdict.sample) == (Outcome.FAILED, 1, ({"id": 2, "cents": -7},))
    assert verdict.expects == "no rows: SELECT id, cents FROM {batch} WHERE cents < 0"


def test_a_rule_in_sql_sees_every_table() -> None:
    expectation = no_rows("SELECT * FROM {batch} ANTI JOIN cities USING (city)")

    (verdict,) = validate({"orders": ORDERS, "cities": pa.table({"city": ["Lyon"]})}, {"orders": [expectation]})

    assert [row["id"] for row in verdict.sample] == [2, 2]


def test_braces_of_sql_are_doubled() -> None:
    assert verdict_on(ORDERS, no_rows("SELECT {{'id': id}} FROM {batch} WHERE id > 2")).passed


def test_words_are_made_once_and_those_of_other_arguments_are_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Making them costs a fifth of a check."""
    made: list[InlineRenderer] = []
    original = InlineRenderer.get_rendered_content

    def counted(renderer: InlineRenderer) -> Any:
        made.append(renderer)
        return original(renderer)

    monkeypatch.setattr(InlineRenderer, "get_rendered_content", counted)
    validation._rendered.cache_clear()

    told = [
        verdict_on(ORDERS, gxe.ExpectColumnValuesToBeBetween(column="cents", min_value=least)).expects
        for least in (-1_234, -1_234, -4_321)
    ]

    assert (told[0] == told[1]) and told[0] != told[2] and len(made) == 2


def test_a_description_says_it_better() -> None:
    expectation = gxe.UnexpectedRowsExpectation(
        unexpected_rows_query="SELECT * FROM {batch} WHERE cents < 0", description="nothing is negative"
    )

    assert verdict_on(ORDERS, expectation).expects == "nothing is negative"


@pytest.mark.parametrize(
    ("expectation", "error"),
    [
        (gxe.ExpectColumnValuesToNotBeNull(column="town"), "There is no column 'town'; columns: id, city, cents"),
        (gxe.ExpectColumnPairValuesAToBeGreaterThanB(column_A="city", column_B="id"), NOT_COMPARABLE),
        (gxe.ExpectCompoundColumnsToBeUnique(column_list=["id", "town"]), "town"),
        (gxe.ExpectColumnMaxToBeBetween(column="city", max_value=3), "not supported"),
        (gxe.ExpectColumnValuesToBeBetween(column="id", min_value={"$PARAMETER": "least"}), "least"),
        (gxe.UnexpectedRowsExpectation(unexpected_rows_query="SELECT town FROM {batch}"), "town"),
        (gxe.UnexpectedRowsExpectation(unexpected_rows_query="SELECT * FROM {batch}, lost"), "lost"),
        (gxe.UnexpectedRowsExpectation(unexpected_rows_query="SELECT {other} FROM {batch}"), "other"),
    ],
)
def test_what_cannot_be_checked_is_an_error_and_no_bad_data(expectation: Expectation, error: str) -> None:
    verdict = verdict_on(ORDERS, expectation)

    assert verdict.outcome is Outcome.ERROR and verdict.blocks and not verdict.passed
    assert verdict.error is not None and re.search(error, verdict.error)
    assert (verdict.unexpected, verdict.sample) == (None, ())


class Raises(gxe.ExpectColumnValuesToNotBeNull):
    """Great Expectations says of it that it failed."""

    def _validate(self, *_: object, **__: object) -> dict[str, object]:
        raise ZeroDivisionError("no number")


def test_an_expectation_that_raises_does_not_take_others_with_it() -> None:
    verdicts = validate({"orders": ORDERS}, {"orders": [Raises(column="id"), gxe.ExpectColumnToExist(column="id")]})

    assert [(v.outcome, v.error) for v in verdicts] == [(Outcome.ERROR, "no number"), (Outcome.PASSED, None)]


def test_a_table_that_is_missing_is_an_error_of_each_of_its_expectations(tmp_path: Path) -> None:
    suite = [gxe.ExpectColumnToExist(column="id"), no_rows("SELECT * FROM {batch}")]

    verdicts = validate({"orders": ORDERS, "broken": tmp_path}, {"lost": suite, "broken": suite, "orders": suite[:1]})

    assert [(v.table, v.outcome, v.rows) for v in verdicts] == [
        *[("lost", Outcome.ERROR, None)] * 2,
        *[("broken", Outcome.ERROR, None)] * 2,
        ("orders", Outcome.PASSED, 3),
    ]
    assert verdicts[0].error == "There is no table 'lost'; tables: orders"
    assert str(verdicts[2].error).startswith("Table 'broken' cannot be opened: ")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM {batch}; COPY {batch} TO '/tmp/orders.csv'",
        "COPY {batch} TO '/tmp/orders.csv'",
        "SET memory_limit = '10GB'",
    ],
)
def test_a_rule_sees_tables_and_nothing_else(query: str) -> None:
    verdict = verdict_on(ORDERS, no_rows(query))

    assert verdict.outcome is Outcome.ERROR and verdict.blocks
    assert "Hint: " in str(verdict.error)
    assert "DuckDB refuses" not in str(verdict.error)


def test_a_rule_that_never_ends_is_an_error_of_its_own() -> None:
    suite = [no_rows("SELECT a.id FROM {batch} a, range(1000000000) b, range(1000000000) c WHERE a.id < 0")]
    suite.append(no_rows("SELECT * FROM {batch} WHERE id < 0"))

    verdicts = validate({"orders": ORDERS}, {"orders": suite}, limits=Limits(seconds=0.3))

    assert [verdict.outcome for verdict in verdicts] == [Outcome.ERROR, Outcome.PASSED]
    assert "longer than 0.3 s" in str(verdicts[0].error)


def test_a_warning_that_fails_has_failed_but_does_not_block() -> None:
    warning = gxe.ExpectColumnValuesToNotBeNull(column="city", severity=FailureSeverity.WARNING)
    misfit = gxe.ExpectColumnValuesToNotBeNull(column="town", severity=FailureSeverity.WARNING)

    failed, error = validate({"orders": ORDERS}, {"orders": [warning, misfit]})

    assert (failed.severity, failed.passed, failed.blocks) == ("warning", False, False)
    assert error.blocks, "a warning that was not checked is not known to be harmless"


def test_a_table_is_read_from_delta_arrow_or_pandas(tmp_path: Path) -> None:
    write_deltalake(tmp_path, ORDERS)
    sources = {"delta": tmp_path, "text": str(tmp_path), "arrow": ORDERS, "pandas": ORDERS.to_pandas()}
    suite = [gxe.ExpectColumnValuesToNotBeNull(column="city"), no_rows("SELECT id, city FROM {batch} WHERE cents = 5")]

    verdicts = validate(sources, dict.fromkeys(sources, suite))

    assert {verdict.sample[0]["id"] for verdict in verdicts} == {2}
    assert {verdict.table for verdict in verdicts} == sources.keys()


def test_the_index_of_a_data_frame_does_not_matter() -> None:
    frame = pd.DataFrame({"id": [1, 2, 3], "amount": [Decimal(1), Decimal(-1), Decimal(2)]}, index=[7, 7, 7])

    (verdict,) = validate({"t": frame}, {"t": [gxe.ExpectColumnValuesToBeBetween(column="amount", min_value=0)]})

    assert verdict.sample == ({"id": 2, "amount": Decimal(-1)},)


def test_suites_can_be_used_again() -> None:
    suites = {"orders": [gxe.ExpectColumnValuesToNotBeNull(column="city"), no_rows("SELECT * FROM {batch}")]}

    assert validate({"orders": ORDERS}, suites) == validate({"orders": ORDERS}, suites)


def test_nothing_is_printed_logged_or_written(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))

    verdict_on(ORDERS, gxe.ExpectColumnValuesToNotBeNull(column="city"))
    verdict_on(ORDERS, Raises(column="id"))

    assert capfd.readouterr() == ("", "")
    assert [record.getMessage() for record in caplog.records if record.levelname not in ("DEBUG", "INFO")] == []
    assert list(tmp_path.iterdir()) == []
