"""Sum, minimum, maximum and mean of grouped streams and tables."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import msgspec
import pytest

from deltaworks import (
    ErrorPolicy,
    KGroupedStream,
    KTable,
    Materialized,
    SessionWindowedKStream,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    TimeWindowedKStream,
    TimeWindows,
    TopologyError,
)
from deltaworks.kernel.records import RecordBatch
from deltaworks.testing import TopologyTestDriver
from deltaworks.testing.recorded import MicroBatch, run_recorded

SECOND = timedelta(seconds=1)
CONTINUE = ErrorPolicy("continue", "continue", "continue")


class Order(msgspec.Struct, frozen=True):
    amount: Decimal
    pieces: int = 1
    note: str | None = None


def amount(order: Order) -> Decimal:
    return order.amount


Grouped = KGroupedStream[str, Any] | TimeWindowedKStream[str, Any] | SessionWindowedKStream[str, Any]


def rows(
    values: Sequence[Any],
    aggregate: Callable[[Any], KTable[Any, Any]],
    value: Any = Order,
    windows: Any = None,
    **options: Any,
) -> dict[str, Any]:
    """The rows of the table after these values of one key, a second apart."""
    builder = StreamsBuilder()
    grouped: Any = builder.stream("in", key=str, value=value).group_by_key()
    aggregate(grouped if windows is None else grouped.windowed_by(windows)).to_delta("results")
    with TopologyTestDriver(builder.build(), **options) as driver:
        topic = driver.create_input_topic("in", advance=SECOND)
        for each in values:
            topic.pipe_input("ann", each)
        return {str(key): row for key, row in driver.table("results").rows.items()}


def orders(*amounts: str) -> list[Order]:
    return [Order(Decimal(each)) for each in amounts]


@pytest.mark.parametrize(
    ("aggregate", "result"),
    [
        (lambda grouped: grouped.sum(amount, store="s"), Decimal("6.60")),
        (lambda grouped: grouped.min(amount, store="s"), Decimal("1.10")),
        (lambda grouped: grouped.max(amount, store="s"), Decimal("3.30")),
        (lambda grouped: grouped.mean(amount, store="s"), Decimal("2.2")),
        (lambda grouped: grouped.sum(lambda order: order.pieces, value=int, store="s"), 3),
        (lambda grouped: grouped.mean(lambda order: float(order.amount), value=float, store="s"), 2.2),
    ],
)
@pytest.mark.parametrize(
    ("windows", "key"),
    [
        (None, "ann"),
        (TimeWindows(size=timedelta(minutes=1), grace=timedelta(0)), "[ann@0/60000]"),
        (SessionWindows(gap=timedelta(minutes=1), grace=timedelta(0)), "[ann@0/2000]"),
        (SlidingWindows(difference=2 * SECOND, grace=timedelta(0)), "[ann@0/2000]"),
    ],
)
def test_each_aggregate_is_there_with_and_without_windows(
    aggregate: Callable[[Any], KTable[Any, Any]], result: Any, windows: Any, key: str
) -> None:
    assert rows(orders("1.10", "3.30", "2.20"), aggregate, windows=windows)[key] == pytest.approx(result)


def test_values_that_are_numbers_need_no_selector() -> None:
    values = [Decimal("0.1")] * 3
    assert rows(values, lambda grouped: grouped.sum(store="s"), value=Decimal) == {"ann": Decimal("0.3")}
    assert rows([3, 1, 2], lambda grouped: grouped.min(store="s"), value=int) == {"ann": 1}
    assert rows(["b", "a"], lambda grouped: grouped.max(store="s"), value=str) == {"ann": "b"}
    assert rows([1, 2, 2], lambda grouped: grouped.mean(store="s", scale=4), value=int) == {"ann": Decimal("1.6667")}
    at = datetime(2026, 1, 1, tzinfo=UTC)
    assert rows([at, at + SECOND], lambda grouped: grouped.max(store="s"), value=datetime) == {"ann": at + SECOND}


def test_sums_of_decimals_are_exact_where_python_would_round() -> None:
    values = [Decimal(f"1{'0' * 18}"), Decimal("0.0000000000000001"), Decimal(f"-1{'0' * 18}")]
    assert sum(values) != Decimal("0.0000000000000001")

    assert rows(values, lambda grouped: grouped.sum(store="s"), value=Decimal) == {"ann": Decimal("0.0000000000000001")}


def test_a_mean_is_the_exact_quotient_rounded_half_to_even() -> None:
    rng = random.Random(7)
    for _ in range(50):
        values = [Decimal(rng.randrange(-(10**12), 10**12)).scaleb(-3) for _ in range(rng.randrange(1, 9))]
        exact = sum(map(Fraction, values), Fraction()) / len(values)
        (mean,) = rows(values, lambda grouped: grouped.mean(store="s", scale=3), value=Decimal).values()
        assert Fraction(mean) == Fraction(round(exact * 1000), 1000)  # Fraction rounds half to even too

    halves = [Decimal("0.25"), Decimal("0.35")]
    assert [rows([each], lambda g: g.mean(store="s", scale=1), value=Decimal)["ann"] for each in halves] == [
        Decimal("0.2"),
        Decimal("0.4"),
    ]


def test_a_mean_that_does_not_end_fits_a_column() -> None:
    (mean,) = rows([1, 1, 2], lambda grouped: grouped.mean(store="s"), value=int).values()
    assert mean == Decimal("1.333333333333333333")


def test_the_store_of_a_mean_keeps_sum_and_count() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=Decimal).group_by_key().mean(store="means").to_delta("means")
    with TopologyTestDriver(builder.build()) as driver:
        for each in ("0.1", "0.2"):
            driver.create_input_topic("in").pipe_input("ann", Decimal(each))
        kept = driver.store("means").get("ann")
        assert (kept.sum, kept.count) == (Decimal("0.3"), 2)


def test_nulls_and_values_without_a_number_are_left_out() -> None:
    builder = StreamsBuilder()
    minutes = TimeWindows(size=timedelta(minutes=1), grace=timedelta(0))
    grouped = builder.stream("in", key=str, value=Order).group_by_key().windowed_by(minutes)
    grouped.mean(lambda order: order.amount if order.note is None else None, value=Decimal, store="s").to_delta("means")
    grouped.min(lambda order: order.note, value=str, store="notes").to_delta("notes")
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in")
        for order in (Order(Decimal(9), note="gift"), None, Order(Decimal(1)), Order(Decimal(2)), None):
            topic.pipe_input("ann", order)

        assert list(driver.table("means").rows.values()) == [Decimal("1.5")]
        assert list(driver.table("notes").rows.values()) == ["gift"]
        assert driver.dead_letters == []


def test_of_equal_values_the_first_is_kept() -> None:
    values = [Decimal("1.0"), Decimal("1.00"), Decimal("1.000")]
    for aggregate in (lambda grouped: grouped.min(store="s"), lambda grouped: grouped.max(store="s")):
        assert str(rows(values, aggregate, value=Decimal)["ann"]) == "1.0"


@pytest.mark.parametrize(
    ("value", "bad", "aggregate", "error"),
    [
        (int, 2**63 - 1, "sum", "does not fit into 64 bits"),
        (int, 2**63 - 1, "mean", "does not fit into 64 bits"),
        (Decimal, Decimal("1E+2000"), "sum", "Inexact"),
        (Decimal, Decimal("NaN"), "sum", "NaN is no number"),
        (Decimal, Decimal("Infinity"), "mean", "Infinity is no number"),
        (float, float("nan"), "max", "neither smaller nor larger"),
        (Decimal, Decimal("NaN"), "min", "neither smaller nor larger"),
    ],
)
def test_a_value_that_would_spoil_the_aggregate_fails_alone(value: Any, bad: Any, aggregate: str, error: str) -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=str, value=value).group_by_key()
    getattr(grouped, aggregate)(store="s").to_stream().to("out")
    with TopologyTestDriver(builder.build(), errors=CONTINUE) as driver:
        topic = driver.create_input_topic("in")
        for each in (value("1.5") if value is Decimal else value(1), bad, value(1)):
            topic.pipe_input("ann", each)

        (letter,) = driver.dead_letters
        assert error in f"{letter.error_class} {letter.message}"
        assert driver.create_output_topic("out").read_values_to_list()[-1] == driver.store("s").get("ann") or (
            aggregate == "mean"
        )


def test_a_selector_that_returns_another_type_fails_its_record() -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=str, value=Order).group_by_key()
    grouped.sum(lambda order: float(order.amount), value=int, store="s").to_delta("sums")  # type: ignore[arg-type, return-value]
    with TopologyTestDriver(builder.build(), errors=CONTINUE) as driver:
        driver.create_input_topic("in").pipe_input("ann", Order(Decimal(1)))
        assert driver.dead_letters[0].message == "the number is float, not int"


def test_sessions_that_meet_are_added_up() -> None:
    builder = StreamsBuilder()
    sessions = SessionWindows(gap=timedelta(seconds=30), grace=timedelta(minutes=1))
    windowed = builder.stream("in", key=str, value=int).group_by_key().windowed_by(sessions)
    windowed.sum(store="sums").to_delta("sums")
    windowed.max(store="most").to_delta("most")
    windowed.mean(store="means").to_delta("means")
    with TopologyTestDriver(builder.build()) as driver:
        for at, number in ((0, 1), (50_000, 5), (25_000, 3)):
            driver.create_input_topic("in").pipe_input("ann", number, timestamp_ms=at)

        assert {table: [*driver.table(table).rows.values()] for table in ("sums", "most", "means")} == {
            "sums": [9],
            "most": [5],
            "means": [Decimal(3)],
        }


def regrouped(aggregate: Callable[[Any], KTable[Any, Any]], updates: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """The rows of a table that is grouped by the note of its orders, after these updates."""
    builder = StreamsBuilder()
    table = builder.table("orders", key=str, value=Order, store="orders")
    aggregate(table.group_by(lambda _, order: (str(order.note), order), key=str, value=Order)).to_delta("results")
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("orders").pipe_key_value_list(updates)
        return dict(driver.table("results").rows)


UPDATES = [
    ("1", Order(Decimal("0.000000000000000001"), 1, "red")),
    ("2", Order(Decimal("0.2"), 2, "red")),
    ("3", Order(Decimal("10000000000000000000"), 7, "red")),
    ("2", None),  # leaves a sum of 38 digits
    ("3", Order(Decimal("5.5"), 7, "blue")),
    ("4", Order(Decimal("5"), 3, "green")),
    ("4", None),
]


def test_a_grouped_table_subtracts_what_leaves() -> None:
    assert regrouped(lambda grouped: grouped.sum(amount, store="s"), UPDATES) == {
        "red": Decimal("0.000000000000000001"),
        "blue": Decimal("5.5"),
        "green": 0,
    }
    pieces = regrouped(lambda grouped: grouped.sum(lambda order: order.pieces, value=int, store="s"), UPDATES)
    assert pieces == {"red": 1, "blue": 7, "green": 0}


def test_the_mean_of_a_group_without_rows_is_gone() -> None:
    means = regrouped(lambda grouped: grouped.mean(amount, store="s", scale=1), UPDATES)
    assert means == {"red": Decimal("0.0"), "blue": Decimal("5.5")}


def test_the_store_of_a_window_takes_a_retention_and_results_can_wait_for_its_end() -> None:
    builder = StreamsBuilder()
    minutes = TimeWindows(size=timedelta(minutes=1), grace=timedelta(0))
    grouped = builder.stream("in", key=str, value=int).group_by_key().windowed_by(minutes)
    grouped.sum(store=Materialized("sums", retention=timedelta(hours=1))).to_delta("sums")
    (spec,) = builder.build().stores
    assert (spec.name, spec.retention_ms) == ("sums", 3_600_000)


def test_any_cut_into_batches_gives_the_same_rows() -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=str, value=Decimal).group_by_key()
    grouped.sum(store="sums").to_delta("sums")
    grouped.mean(store="means").to_delta("means")
    plan = builder.build()
    values = [b'"%d.%02d"' % (n, n) for n in range(12)]

    def batch(start: int, end: int) -> MicroBatch:
        size = end - start
        offsets = list(range(start, end))
        return MicroBatch(0, (RecordBatch("in", 0, offsets, [0] * size, [b"k"] * size, list(values[start:end])),))

    def batches(*sizes: int) -> list[MicroBatch]:
        ends = list(itertools.accumulate(sizes))
        return [batch(end - size, end) for size, end in zip(sizes, ends, strict=True)]

    whole, cut = (
        run_recorded(plan, {"in": 1}, batches(*sizes), restarts=lambda batch_id, task: True)
        for sizes in ((12,), (1, 4, 2, 5))
    )
    for table in ("sums", "means"):
        assert whole.tables.by_name[table].rows == cut.tables.by_name[table].rows


@pytest.mark.parametrize(
    ("aggregate", "what", "hint"),
    [
        (lambda g, _: g.sum(store="s"), "sum takes int, float and Decimal, not json(Order)", "value=Decimal"),
        (lambda g, _: g.mean(lambda order: order.note, value=str, store="s"), "not string", "value=Decimal"),
        (lambda g, _: g.sum(lambda order: order.amount, store="s"), "does not say what its function", "value=Decimal"),
        (lambda g, _: g.max(lambda order: order.amount, store="s"), "does not say what its function", "value=Decimal"),
        (lambda g, _: g.max(store="s"), "max compares values, but those of json(Order) have no order", "value=Decimal"),
        (lambda g, _: g.min(lambda: 1, value=int, store="s"), "min calls its selector with (value)", "lambda value"),
        (lambda g, _: g.mean(amount, store="s", scale=-1), "scale= is -1, not a number of digits", "leave it out"),
        (lambda g, _: g.sum(amount), "sum has no name for its store", "store"),
        (lambda _, t: t.sum(lambda order: 1.0, value=float, store="s"), "int and Decimal, not double", "Decimal"),
    ],
)  # fmt: skip
def test_wrong_uses_are_problems_with_a_hint(aggregate: Callable[[Any, Any], Any], what: str, hint: str) -> None:
    builder = StreamsBuilder()
    table = builder.table("orders", key=str, value=Order, store="orders")
    grouped = table.group_by(lambda _, order: ("all", order), key=str, value=Order, name="all")
    aggregate(builder.stream("in", key=str, value=Order).group_by_key(), grouped)

    with pytest.raises(TopologyError) as error:
        builder.build()
    (problem,) = error.value.problems
    assert what in problem.what
    assert hint in (problem.hint or "")
    assert "test_numbers.py:" in (problem.where or "")


@pytest.mark.parametrize(
    ("handle", "name", "hint"),
    [
        ("stream", "sum", "group_by_key().sum(...)"),
        ("table", "sum", "group_by(lambda key, value: (group, value)).sum(...)"),
        ("table", "mean", "group_by(lambda key, value: (group, value)).mean(...)"),
        ("table", "max", "table.to_stream().group_by(...).max(...) takes every update"),
        ("regrouped", "min", "table.to_stream().group_by(...).min(...) takes every update"),
        ("regrouped", "max", "nobody knows the next one when the max leaves"),
    ],
)
def test_a_missing_operator_says_where_it_is(handle: str, name: str, hint: str) -> None:
    builder = StreamsBuilder()
    table = builder.table("orders", key=str, value=Order, store="orders")
    handles: dict[str, Any] = {
        "stream": builder.stream("in", key=str, value=Order),
        "table": table,
        "regrouped": table.group_by(lambda _, order: ("all", order), key=str, value=Order, name="all"),
    }
    with pytest.raises(AttributeError) as error:
        getattr(handles[handle], name)
    assert hint in str(error.value)
