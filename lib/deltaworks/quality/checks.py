"""Checks that are no expectations of Great Expectations: freshness by the clock, recent volume, sums between tables.

A suite lists them beside expectations:

```python
suites = {"sales": [
    Freshness(within=timedelta(minutes=30), why="Reports of the morning are made from it."),
    RecentVolume(period="day", column="window_start", why="A silent shop is noticed by its missing orders."),
    SumsReconciled(column="revenue", other="orders", other_column="amount", by=("country",), why="It is money."),
]}
```

DuckDB runs them, like rules in SQL and within the same limits, on all tables as of one batch. The gate of a replay does
not compare its tables with the clock or with other days: it passes the first two, and says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeAlias

from deltaworks import clock
from deltaworks.errors import ConfigurationError
from deltaworks.lakehouse.sandbox import identifier as _q
from deltaworks.quality.frames import Tables
from deltaworks.quality.progress import UNKNOWN
from deltaworks.quality.verdict import Outcome, Verdict

Severity = Literal["critical", "warning", "info"]
_ALONE = "not checked: these tables are checked without their stream"
_IN_REPLAY = "not checked: these are the tables of a replay"


@dataclass(frozen=True, kw_only=True)
class Freshness:
    """The table is not older than some time by the wall clock.

    If it is older, but its stream runs and has read all of its input, then the input is idle, not the stream. That is
    no failure (`idle_is_fresh`), and the verdict says it.
    """

    within: timedelta
    """The highest age."""
    by: Literal["event time", "progress"] = "event time"
    """What is compared with the clock: the newest value of `column`, or the time of the last batch that the stream has
    committed. An idle stream runs no batches."""
    column: str = "timestamp"
    """For `event time`; values later than the clock do not count."""
    idle_is_fresh: bool = True
    """Whether an old table passes while its input is idle."""
    why: str = ""
    severity: Severity = "critical"

    @property
    def expects(self) -> str:
        what = f"the newest {self.column}" if self.by == "event time" else "the last batch"
        return f"{what} is at most {self.within} old"

    def check(self, tables: Tables, verdict: Verdict, samples: int) -> Verdict:
        if tables.order is not None:
            return replace(verdict, outcome=Outcome.PASSED, observed=_IN_REPLAY)
        now, progress = clock.utc_now(), tables.progress
        if self.by == "progress" and progress is UNKNOWN:
            return replace(verdict, outcome=Outcome.PASSED, observed=_ALONE)
        newest = self._newest(tables, verdict.table, now)
        age = None if newest is None else now - newest
        told = f"{'the newest is' if self.by == 'event time' else 'the last batch was'} of {_time(newest, age)}"
        if age is not None and age <= self.within:
            return replace(verdict, outcome=Outcome.PASSED, unexpected=0, observed=told)
        idle = progress.input_is_idle
        passed = idle and self.idle_is_fresh
        return replace(
            verdict,
            outcome=Outcome.PASSED if passed else Outcome.FAILED,
            unexpected=0 if passed else 1,
            observed=f"{told}; {progress.told}",
        )

    def _newest(self, tables: Tables, table: str, now: datetime) -> datetime | None:
        if self.by == "progress":
            return tables.progress.last_batch
        _require(tables, table, self.column)
        query = f"SELECT epoch_us(max({_q(self.column)})) FROM {_q(table)} WHERE {_q(self.column)} <= {_literal(now)}"
        ((newest_us,),) = tables.sandbox.answer(query, None).rows
        return None if newest_us is None else datetime.fromtimestamp(newest_us / 1e6, UTC)


@dataclass(frozen=True, kw_only=True)
class RecentVolume:
    """The newest closed day or hour has about as many rows as is usual.

    The period of the newest row is still open; the one before it is compared with the median of earlier ones. Periods
    without rows count as 0; the very first one does not count, as the data begins within it.
    """

    period: Literal["day", "hour"] = "day"
    """In UTC."""
    column: str = "timestamp"
    """The time that decides in which period a row is."""
    past: int = 7
    """How many earlier periods are compared."""
    every: int = 1
    """Which periods are comparable: with 7, days of the same weekday; with 24, hours of the same time of day."""
    least: int = 3
    """With fewer earlier periods nothing is compared; the check passes and says so."""
    factor: float = 3.0
    """The rows may be so many times the median, or so many times fewer."""
    why: str = ""
    severity: Severity = "critical"

    def __post_init__(self) -> None:
        if min(self.past, self.every, self.least) < 1 or self.factor < 1:
            raise ConfigurationError(
                f"RecentVolume(past={self.past}, every={self.every}, least={self.least}, factor={self.factor}).",
                hint="each of them is at least 1",
            )

    @property
    def expects(self) -> str:
        apart = "" if self.every == 1 else f", {self.every} apart"
        return (
            f"the newest closed {self.period} has between 1/{self.factor:g} and {self.factor:g} times the rows "
            f"of the median of {self.past} before it{apart}"
        )

    def check(self, tables: Tables, verdict: Verdict, samples: int) -> Verdict:
        if tables.order is not None:
            return replace(verdict, outcome=Outcome.PASSED, observed=_IN_REPLAY)
        _require(tables, verdict.table, self.column)
        ((closed, rows, seen, usual),) = tables.sandbox.answer(self._query(verdict.table), None).rows
        if seen < self.least:
            told = f"too little history: {seen} earlier {self.period}s of at least {self.least}"
            return replace(verdict, outcome=Outcome.PASSED, unexpected=0, observed=told)
        passed = usual / self.factor <= rows <= usual * self.factor
        return replace(
            verdict,
            outcome=Outcome.PASSED if passed else Outcome.FAILED,
            unexpected=0 if passed else 1,
            observed=f"{closed}: {rows:,} rows; median of {seen} {self.period}s before it: {usual:,.0f}",
        )

    def _query(self, table: str) -> str:
        moment = f"date_trunc('{self.period}', timezone('UTC', {_q(self.column)}::TIMESTAMPTZ))"
        step = f"INTERVAL 1 {self.period}"
        return f"""
            WITH counted AS (
                SELECT {moment} AS period, count(*) AS rows FROM {_q(table)} WHERE {_q(self.column)} IS NOT NULL
                GROUP BY ALL
            ), bounds AS (
                SELECT min(period) AS first, max(period) - {step} AS closed FROM counted
            ), compared AS (
                SELECT closed - number * {step} AS period FROM bounds, range(1, {self.past + 1}) r(n),
                    (SELECT n * {self.every} AS number)
                WHERE period > first
            ), past AS (
                SELECT coalesce(rows, 0) AS rows FROM compared LEFT JOIN counted USING (period)
            )
            SELECT strftime(closed, '{"%Y-%m-%d" if self.period == "day" else "%Y-%m-%d %H:00"} UTC'),
                coalesce((SELECT rows FROM counted WHERE period = closed), 0),
                (SELECT count(*) FROM past), (SELECT median(rows) FROM past)
            FROM bounds
        """


@dataclass(frozen=True, kw_only=True)
class SumsReconciled:
    """The sum of a column equals that of a column of another table, as of the same batch.

    Sums of whole numbers and decimals are exact. A group that only one table has counts as 0 in the other.
    """

    column: str
    other: str
    """The other table."""
    other_column: str | None
    """None: its rows are counted."""
    by: Sequence[str] = ()
    """Columns of groups; none: one sum of the whole table."""
    other_by: Sequence[str] | None = None
    """Their names in the other table; None: the same."""
    where: str = "true"
    """The rows that count, as a condition in SQL."""
    other_where: str = "true"
    tolerance: float = 0.0
    """Difference that is allowed, relative to the larger sum; for floats, whose sums depend on the order of rows."""
    why: str = ""
    severity: Severity = "critical"

    def __post_init__(self) -> None:
        if self.other_by is not None and len(self.other_by) != len(self.by):
            raise ConfigurationError(
                f"SumsReconciled has groups by {list(self.by)}, but in the other table by {list(self.other_by)}.",
                hint="name as many columns in the other table, or leave other_by out",
            )

    @property
    def expects(self) -> str:
        groups = f" per {', '.join(self.by)}" if self.by else ""
        theirs = f"the rows of {self.other}" if self.other_column is None else f"{self.other}.{self.other_column}"
        within = f", within {self.tolerance:g}" if self.tolerance else ""
        return f"the sum of {self.column}{groups} is that of {theirs}{within}"

    def check(self, tables: Tables, verdict: Verdict, samples: int) -> Verdict:
        other_by = self.by if self.other_by is None else self.other_by
        _require(tables, verdict.table, self.column, *self.by)
        _require(tables, self.other, *(() if self.other_column is None else (self.other_column,)), *other_by)
        ours, theirs = (
            f"SELECT {''.join(f'{_q(name)} AS g{n}, ' for n, name in enumerate(names))}{_sum(column)} AS total "
            f"FROM {_q(table)} WHERE {where} GROUP BY ALL"
            for table, column, names, where in (
                (verdict.table, self.column, self.by, self.where),
                (self.other, self.other_column, other_by, self.other_where),
            )
        )
        same = " AND ".join(f"a.g{n} IS NOT DISTINCT FROM b.g{n}" for n in range(len(self.by))) or "true"
        groups = "".join(f"coalesce(a.g{n}, b.g{n}) AS {_q(name)}, " for n, name in enumerate(self.by))
        differ = "ours <> theirs"
        if self.tolerance:
            differ += (
                f" AND NOT coalesce(abs(ours - theirs) <= {self.tolerance} * greatest(abs(ours), abs(theirs)), false)"
            )
        unexpected, sample = tables.sandbox.select(
            f"SELECT * FROM (SELECT {groups}coalesce(a.total, 0) AS ours, coalesce(b.total, 0) AS theirs "
            f"FROM ({ours}) a FULL JOIN ({theirs}) b ON {same}) WHERE {differ}",
            samples,
        )
        outcome = Outcome.FAILED if unexpected else Outcome.PASSED
        return replace(verdict, outcome=outcome, unexpected=unexpected, sample=sample)


Check: TypeAlias = Freshness | RecentVolume | SumsReconciled


def _require(tables: Tables, table: str, *columns: str) -> None:
    """Raises if a table or column does not exist.

    Raises:
        ConfigurationError: it names those that do.
    """
    try:
        known = tables.dataset(table).schema.names
    except LookupError as error:
        raise ConfigurationError(str(error)) from None
    if missing := [name for name in columns if name not in known]:
        raise ConfigurationError(
            f"There is no column '{missing[0]}' in the table '{table}'.", hint=f"columns: {', '.join(known)}"
        )


def _time(time: datetime | None, age: timedelta | None) -> str:
    if time is None or age is None:
        return "no time: there is none"
    return f"{time:%Y-%m-%d %H:%M:%S} UTC, {timedelta(seconds=round(age.total_seconds()))} ago"


def _sum(column: str | None) -> str:
    return "count(*)" if column is None else f"sum({_q(column)})"


def _literal(time: datetime) -> str:
    return f"TIMESTAMPTZ '{time.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}+00'"
