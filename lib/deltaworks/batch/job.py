"""Defines a batch job: a function of Spark from tables at a consistent cut to the rows of one day."""

from __future__ import annotations

import datetime as dt
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from deltaworks.errors import ConfigurationError
from deltaworks.names import OWN_TABLE
from deltaworks.topology.columns import Plain, TypedColumn, flat_columns, record_class
from deltaworks.topology.table_columns import documented

DAY = "day"
TABLES = "tables"
"""A schedule: all tables that the job reads."""
_CRON = re.compile(r"\S+( \S+){4}")


@dataclass(frozen=True, kw_only=True)
class BatchJob:
    """A table with the rows of each day, computed by Spark from the tables of pipelines.

    ```
    def daily_sales(day: date, enriched_orders: DataFrame) -> DataFrame:
        of_day = enriched_orders.where(to_date("timestamp") == lit(day))
        return of_day.groupBy(lit(day).alias("day"), "country").agg(sum("amount").alias("revenue"))

    job = BatchJob(
        name="daily_sales", pipelines=["orders"], compute=daily_sales, row=DailySales, key=["day", "country"], doc="..."
    )
    ```

    Each run replaces the rows of a day by those that `compute` gives, in one commit, once they pass the suite in
    `jobs/quality/<name>.py` and the checks that hold for every job: the key is unique, no other day is in it, and no
    column is null whose type does not say so.

    Args:
        name: of the job, of its file in `jobs/batch/` and of the table.
        pipelines: whose tables it reads; those of one pipeline are read as of one batch.
        compute: a function from the UTC day and data frames of Spark, whose parameters are named like the tables that
            it reads, to a data frame. It must give the same rows for the same tables.
        row: a Struct, dataclass or NamedTuple with the columns; one of them is `day: date`.
        key: columns that are unique together; `day` is one of them.
        doc: what the table is, in one sentence.
        schedule: a cron expression in UTC: when Airflow runs it for the day before. "tables", or a list of tables that
            it reads: when a day of one of these has closed, or was published, Airflow runs it for that day, once it is
            closed in all of these. None: when somebody triggers it.

    Raises:
        ConfigurationError: the parts do not fit together.
    """

    name: str
    pipelines: Sequence[str]
    compute: Callable[..., Any]
    row: type
    key: Sequence[str]
    doc: str
    schedule: str | Sequence[str] | None = "0 2 * * *"

    def __post_init__(self) -> None:
        OWN_TABLE.checked(self.name)
        if record_class(self.row) is None:
            raise self._wrong(f"row={self.row!r} has no fields", "a Struct, dataclass or NamedTuple")
        days = [column for column in self.columns if column.name == DAY and column.type is Plain.DATE]
        if not days or days[0].is_optional:
            raise self._wrong(f"{self.row.__name__} has no field `day: date`", "its rows are replaced day by day")
        known = [column.name for column in self.columns]
        if DAY not in self.key or not set(self.key) <= set(known):
            raise self._wrong(
                f"key={list(self.key)!r} is not made of columns with {DAY!r} among them", f"columns: {', '.join(known)}"
            )
        if not self.pipelines:
            raise self._wrong("pipelines= is empty", "name those whose tables it reads")
        if self._parameters[:1] != [DAY] or len(self._parameters) < 2:
            raise self._wrong(
                f"compute takes ({', '.join(self._parameters)})",
                "its parameters are `day` and the tables that it reads",
            )
        self._check_schedule()

    @cached_property
    def columns(self) -> list[TypedColumn]:
        """The columns of the table."""
        return flat_columns(self.row, self.name)

    @cached_property
    def comments(self) -> dict[str, str]:
        """Column -> what it means, where the type says it."""
        return dict(documented(self.row, self.columns))

    @property
    def reads(self) -> list[str]:
        """The tables that it reads."""
        return self._parameters[1:]

    @property
    def cron(self) -> str | None:
        """The cron expression by which it runs; None: it has none."""
        return self.schedule if isinstance(self.schedule, str) and self.schedule != TABLES else None

    @property
    def waits_for(self) -> list[str]:
        """The tables whose days it waits for; empty: it runs by time, or by hand."""
        if self.schedule == TABLES:
            return self.reads
        return [] if self.schedule is None or isinstance(self.schedule, str) else list(self.schedule)

    @cached_property
    def _parameters(self) -> list[str]:
        return list(inspect.signature(self.compute).parameters)

    def rows(self, day: dt.date, tables: dict[str, Any]) -> Any:
        """Calls `compute` for a day.

        Args:
            day: the UTC day.
            tables: a data frame for each of `reads`.
        """
        return self.compute(day, *(tables[name] for name in self.reads))

    def _check_schedule(self) -> None:
        given, tables = self.schedule, f"tables that it reads: {', '.join(self.reads)}"
        if given is None or given == TABLES:
            return
        if isinstance(given, str):
            if not _CRON.fullmatch(given):
                hint = (
                    f"[{given!r}]"
                    if given in self.reads
                    else f"such as '0 2 * * *'; or {TABLES!r}; or a list of tables"
                )
                raise self._wrong(f"schedule={given!r} is no cron expression", hint)
            return
        if not given:
            raise self._wrong("schedule=[] names no table", tables)
        if times := [each for each in given if _CRON.fullmatch(each)]:
            raise self._wrong(
                f"schedule={list(given)!r} is a time and tables", f"either {times[0]!r} or a list of {tables}"
            )
        if unknown := [each for each in given if each not in self.reads]:
            raise self._wrong(f"schedule= waits for {', '.join(unknown)}, which it does not read", tables)

    def _wrong(self, what: str, hint: str) -> ConfigurationError:
        return ConfigurationError(f"The batch job '{self.name}': {what}.", hint=hint)
