"""Finds values that the columns of a Delta table cannot hold while a record is in process, not when a batch is written.

A type hint allows more than a column: numbers without bounds, NaN, years before 1 once the time zone is taken off,
text with half a character. Such a value is a production error of its sink, on every host. Checks are built once per
sink, for columns that may not fit; a value of a wrong type may get as far as the lakehouse, which raises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from operator import attrgetter
from typing import Any, assert_never

import msgspec

from deltaworks.errors import SerializationError
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
from deltaworks.topology.nodes.sinks import DeltaSink
from deltaworks.topology.table_columns import author_columns

Check = Callable[[Any], object]
"""Raises on a value that does not fit; its result has no meaning."""

_MIN_INTEGER, _MAX_INTEGER = -(2**63), 2**63 - 1


class RowCheck:
    """Checks rows against the table of a sink. They are quick, but also fail on None; `misfit` then looks closely.

    ```python
    try:
        check.key(key)    # if there is one
        check.value(value)
    except Exception:
        error = check.misfit(key, value)
    ```
    """

    def __init__(self, sink: DeltaSink) -> None:
        self._table = sink.table
        columns = author_columns(sink)
        self._key, self._value = _limited(columns.key), _limited(columns.value)
        self._shared = columns.shared
        self.key = _quick(self._key)
        """None: the table holds every key of the type."""
        self.value = _quick(self._value)
        """Likewise."""
        self.both = _same_cells(columns.shared)
        """Raises if key and value differ in a column that they share; None: they share none."""

    def misfit(self, key: Any, value: Any) -> SerializationError | None:
        """The error for the cell that does not fit; None: all fit."""
        for row, limited in ((key, self._key), (value, self._value)):
            for column, check in limited if row is not None else ():
                cell = row
                try:
                    cell = row if column.get is None else column.get(row)
                    if cell is not None:
                        check(cell)
                except Exception as error:
                    misfit = _misfit(self._table, column, cell, error)
                    misfit.__cause__ = error
                    return misfit
        if value is not None:
            for pair in self._shared:
                if not _is_same(key, value, *pair):
                    return SerializationError(
                        f"the key differs from the field '{pair[1].field}' of its value, and both are column "
                        f"'{pair[0].name}' of table '{self._table}'",
                        hint=f"give the key a column of its own: to_delta('{self._table}', key='...')",
                    )
        return None


def no_day(table: str, start_ms: int) -> SerializationError:
    """The error for a window on no day: windowed tables are partitioned by day, and readers only know 1970 to 9999."""
    return SerializationError(
        f"a window that starts at {start_ms} ms is on no day of table '{table}'",
        hint="timestamps of records are milliseconds since 1970; check the timestamp extractor",
    )


def _limited(columns: Sequence[TypedColumn]) -> list[tuple[TypedColumn, Check]]:
    """The columns that cannot hold every value of their type."""
    return [(column, check) for column in columns if (check := _cell_check(column.type)) is not None]


def _quick(limited: Sequence[tuple[TypedColumn, Check]]) -> Check | None:
    """One check for all columns of a row; text columns, the most frequent ones, are checked together."""
    if not limited:
        return None
    if limited[0][0].get is None:
        return limited[0][1]
    plain = [column for column, _ in limited if column.type is Plain.TEXT and not column.is_optional]
    texts = [column.field for column in plain if column.field is not None]
    texts = texts if len(texts) > 1 else []
    checks: list[tuple[Callable[[Any], Any], Check]] = [(attrgetter(*texts), _check_texts)] if texts else []
    for column, check in limited:
        if column.field not in texts:
            assert column.get is not None
            checks.append((column.get, _unless_none(check) if column.is_optional else check))

    def check_row(row: Any) -> None:
        for get, check in checks:
            check(get(row))

    return check_row


def _same_cells(shared: Sequence[tuple[TypedColumn, TypedColumn]]) -> Callable[[Any, Any], None] | None:
    if not shared:
        return None

    def check(key: Any, value: Any) -> None:
        for of_key, of_value in shared:
            if not _is_same(key, value, of_key, of_value):
                raise ValueError("they differ")

    return check


def _is_same(key: Any, value: Any, of_key: TypedColumn, of_value: TypedColumn) -> bool:
    assert of_value.get is not None
    cell = key if key is None or of_key.get is None else of_key.get(key)
    return bool(cell == of_value.get(value))


def _cell_check(column: ColumnType) -> Check | None:
    """A check for cells that are not None; None: every cell of the type fits."""
    match column:
        case Plain.TEXT:
            return _check_text
        case Plain.INTEGER:
            return _check_integer
        case Plain.INSTANT:
            return _check_instant
        case Plain() | Written() | Member():
            return None
        case DecimalDigits():
            return _decimal_check(column)
        case JsonText():
            return json_text
        case Listed(item):
            return _items_check(_cell_check(item))
        case Mapped(value):
            return _map_check(_cell_check(value))
        case Nested(fields):
            return _fields_check([(name, check) for name, part in fields if (check := _cell_check(part)) is not None])
        case _:
            assert_never(column)


def _check_text(cell: str) -> None:
    if not cell.isascii():
        cell.encode()


def _check_texts(cells: tuple[str, ...]) -> None:
    text = "".join(cells)
    if not text.isascii():
        text.encode()


def _check_integer(cell: int) -> None:
    if not _MIN_INTEGER <= cell <= _MAX_INTEGER:
        raise OverflowError("it takes more than 64 bits")


def _check_instant(cell: datetime) -> None:
    if not 1 < cell.year < 9999 and cell.tzinfo is not None:
        cell.astimezone(UTC)


def _decimal_check(digits: DecimalDigits) -> Check:
    quantize, step = digits.context().quantize, digits.step

    def check(cell: Decimal) -> None:
        if not quantize(cell, step).is_finite():
            raise ArithmeticError("it is not a number")

    return check


def _items_check(check: Check | None) -> Check | None:
    if check is None:
        return None

    def check_items(cells: Any) -> None:
        for cell in cells:
            if cell is not None:
                check(cell)

    return check_items


def _map_check(check: Check | None) -> Check:
    def check_map(cells: Any) -> None:
        for name, cell in cells.items():
            _check_text(name)
            if cell is not None and check is not None:
                check(cell)

    return check_map


def _fields_check(checks: Sequence[tuple[str, Check]]) -> Check | None:
    if not checks:
        return None

    def check_fields(row: Any) -> None:
        for name, check in checks:
            cell = getattr(row, name)
            if cell is not None and cell is not msgspec.UNSET:
                check(cell)

    return check_fields


def _unless_none(check: Check) -> Check:
    return lambda cell: None if cell is None else check(cell)


def _misfit(table: str, column: TypedColumn, cell: Any, error: Exception) -> SerializationError:
    """The error shows the type of the value, never its content."""
    where = f"column '{column.name}' of table '{table}'"
    if isinstance(column.type, DecimalDigits):
        return SerializationError(
            f"a value of type {type(cell).__name__} does not fit {where}, "
            f"DECIMAL({column.type.precision}, {column.type.scale})",
            hint="Annotated[Decimal, DecimalDigits(precision, scale)] sets the digits of the column",
        )
    return SerializationError(f"a value of type {type(cell).__name__} does not fit {where}: {error}")
