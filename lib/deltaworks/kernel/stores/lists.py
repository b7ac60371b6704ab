"""Several values under one key, as bytes, each after its length."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from deltaworks.serdes.base import Serde

_LENGTH_BYTES = 4


def pack(values: Iterable[bytes]) -> bytes:
    """The bytes of values, in their order."""
    return b"".join(map(pack_one, values))


def pack_one(value: bytes) -> bytes:
    """A list of one value."""
    return len(value).to_bytes(_LENGTH_BYTES, "big") + value


def unpack(data: bytes) -> list[bytes]:
    """The values that `pack` got."""
    values: list[bytes] = []
    at = 0
    while at < len(data):
        start = at + _LENGTH_BYTES
        at = start + int.from_bytes(data[at:start], "big")
        values.append(data[start:at])
    return values


@dataclass(frozen=True)
class Several:
    """All values of one key and window, in the order in which they were put, for a window store that retains
    duplicates."""

    inner: Serde[Any]

    @property
    def name(self) -> str:
        return f"several({self.inner.name})"

    @property
    def type(self) -> Any:
        return tuple[self.inner.type, ...]  # type: ignore[name-defined]

    def serialize(self, value: tuple[Any, ...]) -> bytes:
        return pack(map(self.inner.serialize, value))

    def deserialize(self, data: bytes) -> tuple[Any, ...]:
        return tuple(map(self.inner.deserialize, unpack(data)))
