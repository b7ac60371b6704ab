"""Columns from Python types."""

from __future__ import annotations

import datetime as dt
import random
import uuid
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple, NewType

import msgspec
import pyarrow as pa
import pytest

from deltaworks.errors import TableError
from deltaworks.kernel.column_limits import RowCheck
from deltaworks.lakehouse.columns import TIMESTAMP, ArrowColumn, arrow_column, arrow_type
from deltaworks.topology import columns as typed
from deltaworks.topology.columns import DecimalDigits, column_type
from deltaworks.topology.nodes.sinks import DeltaSink, TableKind


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(Enum):
    LOW = 1
    HIGH = 2


class Place(msgspec.Struct, frozen=True):
    city: str
    lat: float | None = None


@dataclass(frozen=True)
class Pair:
    left: int
    right: int


class Point(NamedTuple):
    x: int
    y: int


class Tree(msgspec.Struct):
    name: str
    children: list[Tree] = []


class Patch(msgspec.Struct):
    name: str | msgspec.UnsetType = msgspec.UNSET


UserId = NewType("UserId", str)


def flat_columns(kind: Any, scalar: str) -> list[ArrowColumn]:
    return [arrow_column(column) for column in typed.flat_columns(kind, scalar)]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (str, pa.string()),
        (int, pa.int64()),
        (float, pa.float64()),
        (bool, pa.bool_()),
        (bytes, pa.binary()),
        (Decimal, pa.decimal128(38, 18)),
        (Annotated[Decimal, DecimalDigits(18, 2)], pa.decimal128(18, 2)),
        (Annotated[Decimal, DecimalDigits(18, 2)] | None, pa.decimal128(18, 2)),
        (dt.datetime, TIMESTAMP),
        (dt.date, pa.date32()),
        (uuid.UUID, pa.string()),
        (UserId, pa.string()),
        (str | None, pa.string()),
        (Literal["a", "b"], pa.string()),
        (Literal[1, 2], pa.int64()),
        (Colour, pa.string()),
        (Level, pa.int64()),
        (list[int], pa.list_(pa.int64())),
        (tuple[str, ...], pa.list_(pa.string())),
        (frozenset[str], pa.list_(pa.string())),
        (dict[str, int], pa.map_(pa.string(), pa.int64())),
        (Place, pa.struct([("city", pa.string()), ("lat", pa.float64())])),
        (Pair, pa.struct([("left", pa.int64()), ("right", pa.int64())])),
        (Point, pa.struct([("x", pa.int64()), ("y", pa.int64())])),
        (Any, pa.string()),
        (int | str, pa.string()),
        (dict, pa.string()),
    ],
)
def test_type_gives_column_type(kind: Any, expected: pa.DataType) -> None:
    assert arrow_type(column_type(kind))[0] == expected


@pytest.mark.parametrize(
    ("kind", "value", "cell"),
    [
        (Colour, Colour.BLUE, "blue"),
        (Level, Level.HIGH, 2),
        (uuid.UUID, uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (list[Place], [Place("Rome")], [{"city": "Rome", "lat": None}]),
        (dict[str, Place], {"a": Place("Rome", 1.5)}, [("a", {"city": "Rome", "lat": 1.5})]),
        (Point, Point(1, 2), {"x": 1, "y": 2}),
        (Any, {"b": 1, "a": [2]}, '{"a":[2],"b":1}'),
        (dt.date, dt.date(2026, 1, 2), dt.date(2026, 1, 2)),
        (dt.timedelta, dt.timedelta(seconds=90), "PT90S"),
        (Decimal, Decimal("0E+40"), Decimal(0)),
        (float, 2**53 + 1, 2.0**53),
        (list[Decimal], [Decimal("1." + "0" * 40)], [Decimal(1)]),
        (
            Decimal,
            Decimal("12345678901234567890.123456789012345678"),
            Decimal("12345678901234567890.123456789012345678"),
        ),
    ],
)
def test_value_arrives_as_it_is(kind: Any, value: Any, cell: Any) -> None:
    column = flat_columns(kind if kind is not Point else list[Point], "value")[0]

    array = column.array([value if kind is not Point else [value], None])

    assert array.to_pylist() == [cell if kind is not Point else [cell], None]


def test_a_type_inside_itself_becomes_json() -> None:
    columns = flat_columns(Tree, "value")

    array = columns[1].array([Tree("a", [Tree("b")])])

    assert array.to_pylist() == [['{"name":"b","children":[]}']]


def test_fields_of_an_object_become_columns() -> None:
    columns = flat_columns(Place, "value")

    cells = {column.name: column.array([Place("Rome", 1.0), None, Place("Oslo")]).to_pylist() for column in columns}

    assert cells == {"city": ["Rome", None, "Oslo"], "lat": [1.0, None, None]}


def test_unset_field_is_null() -> None:
    column = flat_columns(Patch, "value")[0]

    assert column.array([Patch(), Patch("x")]).to_pylist() == [None, "x"]


def test_time_with_another_zone_is_the_same_instant() -> None:
    column = flat_columns(dt.datetime, "value")[0]
    instant = dt.datetime(2026, 1, 1, 12, tzinfo=dt.timezone(dt.timedelta(hours=5)))

    assert column.array([instant])[0].as_py() == instant


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Annotated[Decimal, DecimalDigits(18, 2)], Decimal("0.001")),
        (Decimal, Decimal(10) ** 21),
        (Decimal, 0.1),
        (int, 2**63),
        (int, "1"),
        (str, 1),
        (str, "\ud800"),
    ],
)
def test_what_does_not_fit_is_an_error_that_names_column_and_value(kind: Any, value: Any) -> None:
    column = flat_columns(kind, "amount")[0]

    with pytest.raises(TableError, match=r"Column 'amount' .* cannot hold"):
        column.array([value])


def test_what_the_kernel_lets_through_a_column_holds_to_the_last_digit() -> None:
    """The kernel refuses more than Arrow, which rounds some numbers that are far too small without a word."""
    rng = random.Random(7)
    texts = [f"{rng.choice(['', '-'])}{rng.randrange(10 ** rng.randint(1, 45))}" for _ in range(2_000)]
    numbers = [Decimal(f"{text}E{rng.randint(-45, 25)}") for text in texts]
    numbers += [Decimal(f"{rng.choice('123')}{'0' * zeros}E{rng.randint(-60, 30)}") for zeros in range(60)]
    numbers += [Decimal(text) for text in ("0E+400", "0E-400", "-0", "1E+999999", "1E-999999", "NaN", "Infinity")]
    for digits in (DecimalDigits(38, 18), DecimalDigits(18, 2), DecimalDigits(38, 0), DecimalDigits(5, 5)):
        kind: Any = Annotated[Decimal, digits]
        column = flat_columns(kind, "value")[0]
        check = RowCheck(DeltaSink(name="n", table="t", kind=TableKind.APPEND, key=str, value=kind))
        held = [number for number in numbers if check.misfit("key", number) is None]
        assert 0 < len(held) < len(numbers)
        assert [column.array([number])[0].as_py() for number in held] == held
