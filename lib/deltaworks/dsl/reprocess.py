"""When the history of a pipeline is processed again by itself, and what of the result is taken without asking."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import date, datetime, time, timedelta
from typing import Any, Literal

from deltaworks.errors import Problem
from deltaworks.topology.checks import table_names
from deltaworks.topology.columns import DecimalDigits, Plain
from deltaworks.topology.nodes.sinks import DeltaSink, TableKind
from deltaworks.topology.plan import Plan
from deltaworks.topology.table_columns import author_columns

_PRESETS = ("@hourly", "@daily", "@weekly", "@monthly", "@quarterly", "@yearly")
_CRON = re.compile(r"[0-9A-Za-z*/,#-]+( +[0-9A-Za-z*/,#-]+){4}")
_MOST_DAYS = 3_660


@dataclass(frozen=True, kw_only=True)
class ChangeLimit:
    """How much may change without asking anybody. Whatever is given must hold."""

    rows: int | None = None
    """Rows that differ, of all tables together."""
    share: float | None = None
    """Rows that differ per row in production, of each table on the days that are reprocessed; 0.01 is one in a hundred.
    A table that has no rows there yet is over any share."""
    sums: Mapping[str, float] = field(default_factory=dict)
    """`{"revenue_by_hour.revenue": 0.005}`: by how much the sum of a column over the days may change, as a share of the
    sum in production. Without a sum to compare with (no rows, NaN), any change is over the limit."""


@dataclass(frozen=True, kw_only=True)
class HandOver:
    """All history is processed again, and the stream goes on with the stores and tables that come of it."""

    window: tuple[time, time] | None = None
    """From when on, and until when, each day in UTC, the stream may be switched without asking; it may span midnight.
    None: a person is asked about any difference."""

    def opens_at(self, now: datetime) -> datetime | None:
        """When the window opens next; None: it is open.

        Args:
            now: the moment, in UTC.
        """
        assert self.window is not None
        begin, end = self.window
        at = now.time()
        if begin <= at < end or (end < begin and not end <= at < begin):
            return None
        day = now.date() if at < begin else now.date() + timedelta(days=1)
        return datetime.combine(day, begin, now.tzinfo)


@dataclass(frozen=True)
class Reprocess:
    """When a pipeline's newest complete days, or all of its history, are processed again, and what becomes of it.

    ```python
    Pipeline(..., reprocess=Reprocess("0 3 * * *", days=3, order="time", limit=ChangeLimit(share=0.01)))
    Pipeline(..., reprocess=Reprocess("0 22 * * SUN", hand_over=HandOver(window=(time(2), time(4)))))
    ```

    In Airflow it is the DAG `<name>__reprocess`. Each run replays with the code of the moment, compares the result with
    production, passes the gate, and publishes the tables and days that differ; or, if anything differs, it hands the
    stream over.
    """

    schedule: str
    """A cron expression (minute, hour, day, month, weekday) in UTC, or `@daily` and the like."""
    _: KW_ONLY
    days: int = 1
    """How many UTC days before the scheduled time. Days with windows that may still change are left out."""
    hand_over: HandOver | None = None
    """Instead of days, process all history, and switch the stream to the result: the way for tables without windows
    (KTables), each row of which depends on all history before it."""
    publish: Literal["if_different", "ask"] = "if_different"
    """`if_different` publishes differences within `limit` and asks about others; `ask` asks about any difference."""
    limit: ChangeLimit | None = None
    """None: differences of any size are published."""
    tables: tuple[str, ...] = ()
    """The tables to publish; empty: every table that has days."""
    cascade: bool = False
    """Whether the batch jobs that read what is published are computed again, as part of each run."""
    order: Literal["recorded", "time"] = "recorded"
    """`recorded` gives what the code of today would have given live; in the order of `time` no record is late."""
    catchup: bool = False
    """Whether runs that were missed since `start_date` are made up for; otherwise only the last of them is."""
    start_date: date | None = None
    """The first day of the schedule; None: the day on which Airflow first sees it."""

    @property
    def summed(self) -> dict[str, list[str]]:
        """Table -> columns whose sums are limited."""
        found: dict[str, list[str]] = {}
        for name in () if self.limit is None else self.limit.sums:
            table, _, column = name.partition(".")
            found.setdefault(table, []).append(column)
        return found


def problems(policy: Any, plan: Plan, letters: str | None) -> Iterator[Problem]:
    """What is wrong with it.

    Args:
        policy: what the author gave.
        plan: of the pipeline.
        letters: its table of dead letters.
    """
    if not isinstance(policy, Reprocess):
        hint = 'reprocess=Reprocess("0 3 * * *", days=3)'
        yield Problem(f"reprocess= is {policy!r}, not Reprocess.", hint=hint)
        return
    schedule: Any = policy.schedule
    if not isinstance(schedule, str) or (schedule not in _PRESETS and not _CRON.fullmatch(schedule.strip())):
        yield Problem(
            f"reprocess= has the schedule {schedule!r}.",
            hint=f"five fields, such as '0 3 * * *' for 03:00 UTC each day, or {', '.join(_PRESETS)}",
        )
    if not _is_count(policy.days) or not 1 <= policy.days <= _MOST_DAYS:
        yield Problem(f"reprocess= has days={policy.days!r}.", hint=f"a whole number from 1 to {_MOST_DAYS:,}")
    for what, chosen, known in (
        ("publish", policy.publish, ("if_different", "ask")),
        ("order", policy.order, ("recorded", "time")),
    ):
        if chosen not in known:
            yield Problem(f"reprocess= has {what}={chosen!r}.", hint=f"{what}={' or '.join(map(repr, known))}")
    if policy.catchup and policy.start_date is None:
        yield Problem(
            "reprocess= has catchup=True, but no day from which on to catch up.",
            hint="start_date=date(2026, 11, 1) is the first day of the schedule",
        )
    if policy.hand_over is not None:
        yield from _hand_over_problems(policy, plan, letters)
        return
    with_days = {
        name: sink for sink in plan.tables for name in table_names(sink) if sink.kind is not TableKind.CHANGELOG
    }
    named = set(with_days) | ({letters} if letters is not None else set())
    if not named:
        yield Problem(
            "reprocess= publishes days, but the pipeline writes no table that has days.",
            hint="hand_over=HandOver() processes all history, for tables without windows, too",
        )
        return
    if unknown := sorted(set(policy.tables) - named):
        yield Problem(
            f"reprocess= names {', '.join(unknown)}, which the pipeline does not write or which has no days.",
            hint=f"tables with days: {', '.join(sorted(named))}",
        )
    yield from _limits(policy, {name: with_days[name] for name in (policy.tables or with_days) if name in with_days})


def _hand_over_problems(policy: Reprocess, plan: Plan, letters: str | None) -> Iterator[Problem]:
    hand_over: Any = policy.hand_over
    if not isinstance(hand_over, HandOver):
        hint = "hand_over=HandOver(window=(time(2), time(4)))"
        yield Problem(f"reprocess= has hand_over={hand_over!r}, not HandOver.", hint=hint)
        return
    given = {"days": policy.days != 1, "tables": bool(policy.tables), "order": policy.order != "recorded"}
    if without_effect := [f"{name}=" for name, is_given in given.items() if is_given]:
        yield Problem(
            f"reprocess= hands over, so {', '.join(without_effect)} has no effect: all history is processed, as "
            "recorded, into all tables.",
            hint=f"leave out {', '.join(without_effect)}, or hand_over=",
        )
    if hand_over.window is not None and not _is_window(hand_over.window):
        yield Problem(
            f"reprocess= hands over in the window {hand_over.window!r}.",
            hint="window=(time(2), time(4)) is from 02:00 to 04:00 UTC each day",
        )
    if policy.publish == "ask" and hand_over.window is not None:
        yield Problem(
            "reprocess= asks about any difference, so window= has no effect.",
            hint="leave one of publish= and window= out",
        )
    if policy.limit is not None and policy.publish != "ask" and hand_over.window is None:
        yield Problem(
            "reprocess= hands over without a window, so it asks about any difference, and limit= has no effect.",
            hint="hand_over=HandOver(window=(time(2), time(4))), or leave limit= out",
        )
    tables = {name: sink for sink in plan.tables for name in table_names(sink)}
    if not tables and letters is None:
        yield Problem(
            "reprocess= hands over if tables differ, but the pipeline writes no table.",
            hint="to_delta() writes one; deltaworks replay --hand-over hands over without one",
        )
    yield from _limits(policy, tables)


def _is_window(window: Any) -> bool:
    if not isinstance(window, tuple) or len(window) != 2 or window[0] == window[1]:
        return False
    return all(isinstance(each, time) and each.tzinfo is None for each in window)


def _limits(policy: Reprocess, tables: Mapping[str, DeltaSink]) -> Iterator[Problem]:
    limit: Any = policy.limit
    if limit is None:
        return
    if not isinstance(limit, ChangeLimit):
        yield Problem(f"reprocess= has limit={limit!r}, not ChangeLimit.", hint="limit=ChangeLimit(share=0.01)")
        return
    if policy.publish == "ask":
        yield Problem("reprocess= asks about any difference, so limit= has no effect.", hint="leave one of them out")
    if limit.rows is not None and not (_is_count(limit.rows) and limit.rows >= 0):
        yield Problem(f"reprocess= has a limit of rows={limit.rows!r}.", hint="a whole number from 0")
    if limit.share is not None and not _is_share(limit.share):
        yield Problem(f"reprocess= has a limit of share={limit.share!r}.", hint="a number from 0; 0.01 is 1 %")
    for name, share in limit.sums.items():
        table, _, column = str(name).partition(".")
        if table not in tables or column not in summable(tables[table]):
            known = sorted(f"{table}.{each}" for table, sink in tables.items() for each in summable(sink))
            yield Problem(
                f"reprocess= limits the sum of {name!r}, which is no column of numbers that is reprocessed.",
                hint=f"columns: {', '.join(known) or 'none'}",
            )
        if not _is_share(share):
            yield Problem(f"reprocess= limits the sum of {name!r} to {share!r}.", hint="a number from 0; 0.01 is 1 %")


def summable(sink: DeltaSink) -> list[str]:
    """The columns of numbers in the value of a table."""
    columns = author_columns(sink).value
    return [
        column.name
        for column in columns
        if column.type in (Plain.INTEGER, Plain.FLOAT) or isinstance(column.type, DecimalDigits)
    ]


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_share(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < float("inf")
