"""JSON is typed, exact and deterministic."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from deltaworks import Json, SerializationError


class Order(msgspec.Struct, frozen=True):
    order_id: str
    amount: Decimal
    note: str | None = None


@dataclass
class Point:
    x: int
    inner: Point | None = None


class Opaque:
    """JSON cannot hold it."""


def test_money_is_exact_from_numbers_and_from_strings() -> None:
    serde = Json(Order)
    amount = "12345678901234567890.10"

    for text in (amount, f'"{amount}"'):
        order = serde.deserialize(f'{{"order_id":"a","amount":{text}}}'.encode())
        assert order.amount == Decimal(amount)
        assert str(order.amount) == amount


def test_decimals_are_written_as_strings_unless_numbers_are_asked_for() -> None:
    order = Order("a", Decimal("0.10"))

    assert Json(Order).serialize(order) == b'{"order_id":"a","amount":"0.10","note":null}'
    assert Json(Order, decimals="number").serialize(order) == b'{"order_id":"a","amount":0.10,"note":null}'


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"order_id":"a"', "truncated"),
        (b'{"order_id":"a"}', "missing required field `amount`"),
        (b'{"order_id":1,"amount":1}', r"Expected `str`, got `int` - at `\$.order_id`"),
        (b'{"order_id":"a","amount":"lots"}', r"Invalid decimal string - at `\$.amount`"),
        (b'{"order_id":"\xff","amount":1}', "utf-8|UTF-8"),
        (b"", "truncated"),
        (b"[" * 100_000, "json.Order."),
    ],
)
def test_what_is_not_an_order_is_refused_with_the_field(data: bytes, reason: str) -> None:
    with pytest.raises(SerializationError, match=reason):
        Json(Order).deserialize(data)


def test_what_json_cannot_write_is_refused() -> None:
    with pytest.raises(SerializationError, match=r"type dict cannot be written as json\(dict\)"):
        Json(dict).serialize({"a": object()})


def test_equal_values_give_equal_bytes() -> None:
    serde = Json(dict[str, set[str]])

    assert serde.serialize({"b": {"y", "x"}, "a": set()}) == serde.serialize({"a": set(), "b": {"x", "y"}})


def test_dataclasses_nest() -> None:
    value = Point(1, Point(2))

    assert Json(Point).deserialize(Json(Point).serialize(value)) == value


@pytest.mark.parametrize("type", [Opaque, list[Opaque], dict[str, Opaque | None]])
def test_a_type_that_json_cannot_hold_is_refused_before_the_first_record(type: Any) -> None:
    with pytest.raises(TypeError, match="there is no way to write Opaque"):
        Json(type)


@pytest.mark.parametrize("type", [Order, Point, dict[str, list[int]], Decimal])
def test_the_serde_travels(type: Any) -> None:
    serde = Json(type)

    assert pickle.loads(pickle.dumps(serde)) == serde


def test_the_types_of_a_main_script_travel_by_value() -> None:
    cloudpickle = pytest.importorskip("pyspark.cloudpickle")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec("from dataclasses import dataclass\n@dataclass\nclass Local:\n    x: int", namespace)

    serde = cloudpickle.loads(cloudpickle.dumps(Json(namespace["Local"])))

    assert serde.deserialize(b'{"x":1}').x == 1


def test_the_name_is_that_of_the_type() -> None:
    assert [Json(Order).name, Json(dict[str, int]).name] == ["json(Order)", "json(dict[str, int])"]
    assert Json(Order) == Json(Order) != Json(Order, decimals="number")
