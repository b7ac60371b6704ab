"""Expectations about rows and columns, checked by Great Expectations on pandas.

Some of its answers are corrected. It reports an expectation that raised as failed, without a result; here that is an
error. It measures and searches the printed text of nested values and bytes; here that is an error, too. `Decimal`
bounds become floats when the expectation is created, before this module sees them, so exact bounds of money need whole
numbers or SQL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltaworks.quality import engine, frames
from deltaworks.quality.verdict import Outcome, Verdict

if TYPE_CHECKING:
    from great_expectations.core import ExpectationValidationResult
    from great_expectations.datasource.fluent.interfaces import Batch
    from great_expectations.expectations.expectation import Expectation

_OF_ANY_TYPE = frozenset(
    {
        "ExpectColumnToExist",
        "ExpectColumnValuesToBeNull",
        "ExpectColumnValuesToBeUnique",
        "ExpectColumnValuesToNotBeNull",
        "ExpectColumnProportionOfNonNullValuesToBeBetween",
    }
)
"""Expectations that only check whether a value exists and is equal, and do not look into it."""


@dataclass(frozen=True)
class Judged:
    """The answer of Great Expectations."""

    success: bool = False
    unexpected: int | None = None
    """Unexpected rows; None if the expectation is not about rows."""
    considered: int = 0
    """Rows that the expectation does not ignore."""
    observed: str | None = None
    sample: tuple[Mapping[str, Any], ...] = ()
    error: str | None = None


@dataclass(frozen=True)
class Rows:
    """Rows of one table, ready to be checked."""

    table: pa.Table
    batch: Batch
    samples: int
    """Maximum number of rows that a verdict shows."""

    @classmethod
    def of(cls, table: pa.Table, samples: int, columns: Sequence[str] | None = None) -> Rows:
        """All rows; `columns` are those that expectations look at."""
        frame = frames.data_frame(table if columns is None else table.select(list(dict.fromkeys(columns))))
        return cls(table, engine.dataframes().get_batch({"dataframe": frame}), samples)

    @classmethod
    def of_count(cls, rows: int) -> Rows:
        """So many rows without columns, which take no memory."""
        import pandas as pd

        frame = pd.DataFrame(index=pd.RangeIndex(rows))
        return cls(pa.table({}), engine.dataframes().get_batch({"dataframe": frame}), 0)

    def check(self, expectation: Expectation, verdict: Verdict) -> Verdict:
        """Completes the verdict with its outcome."""
        if why := misfit(self.table.schema, expectation):
            return replace(verdict, outcome=Outcome.ERROR, error=why)
        judged = self.judge(expectation)
        if judged.error is not None:
            return replace(verdict, outcome=Outcome.ERROR, error=judged.error)
        outcome = Outcome.PASSED if judged.success else Outcome.FAILED
        return replace(
            verdict, outcome=outcome, unexpected=judged.unexpected, observed=judged.observed, sample=judged.sample
        )

    def judge(self, expectation: Expectation) -> Judged:
        """Asks Great Expectations about these rows."""
        # One at a time: in a suite, an expectation that raises can make others fail.
        answer = self.batch.validate(
            expectation, result_format={"result_format": "SUMMARY", "partial_unexpected_count": max(1, self.samples)}
        )
        if error := _error(answer):
            return Judged(error=error)
        result, success = answer.result, bool(answer.success)
        indices = result.get("partial_unexpected_index_list")
        if indices is None:
            return Judged(success, observed=_observed(result))
        return Judged(
            success,
            unexpected=result.get("unexpected_count"),
            considered=(result.get("element_count") or 0) - (result.get("missing_count") or 0),
            sample=frames.sample(self.table, indices[: self.samples]),
        )


def misfit(schema: pa.Schema, expectation: Expectation) -> str | None:
    """Why the expectation cannot be checked on its column; None if it can."""
    column = getattr(expectation, "column", None)
    if not isinstance(column, str):
        return None
    if type(expectation).__name__ == "ExpectColumnToExist":
        return None
    if column not in schema.names:
        return f"There is no column '{column}'; columns: {', '.join(schema.names)}"
    kind = schema.field(column).type
    if type(expectation).__name__ not in _OF_ANY_TYPE and (pa.types.is_nested(kind) or _is_bytes(kind)):
        return f"Column '{column}' is {kind}: use SQL, with UnexpectedRowsExpectation"
    return None


def kind_of(expectation: Expectation) -> str:
    """The class of Great Expectations that it is; an author's own class counts as that if it only sets arguments.

    Empty for one that computes on its own.
    """
    for each in type(expectation).__mro__:
        if each.__module__.startswith("great_expectations."):
            same = all(getattr(type(expectation), name, None) is getattr(each, name, None) for name in _COMPUTES)
            return each.__name__ if same else ""
    return ""


_COMPUTES = ("_validate", "map_metric", "metric_dependencies", "get_validation_dependencies")


def _is_bytes(kind: pa.DataType) -> bool:
    return any(is_kind(kind) for is_kind in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view))


def _error(answer: ExpectationValidationResult) -> str | None:
    """The error that an expectation raised: given once, once per metric, or missing together with the result."""
    info: dict[str, Any] = answer.exception_info or {}
    single = "raised_exception" in info
    raised = [entry for entry in ([info] if single else info.values()) if entry.get("raised_exception")]
    if raised:
        return str(raised[0].get("exception_message") or "it raised an error without a message").strip()
    if not isinstance(answer.success, bool):
        return f"no result, but {answer.success!r}"
    return None


def _observed(result: dict[str, Any]) -> str | None:
    seen = [result.get("observed_value"), result.get("details")]
    seen += [f"{said} {result[name]}" for said, name in _OF_SETS.items() if result.get(name)]
    return "; ".join(str(part) for part in seen if part is not None) or None


_OF_SETS = {"unexpected": "partial_unexpected_list", "missing": "partial_missing_list"}
