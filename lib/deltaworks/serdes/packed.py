"""How values of a registered format are kept in stores: as what they are in Python, in MessagePack."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from deltaworks.serdes.base import Serde
from deltaworks.serdes.checked import Checked, check_holds, forget_cache, parts_of
from deltaworks.serdes.schemas import changed
from deltaworks.serdes.type_names import type_name

T = TypeVar("T")


class Packed(Checked[T]):
    """MessagePack of one Python type, with the names of its fields: what a store holds instead of Avro or Protobuf.

    Bytes of Avro cannot be read without the schema that wrote them, and a store must not depend on a registry. These
    bytes can: the type may change as it may with `Json`, and reading them is several times as fast. Unlike JSON, they
    hold every float and bytes as they are. Equal values give equal bytes.

    Args:
        type: of the values.

    Raises:
        TypeError: MessagePack cannot hold the type.
    """

    __slots__ = ()

    def __init__(self, type: type[T]) -> None:
        check_holds(type, "a store")
        _check_keys(type)
        self.type = type
        self._encode = msgspec.msgpack.Encoder(order="deterministic").encode
        self._decode = msgspec.msgpack.Decoder(type).decode
        forget_cache(type)

    @property
    def name(self) -> str:
        """Such as `packed(Order)`."""
        return f"packed({type_name(self.type)})"

    @property
    def meaning(self) -> dict[str, Any]:
        """What its bytes mean, for `serdes.schema`."""
        try:
            return {"format": "packed", "schema": msgspec.json.schema(self.type)}
        finally:
            forget_cache(self.type)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Packed) and other.type == self.type

    def __hash__(self) -> int:
        return hash((Packed, self.name))

    def __repr__(self) -> str:
        return f"Packed({type_name(self.type)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Packed, (self.type,)


def _check_keys(type: Any) -> None:
    for part in parts_of(msgspec.inspect.type_info(type), set()):
        if isinstance(part, msgspec.inspect.DictType) and not isinstance(part.key_type, msgspec.inspect.StrType):
            raise TypeError(
                f"a store cannot hold {type_name(type)}: equal values would have different bytes, because the keys of a"
                " dict in it are no texts; give them the type str"
            )


def stored(serde: Serde[T]) -> Serde[T]:
    """The serde with which a store keeps the values of a topic's serde; the same one unless it needs a registry.

    >>> from deltaworks import Avro, Long
    >>> stored(Avro(list[int], registry=True)), stored(Long())
    (Packed(list[int]), Long())
    """
    return changed(serde, lambda each: each.stored() if hasattr(each, "stored") else each)
