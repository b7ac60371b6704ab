"""Freshness by the clock, volume against the recent past, sums between tables."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from deltaworks import clock
from deltaworks.errors import ConfigurationError
from deltaworks.quality import Freshness, Outcome, RecentVolume, SumsReconciled, Verdict, validate
from deltaworks.quality.checks import Check
from deltaworks.quality.progress import Progress

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
IDLE = Progress(last_batch=NOW - 90 * MINUTE, state="running", heartbeat_age_s=3, lag_records=0)
BEHIND = Progress(last_batch=NOW - 90 * MINUTE, state="running", heartbeat_age_s=3, lag_records=7)
STUCK = Progress(last_batch=NOW - 90 * MINUTE, state="running", heartbeat_age_s=600, lag_records=0)
STOPPED = Progress(last_batch=NOW - 90 * MINUTE, state="stopped", heartbeat_age_s=3, lag_records=0)
NEVER_RAN = Progress(last_batch=NOW - 90 * MINUTE)
BUSY = Progress(last_batch=NOW - MINUTE, state="running", heartbeat_age_s=3, lag_records=7)


@pytest.fixture(autouse=True)
def noon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "utc_now", lambda: NOW)


def verdict_on(
    table: pa.Table, check: Check, progress: Progress | None = None, order: str | None = None, **others: pa.Table
) -> Verdict:
    (verdict,) = validate({"sales": table, **others}, {"sales": [check]}, progress=progress, order=order)
    return verdict


def times(*minutes_ago: float) -> pa.Table:
    return pa.table({"timestamp": [NOW - minutes * MINUTE for minutes in minutes_ago]})


@pytest.mark.parametrize(
    ("progress", "passed", "told"),
    [
        (IDLE, True, "the stream runs and has read all of its input, which is idle"),
        (BEHIND, False, "the stream runs, and 7 records wait"),
        (STUCK, False, "the stream does not run"),
        (STOPPED, False, "the stream does not run (stopped)"),
        (NEVER_RAN, False, "no stream is known to run"),
    ],
)
@pytest.mark.parametrize("by", ["event time", "progress"])
def test_an_old_table_is_fresh_only_while_its_input_is_idle(
    progress: Progress, passed: bool, told: str, by: str
) -> None:
    check = Freshness(within=30 * MINUTE, by=by)  # type: ignore[arg-type]

    verdict = verdict_on(times(200, 90), check, progress)

    assert (verdict.passed, verdict.blocks) == (passed, not passed)
    assert told in str(verdict.observed)
    assert "2026-03-10 10:30:00 UTC, 1:30:00 ago" in str(verdict.observed)


def test_an_idle_input_may_count_as_a_failure() -> None:
    check = Freshness(within=30 * MINUTE, idle_is_fresh=False, severity="warning")

    verdict = verdict_on(times(90), check, IDLE)

    assert (verdict.outcome, verdict.blocks) == (Outcome.FAILED, False)
    assert "which is idle" in str(verdict.observed)


def test_event_time_and_progress_are_two_clocks() -> None:
    old, new = times(90), times(10)

    assert verdict_on(new, Freshness(within=30 * MINUTE), BEHIND).passed
    assert not verdict_on(new, Freshness(within=30 * MINUTE, by="progress"), BEHIND).passed
    assert not verdict_on(old, Freshness(within=30 * MINUTE), BUSY).passed
    assert verdict_on(old, Freshness(within=30 * MINUTE, by="progress"), BUSY).passed


def test_without_its_stream_nothing_is_said_of_progress() -> None:
    verdict = verdict_on(times(90), Freshness(within=MINUTE, by="progress"))

    assert verdict.passed and "without their stream" in str(verdict.observed)
    assert not verdict_on(times(90), Freshness(within=MINUTE, by="progress"), Progress()).passed


def test_times_in_the_future_do_not_make_a_table_fresh() -> None:
    assert not verdict_on(times(90, -90), Freshness(within=30 * MINUTE)).passed
    assert verdict_on(times(30, -90), Freshness(within=30 * MINUTE)).passed, "the limit is included"


def test_a_table_without_rows_is_not_fresh() -> None:
    empty = times(1).slice(0, 0)

    assert verdict_on(empty, Freshness(within=MINUTE)).outcome is Outcome.FAILED
    assert verdict_on(empty, Freshness(within=MINUTE), IDLE).passed


def days(*rows: int, step: timedelta = timedelta(days=1)) -> pa.Table:
    """So many rows on each day, the last one being today."""
    first = datetime(2026, 3, 10, tzinfo=UTC) - (len(rows) - 1) * step
    return pa.table({"timestamp": [first + number * step for number, count in enumerate(rows) for _ in range(count)]})


@pytest.mark.parametrize(
    ("rows", "passed", "observed"),
    [
        ((1, 10, 12, 11, 20, 1), True, "2026-03-09 UTC: 20 rows; median of 3 days before it: 11"),
        ((1, 10, 12, 11, 40, 1), False, "40 rows"),
        ((1, 10, 12, 11, 3, 1), False, "3 rows"),
        ((1, 10, 12, 11, 0, 1), False, "2026-03-09 UTC: 0 rows"),
        ((1, 10, 0, 11, 10, 1), True, "median of 3 days before it: 10"),
        ((1, 500, 500, 10, 12, 11, 10, 1), True, "median of 4 days"),
        ((9, 10, 12, 90, 1), True, "too little history: 2 earlier days of at least 3"),
        ((1,), True, "too little history: 0"),
        ((), True, "too little history: 0"),
    ],
)
def test_the_newest_closed_day_is_compared_with_the_median(rows: Sequence[int], passed: bool, observed: str) -> None:
    table = days(*rows) if rows else days(1).slice(0, 0)

    verdict = verdict_on(table, RecentVolume(past=4))

    assert verdict.passed == passed
    assert observed in str(verdict.observed)


def test_only_comparable_periods_count() -> None:
    week = (100, 100, 100, 100, 100, 5, 5)
    table = days(1, *week, *week, *week, *week, 100)

    assert not verdict_on(table, RecentVolume()).passed
    assert verdict_on(table, RecentVolume(every=7)).passed


def test_hours_are_compared_like_days() -> None:
    table = days(1, 10, 10, 10, 90, 1, step=timedelta(hours=1))

    verdict = verdict_on(table, RecentVolume(period="hour"))

    assert not verdict.passed
    assert str(verdict.observed).startswith("2026-03-09 23:00 UTC: 90 rows")


ORDERS = pa.table({"country": ["DE", "DE", None], "amount": [Decimal("1.10"), Decimal("2.20"), Decimal("5.00")]})


def test_sums_are_equal_per_group() -> None:
    sales = pa.table({"land": ["DE", None, "FR"], "revenue": [Decimal("3.30"), Decimal("5.00"), Decimal("0.00")]})
    check = SumsReconciled(column="revenue", other="orders", other_column="amount", by=("land",), other_by=("country",))

    assert verdict_on(sales, check, orders=ORDERS).passed

    moved = pa.table({"land": ["DE", None, "FR"], "revenue": [Decimal("3.20"), Decimal("5.00"), Decimal("0.10")]})
    verdict = verdict_on(moved, check, orders=ORDERS)
    assert verdict.unexpected == 2
    assert {(row["land"], row["ours"], row["theirs"]) for row in verdict.sample} == {
        ("DE", Decimal("3.20"), Decimal("3.30")),
        ("FR", Decimal("0.10"), Decimal("0.00")),
    }
    total = SumsReconciled(column="revenue", other="orders", other_column="amount")
    assert verdict_on(moved, total, orders=ORDERS).passed, "as a whole, nothing is missing"


def test_a_sum_may_be_the_number_of_other_rows() -> None:
    check = SumsReconciled(column="orders", other="orders", other_column=None, by=("country",))
    sales = pa.table({"country": ["DE", None], "orders": [2, 1]})

    assert verdict_on(sales, check, orders=ORDERS).passed
    assert verdict_on(sales.slice(1), check, orders=ORDERS).sample == ({"country": "DE", "ours": 0, "theirs": 2},)


def test_rows_that_do_not_count_are_left_out() -> None:
    sales = pa.table({"revenue": [Decimal("3.30"), Decimal("9.00")], "is_final": [True, False]})
    check = SumsReconciled(
        column="revenue", other="orders", other_column="amount", where="is_final", other_where="country = 'DE'"
    )

    assert verdict_on(sales, check, orders=ORDERS).passed


def test_sums_of_floats_may_differ_by_the_tolerance() -> None:
    sales, orders = pa.table({"x": [0.1 + 0.2]}), pa.table({"x": [0.3]})

    assert not verdict_on(sales, SumsReconciled(column="x", other="orders", other_column="x"), orders=orders).passed
    near = SumsReconciled(column="x", other="orders", other_column="x", tolerance=1e-9)
    assert verdict_on(sales, near, orders=orders).passed
    assert not verdict_on(pa.table({"x": [0.31]}), near, orders=orders).passed


@pytest.mark.parametrize(
    ("check", "error"),
    [
        (Freshness(within=MINUTE, column="time"), "no column 'time' in the table 'sales'.*columns: timestamp"),
        (RecentVolume(column="time"), "no column 'time' in the table 'sales'.*columns: timestamp"),
        (SumsReconciled(column="x", other="orders", other_column="amount"), "no column 'x' in the table 'sales'"),
        (SumsReconciled(column="timestamp", other="o", other_column="x"), "no table 'o'; tables: sales, orders"),
        (
            SumsReconciled(column="timestamp", other="orders", other_column="x"),
            "no column 'x' in the table 'orders'.*columns: country, amount",
        ),
        (SumsReconciled(column="timestamp", other="orders", other_column="amount", where="oops"), "oops"),
    ],
)
def test_an_unknown_table_or_column_is_an_error_that_names_those_that_there_are(check: Check, error: str) -> None:
    verdict = verdict_on(times(1), check, orders=ORDERS)

    assert verdict.outcome is Outcome.ERROR and verdict.blocks
    assert re.search(error, str(verdict.error), re.DOTALL)


def test_the_tables_of_a_replay_are_not_compared_with_the_clock() -> None:
    for check in (Freshness(within=MINUTE), RecentVolume()):
        verdict = verdict_on(times(90), check, order="time")
        assert verdict.passed and "replay" in str(verdict.observed)


def test_arguments_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="past=0"):
        RecentVolume(past=0)
    with pytest.raises(ConfigurationError, match="groups by"):
        SumsReconciled(column="x", other="o", other_column="x", by=("a",), other_by=())
