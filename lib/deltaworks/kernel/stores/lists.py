"""Several values under one key, as bytes: each with its length before it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from deltaworks.serdes.base import Serde

_LENGTH_BYTES = 4


def pack(values: Iterable[bytes]) -> bytes:
    """Values in their order."""
    return b"".join(map(pack_one, values))


def pack_one(value: bytes) -> bytes:
    """A list of one value."""
    return len(value).to_bytes(_LENGTH_BYTES, "big") + value


def unpack(data: bytes) -> list[bytes]:
    """What `pack` was given."""
    values: list[bytes] = []
    at = 0
    while at < len(data):
        start = at + _LENGTH_BYTES
        at = start + int.from_bytes(data[at:start], "big")
        values.append(data[start:at])
    return values


@dataclass(frozen=True)
class Several:
    """All values of one key and window, in the order in which they were put: what a window store that retains
    duplicates keeps."""

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
