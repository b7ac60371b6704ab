"""Columns from Python types, and cells from Python objects, a column at a time.

One type gives one Arrow type; nothing is ever rounded: a `Decimal` that does not fit its column is an error.
What has no column type of its own (`Any`, unions of several types) becomes JSON text.
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
from operator import attrgetter
from typing import Annotated, Any, Literal, Union

import msgspec
import pyarrow as pa

from deltaworks.errors import TableError

TIMESTAMP = pa.timestamp("us", tz="UTC")

Convert = Callable[[Any], Any]


@dataclass(frozen=True)
class DecimalDigits:
    """Digits of a DECIMAL column: `amount: Annotated[Decimal, DecimalDigits(18, 2)]`; the default is (38, 18).

    Args:
        precision: all digits, up to 38.
        scale: digits after the point.
    """

    precision: int
    scale: int


@dataclass(frozen=True)
class Column:
    """One column, and how its cells come out of a key or a value."""

    name: str
    type: pa.DataType
    get: Convert | None = None
    """The cell of an object that is not None; None: the object itself."""
    convert: Convert | None = None
    """What Arrow takes for a cell that is not None; None: the cell itself."""

    def array(self, objects: Sequence[Any]) -> pa.Array:
        """The cells of `objects`; None stays null.

        Raises:
            TableError: a cell does not fit the column.
        """
        cells: list[Any] = list(objects)
        if self.get is not None:
            get = self.get
            cells = list(map(get, cells)) if None not in cells else [None if o is None else get(o) for o in cells]
        if self.convert is not None:
            convert = self.convert
            cells = [None if cell is None else convert(cell) for cell in cells]
        try:
            return pa.array(cells, self.type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise self._misfit(cells, error) from error

    def _misfit(self, cells: Sequence[Any], error: Exception) -> TableError:
        for cell in cells:
            try:
                pa.array([cell], self.type)
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
                shown = repr(cell)
                shown = shown if len(shown) <= 60 else shown[:57] + "..."
                break
        else:
            shown = "a value"
        hint = "give the field a type that can hold it"
        if pa.types.is_decimal(self.type):
            hint = "Annotated[Decimal, DecimalDigits(precision, scale)] sets the digits of the column"
        return TableError(f"Column '{self.name}' ({self.type}) cannot hold {shown}: {error}", hint=hint)


def fields(kind: Any) -> list[tuple[str, Any]] | None:
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


def flat_columns(kind: Any, scalar: str) -> list[Column]:
    """The columns of a key or value type: one per field, or a single one named `scalar`."""
    if (parts := fields(_strip(kind))) is None:
        arrow, convert = arrow_type(kind)
        return [Column(scalar, arrow, None, convert)]
    columns = []
    for name, part in parts:
        arrow, convert = arrow_type(part, (_strip(kind),))
        get = _get_if_set(name) if _may_be_unset(part) else attrgetter(name)
        columns.append(Column(name, arrow, get, convert))
    return columns


def key_columns(kind: Any) -> list[Column]:
    """Like `flat_columns`; lists, maps and nested objects become JSON text, as rows are found by the cells of keys."""
    return [
        replace(column, type=pa.string(), convert=_json) if pa.types.is_nested(column.type) else column
        for column in flat_columns(kind, "key")
    ]


def arrow_type(kind: Any, within: tuple[Any, ...] = ()) -> tuple[pa.DataType, Convert | None]:
    """The column type of a Python type, and how to convert its values (None: as they are).

    Args:
        within: types that enclose this one; a type inside itself becomes JSON.
    """
    digits = _digits(kind)
    kind = _strip(kind)
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if kind is Decimal:
        return pa.decimal128(digits.precision, digits.scale), None
    if (parts := fields(kind)) is not None:
        return _JSON if kind in within else _struct(kind, parts, within)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return _choice(arguments, None)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _choice([member.value for member in kind], attrgetter("value"))
    if isinstance(origin, type) and arguments:
        if issubclass(origin, tuple) and len({a for a in arguments if a is not Ellipsis}) == 1:
            return _list(arguments[0], within)
        if issubclass(origin, (Sequence, AbstractSet)) and not issubclass(origin, tuple):
            return _list(arguments[0], within)
        if issubclass(origin, Mapping) and arguments[0] is str:
            return _map(arguments[1], within)
    return _JSON


def _json(value: Any) -> str:
    return msgspec.json.encode(value, order="deterministic").decode()


def _text(value: Any) -> str:
    return str(msgspec.to_builtins(value))


_JSON: tuple[pa.DataType, Convert | None] = (pa.string(), _json)
_SIMPLE: dict[Any, tuple[pa.DataType, Convert | None]] = {
    str: (pa.string(), None),
    int: (pa.int64(), None),
    float: (pa.float64(), None),
    bool: (pa.bool_(), None),
    bytes: (pa.binary(), None),
    dt.datetime: (TIMESTAMP, None),
    dt.date: (pa.date32(), None),
    dt.time: (pa.string(), _text),
    dt.timedelta: (pa.string(), _text),
    uuid.UUID: (pa.string(), str),
}


def _strip(kind: Any) -> Any:
    """Without `Annotated`, `Optional`, `NewType` and msgspec's `UNSET`."""
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


def _may_be_unset(kind: Any) -> bool:
    return kind is msgspec.UnsetType or any(_may_be_unset(a) for a in typing.get_args(kind))


def _get_if_set(name: str) -> Convert:
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


def _choice(values: Sequence[Any], get: Convert | None) -> tuple[pa.DataType, Convert | None]:
    if all(isinstance(value, str) for value in values):
        return pa.string(), get
    if all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        return pa.int64(), get
    return _JSON


def _list(item: Any, within: tuple[Any, ...]) -> tuple[pa.DataType, Convert]:
    arrow, convert = arrow_type(item, within)
    if convert is None:
        return pa.list_(arrow), list
    return pa.list_(arrow), lambda cells: [None if cell is None else convert(cell) for cell in cells]


def _map(item: Any, within: tuple[Any, ...]) -> tuple[pa.DataType, Convert]:
    arrow, convert = arrow_type(item, within)
    if convert is None:
        return pa.map_(pa.string(), arrow), lambda cells: list(cells.items())
    return pa.map_(pa.string(), arrow), lambda cells: [
        (name, None if cell is None else convert(cell)) for name, cell in cells.items()
    ]


def _struct(kind: Any, parts: list[tuple[str, Any]], within: tuple[Any, ...]) -> tuple[pa.DataType, Convert | None]:
    if not parts:
        return _JSON
    columns = [(name, *arrow_type(part, (*within, kind))) for name, part in parts]

    def convert(value: Any) -> dict[str, Any]:
        cells = {}
        for name, _, inner in columns:
            cell = getattr(value, name)
            cells[name] = None if cell is None or cell is msgspec.UNSET else cell if inner is None else inner(cell)
        return cells

    return pa.struct([(name, arrow) for name, arrow, _ in columns]), convert
