"""`to_delta`: names of columns, types, descriptions; what is refused, where, and with which hint.

Which names are allowed: `topology/test_table_columns.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any

import msgspec
import pyarrow as pa
import pytest

from deltaworks import (
    Column,
    DeadLetters,
    DecimalDigits,
    Doc,
    Json,
    KStream,
    Long,
    Pipeline,
    StreamsBuilder,
    String,
    TimeWindows,
    TopologyError,
)
from deltaworks.lakehouse.schema import schemas
from deltaworks.testing import TopologyTestDriver
from deltaworks.topology.nodes.sinks import DeltaSink, TableKind
from deltaworks.topology.table_columns import author_columns, comments

Revenue = Annotated[Decimal, Doc("Sum in euros.")]
HOURS = TimeWindows(size=timedelta(hours=1), grace=timedelta(0))


class Order(msgspec.Struct, frozen=True):
    user_id: str
    amount: Decimal


def orders(builder: StreamsBuilder) -> KStream[str, Order]:
    return builder.stream("orders", key=str, value=Order)


def sink_of(build: Callable[[StreamsBuilder], None]) -> DeltaSink:
    builder = StreamsBuilder()
    build(builder)
    (sink,) = builder.build().tables
    return sink


def test_a_stream_a_table_and_windows_name_their_columns() -> None:
    def stream(builder: StreamsBuilder) -> None:
        orders(builder).to_delta("t", key="user", doc="Orders")

    def table(builder: StreamsBuilder) -> None:
        orders(builder).group_by_key().count(store="n").to_delta("t", key="user", value="orders")

    def windows(builder: StreamsBuilder) -> None:
        counts = orders(builder).group_by_key().windowed_by(HOURS).count(store="n")
        counts.to_delta("t", key=["user"], value="orders")

    found = [sink_of(build) for build in (stream, table, windows)]

    assert [sink.kind for sink in found] == [TableKind.APPEND, TableKind.CHANGELOG, TableKind.WINDOWED]
    assert [sink.key_name for sink in found] == ["user", "user", ("user",)]
    assert [sink.value_name for sink in found] == [None, "orders", "orders"]
    assert [sink.doc for sink in found] == ["Orders", None, None]
    assert [column.name for column in author_columns(found[0]).value] == ["user_id", "amount"]


@pytest.mark.parametrize(("given", "expected"), [(Revenue, Revenue), (Decimal, Decimal), (Json(Decimal), Decimal)])
def test_the_type_that_is_given_is_that_of_the_columns_with_its_annotations(given: Any, expected: Any) -> None:
    def build(builder: StreamsBuilder) -> None:
        amounts = orders(builder).map_values(lambda order: order.amount)
        amounts.to_delta("t", key=Column("user_id", type=String()), value=Column("revenue", type=given))

    sink = sink_of(build)

    assert (sink.key, sink.value) == (str, expected)
    assert comments(sink).get("revenue") == ("Sum in euros." if given is Revenue else None)


def test_a_column_says_what_it_means() -> None:
    def one(builder: StreamsBuilder) -> None:
        revenue = orders(builder).map_values(lambda order: order.amount, value=Decimal)
        column = Column("revenue", "Sum of the orders.", type=Revenue)  # which knows more than the type does
        revenue.to_delta("t", key=Column("user_id", "The user."), value=column)

    def several(builder: StreamsBuilder) -> None:
        by_item = orders(builder).select_key(lambda user, _: (user, 1), key=tuple[str, int])
        by_item.to_delta("t", key=(Column("who", "The user."), "number"))

    told, of_several = comments(sink_of(one)), comments(sink_of(several))

    assert (told["user_id"], told["revenue"]) == ("The user.", "Sum of the orders.")
    assert of_several["who"] == "The user."
    assert "number" not in of_several
    assert sink_of(several).key_name == ("who", "number")


def test_a_column_gives_its_type() -> None:
    digits = Annotated[Decimal, DecimalDigits(18, 2)]

    def build(builder: StreamsBuilder) -> None:
        amounts = orders(builder).map_values(lambda order: order.amount, value=Decimal)
        amounts.to_delta("t", value=Column("revenue", type=digits))

    (schema,) = schemas(sink_of(build))

    assert schema.arrow.field("revenue").type == pa.decimal128(18, 2)


MISTAKES: list[tuple[Callable[[KStream[str, Order], Any], Any], str, str]] = [
    (
        lambda stream, _: stream.to_delta("t", key="user id"),
        "to_delta('t'): 'user id' cannot be the name of a column.",
        "use letters, digits and '_', with a letter first",
    ),
    (
        lambda stream, _: stream.to_delta("t", key="timestamp"),
        "to_delta('t'): key='timestamp' names a column that the table has already (Delta ignores the case of letters).",
        "choose another name, such as key='key_timestamp'",
    ),
    (
        lambda stream, _: stream.to_delta("t", value="order"),
        (
            "to_delta('t'): value='order' names one column, but the value is of Order, whose fields are columns: "
            "user_id, amount."
        ),
        "leave value= out; the names of the fields are those of the columns",
    ),
    (
        lambda stream, _: stream.to_delta("t", key="amount"),
        (
            "to_delta('t'): the key and a field of the value would be the column 'amount', but they are of other "
            "types, or differ in the case of letters."
        ),
        "give the key a column of its own, such as key='key_amount'",
    ),
    (
        lambda _, table: table.to_delta("t", key=str),
        "to_delta('t'): key= names the column of the key, but got the class str.",
        "key='user_id', key=Column('user_id', 'The user'), or key=('store', 'item') for a key of several columns",
    ),
    (
        lambda _, table: table.to_delta("t", value=Long()),
        "to_delta('t'): value= names the column of the value, but got a Long.",
        "value='revenue', or value=Column('revenue', 'Sum of the orders in euros')",
    ),
    (
        lambda _, table: table.to_delta("t", key=("store", 3)),
        "to_delta('t'): key= names the column of the key, but got a tuple.",
        "key='user_id', key=Column('user_id', 'The user'), or key=('store', 'item') for a key of several columns",
    ),
    (
        lambda stream, _: stream.to_delta("t", key=("store", Column("item", type=str))),
        "to_delta('t'): type= is for a key of one column, but key= has several.",
        "give the type where the key is made, such as select_key(..., key=tuple[str, int])",
    ),
    (
        lambda _, table: table.to_delta("t", doc=3),
        "to_delta('t'): doc= describes the table, but got 3.",
        'doc="Revenue per user"',
    ),
    (
        lambda stream, _: stream.map_values(lambda order: order.amount).to_delta("t"),
        "to_delta('t') needs the type of the value, but map_values at ",
        "map_values(..., value=Decimal)",
    ),
]


@pytest.mark.parametrize(("mistake", "what", "hint"), MISTAKES)
def test_a_mistake_is_told_with_the_line_and_what_to_write(
    mistake: Callable[[Any, Any], Any], what: str, hint: str
) -> None:
    builder = StreamsBuilder()
    stream = orders(builder)
    table = builder.table("counts", key=str, value=int, store="counts")

    with pytest.raises(TopologyError) as refused:
        mistake(stream, table)
        builder.build()

    (problem,) = refused.value.problems
    assert problem.what.startswith(what)
    assert problem.hint == hint
    lines, first = inspect.getsourcelines(mistake)
    assert problem.where is not None
    assert problem.where.startswith("tests/unit/dsl/test_to_delta.py:")
    assert first <= int(problem.where.rpartition(":")[2]) < first + len(lines)


def by_user(builder: StreamsBuilder) -> None:
    stream = orders(builder)
    stream.to_delta("appended", key="user_id")
    stream.to_table(store="last").to_delta("last", key="user_id")
    windows = stream.group_by_key().windowed_by(HOURS)
    windows.reduce(lambda _, order: order, store="hours").to_delta("hours", key="user_id")


def test_a_key_and_a_field_of_one_name_are_one_column_and_a_record_in_which_they_differ_is_a_dead_letter() -> None:
    pipeline = Pipeline(
        name="shop", topology=by_user, on_error="continue", dead_letters=DeadLetters(table="dead_letters")
    )
    driver = TopologyTestDriver(pipeline)
    topic = driver.create_input_topic("orders")

    topic.pipe_input("ann", Order("ann", Decimal(1)), timestamp_ms=1)
    topic.pipe_input("ann", Order("bob", Decimal(2)), timestamp_ms=2)
    assert list(driver.table("hours").rows.values()) == [Order("ann", Decimal(1))]
    assert [{*row} & {"key", "value", "user_id", "amount"} for row in driver.table("hours").to_dicts()] == [
        {"user_id", "amount"}
    ]
    topic.pipe_input("ann", None, timestamp_ms=3)

    assert [(row.key, row.value) for row in driver.table("appended").rows] == [
        ("ann", Order("ann", Decimal(1))),
        ("ann", None),
    ]
    assert driver.table("last").rows == {}
    assert [row.value for row in driver.table("last").changes] == [Order("ann", Decimal(1)), None]
    assert [letter.error_class for letter in driver.dead_letters] == ["deltaworks.errors.SerializationError"] * 3
    assert {letter.message for letter in driver.dead_letters} == {
        f"the key differs from the field 'user_id' of its value, and both are column 'user_id' of table '{table}'\n"
        f"  Hint: give the key a column of its own: to_delta('{table}', key='...')"
        for table in ("appended", "last", "hours")
    }
