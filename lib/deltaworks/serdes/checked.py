"""Values that msgspec writes, and checks against their type while it reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import msgspec

from deltaworks.errors import SerializationError
from deltaworks.serdes.base import NULL
from deltaworks.serdes.primitives import unfit

T = TypeVar("T")


class Checked(Generic[T]):
    """A format of msgspec for one Python type."""

    __slots__ = ("_decode", "_encode", "type")

    type: Any
    _encode: Callable[[Any], bytes]
    _decode: Callable[[bytes], Any]

    @property
    def name(self) -> str:
        """The format and the type."""
        raise NotImplementedError

    def serialize(self, value: T | None) -> bytes:
        """The bytes of a value; fields are not checked again."""
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
            value: T = self._decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise SerializationError(f"{len(data)} bytes are not {self.name}: {error}") from error
        return value


def plain_name(type: Any) -> str:
    """The name of a type in those of serdes, which fingerprints of checkpoints hold."""
    return str(getattr(type, "__name__", type)) if not getattr(type, "__args__", None) else str(type)


def check_holds(type: Any, what: str) -> None:
    """Refuses types that msgspec would only refuse at the first record; `what` is to hold them."""
    try:
        parts = list(parts_of(msgspec.inspect.type_info(type), set()))
    except (TypeError, NameError) as error:
        raise TypeError(f"{what} cannot hold {plain_name(type)}: {error}") from error
    for part in parts:
        if isinstance(part, msgspec.inspect.CustomType):
            raise TypeError(
                f"{what} cannot hold {plain_name(type)}: there is no way to write {plain_name(part.cls)}; "
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
