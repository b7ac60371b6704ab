"""Keys and values come back from the cells of their columns as they were."""

from __future__ import annotations

import enum
import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import pyarrow as pa
import pytest

from deltaworks.lakehouse.columns import arrow_column
from deltaworks.topology.columns import DecimalDigits
from deltaworks.topology.nodes.sinks import DeltaSink, TableKind
from deltaworks.topology.row_objects import RowObjects
from deltaworks.topology.table_columns import author_columns


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


@dataclass(frozen=True)
class Part:
    name: str
    weight: float | None


class Renamed(msgspec.Struct, frozen=True, rename="camel", tag="r"):
    first_name: str
    parts: list[Part]


class Place(NamedTuple):
    city: str
    floor: int


class All(msgspec.Struct, frozen=True):
    text: str | None
    number: int
    ratio: float
    yes: bool
    raw: bytes
    at: datetime
    day: date
    clock: time
    lasting: timedelta
    id: uuid.UUID
    size: Size
    kind: Literal["a", "b"]
    price: Annotated[Decimal, DecimalDigits(10, 2)]
    loose: Decimal
    renamed: Renamed
    places: tuple[Place, ...]
    counts: dict[str, list[int | None]]
    anything: Any
    mixed: int | str
    unset: int | msgspec.UnsetType = msgspec.UNSET


VALUE = All(
    text=None,
    number=2**60,
    ratio=0.1,
    yes=True,
    raw=b"\x00\xff",
    at=datetime(2026, 3, 1, 12, 30, 1, 5, UTC),
    day=date(2026, 3, 1),
    clock=time(1, 2, 3),
    lasting=timedelta(days=2, seconds=3),
    id=uuid.UUID(int=7),
    size=Size.LARGE,
    kind="b",
    price=Decimal("12.50"),
    loose=Decimal("1.5"),
    renamed=Renamed("ann", [Part("x", None), Part("y", 1.5)]),
    places=(Place("Utrecht", 3),),
    counts={"a": [1, None], "b": []},
    anything={"deep": [1, {"er": None}]},
    mixed="one",
)


class Key(msgspec.Struct, frozen=True):
    order: int
    tags: tuple[str, int]


def table(key: Any, value: Any, **options: Any) -> DeltaSink:
    return DeltaSink(name="n", table="t", kind=TableKind.CHANGELOG, key=key, value=value, **options)


def cells(node: DeltaSink, key: Any, value: Any) -> dict[str, Any]:
    """As they come out of a file of the table."""
    columns = author_columns(node)
    found = {}
    for part, of in ((columns.key, key), (columns.value, value)):
        for column in map(arrow_column, part):
            array = column.array([of])
            plain = pa.types.is_nested(array.type)
            found[column.name] = (array.to_pylist(maps_as_pydicts="strict") if plain else array.to_pylist())[0]
    return found


@pytest.mark.parametrize(
    ("key_type", "key", "options"),
    [
        (str, "a", {}),
        (int, 7, {"key_name": "nth"}),
        (uuid.UUID, uuid.UUID(int=9), {}),
        (Size, Size.SMALL, {}),
        (Key, Key(3, ("x", 1)), {}),
        (tuple[str, int], ("a", 2), {}),
        (tuple[str, int], ("a", 2), {"key_name": ("name", "nth")}),
        (tuple[str], ("a",), {"key_name": ("name",)}),
        (Place, Place("Utrecht", 1), {}),
    ],
)
def test_keys_come_back(key_type: Any, key: Any, options: dict[str, Any]) -> None:
    node = table(key_type, All, **options)
    row = cells(node, key, VALUE)

    objects = RowObjects(node)

    assert objects.key(row) == key and type(objects.key(row)) is type(key)
    assert objects.ambiguous is None


def test_values_come_back() -> None:
    node = table(str, All)
    found = RowObjects(node).value(cells(node, "a", VALUE))

    assert found == VALUE
    assert msgspec.to_builtins(found, str_keys=True) == msgspec.to_builtins(VALUE, str_keys=True)


@pytest.mark.parametrize(
    ("kind", "value"),
    [(int, 5), (list[Part], [Part("a", 1.0)]), (dict[str, Any], {"a": {"b": [1]}, "c": None}), (Decimal, Decimal(3))],
)
def test_a_value_without_fields_comes_back(kind: Any, value: Any) -> None:
    node = table(str, kind)
    assert RowObjects(node).value(cells(node, "a", value)) == value


def test_a_field_that_shares_the_column_of_the_key_comes_back() -> None:
    node = table(str, Place, key_name="city")
    assert RowObjects(node).value(cells(node, "Utrecht", Place("Utrecht", 2))) == Place("Utrecht", 2)


class Unclear(msgspec.Struct, frozen=True):
    note: str | msgspec.UnsetType | None = msgspec.UNSET


class Outer(msgspec.Struct, frozen=True):
    inner: list[Unclear]


@pytest.mark.parametrize(("kind", "column"), [(Unclear, "note"), (Outer, "inner")])
def test_null_that_may_be_two_values_is_said(kind: Any, column: str) -> None:
    assert RowObjects(table(str, kind)).ambiguous == column
