"""Checks the rows of a day that a batch job has computed, before they replace those in the table."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from deltaworks.lakehouse.sandbox import Limits
from deltaworks.quality import engine
from deltaworks.quality.frames import Source
from deltaworks.quality.validation import Suites, validate
from deltaworks.quality.verdict import Verdict

if TYPE_CHECKING:
    from great_expectations.expectations.expectation import Expectation


def judge_day(
    table: str,
    rows: Source,
    day: dt.date,
    *,
    key: Sequence[str],
    required: Sequence[str],
    suites: Suites,
    inputs: Mapping[str, Source],
    limits: Limits | None = None,
) -> list[Verdict]:
    """Checks the suite of the author, and what holds for every batch job.

    Args:
        table: name of the table.
        rows: the rows of the day.
        day: the day.
        key: columns that are unique together.
        required: columns that are never null.
        suites: table -> expectations; those of other tables than `table` are left out.
        inputs: the tables that the rows are from; rules in SQL may use them.
        limits: limits of each rule in SQL; None: the defaults.

    Returns:
        A verdict per expectation.
    """
    engine.load()
    suite = [*_always(day, key, required), *suites.get(table, ())]
    return validate({**inputs, table: rows}, {table: suite}, limits=limits)


def _always(day: dt.date, key: Sequence[str], required: Sequence[str]) -> list[Expectation]:
    import great_expectations.expectations as gxe

    return [
        gxe.UnexpectedRowsExpectation(
            description=f"rows are of {day}",
            unexpected_rows_query=f"SELECT * FROM {{batch}} WHERE day IS DISTINCT FROM DATE '{day}'",
            meta={"why": "A run replaces the rows of its day, so other ones would be added again by each run."},
        ),
        gxe.UnexpectedRowsExpectation(
            description=f"one row per {', '.join(key)}",
            unexpected_rows_query=_twice(key),
            meta={"why": "Readers join by the key; a second row of it counts everything twice."},
        ),
        *(
            gxe.ExpectColumnValuesToNotBeNull(column=column, meta={"why": "The type of the column has no null."})
            for column in required
        ),
    ]


def _twice(key: Sequence[str]) -> str:
    columns = ", ".join(f'"{column}"' for column in key)
    return f"SELECT {columns}, count(*) AS rows FROM {{batch}} GROUP BY {columns} HAVING count(*) > 1"
