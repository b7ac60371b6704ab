"""Strings, numbers and bytes, as Kafka's own serializers write them."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import ClassVar

from deltaworks.errors import SerializationError


@dataclass(frozen=True)
class String:
    """Text in UTF-8 (`StringSerializer`)."""

    name: ClassVar[str] = "string"
    type: ClassVar[type[str]] = str

    def serialize(self, value: str) -> bytes:
        """The text in UTF-8."""
        try:
            return value.encode()
        except AttributeError as error:
            raise unfit(value, "string") from error
        except UnicodeEncodeError as error:
            raise unfit(value, "string", error) from error

    def deserialize(self, data: bytes) -> str:
        """The text; bytes that are not UTF-8 are refused, while Kafka's deserializer replaces them."""
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise unreadable(data, "string", error) from error


@dataclass(frozen=True)
class Bytes:
    """Bytes as they are (`ByteArraySerializer`)."""

    name: ClassVar[str] = "bytes"
    type: ClassVar[type[bytes]] = bytes

    def serialize(self, value: bytes) -> bytes:
        """The same bytes."""
        if not isinstance(value, bytes):
            raise unfit(value, "bytes")
        return value

    def deserialize(self, data: bytes) -> bytes:
        """The same bytes."""
        return data


@dataclass(frozen=True)
class Integer:
    """A 32-bit integer, big-endian (`IntegerSerializer`)."""

    name: ClassVar[str] = "integer"
    type: ClassVar[type[int]] = int

    def serialize(self, value: int) -> bytes:
        """4 bytes."""
        try:
            return _INT.pack(value)
        except struct.error as error:
            raise unfit(value, "integer", error) from error

    def deserialize(self, data: bytes) -> int:
        """The number; anything but 4 bytes is refused."""
        try:
            return _INT.unpack(data)[0]  # type: ignore[no-any-return]
        except struct.error as error:
            raise unreadable(data, "integer", error) from error


@dataclass(frozen=True)
class Long:
    """A 64-bit integer, big-endian (`LongSerializer`)."""

    name: ClassVar[str] = "long"
    type: ClassVar[type[int]] = int

    def serialize(self, value: int) -> bytes:
        """8 bytes."""
        try:
            return _LONG.pack(value)
        except struct.error as error:
            raise unfit(value, "long", error) from error

    def deserialize(self, data: bytes) -> int:
        """The number; anything but 8 bytes is refused."""
        try:
            return _LONG.unpack(data)[0]  # type: ignore[no-any-return]
        except struct.error as error:
            raise unreadable(data, "long", error) from error


@dataclass(frozen=True)
class Double:
    """A 64-bit float, big-endian (`DoubleSerializer`)."""

    name: ClassVar[str] = "double"
    type: ClassVar[type[float]] = float

    def serialize(self, value: float) -> bytes:
        """8 bytes."""
        try:
            return _DOUBLE.pack(value)
        except struct.error as error:
            raise unfit(value, "double", error) from error

    def deserialize(self, data: bytes) -> float:
        """The number; anything but 8 bytes is refused."""
        try:
            return _DOUBLE.unpack(data)[0]  # type: ignore[no-any-return]
        except struct.error as error:
            raise unreadable(data, "double", error) from error


@dataclass(frozen=True)
class Float:
    """A 32-bit float, big-endian (`FloatSerializer`); a Python float loses digits on the way."""

    name: ClassVar[str] = "float"
    type: ClassVar[type[float]] = float

    def serialize(self, value: float) -> bytes:
        """4 bytes."""
        try:
            return _FLOAT.pack(value)
        except (struct.error, OverflowError) as error:
            raise unfit(value, "float", error) from error

    def deserialize(self, data: bytes) -> float:
        """The number; anything but 4 bytes is refused."""
        try:
            return _FLOAT.unpack(data)[0]  # type: ignore[no-any-return]
        except struct.error as error:
            raise unreadable(data, "float", error) from error


@dataclass(frozen=True)
class Short:
    """A 16-bit integer, big-endian (`ShortSerializer`)."""

    name: ClassVar[str] = "short"
    type: ClassVar[type[int]] = int

    def serialize(self, value: int) -> bytes:
        """2 bytes."""
        try:
            return _SHORT.pack(value)
        except struct.error as error:
            raise unfit(value, "short", error) from error

    def deserialize(self, data: bytes) -> int:
        """The number; anything but 2 bytes is refused."""
        try:
            return _SHORT.unpack(data)[0]  # type: ignore[no-any-return]
        except struct.error as error:
            raise unreadable(data, "short", error) from error


@dataclass(frozen=True)
class Boolean:
    """True or false in one byte (`BooleanSerializer`)."""

    name: ClassVar[str] = "boolean"
    type: ClassVar[type[bool]] = bool

    def serialize(self, value: bool) -> bytes:
        """`01` or `00`."""
        if not isinstance(value, bool):
            raise unfit(value, "boolean")
        return b"\1" if value else b"\0"

    def deserialize(self, data: bytes) -> bool:
        """The boolean; anything but `01` and `00` is refused."""
        if data not in (b"\0", b"\1"):
            raise unreadable(data, "boolean")
        return data == b"\1"


@dataclass(frozen=True)
class Void:
    """Nothing but null (`VoidSerializer`): for keys or values that are never set."""

    name: ClassVar[str] = "void"
    type: ClassVar[type[None]] = type(None)

    def serialize(self, value: None) -> bytes:
        """Refuses every value, because only null is allowed."""
        raise unfit(value, "void")

    def deserialize(self, data: bytes) -> None:
        """Refuses, likewise."""
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
