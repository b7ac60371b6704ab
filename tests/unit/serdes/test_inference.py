"""The serde of a type, and the type that a function says it returns."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, NewType, TypeVar, Union
from uuid import UUID

import msgspec
import pytest

from deltaworks import Bytes, Double, Json, Long, Serde, String, Uuid, Windowed
from deltaworks.serdes import serde_for
from deltaworks.serdes.inference import element, pair, returned

UserId = NewType("UserId", str)
T = TypeVar("T")


class Order(msgspec.Struct):
    amount: Decimal

    def total(self) -> Decimal:
        return self.amount


class Scale:
    def __call__(self, value: int) -> float:
        return value * 1.5


def enrich(order: Order, factor: int = 1) -> Order | None:
    return order


def words(text: str) -> Iterator[tuple[str, int]]:
    yield text, 1


@pytest.mark.parametrize(
    ("type", "serde"),
    [
        (str, String()),
        (int, Long()),
        (float, Double()),
        (bytes, Bytes()),
        (bool, Json(bool)),
        (Decimal, Json(Decimal)),
        (datetime, Json(datetime)),
        (list[int], Json(list[int])),
        (UUID, Uuid()),
        (Order, Json(Order)),
        (dict[str, int], Json(dict[str, int])),
        (int | None, Long()),
        (Union[str, None], String()),  # noqa: UP007
        (UserId, String()),
        (Annotated[int, "count"], Long()),
        (Any, None),
        (object, None),
        (None, None),
        (T, None),
        (Windowed[str], None),
        (complex, None),
    ],
)
def test_a_type_asks_for_its_serde(type: Any, serde: Serde[Any] | None) -> None:
    assert serde_for(type) == serde


def test_functions_classes_methods_partials_and_callables_say_what_they_return() -> None:
    assert returned(enrich) == Order | None
    assert returned(Order) is Order
    assert returned(Order.total) is Decimal
    assert returned(functools.partial(enrich, factor=2)) == Order | None
    assert returned(Scale()) is float
    assert pair(element(returned(words))) == (str, int)


def test_lambdas_and_functions_without_annotation_say_nothing() -> None:
    assert returned(lambda value: value) is None
    assert returned(str.upper) is None
    assert element(None) is None
    assert pair(list[int]) == (None, None)


def test_an_annotation_that_cannot_be_resolved_says_nothing() -> None:
    def mapper(value: int) -> Missing:  # type: ignore[name-defined]  # noqa: F821
        return value

    assert returned(mapper) is None
