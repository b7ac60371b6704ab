"""Rules in SQL: an `UnexpectedRowsExpectation` selects the rows that should not exist, and DuckDB runs its query.

Great Expectations runs it only on databases and Spark. Here, its query is DuckDB SQL: `{batch}` is the table, and other
tables have their own names. `{order}` is `'recorded'` or `'time'` in the gate of a replay, and NULL otherwise, because
production may have days of both. Braces are doubled (`{{`). A rule runs in a `sandbox`, where it sees only tables.
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
    """Completes the verdict with its outcome."""
    try:
        order = "NULL" if tables.order is None else f"'{tables.order}'"
        query = str(expectation.unexpected_rows_query).format(batch=f'"{verdict.table}"', order=order)
        unexpected, sample = tables.sandbox.select(query, samples)
    except (ConfigurationError, LookupError, ValueError) as error:
        return replace(verdict, outcome=Outcome.ERROR, error=str(error))
    outcome = Outcome.FAILED if unexpected else Outcome.PASSED
    return replace(verdict, outcome=outcome, unexpected=unexpected, sample=sample)
