"""Expectations about rows and columns, checked by Great Expectations on pandas.

What it says is not taken as it is. An expectation that raised comes back as one that failed, without a result; here
it is an error. Of nested values and bytes it measures and searches the text that Python prints; here that is an error
too. Bounds given as `Decimal` become floats when the expectation is made, before anything here sees them: exact bounds
of money need whole numbers or SQL.
"""

from __future__ import annotations

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
"""They look at whether there is a value and whether it is the same, not into it."""


@dataclass(frozen=True)
class Rows:
    """One table, ready to be looked at."""

    table: pa.Table
    batch: Batch
    samples: int
    """How many rows a verdict shows at most."""

    @classmethod
    def of(cls, table: pa.Table, samples: int) -> Rows:
        return cls(table, engine.dataframes().get_batch({"dataframe": frames.data_frame(table)}), samples)

    def check(self, expectation: Expectation, verdict: Verdict) -> Verdict:
        """The verdict, with its outcome."""
        if misfit := self._misfit(expectation):
            return replace(verdict, outcome=Outcome.ERROR, error=misfit)
        # One at a time: in a suite, one that raises can take others with it.
        answer = self.batch.validate(
            expectation, result_format={"result_format": "SUMMARY", "partial_unexpected_count": max(1, self.samples)}
        )
        if error := _error(answer):
            return replace(verdict, outcome=Outcome.ERROR, error=error)
        result = answer.result
        unexpected, indices = result.get("unexpected_count"), result.get("partial_unexpected_index_list")
        outcome = Outcome.PASSED if answer.success else Outcome.FAILED
        if indices is None:
            return replace(verdict, outcome=outcome, observed=_observed(result))
        sample = frames.sample(self.table, indices[: self.samples])
        return replace(verdict, outcome=outcome, unexpected=unexpected, sample=sample)

    def _misfit(self, expectation: Expectation) -> str | None:
        """What it would look at without seeing it."""
        column = getattr(expectation, "column", None)
        if not isinstance(column, str):
            return None
        if type(expectation).__name__ == "ExpectColumnToExist":
            return None
        if column not in self.table.column_names:
            return f"There is no column '{column}'; columns: {', '.join(self.table.column_names)}"
        kind = self.table.schema.field(column).type
        if type(expectation).__name__ not in _OF_ANY_TYPE and (pa.types.is_nested(kind) or _is_bytes(kind)):
            return f"Column '{column}' is {kind}: say it in SQL, with UnexpectedRowsExpectation"
        return None


def _is_bytes(kind: pa.DataType) -> bool:
    return any(is_kind(kind) for is_kind in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view))


def _error(answer: ExpectationValidationResult) -> str | None:
    """What was raised: said once, or once per metric, or not at all (then there is no result either)."""
    info: dict[str, Any] = answer.exception_info or {}
    single = "raised_exception" in info
    raised = [entry for entry in ([info] if single else info.values()) if entry.get("raised_exception")]
    if raised:
        return str(raised[0].get("exception_message") or "it raised, and says no more").strip()
    if not isinstance(answer.success, bool):
        return f"no answer, but {answer.success!r}"
    return None


def _observed(result: dict[str, Any]) -> str | None:
    seen = [result.get("observed_value"), result.get("details")]
    seen += [f"{said} {result[name]}" for said, name in _OF_SETS.items() if result.get(name)]
    return "; ".join(str(part) for part in seen if part is not None) or None


_OF_SETS = {"unexpected": "partial_unexpected_list", "missing": "partial_missing_list"}
