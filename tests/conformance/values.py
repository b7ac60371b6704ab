"""Values of the cases (SPEC section 2): their text, their order, and a serde that keeps their types."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import msgspec

from deltaworks import SerializationError, Windowed

UNLIMITED_END_MS = 2**63 - 1
_TYPED = b"\0typed\0"


def text(value: Any) -> str:
    """`text(x)` of the SPEC."""
    match value:
        case None:
            return "null"
        case str():
            return value
        case bool() | dict() | list():
            return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        case Windowed():
            return f"{text(value.key)}@{value.start_ms}/{value.end_ms}"
        case _:
            return repr(value)


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
        return {"key": key_or_value.key, "start": key_or_value.start_ms, "end": key_or_value.end_ms}
    return key_or_value


@dataclass(frozen=True)
class Typed:
    """What a topology writes: any value or key, with its type. Text without the mark is what a test wrote.

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
        plain = {"__windowed": [value.key, value.start_ms, value.end_ms]} if isinstance(value, Windowed) else value
        return _TYPED + msgspec.msgpack.encode(plain)

    def deserialize(self, data: bytes) -> Any:
        if data.startswith(_TYPED):
            value = msgspec.msgpack.decode(data[len(_TYPED) :])
            if isinstance(value, dict) and "__windowed" in value:
                return Windowed(*value["__windowed"])
            return value
        return parse(data.decode(), self.value_type)


def parse(raw: str, value_type: str) -> Any:
    """Text as a value of a source's type."""
    try:
        match value_type:
            case "string":
                return raw
            case "long":
                number = int(raw)
                if raw != raw.strip() or "_" in raw or not -(2**63) <= number < 2**63:
                    raise ValueError(raw)
                return number
            case "double":
                return float(raw)
            case "json":
                return json.loads(raw)
            case _:
                raise AssertionError(value_type)
    except ValueError as error:
        raise SerializationError(f"not a {value_type}: {raw}") from error


def unparsed(value: Any, value_type: str) -> bytes:
    """The bytes that stand for a value in an input topic."""
    if value_type == "json":
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    return text(float(value) if value_type == "double" else value).encode()
