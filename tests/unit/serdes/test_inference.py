"""The serde of a type, and the type that a function says it returns."""

from __future__ import annotations

import builtins
import functools
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, NewType, TypeVar, Union
from uuid import UUID

import msgspec
import pytest

from deltaworks import Bytes, Double, Json, Long, Serde, String, Uuid, Windowed
from deltaworks.serdes import builtin_results, serde_for
from deltaworks.serdes.inference import Untold, contradicts, element, pair, returned

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
    def half(value: Any):  # type: ignore[no-untyped-def]
        return value / 2

    twice = lambda value: value * 2  # noqa: E731
    assert [returned(half), returned(twice), returned(max)] == [Untold(half), Untold(twice), Untold(max)]
    assert [returned(each).annotatable for each in (half, twice, max)] == ["half", None, None]
    assert (returned(twice) or str) is str
    assert element(None) is None
    assert pair(list[int]) == (None, None)


def test_an_annotation_that_cannot_be_resolved_says_which_name_is_missing() -> None:
    def mapper(value: int) -> Missing:  # type: ignore[name-defined]  # noqa: F821
        return value

    assert not returned(mapper)
    assert returned(mapper).why.endswith("cannot be read: name 'Missing' is not defined")


def test_only_the_return_annotation_has_to_be_resolved() -> None:
    def mapper(value: Missing) -> int:  # type: ignore[name-defined]  # noqa: F821
        return 1

    assert returned(mapper) is int


@pytest.mark.parametrize(
    ("function", "type"),
    [
        (str.upper, str),
        (str.isdigit, bool),
        (str.encode, bytes),
        (bytes.decode, str),
        ("-".join, str),
        (len, int),
        (repr, str),
        (int, int),
        (functools.partial(int, base=16), int),
        (int.bit_length, int),
        (float.is_integer, bool),
        (Decimal.quantize, Decimal),
        (datetime.date, date),
    ],
)
def test_builtins_have_known_results(function: Any, type: Any) -> None:
    assert returned(function) is type


def test_the_tables_of_builtins_name_methods_that_exist() -> None:
    for owner, results in builtin_results._METHODS.items():
        assert [name for names in results.values() for name in names.split() if not hasattr(owner, name)] == []
    assert [
        name for names in builtin_results._FUNCTIONS.values() for name in names.split() if name not in dir(builtins)
    ] == []


@pytest.mark.parametrize(
    ("told", "given"),
    [
        (str, int),
        (float, int),
        (Order, str),
        (list[str], list[int]),
        (dict[str, int], Order),
        (int | None, str),
        (int | float, str),
    ],
)
def test_types_that_share_no_value_contradict_each_other(told: Any, given: Any) -> None:
    assert contradicts(told, given)


@pytest.mark.parametrize(
    ("told", "given"),
    [
        (str, str),
        (str | None, str),
        (str, str | None),
        (int, float),
        (bool, int),
        (Any, int),
        (T, int),
        (returned(lambda: 1), str),
        (list, list[str]),
        (list[str], Sequence[str]),
        (dict[str, Any], dict[str, int]),
        (int | str, str),
        (UserId, str),
        (Literal["a"], str),
        (tuple[int, ...], tuple[int, int]),
    ],
)
def test_types_that_may_share_a_value_do_not(told: Any, given: Any) -> None:
    assert not contradicts(told, given)
