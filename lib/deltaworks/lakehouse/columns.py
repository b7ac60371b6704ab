"""Arrow columns: their types, and the conversion of Python objects to cells, a column at a time.

`topology/columns.py` says which columns a Python type gives. The kernel hands over only cells that their columns can
hold (`kernel/column_limits.py`), unless an object is not of the type that the topology declares.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, assert_never

import msgspec
import pyarrow as pa

from deltaworks.errors import TableError
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
    json_text,
)

TIMESTAMP = pa.timestamp("us", tz="UTC")

Convert = Callable[[Any], Any]
_MISFITS = (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError)
_PLAIN = {
    Plain.TEXT: pa.string(),
    Plain.INTEGER: pa.int64(),
    Plain.FLOAT: pa.float64(),
    Plain.BOOLEAN: pa.bool_(),
    Plain.BINARY: pa.binary(),
    Plain.INSTANT: TIMESTAMP,
    Plain.DATE: pa.date32(),
}


@dataclass(frozen=True)
class ArrowColumn:
    """One column, and how its cells come out of a key or a value."""

    name: str
    type: pa.DataType
    get: Convert | None = None
    """Extracts the cell of an object that is not None; None: the object itself."""
    convert: Convert | None = None
    """Converts a cell that is not None to what Arrow takes; None: the cell itself."""
    convert_again: Convert | None = None
    """A slower conversion for all other cells that fit: Arrow does not take `Decimal("0E+40")`, though it is 0, nor an
    int of more than 53 bits for a float."""

    def array(self, objects: Sequence[Any]) -> pa.Array:
        """The cells of `objects`; None becomes null.

        Raises:
            TableError: a cell does not fit the column.
        """
        cells: list[Any] = list(objects)
        if self.get is not None:
            get = self.get
            cells = list(map(get, cells)) if None not in cells else [None if o is None else get(o) for o in cells]
        try:
            return pa.array(_converted(cells, self.convert), self.type)
        except _MISFITS as error:
            if self.convert_again is not None:
                with suppress(ArithmeticError, TypeError, *_MISFITS):
                    return pa.array(_converted(cells, self.convert_again), self.type)
            raise self._misfit(_converted(cells, self.convert), error) from error

    def _misfit(self, cells: Sequence[Any], error: Exception) -> TableError:
        for cell in cells:
            try:
                pa.array([cell], self.type)
            except _MISFITS:
                shown = repr(cell)
                shown = shown if len(shown) <= 60 else shown[:57] + "..."
                break
        else:
            shown = "a value"
        hint = "give the field a type that can hold it"
        if pa.types.is_decimal(self.type):
            hint = "Annotated[Decimal, DecimalDigits(precision, scale)] sets the digits of the column"
        return TableError(f"Column '{self.name}' ({self.type}) cannot hold {shown}: {error}", hint=hint)


def arrow_column(column: TypedColumn) -> ArrowColumn:
    """A column as Arrow has it."""
    arrow, convert = arrow_type(column.type)
    return ArrowColumn(column.name, arrow, column.get, convert, arrow_type(column.type, again=True)[1])


def arrow_type(column: ColumnType, *, again: bool = False) -> tuple[pa.DataType, Convert | None]:
    """The Arrow type of a column, and how to convert its cells (None: as they are).

    Args:
        column: The type of the column.
        again: Arrow has refused the unconverted cells; see `ArrowColumn.convert_again`.
    """
    match column:
        case Plain.FLOAT:
            return _PLAIN[column], _float if again else None
        case Plain():
            return _PLAIN[column], None
        case DecimalDigits(precision, scale):
            return pa.decimal128(precision, scale), _rescaled(column) if again else None
        case Written(convert):
            return pa.string(), convert
        case Member(value):
            return _PLAIN[value], attrgetter("value")
        case JsonText():
            return pa.string(), json_text
        case Listed(item):
            return _list(*arrow_type(item, again=again))
        case Mapped(value):
            return _map(*arrow_type(value, again=again))
        case Nested(fields):
            return _struct([(name, *arrow_type(part, again=again)) for name, part in fields])
        case _:
            assert_never(column)


def _converted(cells: list[Any], convert: Convert | None) -> list[Any]:
    return cells if convert is None else [None if cell is None else convert(cell) for cell in cells]


def _float(number: Any) -> Any:
    return float(number) if isinstance(number, int) else number


def _rescaled(digits: DecimalDigits) -> Convert:
    quantize, step = digits.context().quantize, digits.step
    return lambda number: quantize(number, step)


def _list(item: pa.DataType, convert: Convert | None) -> tuple[pa.DataType, Convert]:
    if convert is None:
        return pa.list_(item), list
    return pa.list_(item), lambda cells: [None if cell is None else convert(cell) for cell in cells]


def _map(value: pa.DataType, convert: Convert | None) -> tuple[pa.DataType, Convert]:
    if convert is None:
        return pa.map_(pa.string(), value), lambda cells: list(cells.items())
    return pa.map_(pa.string(), value), lambda cells: [
        (name, None if cell is None else convert(cell)) for name, cell in cells.items()
    ]


def _struct(columns: list[tuple[str, pa.DataType, Convert | None]]) -> tuple[pa.DataType, Convert]:
    def convert(value: Any) -> dict[str, Any]:
        cells = {}
        for name, _, inner in columns:
            cell = getattr(value, name)
            cells[name] = None if cell is None or cell is msgspec.UNSET else cell if inner is None else inner(cell)
        return cells

    return pa.struct([(name, arrow) for name, arrow, _ in columns]), convert
