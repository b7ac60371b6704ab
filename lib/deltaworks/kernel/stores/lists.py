"""Several values under one key, as bytes: each with its length before it."""

from __future__ import annotations

from collections.abc import Iterable

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
