"""The rows that an expectation may find unexpected.

Great Expectations takes a second for a million rows and expectation, Arrow some milliseconds. So Arrow leaves out rows
that are as expected for certain, and Great Expectations judges the rest: in a table without errors, none. Where Arrow
cannot tell, all rows are suspects. If an expectation may fail for a share of the rows (`mostly`), or has a condition,
all are, too: then the others count as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from deltaworks.quality.rows import Rows, kind_of

_MOST_KNOWN = 1_000_000
"""Values of a column that are remembered as good."""
_EXACT = 2**53
"""Integers below it are exact as floats, as which Great Expectations keeps bounds."""

_Mask: TypeAlias = "Callable[[pa.Table], pa.ChunkedArray]"
"""Which rows may be unexpected."""


@dataclass
class Suspects:
    """Chooses the rows for one expectation, part after part."""

    expectation: Any
    columns: tuple[str, ...] | None
    """The columns that the expectation looks at; None: any."""
    mask: _Mask | None
    """None: all rows are suspects."""
    _begun: bool = False

    @classmethod
    def of(cls, schema: pa.Schema, expectation: Any) -> Suspects | None:
        """None: the expectation is not about each row alone."""
        kind = kind_of(expectation)
        if kind not in _OF_ROWS:
            return None
        columns = _columns(expectation)
        if expectation.row_condition or any(name not in schema.names for name in columns):
            return cls(expectation, None, None)
        mostly = getattr(expectation, "mostly", 1)
        all_count = not isinstance(mostly, int | float) or mostly < 1
        return cls(expectation, columns, None if all_count else _mask(schema, expectation, kind, columns))

    def among(self, part: pa.Table) -> pa.Table:
        """The suspects of the next part; of the first one at least a row, which shows what cannot be checked."""
        if self.mask is None or not len(part):
            return part
        found = part.filter(self.mask(part))
        if not len(found) and not self._begun:
            found = part.slice(0, 1)
        self._begun = True
        return found


@dataclass
class _ByValue:
    """Rows whose value is not known to be as expected, for an expectation that depends on that value alone."""

    expectation: Any
    column: str
    _good: pa.Array = field(default_factory=lambda: pa.array([], pa.string()))

    def __call__(self, part: pa.Table) -> pa.ChunkedArray:
        values = part.column(self.column)
        new = values.unique().drop_null()
        new = new.filter(pc.invert(pc.is_in(new, value_set=self._good.cast(new.type))))
        if len(new) and Rows.of(pa.table({self.column: new}), 1).judge(self.expectation).unexpected == 0:
            if len(self._good) + len(new) <= _MOST_KNOWN:
                self._good = pa.concat_arrays([self._good, new.cast(pa.string())])
            new = new.slice(0, 0)
        return pc.is_in(values, value_set=new)


def _columns(expectation: Any) -> tuple[str, ...]:
    one = [getattr(expectation, name, None) for name in ("column", "column_A", "column_B")]
    return tuple(str(name) for name in (*one, *(getattr(expectation, "column_list", None) or ())) if name is not None)


def _mask(schema: pa.Schema, expectation: Any, kind: str, columns: tuple[str, ...]) -> _Mask | None:
    kinds = [schema.field(name).type for name in columns]
    match kind:
        case "ExpectColumnValuesToNotBeNull":
            return lambda part: _is_null(part.column(columns[0]))
        case "ExpectColumnValuesToBeNull":
            return lambda part: pc.is_valid(part.column(columns[0]))
        case "ExpectColumnValuesToBeBetween":
            return _outside(expectation, columns[0], kinds[0])
        case "ExpectColumnValuesToBeInSet" | "ExpectColumnValuesToNotBeInSet":
            return _in_set(expectation, columns[0], kinds[0], among=kind == "ExpectColumnValuesToNotBeInSet")
        case "ExpectColumnPairValuesToBeEqual" | "ExpectColumnPairValuesAToBeGreaterThanB":
            if kinds[0] != kinds[1] or not _is_ordered(kinds[0]):
                return None
            compare = pc.equal
            if kind != "ExpectColumnPairValuesToBeEqual":
                compare = pc.greater_equal if expectation.or_equal else pc.greater
            return lambda part: _unless(compare(part.column(columns[0]), part.column(columns[1])))
        case _ if kind in _BY_VALUE and pa.types.is_string(kinds[0]):
            return _ByValue(expectation, columns[0])
        case _:
            return None


def _outside(expectation: Any, column: str, kind: pa.DataType) -> _Mask | None:
    """Not between whole numbers within the bounds, where comparisons are exact."""
    bounds = expectation.min_value, expectation.max_value
    if not (_is_number(kind) and all(bound is None or _is_exact(bound) for bound in bounds)):
        return None
    low = None if bounds[0] is None else _scalar(math.ceil(bounds[0]), kind)
    high = None if bounds[1] is None else _scalar(math.floor(bounds[1]), kind)

    def mask(part: pa.Table) -> pa.ChunkedArray:
        values = part.column(column)
        inside = pc.is_valid(values)
        if low is not None:
            inside = pc.and_(inside, (pc.greater if expectation.strict_min else pc.greater_equal)(values, low))
        if high is not None:
            inside = pc.and_(inside, (pc.less if expectation.strict_max else pc.less_equal)(values, high))
        return pc.and_(pc.is_valid(values), _unless(inside))

    return mask


def _in_set(expectation: Any, column: str, kind: pa.DataType, *, among: bool) -> _Mask | None:
    wanted, given = (str, pa.types.is_string(kind)) if pa.types.is_string(kind) else (int, pa.types.is_integer(kind))
    values = expectation.value_set
    if not given or not isinstance(values, list | set | tuple) or any(type(value) is not wanted for value in values):
        return None
    try:
        known = pa.array(list(values), kind)
    except pa.ArrowInvalid:
        return None

    def mask(part: pa.Table) -> pa.ChunkedArray:
        found = pc.is_in(part.column(column), value_set=known)
        return found if among else pc.and_(pc.is_valid(part.column(column)), pc.invert(found))

    return mask


def _unless(expected: pa.ChunkedArray) -> pa.ChunkedArray:
    """Where it is not true, null included."""
    return pc.invert(pc.fill_null(expected, False))


def _is_null(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.is_null(values, nan_is_null=pa.types.is_floating(values.type))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_float64(kind) or pa.types.is_decimal(kind))


def _is_ordered(kind: pa.DataType) -> bool:
    return _is_number(kind) or bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def _scalar(bound: int, kind: pa.DataType) -> pa.Scalar:
    """Of few digits, as those of both sides together are limited."""
    return pa.scalar(Decimal(bound) if pa.types.is_decimal(kind) else bound)


def _is_exact(bound: object) -> bool:
    return isinstance(bound, int | float) and abs(bound) < _EXACT


_BY_VALUE = frozenset(
    {
        "ExpectColumnValueLengthsToBeBetween",
        "ExpectColumnValueLengthsToEqual",
        "ExpectColumnValuesToBeDateutilParseable",
        "ExpectColumnValuesToBeJsonParseable",
        "ExpectColumnValuesToMatchJsonSchema",
        "ExpectColumnValuesToMatchRegex",
        "ExpectColumnValuesToMatchRegexList",
        "ExpectColumnValuesToMatchStrftimeFormat",
        "ExpectColumnValuesToNotMatchRegex",
        "ExpectColumnValuesToNotMatchRegexList",
    }
)
_OF_ROWS = _BY_VALUE | {
    "ExpectColumnPairValuesAToBeGreaterThanB",
    "ExpectColumnPairValuesToBeEqual",
    "ExpectColumnPairValuesToBeInSet",
    "ExpectColumnValuesToBeBetween",
    "ExpectColumnValuesToBeInSet",
    "ExpectColumnValuesToBeNull",
    "ExpectColumnValuesToNotBeInSet",
    "ExpectColumnValuesToNotBeNull",
    "ExpectMulticolumnSumToEqual",
    "ExpectMulticolumnValuesToBeEqual",
    "ExpectMulticolumnValuesToBeUnique",
    "ExpectSelectColumnValuesToBeUniqueWithinRecord",
}
