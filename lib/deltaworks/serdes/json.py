"""JSON through msgspec: Structs, dataclasses, typed dicts and builtin types, checked while they are read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, Literal, TypeVar

import msgspec

from deltaworks.errors import SerializationError
from deltaworks.serdes.base import NULL
from deltaworks.serdes.primitives import unfit

T = TypeVar("T")


class Json(Generic[T]):
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

    __slots__ = ("_decode", "_encode", "decimals", "type")

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
        return f"json({_name(self.type)})"

    def schema(self) -> dict[str, Any]:
        """JSON Schema of its values."""
        try:
            return msgspec.json.schema(self.type)
        finally:
            forget_cache(self.type)

    def serialize(self, value: T | None) -> bytes:
        """The value as compact JSON in UTF-8; fields are not checked again."""
        if value is None:
            return NULL
        try:
            return self._encode(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise unfit(value, self.name, error) from error

    def deserialize(self, data: bytes | None) -> T:
        """The value, checked against the type; an error names the field that does not fit."""
        if data is None:
            return NULL
        try:
            return self._decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise SerializationError(f"{len(data)} bytes are not {self.name}: {error}") from error

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Json) and (other.type, other.decimals) == (self.type, self.decimals)

    def __hash__(self) -> int:
        return hash((Json, self.name))

    def __repr__(self) -> str:
        return f"Json({_name(self.type)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _json, (self.type, self.decimals)


def _json(type: type[T], decimals: Literal["string", "number"]) -> Json[T]:
    return Json(type, decimals=decimals)


def _name(type: Any) -> str:
    return str(getattr(type, "__name__", type)) if not getattr(type, "__args__", None) else str(type)


def check_holds(type: Any, what: str) -> None:
    """Refuses types that msgspec would only refuse at the first record; `what` is to hold them."""
    try:
        parts = list(parts_of(msgspec.inspect.type_info(type), set()))
    except (TypeError, NameError) as error:
        raise TypeError(f"{what} cannot hold {_name(type)}: {error}") from error
    for part in parts:
        if isinstance(part, msgspec.inspect.CustomType):
            raise TypeError(
                f"{what} cannot hold {_name(type)}: there is no way to write {_name(part.cls)}; "
                "use a msgspec.Struct, a dataclass or builtin types"
            )


def forget_cache(type: Any) -> None:
    """Removes the cache that msgspec leaves on classes, because cloudpickle cannot ship it with a class by value."""
    for part in parts_of(msgspec.inspect.type_info(type), set()):
        cls = getattr(part, "cls", None)
        if cls is not None and "__msgspec_cache__" in vars(cls):
            del cls.__msgspec_cache__


def parts_of(info: Any, seen: set[int]) -> Iterator[Any]:
    """A type and all types inside it, each once."""
    if not isinstance(info, msgspec.inspect.Type | msgspec.inspect.Field) or id(info) in seen:
        return
    seen.add(id(info))
    yield info
    for attribute in ("fields", "types", "item_types", "item_type", "key_type", "value_type", "type"):
        inner = getattr(info, attribute, None)
        for part in inner if isinstance(inner, tuple) else (inner,):
            yield from parts_of(part, seen)
