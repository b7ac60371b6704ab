"""Conversions between what codecs read and write and the values of Python types. They raise, and round nothing."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from deltaworks.serdes.scalars import ConnectDecimal

Convert = Callable[[Any], Any]


def checked(kind: type) -> Convert:
    def check(value: Any) -> Any:
        if value.__class__ is not kind and not isinstance(value, kind):
            raise TypeError(f"{kind.__name__} is expected, and this is {type(value).__name__}")
        return value

    return check


def integer(bits: int) -> Convert:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1

    def check(value: Any) -> Any:
        if value.__class__ is not int and (not isinstance(value, int) or isinstance(value, bool)):
            raise TypeError(f"int is expected, and this is {type(value).__name__}")
        if not low <= value <= high:
            raise ValueError(f"a number takes more than {bits} bits")
        return value

    return check


def float_64(value: Any) -> Any:
    if value.__class__ is not float:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise TypeError(f"float is expected, and this is {type(value).__name__}")
        if float(value) != value and value == value:
            raise ValueError("a number would be rounded to a float")
        return float(value)
    return value


_FLOAT = struct.Struct("<f")


def float_32(value: Any) -> Any:
    value = float_64(value)
    if math.isfinite(value):
        try:
            _FLOAT.pack(value)
        except OverflowError:
            raise ValueError("a number is too large for 32 bits") from None
    return value


def day(value: Any) -> Any:
    if isinstance(value, datetime) or not isinstance(value, date):
        raise TypeError(f"date is expected, and this is {type(value).__name__}")
    return value


def time_of_day(step: int) -> Convert:
    def check(value: Any) -> Any:
        if not isinstance(value, time):
            raise TypeError(f"time is expected, and this is {type(value).__name__}")
        if value.tzinfo is not None:
            raise ValueError("a time of day has a time zone")
        if value.microsecond % step:
            raise ValueError("a time has microseconds, and the schema milliseconds")
        return value

    return check


def instant(step: int, *, zoned: bool) -> Convert:
    def check(value: Any) -> Any:
        if not isinstance(value, datetime):
            raise TypeError(f"datetime is expected, and this is {type(value).__name__}")
        if (value.tzinfo is not None) is not zoned:
            raise ValueError("a datetime has no time zone" if zoned else "a datetime has a time zone")
        if value.microsecond % step:
            raise ValueError("a datetime has microseconds, and the schema milliseconds")
        return value

    return check


def text_of_uuid(value: Any) -> str:
    if not isinstance(value, UUID):
        raise TypeError(f"UUID is expected, and this is {type(value).__name__}")
    return str(value)


def uuid_of_bytes(data: bytes) -> UUID:
    return UUID(bytes=data)


def bytes_of_uuid(value: Any) -> bytes:
    if not isinstance(value, UUID):
        raise TypeError(f"UUID is expected, and this is {type(value).__name__}")
    return value.bytes


def decimals(precision: int, scale: int, size: int | None) -> tuple[Convert, Convert]:
    """The unscaled integer, big-endian, as Kafka Connect has it.

    Args:
        precision: all digits.
        scale: digits after the point.
        size: number of bytes; None: as few as possible.
    """
    serde, limit = ConnectDecimal(scale), Decimal(1).scaleb(precision - scale)

    def read(data: bytes) -> Decimal:
        found = serde.deserialize(data)
        if not -limit < found < limit:
            raise ValueError(f"a decimal has more than {precision} digits")
        return found

    def write(value: Decimal) -> bytes:
        data = serde.serialize(value)
        if not -limit < value < limit:
            raise ValueError(f"a decimal has more than {precision} digits")
        if size is None:
            return data
        if len(data) > size:
            raise ValueError(f"a decimal takes more than {size} bytes")
        return (b"\xff" if data[0] & 0x80 else b"\0") * (size - len(data)) + data

    return read, write


def known(table: Mapping[Any, Any]) -> Convert:
    def find(value: Any) -> Any:
        if (found := table.get(value)) is None:
            raise ValueError(f"a value is none of {', '.join(map(repr, table))}")
        return found

    return find


def unless_none(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def unwrapped(read: Convert | None) -> Convert:
    """fastavro says the name of a record in a union, if it says any."""

    def unwrap(value: Any) -> Any:
        if value.__class__ is tuple:
            value = value[1]
        return value if read is None else read(value)

    return unwrap


def unnamed(value: Any) -> Any:
    raise ValueError("a record is written without a union, and read as one of several")


def read_branch(by_class: Mapping[type, Convert | None], by_name: Mapping[str, Convert | None]) -> Convert:
    def read(value: Any) -> Any:
        if value.__class__ is tuple:
            convert, value = by_name[value[0]], value[1]
        else:
            convert = by_class[value.__class__]
        return value if convert is None else convert(value)

    return read


def write_branch(branches: list[tuple[type, str, Convert | None]]) -> Convert:
    exact = {kind: (name, convert) for kind, name, convert in branches}

    def write(value: Any) -> Any:
        found = exact.get(value.__class__)
        if found is None:
            found = next((rest for kind, rest in exact.items() if isinstance(value, kind)), None)
        if found is None:
            raise TypeError(f"{type(value).__name__} is none of {', '.join(kind.__name__ for kind in exact)}")
        name, convert = found
        return None if value is None else (name, value if convert is None else convert(value))

    return write


def reason_of(error: Exception) -> str:
    return f"{error} is not in the schema" if isinstance(error, KeyError) else str(error)


def read_many(kind: type, convert: Convert | None) -> Convert | None:
    if convert is None:
        return None if kind is list else kind
    return lambda items: kind(map(convert, items))


def write_many(kind: type, convert: Convert | None) -> Convert | None:
    if issubclass(kind, set | frozenset):
        # Equal values have equal bytes.
        return lambda items: sorted(items if convert is None else map(convert, items))
    if convert is None:
        return None if kind is list else list
    return lambda items: list(map(convert, items))


def read_map(convert: Convert | None) -> Convert | None:
    return None if convert is None else lambda entries: {name: convert(value) for name, value in entries.items()}


def write_map(convert: Convert | None) -> Convert:
    """Sorted: equal values have equal bytes."""
    if convert is None:
        return lambda entries: dict(sorted(entries.items()))
    return lambda entries: {name: convert(value) for name, value in sorted(entries.items())}
