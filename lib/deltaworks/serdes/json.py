"""JSON through msgspec: Structs, dataclasses, typed dicts and builtin types, checked while they are read."""

from __future__ import annotations

from typing import Any, Literal, TypeVar

import msgspec

from deltaworks.serdes.checked import Checked, check_holds, forget_cache, plain_name

T = TypeVar("T")


class Json(Checked[T]):
    """JSON text of one Python type.

    A `Decimal` is read exactly, from numbers and from strings. Equal values give equal bytes: dicts and
    sets are sorted.

    Args:
        type: a `msgspec.Struct`, a dataclass, a TypedDict or a builtin type such as `dict[str, int]`.
        decimals: how a `Decimal` is written; as a string, no reader can round it.

    Raises:
        TypeError: JSON cannot hold the type.

    >>> Json(list[int]).serialize([1, 2])
    b'[1,2]'
    """

    __slots__ = ("decimals",)

    def __init__(self, type: type[T], *, decimals: Literal["string", "number"] = "string") -> None:
        check_holds(type, "JSON")
        self.type = type
        self.decimals = decimals
        self._encode = msgspec.json.Encoder(decimal_format=decimals, order="deterministic").encode
        self._decode = msgspec.json.Decoder(type).decode
        forget_cache(type)

    @property
    def name(self) -> str:
        """Such as `json(Order)`."""
        return f"json({plain_name(self.type)})"

    def schema(self) -> dict[str, Any]:
        """JSON Schema of its values."""
        try:
            return msgspec.json.schema(self.type)
        finally:
            forget_cache(self.type)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Json) and (other.type, other.decimals) == (self.type, self.decimals)

    def __hash__(self) -> int:
        return hash((Json, self.name))

    def __repr__(self) -> str:
        return f"Json({plain_name(self.type)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _json, (self.type, self.decimals)


def _json(type: type[T], decimals: Literal["string", "number"]) -> Json[T]:
    return Json(type, decimals=decimals)
