"""Messages that everybody knows, and the Python types that they are: times, dates, decimals, documents."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from deltaworks.serdes.conversions import Convert, day
from deltaworks.serdes.scalars import ConnectDecimal, DecimalText
from deltaworks.serdes.shapes import Basic, Number

_EPOCH = datetime.fromtimestamp(0, UTC)
_MICROSECOND = timedelta(microseconds=1)
_NANOS = 1000
"""In a microsecond, the smallest step that Python has."""


def _made(descriptor: Any) -> Any:
    from google.protobuf.message_factory import GetMessageClass

    return GetMessageClass(descriptor)


def _micros(nanos: int, what: str) -> int:
    micros, rest = divmod(nanos, _NANOS)
    if rest:
        raise ValueError(f"a {what} has nanoseconds")
    return micros


def _read_instant(message: Any) -> datetime:
    return _EPOCH + timedelta(seconds=message.seconds, microseconds=_micros(message.nanos, "timestamp"))


def _write_instant(descriptor: Any) -> Convert:
    made = _made(descriptor)

    def write(value: Any) -> Any:
        if not isinstance(value, datetime):
            raise TypeError(f"datetime is expected, and this is {type(value).__name__}")
        if value.tzinfo is None:
            raise ValueError("a datetime has no time zone")
        seconds, micros = divmod((value - _EPOCH) // _MICROSECOND, 1_000_000)
        return made(seconds=seconds, nanos=micros * _NANOS)

    return write


def _read_duration(message: Any) -> timedelta:
    sign = -1 if message.nanos < 0 else 1
    return timedelta(seconds=message.seconds, microseconds=sign * _micros(abs(message.nanos), "duration"))


def _write_duration(descriptor: Any) -> Convert:
    made = _made(descriptor)

    def write(value: Any) -> Any:
        if not isinstance(value, timedelta):
            raise TypeError(f"timedelta is expected, and this is {type(value).__name__}")
        micros = value // _MICROSECOND
        sign = -1 if micros < 0 else 1
        seconds, rest = divmod(abs(micros), 1_000_000)
        return made(seconds=sign * seconds, nanos=sign * rest * _NANOS)

    return write


def _read_date(message: Any) -> date:
    return date(message.year, message.month, message.day)


def _write_date(descriptor: Any) -> Convert:
    made = _made(descriptor)

    def write(value: Any) -> Any:
        value = day(value)
        return made(year=value.year, month=value.month, day=value.day)

    return write


def _read_time(message: Any) -> time:
    return time(message.hours, message.minutes, message.seconds, _micros(message.nanos, "time of day"))


def _write_time(descriptor: Any) -> Convert:
    made = _made(descriptor)

    def write(value: Any) -> Any:
        if not isinstance(value, time) or value.tzinfo is not None:
            raise TypeError("a time without a time zone is expected")
        return made(hours=value.hour, minutes=value.minute, seconds=value.second, nanos=value.microsecond * _NANOS)

    return write


def _read_decimal_text(message: Any) -> Decimal:
    return DecimalText().deserialize(message.value.encode())


def _write_decimal_text(descriptor: Any) -> Convert:
    made = _made(descriptor)
    return lambda value: made(value=DecimalText().serialize(value).decode())


def _read_decimal(message: Any) -> Decimal:
    return ConnectDecimal(message.scale).deserialize(message.value)


def _write_decimal(descriptor: Any) -> Convert:
    made = _made(descriptor)

    def write(value: Any) -> Any:
        if not isinstance(value, Decimal) or not value.is_finite():
            raise TypeError("a finite Decimal is expected")
        scale = max(0, -int(value.as_tuple().exponent))
        digits = max(1, len(str(abs(int(value.scaleb(scale))))))
        return made(value=ConnectDecimal(scale).serialize(value), precision=digits, scale=scale)

    return write


def _read_document(message: Any) -> Any:
    from google.protobuf.json_format import MessageToDict

    return MessageToDict(message)


def _write_document(descriptor: Any) -> Convert:
    made = _made(descriptor)

    def write(value: Any) -> Any:
        from google.protobuf.json_format import ParseDict

        return ParseDict(value, made())

    return write


KNOWN: dict[tuple[str, Any], tuple[Convert, Callable[[Any], Convert]]] = {
    ("google.protobuf.Timestamp", Basic.INSTANT): (_read_instant, _write_instant),
    ("google.protobuf.Duration", Basic.DURATION): (_read_duration, _write_duration),
    ("google.type.Date", Basic.DATE): (_read_date, _write_date),
    ("google.type.TimeOfDay", Basic.TIME): (_read_time, _write_time),
    ("google.type.Decimal", Number): (_read_decimal_text, _write_decimal_text),
    ("confluent.type.Decimal", Number): (_read_decimal, _write_decimal),
    ("google.protobuf.Struct", Basic.ANYTHING): (_read_document, _write_document),
    ("google.protobuf.Value", Basic.ANYTHING): (_read_document, _write_document),
    ("google.protobuf.ListValue", Basic.ANYTHING): (_read_document, _write_document),
}
"""Name of a message and type -> how it is read, and what makes the function that writes it."""

WRAPPERS = {
    f"google.protobuf.{name}Value": word
    for name, word in (
        *(("Double", "double"), ("Float", "float"), ("Int64", "int64"), ("UInt64", "uint64"), ("Int32", "int32")),
        *(("UInt32", "uint32"), ("Bool", "bool"), ("String", "string"), ("Bytes", "bytes")),
    )
}
"""Name of a wrapper -> the type of its value; it is `X | None` in Python."""
