"""The columns of a Python type in a Delta table, without an engine. The kernel asks what they can hold
(`kernel/column_limits.py`), the lakehouse makes Arrow types of them (`lakehouse/columns.py`).

One type gives one column type; nothing is ever rounded. Types without a column type of their own (`Any`, unions of
several types) become JSON text.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import types
import typing
import uuid
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import Enum
from operator import attrgetter, itemgetter
from typing import Annotated, Any, Literal, Union

import msgspec

from deltaworks.serdes.decimal_digits import DecimalDigits as DecimalDigits

LAST_MS = 253_402_300_799_999
"""The last millisecond of the year 9999; readers know no later timestamps."""

Get = Callable[[Any], Any]


class Plain(Enum):
    """Cells that are written as they are."""

    TEXT = "text"
    INTEGER = "64-bit integer"
    FLOAT = "64-bit float"
    BOOLEAN = "boolean"
    BINARY = "bytes"
    INSTANT = "timestamp"
    DATE = "date"


@dataclass(frozen=True)
class Written:
    """A text form of the cell; every cell of the type has one."""

    convert: Get


@dataclass(frozen=True)
class Member:
    """The value of an enum's member."""

    value: Plain


@dataclass(frozen=True)
class JsonText:
    """The cell as JSON."""


@dataclass(frozen=True)
class Listed:
    """A list; sets and tuples of one type, too."""

    item: ColumnType


@dataclass(frozen=True)
class Mapped:
    """A map from text."""

    value: ColumnType


@dataclass(frozen=True)
class Nested:
    """An object inside a field."""

    fields: tuple[tuple[str, ColumnType], ...]


ColumnType = Plain | DecimalDigits | Written | Member | JsonText | Listed | Mapped | Nested


@dataclass(frozen=True)
class TypedColumn:
    """One column of a key or a value."""

    name: str
    type: ColumnType
    get: Get | None = None
    """The cell of an object that is not None; None: the object itself."""
    is_optional: bool = False
    """Whether None is a value of its type."""
    field: str | None = None
    """The field that it comes from; None: it is the object itself, or an item of a tuple."""
    hint: Any = None
    """Its Python type."""


def flat_columns(kind: Any, scalar: str) -> list[TypedColumn]:
    """The columns of a key or value type: one per field, or a single one named `scalar`."""
    if (parts := field_hints(strip(kind))) is None:
        return [TypedColumn(scalar, column_type(kind), hint=kind)]
    within = (strip(kind),)
    return [
        TypedColumn(
            name,
            column_type(part, within),
            _get_if_set(name) if mentions(part, msgspec.UnsetType) else attrgetter(name),
            mentions(part, types.NoneType) or mentions(part, msgspec.UnsetType),
            field=name,
            hint=part,
        )
        for name, part in parts
    ]


def key_columns(kind: Any, scalar: str = "key", *, items: bool = False) -> list[TypedColumn]:
    """Like `flat_columns`; lists, maps and nested objects become JSON text, as rows are found by the cells of keys.

    Args:
        kind: The type of the key.
        scalar: Name of the column of a key that is a single one.
        items: A `tuple[str, int]` gives a column per item, "0", "1", instead of JSON text.
    """
    columns = flat_columns(kind, scalar)
    parts = typing.get_args(strip(kind))
    if items and typing.get_origin(strip(kind)) is tuple and Ellipsis not in parts:
        columns = [
            TypedColumn(str(number), column_type(part), itemgetter(number), mentions(part, types.NoneType), hint=part)
            for number, part in enumerate(parts)
        ]
    return [
        replace(column, type=JsonText()) if isinstance(column.type, Listed | Mapped | Nested) else column
        for column in columns
    ]


def record_class(kind: Any) -> type | None:
    """The Struct, dataclass or NamedTuple whose fields are columns; None: the type gives a single column."""
    kind = strip(kind)
    return None if field_hints(kind) is None else typing.get_origin(kind) or kind


def column_type(kind: Any, within: tuple[Any, ...] = ()) -> ColumnType:
    """The column type of a Python type.

    Args:
        kind: The type.
        within: Types that enclose this one; a type inside itself becomes JSON.
    """
    digits = _digits(kind)
    kind = strip(kind)
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if kind is Decimal:
        return digits
    if (parts := field_hints(kind)) is not None:
        if kind in within or not parts:
            return JsonText()
        return Nested(tuple((name, column_type(part, (*within, kind))) for name, part in parts))
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return _common(arguments) or JsonText()
    if isinstance(kind, type) and issubclass(kind, Enum):
        value = _common([member.value for member in kind])
        return JsonText() if value is None else Member(value)
    if isinstance(origin, type) and arguments:
        if issubclass(origin, tuple) and len({a for a in arguments if a is not Ellipsis}) == 1:
            return Listed(column_type(arguments[0], within))
        if issubclass(origin, (Sequence, AbstractSet)) and not issubclass(origin, tuple):
            return Listed(column_type(arguments[0], within))
        if issubclass(origin, Mapping) and arguments[0] is str:
            return Mapped(column_type(arguments[1], within))
    return JsonText()


def json_text(value: Any) -> str:
    """The text of a cell in a `JsonText` column; raises on values that JSON cannot express."""
    return msgspec.json.encode(value, order="deterministic").decode()


def _builtin_text(value: Any) -> str:
    return str(msgspec.to_builtins(value))


_SIMPLE: dict[Any, ColumnType] = {
    str: Plain.TEXT,
    int: Plain.INTEGER,
    float: Plain.FLOAT,
    bool: Plain.BOOLEAN,
    bytes: Plain.BINARY,
    dt.datetime: Plain.INSTANT,
    dt.date: Plain.DATE,
    dt.time: Written(_builtin_text),
    dt.timedelta: Written(_builtin_text),
    uuid.UUID: Written(str),
}


def field_hints(kind: Any) -> list[tuple[str, Any]] | None:
    """Names and types of the fields of a Struct, dataclass or NamedTuple; None for any other type."""
    kind = typing.get_origin(kind) or kind
    if not isinstance(kind, type):
        return None
    if issubclass(kind, msgspec.Struct):
        names = list(kind.__struct_fields__)
    elif dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind)]
    elif issubclass(kind, tuple) and hasattr(kind, "_fields"):
        names = list(kind._fields)
    else:
        return None
    hints = typing.get_type_hints(kind, include_extras=True)
    return [(name, hints.get(name, Any)) for name in names]


def strip(kind: Any) -> Any:
    """A type without `Annotated`, `Optional`, `NewType` and msgspec's `UNSET`."""
    while True:
        if typing.get_origin(kind) is Annotated:
            kind = typing.get_args(kind)[0]
        elif (supertype := getattr(kind, "__supertype__", None)) is not None:
            kind = supertype
        elif typing.get_origin(kind) in (Union, types.UnionType):
            rest = [a for a in typing.get_args(kind) if a not in (type(None), msgspec.UnsetType)]
            if len(rest) != 1:
                return kind
            kind = rest[0]
        else:
            return kind


def mentions(kind: Any, part: type) -> bool:
    return kind is part or any(mentions(a, part) for a in typing.get_args(kind))


def _get_if_set(name: str) -> Get:
    def get(value: Any) -> Any:
        cell = getattr(value, name)
        return None if cell is msgspec.UNSET else cell

    return get


def _digits(kind: Any) -> DecimalDigits:
    while typing.get_origin(kind) in (Annotated, Union, types.UnionType):
        if typing.get_origin(kind) is Annotated:
            found = [extra for extra in typing.get_args(kind)[1:] if isinstance(extra, DecimalDigits)]
            if found:
                return found[0]
            kind = typing.get_args(kind)[0]
        else:
            kind = next((a for a in typing.get_args(kind) if a is not type(None)), None)
    return DecimalDigits(38, 18)


def _common(values: Sequence[Any]) -> Plain | None:
    """The column type that holds all of these values; None: no simple one does."""
    if all(isinstance(value, str) for value in values):
        return Plain.TEXT
    if all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        return Plain.INTEGER
    return None
