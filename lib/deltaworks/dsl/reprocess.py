"""When the history of a pipeline is processed again by itself, and what of the result is published without asking."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import date
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


@dataclass(frozen=True)
class Reprocess:
    """When a pipeline's newest complete days are processed again, and what is published of the result.

    ```python
    Pipeline(..., reprocess=Reprocess("0 3 * * *", days=3, order="time", limit=ChangeLimit(share=0.01)))
    ```

    In Airflow it is the DAG `<name>__reprocess`. Each run replays with the code of the moment, compares the result with
    production, passes the gate, and publishes the tables and days that differ.
    """

    schedule: str
    """A cron expression (minute, hour, day, month, weekday) in UTC, or `@daily` and the like."""
    _: KW_ONLY
    days: int = 1
    """How many UTC days before the scheduled time. Days with windows that may still change are left out."""
    publish: Literal["if_different", "ask"] = "if_different"
    """`if_different` publishes differences within `limit` and asks about others; `ask` asks about any difference."""
    limit: ChangeLimit | None = None
    """None: differences of any size are published."""
    tables: tuple[str, ...] = ()
    """The tables to publish; empty: every table that has days."""
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
    with_days = {
        name: sink for sink in plan.tables for name in table_names(sink) if sink.kind is not TableKind.CHANGELOG
    }
    named = set(with_days) | ({letters} if letters is not None else set())
    if not named:
        yield Problem(
            "reprocess= publishes days, but the pipeline writes no table that has days.",
            hint="a table without windows is reprocessed as a whole: deltaworks replay --table or --hand-over",
        )
        return
    if unknown := sorted(set(policy.tables) - named):
        yield Problem(
            f"reprocess= names {', '.join(unknown)}, which the pipeline does not write or which has no days.",
            hint=f"tables with days: {', '.join(sorted(named))}",
        )
    yield from _limits(policy, {name: with_days[name] for name in (policy.tables or with_days) if name in with_days})


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
