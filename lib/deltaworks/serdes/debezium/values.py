"""How values of columns become those of Python: Debezium writes days, microseconds, base64 and texts of JSON.

What a number means is in the schema of the record (`io.debezium.time.MicroTimestamp`); without one, the type of the
field decides, and the unit that the author has said.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal

import msgspec

from deltaworks.serdes.conversions import Convert, unless_none
from deltaworks.serdes.debezium.columns import Column
from deltaworks.serdes.scalars import ConnectDecimal
from deltaworks.serdes.shapes import Basic, Entries, Many, Number, OneOf, Record, Shape

Unit = Literal["ms", "us", "ns"]
Decimals = Literal["string", "precise"]

_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_JSON = "io.debezium.data.Json"
_SET = "io.debezium.data.EnumSet"
_DAYS = {"io.debezium.time.Date", "org.apache.kafka.connect.data.Date"}
_UNITS: dict[str, Unit] = {
    "io.debezium.time.Timestamp": "ms",
    "io.debezium.time.MicroTimestamp": "us",
    "io.debezium.time.NanoTimestamp": "ns",
    "org.apache.kafka.connect.data.Timestamp": "ms",
}
_UNITS_OF_DAY: dict[str, Unit] = {
    "io.debezium.time.Time": "ms",
    "io.debezium.time.MicroTime": "us",
    "io.debezium.time.NanoTime": "ns",
    "org.apache.kafka.connect.data.Time": "ms",
}
_UNITS_OF_DURATION: dict[str, Unit] = {
    "io.debezium.time.MicroDuration": "us",
    "io.debezium.time.NanoDuration": "ns",
    **_UNITS_OF_DAY,
}
_FIRST_DAY = date(1970, 1, 1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MIDNIGHT = datetime(1970, 1, 1)


@dataclass(frozen=True)
class Said:
    """What the author says of numbers and texts that have no schema."""

    unit: Unit | Mapping[str, Unit] | None = None
    decimals: Decimals = "string"

    def unit_of(self, column: str) -> Unit | None:
        """The unit of a column's numbers; None: nobody has said it."""
        return self.unit if self.unit is None or isinstance(self.unit, str) else self.unit.get(column)


def conversion(shape: Shape, column: Column | None, name: str, said: Said) -> Convert | None:
    """What makes a value fit for `msgspec.convert`; None: nothing has to.

    Args:
        shape: of the field.
        column: the schema of the value; None: there is none.
        name: of the column.
        said: for values without a schema.

    Raises:
        TypeError: a field's annotation does not say enough.
    """
    match shape:
        case OneOf(members):
            some = [each for each in members if each is not Basic.NOTHING]
            convert = conversion(some[0], column, name, said) if len(some) == 1 else None
            return None if convert is None else unless_none(convert)
        case Number():
            return _decimal(shape, column, name, said)
        case Basic.BOOLEAN:
            return _boolean
        case Basic.DATE:
            return _date(column)
        case Basic.INSTANT | Basic.LOCAL:
            unit = _unit(column, _UNITS) or (said.unit_of(name) if column is None else None)
            return _instant(unit, column, zoned=shape is Basic.INSTANT)
        case Basic.TIME:
            return _time(_unit(column, _UNITS_OF_DAY) or (said.unit_of(name) if column is None else None), column)
        case Basic.DURATION:
            known = _unit(column, _UNITS_OF_DURATION)
            return _duration(known or (said.unit_of(name) if column is None else None), column)
        case Basic.ANYTHING:
            return _from_json if column is not None and column.name == _JSON else None
        case Many(item, kind):
            inside = conversion(item, None if column is None else column.items, name, said)
            return _many(inside, is_set=kind in (set, frozenset) if column is None else column.name == _SET)
        case Entries() | Record():
            return _from_json
        case _:
            return None


def differs_from_json(shape: Shape, column: Column | None, said: Said) -> bool:
    """Whether JSON of the field's type would read a value that means something else, instead of refusing it."""
    match shape:
        case OneOf(members):
            return any(differs_from_json(each, column, said) for each in members)
        case Many(item):
            return differs_from_json(item, None if column is None else column.items, said)
        case Number():
            return said.decimals == "precise" if column is None else column.kind not in ("string", "double", "float")
        case Basic.ANYTHING:
            return column is not None and column.name == _JSON
        case _:
            return False


def never_json(shape: Shape, said: Said) -> bool:
    """Whether JSON of the field's type refuses most of its values, so that it need not be tried."""
    kinds = (Basic.DATE, Basic.TIME, Basic.DURATION)
    return any(each in kinds for each in (shape.members if isinstance(shape, OneOf) else (shape,))) or (
        said.unit is not None and any(each in (Basic.INSTANT, Basic.LOCAL) for each in _members(shape))
    )


def _members(shape: Shape) -> tuple[Shape, ...]:
    return shape.members if isinstance(shape, OneOf) else (shape,)


def _unit(column: Column | None, units: Mapping[str, Unit]) -> Unit | None:
    return None if column is None else units.get(column.name or "")


def _decimal(shape: Number, column: Column | None, name: str, said: Said) -> Convert:
    scale: int | None = None
    if column is not None and column.name == _DECIMAL:
        scale = int(column.parameters["scale"])
    elif column is None and said.decimals == "precise":
        if shape.digits is None:
            raise TypeError(
                f"field '{name}': decimals='precise' needs the scale of the column, which is not in its bytes: "
                "Annotated[Decimal, DecimalDigits(10, 2)]"
            )
        scale = shape.digits.scale

    def read(value: Any) -> Any:
        if isinstance(value, dict):  # of a column without a scale, whose values have their own
            return _unscaled(value["value"], int(value["scale"]))
        if isinstance(value, float):
            return Decimal(repr(value))
        return _unscaled(value, scale) if scale is not None and isinstance(value, str) else value

    return read


def _unscaled(text: Any, scale: int) -> Decimal:
    try:
        return ConnectDecimal(scale).deserialize(base64.b64decode(text, validate=True))
    except (binascii.Error, TypeError):
        raise ValueError("a decimal is not in base64; does the connector write decimals as texts?") from None


def _boolean(value: Any) -> Any:
    """A `tinyint(1)` is 0 or 1."""
    return bool(value) if value.__class__ is int and value in (0, 1) else value


def _date(column: Column | None) -> Convert:
    def read(value: Any) -> Any:
        if isinstance(value, str):
            return value.removesuffix("Z")
        if value.__class__ is not int:
            return value
        if column is not None and column.name not in _DAYS:
            raise ValueError(f"the column is {column.words}, and not a date")
        return _FIRST_DAY + timedelta(days=value)

    return read


def _instant(unit: Unit | None, column: Column | None, *, zoned: bool) -> Convert:
    begin = _EPOCH if zoned else _MIDNIGHT

    def read(value: Any) -> Any:
        return begin + _span(value, unit, column) if value.__class__ is int else value

    return read


def _time(unit: Unit | None, column: Column | None) -> Convert:
    def read(value: Any) -> Any:
        if value.__class__ is not int:
            return value
        span = _span(value, unit, column)
        if not timedelta(0) <= span < timedelta(days=1):
            raise ValueError("a time is not within a day; a timedelta holds such a one")
        return (_MIDNIGHT + span).time()

    return read


def _duration(unit: Unit | None, column: Column | None) -> Convert:
    return lambda value: _span(value, unit, column) if value.__class__ is int else value


def _span(number: int, unit: Unit | None, column: Column | None) -> timedelta:
    match unit:
        case "ms":
            return timedelta(milliseconds=number)
        case "us":
            return timedelta(microseconds=number)
        case "ns":
            microseconds, rest = divmod(number, 1000)
            if rest:
                raise ValueError("a time has nanoseconds, which Python has not")
            return timedelta(microseconds=microseconds)
        case None if column is not None:
            raise ValueError(f"the column is {column.words}, and not a time")
        case None:
            raise ValueError("a time is a number, and nothing says its unit; say it with unit='us' (or 'ms', 'ns')")


def _from_json(value: Any) -> Any:
    """Columns of JSON are texts."""
    return msgspec.json.decode(value) if isinstance(value, str) else value


def _many(inside: Convert | None, *, is_set: bool) -> Convert:
    def read(value: Any) -> Any:
        if isinstance(value, str):
            # A SET of MariaDB is its members, with commas between them; all else is a document.
            if is_set and value[:1] != "[":
                return [each for each in value.split(",") if each]
            return msgspec.json.decode(value)
        return [inside(each) for each in value] if inside is not None and isinstance(value, list) else value

    return read
