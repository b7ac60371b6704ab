"""The result of checking one expectation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any


class Outcome(Enum):
    """The outcome of a check."""

    PASSED = "passed"
    FAILED = "failed"
    """The data is not as expected."""
    ERROR = "error"
    """The check could not run: a table or column is missing, the expectation does not fit the type, the SQL is wrong.
    This says nothing about the data, so it does not count as a pass."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One expectation about one table, with its outcome."""

    table: str
    expectation: str
    """Class of the expectation, such as `ExpectColumnValuesToNotBeNull`."""
    expects: str
    """The expectation in words: its `description`, if it has one."""
    why: str
    """`meta["why"]` of the expectation."""
    severity: str
    """Severity of the expectation: `critical` (the default), `warning` or `info`."""
    outcome: Outcome
    rows: int | None
    """Number of rows of the table; None if there is no table."""
    unexpected: int | None = None
    """Number of unexpected rows; None if the expectation is not about rows or there is an error."""
    observed: str | None = None
    """The observed value, if the expectation is about the table or a column as a whole."""
    sample: tuple[Mapping[str, Any], ...] = ()
    """The first unexpected rows: whole rows of the table, or what the SQL selects."""
    error: str | None = None
    """Why the check could not run."""

    @property
    def passed(self) -> bool:
        """Whether the check ran and the data is as expected."""
        return self.outcome is Outcome.PASSED

    @property
    def blocks(self) -> bool:
        """Whether nobody should go on: the check could not run, or it failed and is more than a warning."""
        return self.outcome is Outcome.ERROR or (self.outcome is Outcome.FAILED and self.severity == "critical")
