"""What fields mean, from `Doc` and from the texts below them."""

from __future__ import annotations

import sys
import types
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import pytest
import typing_extensions

from deltaworks import Doc
from deltaworks.topology.docs import doc_of, texts_below


class Order(msgspec.Struct, frozen=True):
    """An order."""

    amount: Decimal
    """Price in euros,
    with taxes."""
    item: str
    count: int = 1
    """Number of pieces."""


class Gift(Order, frozen=True):
    count: int = 2  # without a text: that of the base is about another field
    note: str = ""
    """What the card says."""


@dataclass(frozen=True)
class Pair:
    left: int
    """The first."""
    right: int


class Point(NamedTuple):
    x: int
    """To the east."""
    y: int


class Outer:
    class Order(msgspec.Struct, frozen=True):
        amount: int
        """Of the inner class."""


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Annotated[Decimal, Doc("price")], "price"),
        (Annotated[Decimal, Doc("price")] | None, "price"),
        (Annotated[Decimal | None, "note", Doc("price")], "price"),
        (Annotated[Decimal, typing_extensions.Doc("price")], "price"),
        (Annotated[Decimal, "note"], None),
        (list[Annotated[Decimal, Doc("price")]], None),
        (Decimal, None),
    ],
)
def test_a_type_has_the_doc_of_its_annotation(kind: Any, expected: str | None) -> None:
    assert doc_of(kind) == expected


def test_a_field_has_the_text_below_it_on_one_line() -> None:
    assert texts_below(Order) == {"amount": "Price in euros, with taxes.", "count": "Number of pieces."}


def test_fields_of_a_base_keep_their_texts_unless_they_are_declared_again() -> None:
    assert texts_below(Gift) == {"amount": "Price in euros, with taxes.", "note": "What the card says."}


@pytest.mark.parametrize(("kind", "expected"), [(Pair, {"left": "The first."}), (Point, {"x": "To the east."})])
def test_dataclasses_and_named_tuples_have_texts_too(kind: type, expected: dict[str, str]) -> None:
    assert texts_below(kind) == expected


def test_the_class_is_found_by_its_whole_name() -> None:
    class Order(msgspec.Struct, frozen=True):
        amount: int
        """Of the local class."""

    assert texts_below(Order) == {"amount": "Of the local class."}
    assert texts_below(Outer.Order) == {"amount": "Of the inner class."}


@pytest.mark.parametrize(
    "source", [None, "class Order(:", "total = 1"], ids=["none", "not Python", "of something else"]
)
def test_without_the_source_there_are_no_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str | None
) -> None:
    module = types.ModuleType("sourceless")
    monkeypatch.setitem(sys.modules, "sourceless", module)
    exec("import msgspec\nclass Order(msgspec.Struct):\n    amount: int\n    'Price.'\n", vars(module))
    if source is not None:
        module.__file__ = str(tmp_path / "sourceless.py")
        (tmp_path / "sourceless.py").write_text(source)

    assert texts_below(module.Order) == {}


def test_a_class_made_at_run_time_has_no_texts() -> None:
    assert texts_below(msgspec.defstruct("Order", [("amount", int)])) == {}
