"""Values of the cases (SPEC section 2): their text, their order, and a serde that keeps their types."""

from __future__ import annotations

import json
import math
import re
import struct
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

import msgspec

from deltaworks import SerializationError, Windowed

UNLIMITED_END_MS = 2**63 - 1
_TYPED = b"\0typed\0"
_WINDOWED = b"\0windowed"
_TIMES = struct.Struct(">qq")
_LEAST, _MOST = -(2**63), 2**63 - 1
_LONG = re.compile(r"[+-]?[0-9]+")
_DOUBLE = re.compile(r"[+-]?(NaN|Infinity|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?)")


def text(value: Any) -> str:
    """`text(x)` of the SPEC."""
    match value:
        case None:
            return "null"
        case str():
            return value
        case bool() | dict() | list():
            return _json_text(value)
        case Windowed():
            return f"{text(value.key)}@{value.start_ms}/{value.end_ms}"
        case float():
            return _double_text(value)
        case _:
            return str(value)


def _json_text(value: Any) -> str:
    match value:
        case dict():
            fields = (f"{json.dumps(name, ensure_ascii=False)}:{_json_text(value[name])}" for name in sorted(value))
            return "{" + ",".join(fields) + "}"
        case list():
            return "[" + ",".join(map(_json_text, value)) + "]"
        case float():
            return _double_text(value)
        case _:
            return json.dumps(value, ensure_ascii=False)


def _double_text(value: float) -> str:
    """As `Double.toString`: with an exponent below a thousandth and from ten million on."""
    if value == 0 or not math.isfinite(value) or 1e-3 <= abs(value) < 1e7:
        return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(repr(value), repr(value))
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    rest = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{rest}E{len(digits) - 1 + int(exponent)}"


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def greater(left: Any, right: Any) -> bool:
    """Numeric if both are numbers, otherwise by text."""
    if is_number(left) and is_number(right):
        return bool(left > right)
    return text(left) > text(right)


def shown(key_or_value: Any) -> Any:
    """As a case shows it."""
    if isinstance(key_or_value, Windowed):
        return {"key": shown(key_or_value.key), "start": key_or_value.start_ms, "end": key_or_value.end_ms}
    return key_or_value


@dataclass(frozen=True)
class Typed:
    """What a topology writes: any value, with its type. Text without the mark is what a test wrote.

    `value_type` says how to read that text. `kept` is the type it claims to be of: `object` makes stores keep bytes,
    `str` makes them keep the values themselves.
    """

    value_type: str = "string"
    kept: type = object

    @property
    def name(self) -> str:
        return f"typed({self.value_type})"

    @property
    def type(self) -> Any:
        return self.kept

    def serialize(self, value: Any) -> bytes:
        return _TYPED + msgspec.msgpack.encode(value)

    def deserialize(self, data: bytes) -> Any:
        if data.startswith(_TYPED):
            return msgspec.msgpack.decode(data[len(_TYPED) :])
        return parse(data.decode(), self.value_type)


@dataclass(frozen=True)
class Keys:
    """Keys: text as it is, so that its bytes have the order that Kafka's have; a window's times behind its key."""

    name: ClassVar[str] = "keys"
    type: ClassVar[type] = str

    def serialize(self, value: Any) -> bytes:
        if isinstance(value, Windowed):
            return self.serialize(value.key) + _TIMES.pack(value.start_ms, value.end_ms) + _WINDOWED
        return str(value).encode()

    def deserialize(self, data: bytes) -> Any:
        if not data.endswith(_WINDOWED):
            return data.decode()
        times = len(data) - len(_WINDOWED) - _TIMES.size
        return Windowed(self.deserialize(data[:times]), *_TIMES.unpack_from(data, times))


def parse(raw: str, value_type: str) -> Any:
    """Text as a value of a source's type, as strict as Java."""
    try:
        match value_type:
            case "string":
                return raw
            case "long":
                if not _LONG.fullmatch(raw) or not _LEAST <= int(raw) <= _MOST:
                    raise ValueError(raw)
                return int(raw)
            case "double":
                if not _DOUBLE.fullmatch(raw.strip()):
                    raise ValueError(raw)
                return float(raw.strip().rstrip("dDfF"))
            case "json":
                return json.loads(raw, parse_constant=_no_constant)
            case _:
                raise AssertionError(value_type)
    except ValueError as error:
        raise SerializationError(f"not a {value_type}: {raw}") from error


def long_text(raw: str) -> int:
    """`to_long` of text."""
    number: int = parse(raw, "long")
    return number


def wrapped(number: Any) -> Any:
    """A long after arithmetic: 64 bits, as in Java."""
    if isinstance(number, int) and not _LEAST <= number <= _MOST:
        return (number - _LEAST) % 2**64 + _LEAST
    return number


def equal(left: Any, right: Any) -> bool:
    """Two numbers by their number, anything else by type and content."""
    if is_number(left) and is_number(right):
        return bool(left == right)
    return type(left) is type(right) and json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def unparsed(value: Any, value_type: str) -> bytes:
    """The bytes that stand for a value in an input topic."""
    if value_type == "json":
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    return text(float(value) if value_type == "double" else value).encode()
