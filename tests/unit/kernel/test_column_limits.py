"""Values that a Delta column cannot hold: production errors of the table's sink, like records that do not encode."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any

import msgspec
import pytest

from deltaworks import (
    DeadLetters,
    DecimalDigits,
    ErrorContext,
    ErrorPolicy,
    FailedRecord,
    Json,
    Pipeline,
    Response,
    StreamsBuilder,
    StreamsError,
    TimeWindows,
    Topic,
)
from deltaworks.kernel.column_limits import RowCheck
from deltaworks.testing import TopologyTestDriver
from deltaworks.testing.memory_tables import AppendTable, KeyedTable, WindowTable
from deltaworks.topology.nodes.sinks import DeltaSink, TableKind

EAST, WEST = dt.timezone(dt.timedelta(hours=5)), dt.timezone(dt.timedelta(hours=-5))


class Bill(msgspec.Struct, frozen=True):
    payer: str
    item: str
    amount: Decimal
    note: str | None = None
    pieces: int | msgspec.UnsetType = msgspec.UNSET


class Ledger(msgspec.Struct, frozen=True):
    bills: tuple[Bill, ...] = ()
    by_name: dict[str, Annotated[Decimal, DecimalDigits(4, 1)]] = {}
    last: Bill | None = None
    rest: Any = None


def row_check(kind: Any) -> RowCheck:
    return RowCheck(DeltaSink(name="sink", table="t", kind=TableKind.APPEND, key=str, value=kind))


def misfit(kind: Any, value: Any) -> str | None:
    """What the check of a value says, by way of the quick one, as a sink asks it."""
    check = row_check(kind)
    assert check.value is not None
    try:
        check.value(value)
    except Exception:
        error = check.misfit("key", value)
        return None if error is None else error.message
    return None


BILL = Bill("ann", "lamp", Decimal("1.50"))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Decimal, Decimal("1e30")),
        (Decimal, Decimal("0.0000000000000000001")),
        (Decimal, Decimal("NaN")),
        (Decimal, Decimal("sNaN")),
        (Decimal, Decimal("-Infinity")),
        (Annotated[Decimal, DecimalDigits(4, 1)], Decimal("1000")),
        (int, 2**63),
        (int, -(2**63) - 1),
        (str, "\ud800"),
        (dt.datetime, dt.datetime.min.replace(tzinfo=EAST)),
        (dt.datetime, dt.datetime.max.replace(tzinfo=WEST)),
        (Any, object()),
        (list[int], [1, None, 2**63]),
        (Bill, msgspec.structs.replace(BILL, item="\udc00")),
        (Bill, msgspec.structs.replace(BILL, note="\ud83d")),
        (Bill, msgspec.structs.replace(BILL, amount=Decimal("Infinity"))),
        (Bill, msgspec.structs.replace(BILL, pieces=2**64)),
        (Ledger, Ledger(bills=(BILL, Bill("\ud800", "lamp", Decimal(1))))),
        (Ledger, Ledger(by_name={"a": Decimal("0.25")})),
        (Ledger, Ledger(by_name={"\ud800": Decimal("0.5")})),
        (Ledger, Ledger(last=Bill("ann", "lamp", Decimal("NaN")))),
        (Ledger, Ledger(rest="\ud800")),
        (Bill, {"payer": "ann"}),
    ],
)
def test_what_no_column_can_hold_is_refused(kind: Any, value: Any) -> None:
    assert re.match(r"a value of type \w+ does not fit column '\w+' of table 't'", misfit(kind, value) or "")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Decimal, Decimal("-99999999999999999999.999999999999999999")),
        (Decimal, Decimal("1.000000000000000000000")),
        (Decimal, Decimal("0E+40")),
        (Annotated[Decimal, DecimalDigits(4, 1)], Decimal("999.9")),
        (int, -(2**63)),
        (str, "Łódź \U0001f600"),
        (dt.datetime, dt.datetime.min),
        (dt.datetime, dt.datetime.max.replace(tzinfo=EAST)),
        (Any, {"a": Decimal("NaN")}),
        (list[int], [1, None]),
        (Bill, BILL),
        (Bill, None),
        (Bill, Bill("ann", "Łampe", Decimal(1), None, 2)),
        (Bill, Bill(None, "lamp", None)),  # type: ignore[arg-type]
        (Ledger, Ledger((BILL,), {"a": Decimal("0.5")}, BILL, [1])),
        (Ledger, Ledger()),
    ],
)
def test_what_a_column_can_hold_is_let_through(kind: Any, value: Any) -> None:
    assert misfit(kind, value) is None


def test_types_that_always_fit_are_not_checked() -> None:
    kinds = (float, bool, bytes, dt.date, dt.timedelta, list[float])

    assert [row_check(kind).value for kind in kinds] == [None] * len(kinds)


def driver(topology: Callable[[StreamsBuilder], None], **options: Any) -> TopologyTestDriver:
    return TopologyTestDriver(
        Pipeline(name="under-test", topology=topology, topics=(Topic("in"), Topic("letters")), **options)
    )


def continuing(topology: Callable[[StreamsBuilder], None]) -> TopologyTestDriver:
    return driver(topology, on_error="continue", dead_letters=DeadLetters(topic="letters"))


def amounts(builder: StreamsBuilder) -> None:
    builder.stream("in", key=str, value=Decimal).to_delta("amounts", name="amounts-sink")


def test_a_row_of_a_stream_that_does_not_fit_is_a_dead_letter_and_the_rest_goes_on() -> None:
    under_test = continuing(amounts)

    under_test.create_input_topic("in").pipe_key_value_list([("a", Decimal(1)), ("b", Decimal("1e30")), ("c", None)])

    table = under_test.table("amounts")
    assert isinstance(table, AppendTable)
    assert [(row.key, row.value) for row in table.rows] == [("a", Decimal(1)), ("c", None)]
    (letter,) = under_test.dead_letters
    assert (letter.operator, letter.key, letter.value) == ("amounts-sink", b"b", b'"1E+30"')
    assert letter.error_class == "deltaworks.errors.SerializationError"
    assert letter.message.startswith(
        "a value of type Decimal does not fit column 'value' of table 'amounts', DECIMAL(38, 18)\n  Hint: Annotated"
    )
    assert [record.key for record in under_test.produced["letters"]] == [b"b"]
    assert (under_test.metrics.dropped, under_test.metrics.dead_letters) == (1, 1)


def test_without_continue_the_stream_stops_at_the_record() -> None:
    under_test = driver(amounts)

    with pytest.raises(StreamsError, match=r"has a result that cannot be written: .*does not fit column") as stopped:
        under_test.create_input_topic("in").pipe_key_value_list([("a", Decimal(1)), ("b", Decimal("Infinity"))])

    position = stopped.value.position
    assert position is not None
    assert (position.operator, position.topic, position.offset) == ("amounts-sink", "in", 1)


def test_a_table_keeps_the_row_in_its_store_and_the_last_that_fitted_in_delta() -> None:
    def topology(builder: StreamsBuilder) -> None:
        builder.table("in", key=str, value=Decimal, store="amounts").to_delta("amounts")

    under_test = continuing(topology)

    under_test.create_input_topic("in").pipe_key_value_list([("a", Decimal(1)), ("a", Decimal("1e30"))])

    table = under_test.table("amounts")
    assert isinstance(table, KeyedTable)
    assert table.rows == {"a": Decimal(1)}
    assert len(table.changes) == 1
    assert under_test.store("amounts").get("a") == Decimal("1e30")
    assert [letter.key for letter in under_test.dead_letters] == [b"a"]


def test_a_window_whose_value_does_not_fit_is_not_written_until_it_does_again() -> None:
    def topology(builder: StreamsBuilder) -> None:
        windows = TimeWindows(size=dt.timedelta(minutes=1), grace=dt.timedelta(0))
        amounts = builder.stream("in", key=str, value=int).group_by_key().windowed_by(windows)
        amounts.aggregate(
            lambda: Decimal(0), lambda _, n, total: total + n, store="sums", value=Json(Decimal)
        ).map_values(lambda total: total * 10**10, value=Json(Decimal)).to_delta("sums")

    under_test = continuing(topology)
    given = under_test.create_input_topic("in")

    found = []
    for number in (1, 10**12, -(10**12) + 1):
        given.pipe_input("a", number, timestamp_ms=0)
        table = under_test.table("sums")
        assert isinstance(table, WindowTable)
        found.append([int(value) for value in table.rows.values()])

    assert found == [[10**10], [10**10], [2 * 10**10]]
    assert len(under_test.dead_letters) == 1


def test_a_key_that_does_not_fit_is_refused_like_a_value() -> None:
    def topology(builder: StreamsBuilder) -> None:
        builder.stream("in", key=str, value=str).select_key(lambda _, value: int(value), key=Json(int)).to_delta("t")

    under_test = continuing(topology)

    under_test.create_input_topic("in").pipe_key_value_list([("a", "1"), ("b", str(2**63)), ("c", "2")])

    table = under_test.table("t")
    assert isinstance(table, AppendTable)
    assert [row.key for row in table.rows] == [1, 2]
    assert "column 'key'" in under_test.dead_letters[0].message


def test_a_window_that_is_on_no_day_of_the_calendar_is_a_dead_letter() -> None:
    """Microseconds that were sent as milliseconds: a windowed table has a partition per day."""

    def topology(builder: StreamsBuilder) -> None:
        windows = TimeWindows(size=dt.timedelta(minutes=1), grace=dt.timedelta(0))
        builder.stream("in", key=str, value=str).group_by_key().windowed_by(windows).count(store="n").to_delta("n")

    under_test = continuing(topology)

    under_test.create_input_topic("in").pipe_input("a", "x", timestamp_ms=1_700_000_000_000_000)

    table = under_test.table("n")
    assert isinstance(table, WindowTable)
    assert table.rows == {}
    assert "is on no day of table 'n'" in under_test.dead_letters[0].message


def test_an_error_handler_is_told_what_was_to_be_written() -> None:
    calls: list[tuple[str, FailedRecord]] = []

    def handler(context: ErrorContext, record: FailedRecord, exception: Exception) -> Response:
        calls.append((context.kind, record))
        return Response.retry() if len(calls) == 1 else Response.resume()

    def topology(builder: StreamsBuilder) -> None:
        builder.table("in", key=str, value=Decimal, store="amounts").to_delta("amounts")

    builder = StreamsBuilder()
    topology(builder)
    under_test = TopologyTestDriver(builder.build(), errors=ErrorPolicy(production=handler))

    under_test.create_input_topic("in").pipe_input("a", Decimal("NaN"), timestamp_ms=7)

    assert [kind for kind, _ in calls] == ["production", "production"]
    assert [(record.key, str(record.value), record.topic) for _, record in calls] == [("a", "NaN", None)] * 2


def test_half_a_character_in_an_error_does_not_stop_what_tells_of_it() -> None:
    def refuse(value: str) -> str:
        raise ValueError(f"no {value}\ud800")

    def topology(builder: StreamsBuilder) -> None:
        builder.stream("in", key=str, value=str).map_values(refuse, value=str).to("out")

    under_test = continuing(topology)

    under_test.create_input_topic("in").pipe_input("a", "x")

    (letter,) = under_test.dead_letters
    assert letter.message == "no x\\ud800"
    assert letter.stacktrace.encode().endswith(b"no x\\ud800\n")
