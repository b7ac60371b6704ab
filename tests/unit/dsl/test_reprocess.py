"""`Pipeline(reprocess=)`: what is refused, and with which hint."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from deltaworks import ChangeLimit, DeadLetters, HandOver, Pipeline, Reprocess, StreamsBuilder, TimeWindows
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


WRONG_WINDOWS: list[Any] = ["02:00", ("02:00", "04:00"), (time(2), time(2)), (time(2), time(4, tzinfo=UTC))]
NIGHT = HandOver(window=(time(22), time(2)))


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
        Reprocess("@daily", hand_over=HandOver()),
        Reprocess("@daily", hand_over=HandOver(), publish="ask"),
        Reprocess("@daily", hand_over=NIGHT, limit=ChangeLimit(share=0.1, sums={"totals.value": 0.1})),
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
        (Reprocess("@daily", hand_over=True), "has hand_over=True, not HandOver", "window=(time(2), time(4))"),  # type: ignore[arg-type]
        (
            Reprocess("@daily", hand_over=NIGHT, days=3, tables=("totals",), order="time"),
            "hands over, so days=, tables=, order= has no effect",
            "leave out days=, tables=, order=, or hand_over=",
        ),
        *(
            (Reprocess("@daily", hand_over=HandOver(window=window)), "hands over in the window", "from 02:00 to 04:00")
            for window in WRONG_WINDOWS
        ),
        (Reprocess("@daily", hand_over=NIGHT, publish="ask"), "so window= has no effect", "leave one of"),
        (
            Reprocess("@daily", hand_over=HandOver(), limit=ChangeLimit(rows=1)),
            "without a window, so it asks about any difference, and limit= has no effect",
            "or leave limit= out",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_hint(policy: Any, says: str, hint: str) -> None:
    with pytest.raises(TopologyError) as refused:
        plan(policy)
    [problem] = refused.value.problems
    assert says in problem.what
    assert hint in (problem.hint or "")


def test_a_pipeline_without_days_is_reprocessed_as_a_whole() -> None:
    with pytest.raises(TopologyError, match="the pipeline writes no table that has days") as refused:
        plan(Reprocess("@daily"), without_days)
    assert "hand_over=HandOver()" in (refused.value.problems[0].hint or "")
    plan(Reprocess("@daily", hand_over=NIGHT), without_days)


def test_without_tables_nothing_says_whether_to_hand_over() -> None:
    def to_a_topic(builder: StreamsBuilder) -> None:
        builder.stream("payments", key=str, value=Payment).to("copies")

    with pytest.raises(TopologyError, match="hands over if tables differ, but the pipeline writes no table"):
        plan(Reprocess("@daily", hand_over=NIGHT), to_a_topic)


@pytest.mark.parametrize(
    ("window", "now", "opens"),
    [
        ((time(2), time(4)), (5, time(2)), None),
        ((time(2), time(4)), (5, time(3, 59, 59)), None),
        ((time(2), time(4)), (5, time(1, 59)), 5),
        ((time(2), time(4)), (5, time(4)), 6),
        ((time(22), time(2)), (5, time(23)), None),
        ((time(22), time(2)), (5, time(1)), None),
        ((time(22), time(2)), (5, time(2)), 5),
        ((time(22), time(0)), (5, time(0)), 5),
    ],
)
def test_a_window_opens_each_day(window: tuple[time, time], now: tuple[int, time], opens: int | None) -> None:
    day, at = now
    found = HandOver(window=window).opens_at(datetime.combine(date(2026, 11, day), at, UTC))
    assert found == (None if opens is None else datetime.combine(date(2026, 11, opens), window[0], UTC))


def test_the_columns_whose_sums_are_limited_are_known_by_table() -> None:
    limit = ChangeLimit(sums={"payments.amount": 0.1, "counts.value": 0, "payments.fee": 0})
    assert Reprocess("@daily", limit=limit).summed == {"payments": ["amount", "fee"], "counts": ["value"]}
    assert Reprocess("@daily").summed == Reprocess("@daily", limit=ChangeLimit(rows=1)).summed == {}
