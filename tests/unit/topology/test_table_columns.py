"""The columns of a sink's table: names, what is shared, what they mean. Delta's side: `lakehouse/test_schema.py`."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any

import msgspec
import pytest

from deltaworks import Doc
from deltaworks.errors import TableError
from deltaworks.topology.nodes.sinks import DeltaSink, TableKind
from deltaworks.topology.table_columns import OURS, author_columns, comments


class Shelf(msgspec.Struct, frozen=True):
    store: Annotated[str, Doc("The store.")]
    item: str
    """The item."""


class Order(msgspec.Struct, frozen=True):
    user_id: str
    """The user."""
    amount: Decimal
    op: str = ""


def sink(kind: TableKind = TableKind.APPEND, key: Any = str, value: Any = int, **names: Any) -> DeltaSink:
    return DeltaSink(name="sink", table="t", kind=kind, key=key, value=value, **names)


def names(of: DeltaSink) -> tuple[list[str], list[str]]:
    columns = author_columns(of)
    return [column.name for column in columns.key], [column.name for column in columns.value]


@pytest.mark.parametrize(
    ("of", "key", "value"),
    [
        (sink(), ["key"], ["value"]),
        (sink(key_name="user_id", value_name="revenue"), ["user_id"], ["revenue"]),
        (sink(key_name=("user_id",)), ["user_id"], ["value"]),
        (sink(key=Shelf), ["store", "item"], ["value"]),
        (sink(key=Shelf, key_name=("shop", "what")), ["shop", "what"], ["value"]),
        (sink(key=tuple[str, int]), ["key"], ["value"]),
        (sink(key=tuple[str, int], key_name="pair"), ["pair"], ["value"]),
        (sink(key=tuple[str, int], key_name=("user_id", "day")), ["user_id", "day"], ["value"]),
        (sink(value=dict[str, int], value_name="counts"), ["key"], ["counts"]),
        (sink(value=Order), ["key"], ["user_id", "amount", "op"]),
        (sink(TableKind.CHANGELOG, value=Order), ["key"], ["user_id", "amount", "value_op"]),
        (sink(value=Order, key_name="user_id"), ["user_id"], ["amount", "op"]),
        (sink(value=Order, key=tuple[str, int], key_name=("user_id", "day")), ["user_id", "day"], ["amount", "op"]),
        (sink(key_name="größe"), ["größe"], ["value"]),
    ],
)
def test_columns_have_the_names_that_the_author_gives(of: DeltaSink, key: list[str], value: list[str]) -> None:
    assert names(of) == (key, value)


def test_the_items_of_a_tuple_are_its_columns() -> None:
    first, second = author_columns(sink(key=tuple[str, int], key_name=("user_id", "day"))).key

    assert first.get is not None and second.get is not None
    assert (first.get(("ann", 7)), second.get(("ann", 7))) == ("ann", 7)


@pytest.mark.parametrize(
    ("of", "what", "hint"),
    [
        (sink(key_name="user id"), "'user id' cannot be the name of a column", "letters, digits and '_'"),
        (sink(key_name=""), "'' cannot be the name of a column", "letters, digits and '_'"),
        (sink(value_name="a,b"), "'a,b' cannot be the name of a column", "letters, digits and '_'"),
        (
            sink(key_name="timestamp"),
            "key='timestamp' names a column that the table has already",
            "key='key_timestamp'",
        ),
        (sink(value_name="Timestamp"), "value='Timestamp' names a column that the table", "value='value_Timestamp'"),
        (sink(key_name="x", value_name="X"), "value='X' names a column that the table has already", "value='value_X'"),
        (sink(TableKind.WINDOWED, key_name="window_date"), "key='window_date' names a column", "key='key_window_date'"),
        (sink(key=Shelf, key_name=("a", "A")), "key='A' names a column that the table has already", "key='key_A'"),
        (sink(key=Shelf, key_name="shelf"), "whose fields are columns: store, item", "key=('store', 'item')"),
        (sink(key=Shelf, key_name=("a",)), "key= has 1 names, but the key has 2 columns (store, item)", "key=('store'"),
        (sink(key_name=("a", "b")), "key= has 2 names, but the key has 1 column.", "give each column one name"),
        (sink(value=Order, value_name="order"), "whose fields are columns: user_id, amount, op", "leave value= out"),
        (sink(value=Order, key_name="amount"), "but they are of other types", "key='key_amount'"),
        (sink(value=Order, key_name="User_id"), "or differ in the case of letters", "key='key_User_id'"),
    ],
)
def test_a_name_that_cannot_be_is_refused(of: DeltaSink, what: str, hint: str) -> None:
    with pytest.raises(TableError) as refused:
        author_columns(of)

    assert what in refused.value.message
    assert hint in (refused.value.hint or "")


def test_comments_are_what_the_author_says_of_keys_and_values() -> None:
    told = comments(sink(key=Shelf, value=Order, key_name=("shop", "what")))

    assert {name: told.get(name) for name in ("shop", "what", "user_id", "amount")} == {
        "shop": "The store.",
        "what": "The item.",
        "user_id": "The user.",
        "amount": None,
    }


def test_scalars_and_items_of_tuples_have_the_doc_of_their_type() -> None:
    user, day, total = Annotated[str, Doc("Who.")], Annotated[int, Doc("When.")], Annotated[Decimal, Doc("Sum.")]
    told = comments(sink(key=tuple[user, day], value=total, key_name=("user_id", "day"), value_name="total"))  # type: ignore[valid-type]

    assert (told["user_id"], told["day"], told["total"]) == ("Who.", "When.", "Sum.")


def test_a_column_that_key_and_value_share_means_what_either_says() -> None:
    assert comments(sink(value=Order, key_name="user_id"))["user_id"] == "The user."
    assert comments(sink(value=Order, key=Annotated[str, Doc("Who.")], key_name="user_id"))["user_id"] == "Who."


@pytest.mark.parametrize("kind", TableKind)
def test_each_column_of_our_own_has_a_comment(kind: TableKind) -> None:
    assert {*OURS[kind].between, *OURS[kind].after} <= comments(sink(kind)).keys()
