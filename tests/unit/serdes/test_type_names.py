from __future__ import annotations

import types
from collections.abc import Callable
from typing import Annotated, Any, Literal, NewType, Optional, TypeVar

import pytest

from deltaworks import DecimalDigits, Windowed
from deltaworks.serdes.type_names import type_name

UserId = NewType("UserId", str)
T = TypeVar("T")


class Order:
    pass


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (None, "?"),
        (str, "str"),
        (Order, "Order"),
        (UserId, "UserId"),
        (Any, "Any"),
        (T, "T"),
        (types.NoneType, "None"),
        (Order | None, "Order | None"),
        (Optional[Order], "Order | None"),  # noqa: UP045
        (Windowed[str], "Windowed[str]"),
        (Windowed[Order | None], "Windowed[Order | None]"),
        (dict[str, list[int]], "dict[str, list[int]]"),
        (tuple[int, ...], "tuple[int, ...]"),
        (Annotated[int, DecimalDigits(3, 2)], "int"),
        (Literal["a", 2], "Literal['a', 2]"),
        (Callable[[int], str], "Callable[[int], str]"),
    ],
)
def test_a_type_has_the_name_that_an_author_writes(kind: Any, name: str) -> None:
    assert type_name(kind) == name
