"""Rules that several suites share: rules in SQL, columns without nulls, keys, and tables with windows.

A suite is a list of expectations of Great Expectations; these functions are only shorthand. Each needs a `why`, which
`deltaworks quality` shows when the rule fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TypeAlias

import great_expectations.expectations as gxe
from great_expectations.expectations.expectation import Expectation
from great_expectations.expectations.metadata_types import FailureSeverity

from deltaworks.quality.checks import Check

Suite: TypeAlias = list[Expectation | Check]


def never(what: str, query: str, why: str, severity: FailureSeverity = FailureSeverity.CRITICAL) -> Expectation:
    """A rule in DuckDB's SQL: the query selects the rows that break it. `{batch}` is the table.

    Args:
        what: what holds if the query selects nothing.
        query: the query; other tables have their own names.
        why: the reason for the rule, in one sentence.
        severity: a warning is shown and has no other effect.
    """
    return gxe.UnexpectedRowsExpectation(
        description=what, unexpected_rows_query=query, meta={"why": why}, severity=severity
    )


def in_order(recorded: str, by_time: str) -> str:
    """A condition that depends on the order of processing: the stream's, or that of time, in which nothing is late.

    The gate of a replay knows the order; production may have days of both.
    """
    return f"CASE {{order}} WHEN 'recorded' THEN {recorded} WHEN 'time' THEN {by_time} ELSE {recorded} OR {by_time} END"


def never_null(*columns: str, why: str) -> Suite:
    """Makes one expectation per column."""
    return [gxe.ExpectColumnValuesToNotBeNull(column=column, meta={"why": why}) for column in columns]


def one_row_per(*columns: str, why: str) -> Expectation:
    """Expects that the columns together are a key."""
    return gxe.ExpectCompoundColumnsToBeUnique(column_list=list(columns), meta={"why": why})


def windows(
    size: timedelta, *, key: str, values: Sequence[str], advance: timedelta | None = None, grace: timedelta
) -> Suite:
    """The rules for every table with one row per key and time window.

    Args:
        size: length of a window.
        key: column of the key.
        values: columns of the result.
        advance: time from one start to the next; None: the size.
        grace: how late a record may be.
    """
    size_ms, advance_ms, grace_ms = (
        round(duration / timedelta(milliseconds=1)) for duration in (size, advance or size, grace)
    )
    return [
        *window_rows(key, values),
        gxe.ExpectColumnPairValuesAToBeGreaterThanB(
            column_A="window_end",
            column_B="timestamp",
            meta={"why": "A window does not include its end: its newest record is before it."},
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
            why="Until then a window can change, so readers of final results have read it too early.",
        ),
    ]


def sessions(
    gap: timedelta,
    grace: timedelta,
    *,
    key: str,
    values: Sequence[str],
    longest: timedelta = timedelta(days=36_500),
) -> Suite:
    """The rules for every table with one row per key and session; both bounds are times of records.

    Args:
        gap: longest pause within a session.
        grace: how late a record may be.
        key: column of the key.
        values: columns of the result.
        longest: the `max_duration` of the sessions.
    """
    gap_ms, grace_ms, longest_ms = (round(duration / timedelta(milliseconds=1)) for duration in (gap, grace, longest))
    return [
        *window_rows(key, values),
        never(
            f"sessions of a key do not overlap, and open ones are more than {gap} apart",
            "SELECT * FROM (SELECT *, lead(window_start) OVER sorted AS next_start, "
            "epoch_ms(lead(window_end) OVER sorted) - epoch_ms(window_start) AS both_ms "
            f"FROM {{batch}} WINDOW sorted AS (PARTITION BY {key} ORDER BY window_start)) "
            "WHERE next_start <= window_end "
            f"OR NOT is_final AND epoch_ms(next_start) <= epoch_ms(window_end) + {gap_ms} AND both_ms <= {longest_ms}",
            why="A record within reach of two sessions merges them unless the result is too long; both rows must go.",
        ),
        never(
            f"no session is longer than {longest}",
            f"SELECT * FROM {{batch}} WHERE epoch_ms(window_end) - epoch_ms(window_start) > {longest_ms}",
            why="A key that is always busy has several sessions, so that each of them ends some day.",
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


def window_rows(key: str, values: Sequence[str]) -> Suite:
    """The rules for every table with one row per key and window, whatever its windows are.

    Args:
        key: column of the key.
        values: columns of the result.
    """
    return [
        *never_null(
            *(key, "window_start", "window_end", *values, "timestamp", "is_final"),
            why="A row is the result of a key for a window; without either it is incomplete.",
        ),
        one_row_per(
            *(key, "window_start"),
            why="A later result replaces the earlier one: two rows would count the same records twice.",
        ),
        gxe.ExpectColumnPairValuesAToBeGreaterThanB(
            column_A="timestamp",
            column_B="window_start",
            or_equal=True,
            meta={"why": "A window has no records from before its start."},
        ),
        never(
            "window_date is the day on which the window starts, in UTC",
            "SELECT * FROM {batch} WHERE window_date IS DISTINCT FROM window_start::DATE",
            why="Readers skip files by this column: a wrong day hides the row from them.",
        ),
    ]
