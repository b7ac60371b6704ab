"""Which changes of a type leave the values readable that were written before."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

import msgspec
import pytest

from deltaworks import Json, ListOf, Long, Serde, String, TimeWindowed
from deltaworks.serdes.schema import breaking_changes, schema_of


class Line(msgspec.Struct):
    item: str
    count: int


class Order(msgspec.Struct):
    amount: int
    lines: list[Line] = []
    before: Order | None = None


def of(**fields: Any) -> Serde[Any]:
    """JSON of a type `Order` with these fields: a type, or a type and its default."""
    return Json(msgspec.defstruct("Order", [(n, *t) if isinstance(t, tuple) else (n, t) for n, t in fields.items()]))


def changes(old: Serde[Any], new: Serde[Any]) -> list[str]:
    return breaking_changes(schema_of(old), schema_of(new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (Json(Order), Json(Order)),
        (of(amount=int), of(amount=int, tier=(str, "STANDARD"))),
        (of(amount=int, tier=str), of(amount=int)),
        (of(amount=int), of(amount=float)),
        (of(amount=int), of(amount=int | None)),
        (of(amount=int), of(amount=float | None)),
        (of(amount=int | None), of(amount=int | str | None)),
        (of(lines=list[int]), of(lines=list[float])),
        (of(prices=dict[str, int]), of(prices=dict[str, int | None])),
        (of(tier=Literal["a", "b"]), of(tier=Literal["a", "b", "c"])),
        (of(any=int), of(any=Any)),
        (Json(int), Json(float)),
        (Json(Line), of(item=str, count=int)),
        (Json(list[Order]), Json(list[Order | None])),
        (ListOf(of(amount=int)), ListOf(of(amount=float))),
    ],
)
def test_value_can_still_be_read(old: Serde[Any], new: Serde[Any]) -> None:
    assert changes(old, new) == []


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (of(amount=int), of(amount=str), "field 'amount' was integer, is string"),
        (of(amount=float), of(amount=int), "field 'amount' was number, is integer"),
        (of(amount=int | None), of(amount=int), "field 'amount' was integer | null, is integer"),
        (of(amount=int), of(amount=int, tier=str), "field 'tier' is new and has no default"),
        (of(amount=(int, 0)), of(amount=int), "field 'amount' had a default and has none now"),
        (of(id=UUID), of(id=str), "field 'id' was string (uuid), is string"),
        (of(price=str), of(price=Decimal), "field 'price' has format 'decimal' now"),
        (of(tier=Literal["a", "b"]), of(tier=Literal["b"]), "field 'tier' can no longer be 'a'"),
        (of(pair=tuple[int, int]), of(pair=tuple[int]), "field 'pair' was array (2 items), is array (1 items)"),
        (of(pair=tuple[int, int]), of(pair=tuple[int, str]), "field 'pair'[1] was integer, is string"),
        (of(lines=list[int]), of(lines=list[str]), "each item of field 'lines' was integer, is string"),
        (of(prices=dict[str, int]), of(prices=dict[str, str]), "entries of field 'prices' was integer, is string"),
        (Json(Any), Json(int), "the value was anything, is integer"),
        (Json(Order), Long(), "it was json(Order), is long"),
        (Long(), String(), "it was long, is string"),
        (ListOf(Long()), ListOf(String()), "it was long, is string"),
        (TimeWindowed(Long(), timedelta(milliseconds=5)), ListOf(Long()), "it was time-windowed(long), is list(long)"),
    ],
)
def test_change_is_named_that_would_misread_or_refuse_old_values(old: Serde[Any], new: Serde[Any], reason: str) -> None:
    assert changes(old, new) == [reason]


def test_change_deep_inside_a_type_that_contains_itself_is_found() -> None:
    class Order(msgspec.Struct):
        amount: int
        lines: list[Line] = []
        before: Any = None

    strict = msgspec.defstruct("Line", [("item", str), ("count", str)])
    other = msgspec.defstruct("Order", [("amount", int), ("lines", list[strict], []), ("before", Any, None)])  # type: ignore[valid-type]

    assert changes(Json(Order), Json(other)) == ["field 'count' was integer, is string"]


def test_type_that_forbids_unknown_fields_cannot_lose_one() -> None:
    strict = msgspec.defstruct("Order", [("amount", int)], forbid_unknown_fields=True)

    assert changes(of(amount=int, tier=str), Json(strict)) == [
        "field 'tier' is gone, and the type forbids fields that it does not know"
    ]


def test_what_is_said_to_be_readable_is_read() -> None:
    old, new = of(amount=int, tier=str), of(amount=float | None, discount=(int, 3))

    value = new.deserialize(old.serialize(old.type(7, "x")))

    assert changes(old, new) == []
    assert (value.amount, value.discount) == (7.0, 3)


def test_schema_does_not_keep_a_class_from_travelling() -> None:
    schema_of(Json(Line))

    assert "__msgspec_cache__" not in vars(Line)
