"""Values of two streams that wait in one store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from deltaworks.serdes.base import Serde


@dataclass(frozen=True)
class LeftOrRight:
    """A value of the left or of the right side of a join: a pair `(is left, value)`.

    Source: `LeftOrRightValueSerde`.
    """

    left: Serde[Any]
    right: Serde[Any]

    @property
    def name(self) -> str:
        """Such as `left(string) or right(json(Order))`."""
        return f"left({self.left.name}) or right({self.right.name})"

    @property
    def type(self) -> Any:
        """A pair; the type of its value is that of its side."""
        return tuple

    def serialize(self, value: tuple[bool, Any]) -> bytes:
        is_left, inner = value
        return b"\1" + self.left.serialize(inner) if is_left else b"\0" + self.right.serialize(inner)

    def deserialize(self, data: bytes) -> tuple[bool, Any]:
        is_left = data[:1] == b"\1"
        return is_left, (self.left if is_left else self.right).deserialize(data[1:])
