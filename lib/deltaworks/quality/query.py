"""Rules in SQL: an `UnexpectedRowsExpectation` selects the rows that should not be, and DuckDB finds them.

Great Expectations runs it on databases and Spark only. Its query is DuckDB's SQL here: `{batch}` is the table, every
other table has its name, `{order}` is `'recorded'` or `'time'` in the gate of a replay, and else NULL: production may
have days of both. Braces are doubled (`{{`). It runs in a `sandbox`: a rule sees tables and nothing else.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from deltaworks.errors import ConfigurationError
from deltaworks.quality.frames import Tables
from deltaworks.quality.verdict import Outcome, Verdict

if TYPE_CHECKING:
    from great_expectations.expectations import UnexpectedRowsExpectation


def check(tables: Tables, expectation: UnexpectedRowsExpectation, verdict: Verdict, samples: int) -> Verdict:
    """The verdict, with its outcome."""
    try:
        order = "NULL" if tables.order is None else f"'{tables.order}'"
        query = str(expectation.unexpected_rows_query).format(batch=f'"{verdict.table}"', order=order)
        unexpected, sample = tables.sandbox.select(query, samples)
    except (ConfigurationError, LookupError, ValueError) as error:
        return replace(verdict, outcome=Outcome.ERROR, error=str(error))
    outcome = Outcome.FAILED if unexpected else Outcome.PASSED
    return replace(verdict, outcome=outcome, unexpected=unexpected, sample=sample)
