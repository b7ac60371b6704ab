"""What several suites say: rules in SQL, columns without nulls, keys, and tables with windows.

A suite is a list of expectations of Great Expectations; these functions only save words. Each needs a `why`, which
`deltaworks quality` shows when it fails.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TypeAlias

import great_expectations.expectations as gxe
from great_expectations.expectations.expectation import Expectation
from great_expectations.expectations.metadata_types import FailureSeverity

Suite: TypeAlias = list[Expectation]


def never(what: str, query: str, why: str, severity: FailureSeverity = FailureSeverity.CRITICAL) -> Expectation:
    """A rule in DuckDB's SQL: the query selects the rows that break it. `{batch}` is the table.

    Args:
        what: what holds if it selects nothing.
        query: other tables have their names.
        why: one sentence.
        severity: a warning is shown, and nothing else follows from it.
    """
    return gxe.UnexpectedRowsExpectation(
        description=what, unexpected_rows_query=query, meta={"why": why}, severity=severity
    )


def never_null(*columns: str, why: str) -> Suite:
    """One expectation per column."""
    return [gxe.ExpectColumnValuesToNotBeNull(column=column, meta={"why": why}) for column in columns]


def one_row_per(*columns: str, why: str) -> Expectation:
    """The columns together are a key."""
    return gxe.ExpectCompoundColumnsToBeUnique(column_list=list(columns), meta={"why": why})


def windows(size: timedelta, *, advance: timedelta | None = None, grace: timedelta) -> Suite:
    """What holds for every table with one row per key and window of time.

    Args:
        size: length of a window.
        advance: from one start to the next; None: the size.
        grace: how late a record may be.
    """
    size_ms, advance_ms, grace_ms = (
        round(duration / timedelta(milliseconds=1)) for duration in (size, advance or size, grace)
    )
    return [
        *_window_rows(),
        gxe.ExpectColumnPairValuesAToBeGreaterThanB(
            column_A="window_end",
            column_B="timestamp",
            meta={"why": "The end does not belong to a window: its newest record is before it."},
        ),
        never(
            f"windows are {size} long and start at multiples of {advance or size}",
            "SELECT * FROM {batch} WHERE epoch_ms(window_start) % "
            f"{advance_ms} <> 0 OR epoch_ms(window_end) - epoch_ms(window_start) <> {size_ms}",
            why="Windows are aligned to the epoch; a shifted one shares its records with two true ones.",
        ),
        never(
            f"final windows ended {grace} or more before the newest record",
            "SELECT * FROM {batch} WHERE is_final AND epoch_ms(window_end) + "
            f"{grace_ms} > (SELECT max(epoch_ms(timestamp)) FROM {{batch}})",
            why="Until then a window can change, and whoever waits for final results has read too early.",
        ),
    ]


def sessions(gap: timedelta, grace: timedelta) -> Suite:
    """What holds for every table with one row per key and session; both bounds are times of records."""
    gap_ms, grace_ms = (round(duration / timedelta(milliseconds=1)) for duration in (gap, grace))
    return [
        *_window_rows(),
        never(
            f"sessions of a key do not overlap, and open ones are more than {gap} apart",
            "SELECT * FROM (SELECT *, lead(window_start) OVER (PARTITION BY key ORDER BY window_start) AS next_start "
            "FROM {batch}) WHERE next_start <= window_end "
            f"OR NOT is_final AND epoch_ms(next_start) <= epoch_ms(window_end) + {gap_ms}",
            why="A record in reach of two sessions makes them one, and the two rows must be gone.",
        ),
        gxe.ExpectColumnPairValuesToBeEqual(
            column_A="timestamp",
            column_B="window_end",
            meta={"why": "A session ends with its newest record."},
        ),
        never(
            f"final sessions ended {gap} and {grace} before the newest record",
            "SELECT * FROM {batch} WHERE is_final AND epoch_ms(window_end) + "
            f"{gap_ms + grace_ms} >= (SELECT max(epoch_ms(timestamp)) FROM {{batch}})",
            why="Until then a record can still lengthen a session.",
        ),
    ]


def _window_rows() -> Suite:
    return [
        *never_null(
            *("key", "window_start", "window_end", "value", "timestamp", "is_final"),
            why="A row is the result of a key for a time; without one of them it is half a row.",
        ),
        one_row_per(
            *("key", "window_start"),
            why="A later result replaces the earlier one: two rows would count the same records twice.",
        ),
        gxe.ExpectColumnPairValuesAToBeGreaterThanB(
            column_A="timestamp",
            column_B="window_start",
            or_equal=True,
            meta={"why": "A window has no record from before its start."},
        ),
        never(
            "window_date is the day on which the window starts, in UTC",
            "SELECT * FROM {batch} WHERE window_date IS DISTINCT FROM window_start::DATE",
            why="Readers skip files by this column: a wrong day hides the row from them.",
        ),
    ]
