"""Runs suites on tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain, islice
from string import Template
from typing import TYPE_CHECKING, TypeAlias, TypeGuard, cast

from deltaworks.errors import ConfigurationError
from deltaworks.lakehouse.sandbox import Limits
from deltaworks.quality import engine, parts
from deltaworks.quality.checks import Check, Freshness, RecentVolume, SumsReconciled
from deltaworks.quality.frames import Source, Tables
from deltaworks.quality.progress import Progress
from deltaworks.quality.rows import Rows
from deltaworks.quality.verdict import Outcome, Verdict

if TYPE_CHECKING:
    from great_expectations.expectations import UnexpectedRowsExpectation
    from great_expectations.expectations.expectation import Expectation
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

Suites: TypeAlias = Mapping[str, Sequence["Expectation | Check"]]
"""Table -> its expectations and checks."""


def validate(
    tables: Mapping[str, Source],
    suites: Suites,
    *,
    order: str | None = None,
    progress: Progress | None = None,
    samples: int = 5,
    limits: Limits | None = None,
) -> list[Verdict]:
    """Checks every expectation; each gets its verdict, whatever happens to the others.

    Args:
        tables: name -> Arrow table, data frame or path of a Delta table. Rules in SQL may use tables without a suite.
        suites: table -> expectations of Great Expectations, and checks of `checks`.
        order: order of the replay that wrote the tables, `recorded` or `time`; None if no or several replays did.
        progress: of the stream that writes the tables; None: without it, nothing is said of progress.
        samples: maximum number of failing rows that a verdict shows.
        limits: limits of each rule in SQL, and of data frames; None: the defaults.

    Returns:
        One verdict per expectation, in the order of the suites. If a table is missing, each of its expectations gets
        an error.
    """
    engine.load()
    opened = Tables.open(tables, order, limits, progress)
    with opened.sandbox:
        return [verdict for table, suite in suites.items() for verdict in _of_table(opened, table, suite, samples)]


def _of_table(tables: Tables, name: str, suite: Sequence[Expectation | Check], samples: int) -> Iterator[Verdict]:
    try:
        rows = tables.rows(name)
        by_rows = [(each, _unknown(name, each, rows)) for each in suite if _is_by_rows(each)]
        checked = _checked(tables, name, by_rows, samples)
        first = list(islice(checked, 1))  # reads the table
    except Exception as error:
        for expectation in suite:
            yield replace(_unknown(name, expectation, None), outcome=Outcome.ERROR, error=str(error))
        return
    verdicts = chain(first, checked)
    for expectation in suite:
        if _is_by_rows(expectation):
            yield next(verdicts)
        else:
            yield _check_in_sql(tables, expectation, _unknown(name, expectation, rows), samples)


def _is_by_rows(expectation: Expectation | Check) -> TypeGuard[Expectation]:
    """Whether Great Expectations checks it."""
    from great_expectations.expectations import UnexpectedRowsExpectation

    return not isinstance(expectation, UnexpectedRowsExpectation | _CHECKS)


_CHECKS = Freshness | RecentVolume | SumsReconciled


def _check_in_sql(tables: Tables, expectation: Expectation | Check, verdict: Verdict, samples: int) -> Verdict:
    try:
        if isinstance(expectation, _CHECKS):
            return expectation.check(tables, verdict, samples)
        return _check_sql(tables, cast("UnexpectedRowsExpectation", expectation), verdict, samples)
    except ConfigurationError as error:
        return replace(verdict, outcome=Outcome.ERROR, error=str(error))
    except Exception as error:
        return replace(verdict, outcome=Outcome.ERROR, error=f"{type(error).__name__}: {error}")


def _checked(
    tables: Tables, name: str, suite: Sequence[tuple[Expectation, Verdict]], samples: int
) -> Iterator[Verdict]:
    """What Great Expectations says, of the whole table if it fits."""
    if not suite:
        return
    if tables.frame_mb(name) > tables.sandbox.limits.frame_mb:
        yield from parts.check(tables, name, suite, samples)
        return
    rows = Rows.of(tables.dataset(name).to_table(), samples)
    for expectation, verdict in suite:
        try:
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


def _unknown(table: str, expectation: Expectation | Check, rows: int | None) -> Verdict:
    """The verdict before the check."""
    if isinstance(expectation, _CHECKS):
        return Verdict(
            table=table,
            expectation=type(expectation).__name__,
            expects=expectation.expects,
            why=expectation.why,
            severity=expectation.severity,
            outcome=Outcome.ERROR,
            rows=rows,
        )
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

    if expectation.description:
        return str(expectation.description)
    if isinstance(expectation, UnexpectedRowsExpectation):
        return f"no rows: {expectation.unexpected_rows_query}"
    configuration = expectation.configuration
    return _rendered(_Told(type(expectation), repr(configuration.kwargs), configuration))


@dataclass(frozen=True)
class _Told:
    """An expectation that Great Expectations puts into words: the same for the same class and arguments."""

    kind: type[Expectation]
    arguments: str
    configuration: ExpectationConfiguration = field(compare=False)


@lru_cache(maxsize=1_000)
def _rendered(told: _Told) -> str:
    """Costs a fifth of a check, because Great Expectations makes classes for it; the tests of a suite need it often."""
    from great_expectations.render.renderer.inline_renderer import InlineRenderer

    for content in InlineRenderer(render_object=told.configuration).get_rendered_content():
        if content.value.template:
            parameters = content.value.params or {}
            values = {name: parameter.get("value") for name, parameter in parameters.items()}
            return Template(content.value.template).safe_substitute(values)
    return str(told.configuration.kwargs)
