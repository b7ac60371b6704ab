"""Runs suites on tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from string import Template
from typing import TYPE_CHECKING, TypeAlias

from deltaworks.errors import ConfigurationError
from deltaworks.lakehouse.sandbox import Limits
from deltaworks.quality import engine
from deltaworks.quality.frames import Source, Tables
from deltaworks.quality.rows import Rows
from deltaworks.quality.verdict import Outcome, Verdict

if TYPE_CHECKING:
    from great_expectations.expectations import UnexpectedRowsExpectation
    from great_expectations.expectations.expectation import Expectation

Suites: TypeAlias = Mapping[str, Sequence["Expectation"]]
"""Table -> its expectations."""


def validate(
    tables: Mapping[str, Source],
    suites: Suites,
    *,
    order: str | None = None,
    samples: int = 5,
    limits: Limits | None = None,
) -> list[Verdict]:
    """Checks every expectation; each gets its verdict, whatever happens to the others.

    Args:
        tables: name -> Arrow table, data frame or path of a Delta table. Rules in SQL may use tables without a suite.
        suites: table -> expectations of Great Expectations.
        order: order of the replay that wrote the tables, `recorded` or `time`; None if no or several replays did.
        samples: maximum number of failing rows that a verdict shows.
        limits: limits of each rule in SQL; None: the defaults.

    Returns:
        One verdict per expectation, in the order of the suites. If a table is missing, each of its expectations gets
        an error.
    """
    engine.load()
    opened = Tables.open(tables, order, limits)
    with opened.sandbox:
        return [verdict for table, suite in suites.items() for verdict in _of_table(opened, table, suite, samples)]


def _of_table(tables: Tables, name: str, suite: Sequence[Expectation], samples: int) -> Iterator[Verdict]:
    from great_expectations.expectations import UnexpectedRowsExpectation

    in_sql = [isinstance(expectation, UnexpectedRowsExpectation) for expectation in suite]
    try:
        table = tables.arrow(name)
        rows = None if all(in_sql) else Rows.of(table, samples)
    except Exception as error:
        for expectation in suite:
            yield replace(_unknown(name, expectation, None), outcome=Outcome.ERROR, error=str(error))
        return
    for expectation in suite:
        verdict = _unknown(name, expectation, len(table))
        try:
            if isinstance(expectation, UnexpectedRowsExpectation):
                yield _check_sql(tables, expectation, verdict, samples)
            elif rows is not None:
                yield rows.check(expectation, verdict)
        except Exception as error:
            yield replace(verdict, outcome=Outcome.ERROR, error=f"{type(error).__name__}: {error}")


def _check_sql(tables: Tables, expectation: UnexpectedRowsExpectation, verdict: Verdict, samples: int) -> Verdict:
    """The verdict on a rule in SQL, with its outcome.

    An `UnexpectedRowsExpectation` selects the rows that should not be. Great Expectations runs it on databases and
    Spark only; here its query is DuckDB's SQL. `{batch}` is the table, every other table has its name, `{order}` is
    `'recorded'` or `'time'` in the gate of a replay, and else NULL: production may have days of both. Braces are
    doubled (`{{`). It runs in a `sandbox`: a rule sees tables and nothing else.
    """
    try:
        order = "NULL" if tables.order is None else f"'{tables.order}'"
        query = str(expectation.unexpected_rows_query).format(batch=f'"{verdict.table}"', order=order)
        unexpected, sample = tables.sandbox.select(query, samples)
    except (ConfigurationError, LookupError, ValueError) as error:
        return replace(verdict, outcome=Outcome.ERROR, error=str(error))
    outcome = Outcome.FAILED if unexpected else Outcome.PASSED
    return replace(verdict, outcome=outcome, unexpected=unexpected, sample=sample)


def _unknown(table: str, expectation: Expectation, rows: int | None) -> Verdict:
    """The verdict before the check."""
    severity = expectation.severity
    return Verdict(
        table=table,
        expectation=type(expectation).__name__,
        expects=_in_words(expectation),
        why=str((expectation.meta or {}).get("why", "")),
        severity=str(getattr(severity, "value", severity)),
        outcome=Outcome.ERROR,
        rows=rows,
    )


def _in_words(expectation: Expectation) -> str:
    """The expectation's description, or the text of Great Expectations for its kind and arguments."""
    from great_expectations.expectations import UnexpectedRowsExpectation
    from great_expectations.render.renderer.inline_renderer import InlineRenderer

    if expectation.description:
        return str(expectation.description)
    if isinstance(expectation, UnexpectedRowsExpectation):
        return f"no rows: {expectation.unexpected_rows_query}"
    for content in InlineRenderer(render_object=expectation.configuration).get_rendered_content():
        if content.value.template:
            parameters = content.value.params or {}
            values = {name: parameter.get("value") for name, parameter in parameters.items()}
            return Template(content.value.template).safe_substitute(values)
    return str(expectation.configuration.kwargs)
