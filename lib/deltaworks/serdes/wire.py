"""The bytes in front of a record that names its schema, as Confluent's serializers write them.

| format | bytes |
|---|---|
| Avro, JSON Schema | 0, the id in 4 bytes, the record |
| Protobuf | 0, the id in 4 bytes, the path of the message in its file as varints in zigzag, the record |
"""

from __future__ import annotations

from collections.abc import Sequence

HEADER_BYTES = 5
_MAGIC = 0


def header(number: int) -> bytes:
    """The bytes for a schema's id.

    >>> header(1).hex()
    '0000000001'
    """
    return bytes((_MAGIC,)) + number.to_bytes(HEADER_BYTES - 1, "big")


def schema_id(data: bytes) -> int | None:
    """The id that a record names; None: it does not begin as such a record does.

    >>> schema_id(bytes.fromhex("00000000010e")), schema_id(b"{}")
    (1, None)
    """
    if len(data) < HEADER_BYTES or data[0] != _MAGIC:
        return None
    return int.from_bytes(data[1:HEADER_BYTES], "big")


def indexes(path: Sequence[int]) -> bytes:
    """Where a message is in its file: the first one, `[0]`, is a single zero.

    >>> indexes([0]).hex(), indexes([1, 0]).hex()
    ('00', '040200')
    """
    return b"\0" if list(path) == [0] else b"".join(map(_varint, (len(path), *path)))


def read_indexes(data: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """The path of a message that begins at `at`, and where it ends.

    Raises:
        ValueError: the bytes end too early, or no path begins like this.
    """
    count, at = _read_varint(data, at)
    if count == 0:
        return (0,), at
    if not 0 < count <= len(data):
        raise ValueError(f"a message has no path of {count} steps")
    path = []
    for _ in range(count):
        step, at = _read_varint(data, at)
        path.append(step)
    return tuple(path), at


def _varint(number: int) -> bytes:
    rest, found = number << 1, bytearray()
    while rest >= 0x80:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*found, rest])


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    found, shift = 0, 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("the path of the message ends too early")
        found |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return (found >> 1) ^ -(found & 1), at
