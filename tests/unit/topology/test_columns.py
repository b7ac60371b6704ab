"""Which columns a Python type gives. Types: `lakehouse/test_columns.py`; limits: `kernel/test_column_limits.py`."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any

import msgspec

from deltaworks import DecimalDigits
from deltaworks.topology.columns import (
    JsonText,
    Listed,
    Mapped,
    Nested,
    Plain,
    column_type,
    flat_columns,
    key_columns,
)


class Place(msgspec.Struct, frozen=True):
    city: str
    height: float | None = None
    tags: tuple[str, ...] = ()
    zone: int | msgspec.UnsetType = msgspec.UNSET


class Tree(msgspec.Struct):
    name: str
    children: list[Tree] = []


def test_fields_of_an_object_become_columns() -> None:
    columns = flat_columns(Place, "value")

    assert [(column.name, column.type, column.is_optional) for column in columns] == [
        ("city", Plain.TEXT, False),
        ("height", Plain.FLOAT, True),
        ("tags", Listed(Plain.TEXT), False),
        ("zone", Plain.INTEGER, True),
    ]


def test_any_other_value_is_one_column() -> None:
    assert [(column.name, column.type) for column in flat_columns(dict[str, int], "value")] == [
        ("value", Mapped(Plain.INTEGER))
    ]


def test_a_key_has_no_nested_columns() -> None:
    assert [column.type for column in key_columns(Place)] == [Plain.TEXT, Plain.FLOAT, JsonText(), Plain.INTEGER]


def test_a_type_inside_itself_becomes_json() -> None:
    assert column_type(list[Tree]) == Listed(Nested((("name", Plain.TEXT), ("children", Listed(JsonText())))))


def test_a_decimal_has_the_digits_that_its_annotation_says() -> None:
    kinds: list[Any] = [Decimal, Annotated[Decimal, DecimalDigits(18, 2)] | None, list[Decimal]]

    assert [column_type(kind) for kind in kinds] == [
        DecimalDigits(38, 18),
        DecimalDigits(18, 2),
        Listed(DecimalDigits(38, 18)),
    ]
