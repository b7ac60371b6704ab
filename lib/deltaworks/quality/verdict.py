"""What is known of one expectation after it was checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any


class Outcome(Enum):
    """How it ended."""

    PASSED = "passed"
    FAILED = "failed"
    """The data is not as expected."""
    ERROR = "error"
    """It could not be checked: a table or column is missing, the expectation does not fit the type, SQL is wrong.
    That says nothing about the data, and is no pass either."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One expectation about one table, and how it ended."""

    table: str
    expectation: str
    """Its class, such as `ExpectColumnValuesToNotBeNull`."""
    expects: str
    """In words: its `description` if it has one."""
    why: str
    """`meta["why"]` of the expectation."""
    severity: str
    """`critical` (the default), `warning` or `info`, as the expectation says."""
    outcome: Outcome
    rows: int | None
    """Rows of the table; None: there is no table."""
    unexpected: int | None = None
    """Rows that are not as expected; None: it is not about rows, or there is an error."""
    observed: str | None = None
    """What was there instead, if it is about the table or a column as a whole."""
    sample: tuple[Mapping[str, Any], ...] = ()
    """The first rows that are not as expected: whole rows of the table, or what the SQL selects."""
    error: str | None = None
    """Why it could not be checked."""

    @property
    def passed(self) -> bool:
        """It was checked and the data is as expected."""
        return self.outcome is Outcome.PASSED

    @property
    def blocks(self) -> bool:
        """Nobody should go on: it could not be checked, or what failed is no mere warning."""
        return self.outcome is Outcome.ERROR or (self.outcome is Outcome.FAILED and self.severity == "critical")
