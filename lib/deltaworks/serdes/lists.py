"""Lists in the format of Kafka's own `ListSerializer`; `Json(list[...])` is the readable alternative."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from deltaworks.serdes.base import NULL, Serde
from deltaworks.serdes.primitives import Double, Float, Integer, Long, Short, unfit, unreadable
from deltaworks.serdes.scalars import Timestamp, Uuid

T = TypeVar("T")

_INT = struct.Struct(">i")
_FIXED, _VARIABLE = 0, 1
_NULL = -1


@dataclass(frozen=True)
class ListOf(Generic[T]):
    """A list of values of one serde (`ListSerializer`); entries may be None.

    Entries of fixed size (short, integer, float, long, double, UUID) are packed, with the positions of nulls in front;
    all others have their length before them.

    >>> from deltaworks import Long
    >>> ListOf(Long()).deserialize(ListOf(Long()).serialize([7, None]))
    [7, None]
    """

    inner: Serde[T]

    @property
    def name(self) -> str:
        """Such as `list(long)`."""
        return f"list({self.inner.name})"

    @property
    def type(self) -> Any:
        """`list[T]`."""
        return list[self.inner.type]  # type: ignore[name-defined]

    def serialize(self, value: list[T | None] | None) -> bytes:
        """The strategy in one byte, the nulls if they are listed, the number of entries, the entries."""
        if value is None:
            return NULL
        if not isinstance(value, list | tuple):
            raise unfit(value, self.name)
        count = _INT.pack(len(value))
        if _size(self.inner) is None:
            entries = [_NULL_ENTRY if each is None else _with_length(self.inner.serialize(each)) for each in value]
            return b"".join([bytes([_VARIABLE]), count, *entries])
        nulls = [position for position, each in enumerate(value) if each is None]
        return b"".join(
            [
                bytes([_FIXED]),
                *map(_INT.pack, [len(nulls), *nulls]),
                count,
                *(self.inner.serialize(each) for each in value if each is not None),
            ]
        )

    def deserialize(self, data: bytes | None) -> list[T | None]:
        """The entries; bytes that end too early or continue after them are refused."""
        if data is None:
            return NULL
        reader = _Reader(data, self.name)
        strategy, size = reader.take(1)[0], _size(self.inner)
        if strategy not in (_FIXED, _VARIABLE) or (size is None and strategy == _FIXED):
            raise unreadable(data, self.name, f"there is no strategy {strategy} for these entries")
        nulls = {reader.number() for _ in range(reader.number())} if strategy == _FIXED else set()
        values: list[T | None] = []
        for position in range(reader.number()):
            if strategy == _VARIABLE:
                length = reader.number()
                values.append(None if length == _NULL else self.inner.deserialize(reader.take(length)))
            else:
                values.append(None if position in nulls else self.inner.deserialize(reader.take(size or 0)))
        reader.end()
        return values


class _Reader:
    """Reads bytes from left to right."""

    def __init__(self, data: bytes, name: str) -> None:
        self._data = data
        self._name = name
        self._at = 0

    def take(self, count: int) -> bytes:
        end = self._at + count
        if count < 0 or end > len(self._data):
            raise unreadable(self._data, self._name, "they end too early")
        part, self._at = self._data[self._at : end], end
        return part

    def number(self) -> int:
        return int(_INT.unpack(self.take(_INT.size))[0])

    def end(self) -> None:
        if self._at != len(self._data):
            raise unreadable(self._data, self._name, "they go on after the last entry")


def _size(inner: Serde[Any]) -> int | None:
    """The size of an entry in bytes, if all entries have the same size."""
    match inner:
        case Short():
            return 2
        case Integer() | Float():
            return 4
        case Long() | Double() | Timestamp():
            return 8
        case Uuid():
            return 36
        case _:
            return None


def _with_length(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data


_NULL_ENTRY = _INT.pack(_NULL)
