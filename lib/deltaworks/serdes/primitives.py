"""Strings, numbers and bytes, as Kafka's own serializers write them."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import ClassVar

from deltaworks.errors import SerializationError
from deltaworks.serdes.base import NULL


@dataclass(frozen=True)
class String:
    """Text in UTF-8 (`StringSerializer`)."""

    name: ClassVar[str] = "string"
    type: ClassVar[type[str]] = str

    def serialize(self, value: str | None) -> bytes:
        """The text in UTF-8."""
        if value is None:
            return NULL
        try:
            return value.encode()
        except AttributeError as error:
            raise unfit(value, "string") from error
        except UnicodeEncodeError as error:
            raise unfit(value, "string", error) from error

    def deserialize(self, data: bytes | None) -> str:
        """The text; bytes that are not UTF-8 are refused, while Kafka's deserializer replaces them."""
        if data is None:
            return NULL
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise unreadable(data, "string", error) from error


@dataclass(frozen=True)
class Bytes:
    """Bytes as they are (`ByteArraySerializer`)."""

    name: ClassVar[str] = "bytes"
    type: ClassVar[type[bytes]] = bytes

    def serialize(self, value: bytes | None) -> bytes:
        """The same bytes."""
        if value is None:
            return NULL
        if not isinstance(value, bytes):
            raise unfit(value, "bytes")
        return value

    def deserialize(self, data: bytes | None) -> bytes:
        """The same bytes."""
        if data is None:
            return NULL
        return data


@dataclass(frozen=True)
class Integer:
    """A 32-bit integer, big-endian (`IntegerSerializer`)."""

    name: ClassVar[str] = "integer"
    type: ClassVar[type[int]] = int

    def serialize(self, value: int | None) -> bytes:
        """4 bytes."""
        if value is None:
            return NULL
        try:
            return _INT.pack(value)
        except struct.error as error:
            raise unfit(value, "integer", error) from error

    def deserialize(self, data: bytes | None) -> int:
        """The number; anything but 4 bytes is refused."""
        if data is None:
            return NULL
        try:
            return _INT.unpack(data)[0]  # type: ignore[no-any-return]
        except struct.error as error:
            raise unreadable(data, "integer", error) from error


@dataclass(frozen=True)
class Long:
    """A 64-bit integer, big-endian (`LongSerializer`)."""

    name: ClassVar[str] = "long"
    type: ClassVar[type[int]] = int

    def serialize(self, value: int | None) -> bytes:
        """8 bytes."""
        if value is None:
            return NULL
        try:
            return _LONG.pack(value)
        except struct.error as error:
            raise unfit(value, "long", error) from error

    def deserialize(self, data: bytes | None) -> int:
        """The number; anything but 8 bytes is refused."""
        if data is None:
            return NULL
        try:
            return _LONG.unpack(data)[0]  # type: ignore[no-any-return]
        except struct.error as error:
            raise unreadable(data, "long", error) from error


@dataclass(frozen=True)
class Double:
    """A 64-bit float, big-endian (`DoubleSerializer`)."""

    name: ClassVar[str] = "double"
    type: ClassVar[type[float]] = float

    def serialize(self, value: float | None) -> bytes:
        """8 bytes."""
        if value is None:
            return NULL
        try:
            return _DOUBLE.pack(value)
        except struct.error as error:
            raise unfit(value, "double", error) from error

    def deserialize(self, data: bytes | None) -> float:
        """The number; anything but 8 bytes is refused."""
        if data is None:
            return NULL
        try:
            return _DOUBLE.unpack(data)[0]  # type: ignore[no-any-return]
        except struct.error as error:
            raise unreadable(data, "double", error) from error


@dataclass(frozen=True)
class Float:
    """A 32-bit float, big-endian (`FloatSerializer`); a Python float loses digits on the way."""

    name: ClassVar[str] = "float"
    type: ClassVar[type[float]] = float

    def serialize(self, value: float | None) -> bytes:
        """4 bytes."""
        if value is None:
            return NULL
        try:
            return _FLOAT.pack(value)
        except (struct.error, OverflowError) as error:
            raise unfit(value, "float", error) from error

    def deserialize(self, data: bytes | None) -> float:
        """The number; anything but 4 bytes is refused."""
        if data is None:
            return NULL
        try:
            return _FLOAT.unpack(data)[0]  # type: ignore[no-any-return]
        except struct.error as error:
            raise unreadable(data, "float", error) from error


@dataclass(frozen=True)
class Short:
    """A 16-bit integer, big-endian (`ShortSerializer`)."""

    name: ClassVar[str] = "short"
    type: ClassVar[type[int]] = int

    def serialize(self, value: int | None) -> bytes:
        """2 bytes."""
        if value is None:
            return NULL
        try:
            return _SHORT.pack(value)
        except struct.error as error:
            raise unfit(value, "short", error) from error

    def deserialize(self, data: bytes | None) -> int:
        """The number; anything but 2 bytes is refused."""
        if data is None:
            return NULL
        try:
            return _SHORT.unpack(data)[0]  # type: ignore[no-any-return]
        except struct.error as error:
            raise unreadable(data, "short", error) from error


@dataclass(frozen=True)
class Boolean:
    """True or false in one byte (`BooleanSerializer`)."""

    name: ClassVar[str] = "boolean"
    type: ClassVar[type[bool]] = bool

    def serialize(self, value: bool | None) -> bytes:
        """`01` or `00`."""
        if value is None:
            return NULL
        if not isinstance(value, bool):
            raise unfit(value, "boolean")
        return b"\1" if value else b"\0"

    def deserialize(self, data: bytes | None) -> bool:
        """The boolean; anything but `01` and `00` is refused."""
        if data is None:
            return NULL
        if data not in (b"\0", b"\1"):
            raise unreadable(data, "boolean")
        return data == b"\1"


@dataclass(frozen=True)
class Void:
    """Nothing but null (`VoidSerializer`): for keys or values that are never set."""

    name: ClassVar[str] = "void"
    type: ClassVar[type[None]] = type(None)

    def serialize(self, value: None) -> bytes:
        """Refuses every value but None."""
        if value is None:
            return NULL
        raise unfit(value, "void")

    def deserialize(self, data: bytes | None) -> None:
        """Refuses, likewise."""
        if data is None:
            return
        raise unreadable(data, "void")


_SHORT = struct.Struct(">h")
_FLOAT = struct.Struct(">f")
_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_DOUBLE = struct.Struct(">d")


def unreadable(data: bytes, expected: str, reason: object = None) -> SerializationError:
    """The error for bytes that are not what `expected` names; shows their number, never their content."""
    return SerializationError(f"{len(data)} bytes are not a {expected}" + (f": {reason}" if reason else ""))


def unfit(value: object, expected: str, reason: object = None) -> SerializationError:
    """The error for a value that cannot be written as `expected`."""
    return SerializationError(
        f"a value of type {type(value).__name__} cannot be written as {expected}" + (f": {reason}" if reason else "")
    )


__all__ = [
    "Boolean",
    "Bytes",
    "Double",
    "Float",
    "Integer",
    "Long",
    "Short",
    "String",
    "Void",
    "unfit",
    "unreadable",
]
