"""Keys and values again, from the cells of a Delta table: the way back from `columns.py`.

Cells are Python objects, with maps as dictionaries and instants in UTC. A decimal whose author has not said how many
digits it has comes back without zeros at its end; sets come back as lists, in the order of their cells.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, assert_never

import msgspec

from deltaworks.topology.columns import (
    ColumnType,
    DecimalDigits,
    JsonText,
    Listed,
    Mapped,
    Member,
    Nested,
    Plain,
    TypedColumn,
    Written,
    field_hints,
    mentions,
    record_class,
    strip,
)
from deltaworks.topology.nodes.sinks import DeltaSink
from deltaworks.topology.table_columns import author_columns

Make = Callable[[Any], Any]
Cells = Mapping[str, Any]
_ANY_DIGITS = DecimalDigits(38, 18)


class RowObjects:
    """Makes keys and values of rows.

    Args:
        table: what the columns derive from.

    Raises:
        TableError: a column cannot have its name.
    """

    def __init__(self, table: DeltaSink) -> None:
        columns = author_columns(table)
        shared = [(of_key.name, of_value) for of_key, of_value in columns.shared]
        values = [*((column.name, column) for column in columns.value), *shared]
        keys = [(column.name, column) for column in columns.key]
        self.key = _object(table.key, keys)
        """The key of a row; of a windowed table without its window."""
        self.value = _object(table.value, values)
        """The value of a row."""
        unclear = [name for name, column in (*keys, *values) if _is_ambiguous(column.hint)]
        self.ambiguous: str | None = unclear[0] if unclear else None
        """A column whose null may be two values; None: there is none."""


def _object(kind: Any, columns: Sequence[tuple[str, TypedColumn]]) -> Callable[[Cells], Any]:
    made = [(name, column, _cell(column.hint, column.type)) for name, column in columns]
    cls = record_class(kind)
    if cls is not None:
        return lambda cells: _filled(cls, ((str(column.field), make(cells[name])) for name, column, make in made))
    if len(made) == 1 and not _is_item(kind, made[0][1]):
        name, _, make = made[0]
        return lambda cells: make(cells[name])
    return lambda cells: tuple(make(cells[name]) for name, _, make in made)


def _is_item(kind: Any, column: TypedColumn) -> bool:
    """Whether the only column of a key is the only item of a tuple."""
    return column.get is not None and typing.get_origin(strip(kind)) is tuple


def _filled(cls: type, fields: typing.Iterable[tuple[str, Any]]) -> Any:
    """An object; fields that were unset stay so."""
    return cls(**{name: cell for name, cell in fields if cell is not msgspec.UNSET})


def _cell(kind: Any, column: ColumnType) -> Make:
    """What a cell was before it was one."""
    nothing = msgspec.UNSET if mentions(kind, msgspec.UnsetType) and not mentions(kind, types.NoneType) else None
    make = _present(kind, column)
    return lambda cell: nothing if cell is None else make(cell)


def _present(kind: Any, column: ColumnType) -> Make:
    inner = strip(kind)
    match column:
        case Plain():
            return lambda cell: cell
        case DecimalDigits():
            return _shortest if column == _ANY_DIGITS else lambda cell: cell
        case Written():
            return lambda cell: msgspec.convert(cell, inner)
        case Member():
            return lambda cell: inner(cell)
        case JsonText():
            return _decoder(kind)
        case Listed(item):
            arguments = typing.get_args(inner)
            part = _cell(arguments[0], item)
            if typing.get_origin(inner) is tuple:
                return lambda cell: tuple(map(part, cell))
            return lambda cell: list(map(part, cell))
        case Mapped(value):
            part = _cell(typing.get_args(inner)[1], value)
            return lambda cell: {name: part(each) for name, each in cell.items()}
        case Nested(fields):
            hints = dict(field_hints(inner) or ())
            parts = [(name, _cell(hints[name], each)) for name, each in fields]
            cls = typing.get_origin(inner) or inner
            return lambda cell: _filled(cls, ((name, make(cell[name])) for name, make in parts))
        case _:
            assert_never(column)


def _decoder(kind: Any) -> Make:
    """JSON as its type, or as JSON if msgspec does not know the type: then it is written as JSON again."""
    try:
        decode = msgspec.json.Decoder(kind).decode
    except TypeError:
        decode = msgspec.json.Decoder().decode
    return lambda cell: decode(cell)


def _shortest(cell: Decimal) -> Decimal:
    return Decimal(format(cell.normalize(), "f"))


def _is_ambiguous(kind: Any, within: tuple[Any, ...] = ()) -> bool:
    """Whether null in a column may be None or UNSET, here or below."""
    if mentions(kind, msgspec.UnsetType) and mentions(kind, types.NoneType):
        return True
    inner = strip(kind)
    if inner in within:
        return False
    fields = [hint for _, hint in field_hints(inner) or ()]
    return any(_is_ambiguous(part, (*within, inner)) for part in (*typing.get_args(inner), *fields))
