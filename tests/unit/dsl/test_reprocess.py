"""`Pipeline(reprocess=)`: what is refused, and with which hint."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from deltaworks import ChangeLimit, DeadLetters, Pipeline, Reprocess, StreamsBuilder, TimeWindows
from deltaworks.errors import TopologyError


class Payment(msgspec.Struct):
    account: str
    amount: Decimal
    fee: float
    items: int


def topology(builder: StreamsBuilder) -> None:
    payments = builder.stream("payments", key=str, value=Payment)
    payments.to_delta("payments")
    by_key = payments.group_by_key()
    hours = by_key.windowed_by(TimeWindows(size=timedelta(hours=1), grace=timedelta(0)))
    hours.count(store="counts").to_delta("counts")
    by_key.count(store="totals").to_delta("totals")


def without_days(builder: StreamsBuilder) -> None:
    builder.table("users", key=str, value=str, store="users").to_delta("users")


def plan(policy: Any, build: Any = topology, **options: Any) -> None:
    Pipeline(name="under-test", topology=build, reprocess=policy, **options).plan()


@pytest.mark.parametrize(
    "policy",
    [
        None,
        Reprocess("0 3 * * *"),
        Reprocess("@weekly", days=7, publish="ask", order="time", tables=("payments", "letters")),
        Reprocess("*/5 1-3 * JAN,feb MON#1", catchup=True, start_date=date(2026, 11, 1)),
        Reprocess("@daily", limit=ChangeLimit()),
        Reprocess(
            "@daily",
            limit=ChangeLimit(rows=0, share=0, sums={"payments.amount": 0.1, "payments.fee": 0, "counts.value": 1}),
        ),
    ],
)
def test_what_makes_sense_is_accepted(policy: Reprocess | None) -> None:
    plan(policy, dead_letters=DeadLetters(table="letters"))


@pytest.mark.parametrize(
    ("policy", "says", "hint"),
    [
        ("0 3 * * *", "reprocess= is '0 3 * * *', not Reprocess", "reprocess=Reprocess("),
        (Reprocess("at three"), "has the schedule 'at three'", "five fields"),
        (Reprocess("0 3 * *"), "has the schedule '0 3 * *'", "five fields"),
        (Reprocess("@once"), "has the schedule '@once'", "@daily"),
        (Reprocess("@daily", days=0), "has days=0", "a whole number from 1"),
        (Reprocess("@daily", days=True), "has days=True", "a whole number from 1"),
        (Reprocess("@daily", days=1.5), "has days=1.5", "a whole number from 1"),  # type: ignore[arg-type]
        (Reprocess("@daily", publish="always"), "has publish='always'", "'if_different' or 'ask'"),  # type: ignore[arg-type]
        (Reprocess("@daily", order="random"), "has order='random'", "'recorded' or 'time'"),  # type: ignore[arg-type]
        (Reprocess("@daily", catchup=True), "no day from which on to catch up", "start_date="),
        (
            Reprocess("@daily", tables=("nowhere", "totals")),
            "names nowhere, totals",
            "tables with days: counts, payments",
        ),
        (Reprocess("@daily", limit=0.1), "has limit=0.1, not ChangeLimit", "limit=ChangeLimit("),  # type: ignore[arg-type]
        (
            Reprocess("@daily", publish="ask", limit=ChangeLimit(rows=1)),
            "limit= has no effect",
            "leave one of them out",
        ),
        (Reprocess("@daily", limit=ChangeLimit(rows=-1)), "a limit of rows=-1", "from 0"),
        (Reprocess("@daily", limit=ChangeLimit(share=-0.1)), "a limit of share=-0.1", "0.01 is 1 %"),
        (Reprocess("@daily", limit=ChangeLimit(share=float("nan"))), "a limit of share=nan", "0.01 is 1 %"),
        (
            Reprocess("@daily", limit=ChangeLimit(sums={"payments.amount": -1})),
            "the sum of 'payments.amount' to -1",
            "0.01",
        ),
        (
            Reprocess("@daily", limit=ChangeLimit(sums={"payments.account": 0.1})),
            "'payments.account', which is no column of numbers",
            "columns: counts.value, payments.amount, payments.fee, payments.items",
        ),
        (
            Reprocess("@daily", tables=("counts",), limit=ChangeLimit(sums={"payments.amount": 0.1})),
            "'payments.amount', which is no column of numbers that is reprocessed",
            "columns: counts.value",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_hint(policy: Any, says: str, hint: str) -> None:
    with pytest.raises(TopologyError) as refused:
        plan(policy)
    [problem] = refused.value.problems
    assert says in problem.what
    assert hint in (problem.hint or "")


def test_a_pipeline_without_days_has_nothing_to_reprocess() -> None:
    with pytest.raises(TopologyError, match="the pipeline writes no table that has days"):
        plan(Reprocess("@daily"), without_days)


def test_the_columns_whose_sums_are_limited_are_known_by_table() -> None:
    limit = ChangeLimit(sums={"payments.amount": 0.1, "counts.value": 0, "payments.fee": 0})
    assert Reprocess("@daily", limit=limit).summed == {"payments": ["amount", "fee"], "counts": ["value"]}
    assert Reprocess("@daily").summed == Reprocess("@daily", limit=ChangeLimit(rows=1)).summed == {}
