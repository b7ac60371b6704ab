"""Sum, minimum, maximum and mean: what they do to their aggregates, as functions for the aggregates of the kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal, Inexact, InvalidOperation, Overflow
from typing import Any, Generic, TypeVar

import msgspec

from deltaworks.dsl.mistakes import check_function
from deltaworks.dsl.point import Known, Point, Typed, Unknown
from deltaworks.serdes import Double, Json, Long, Serde
from deltaworks.serdes.inference import returned, without_none
from deltaworks.topology.nodes.aggregates import Aggregate
from deltaworks.topology.nodes.base import Origin
from deltaworks.topology.nodes.grouped_table import TableFold

T = TypeVar("T")

DIGITS = 1_000
"""The digits of a sum of Decimals; a sum that needs more fails its record instead of being rounded."""
_EXACT = Context(prec=DIGITS, rounding=ROUND_HALF_EVEN, traps=[Inexact, InvalidOperation, Overflow])
_ROUNDED = Context(prec=DIGITS, rounding=ROUND_HALF_EVEN, traps=[InvalidOperation, Overflow])
_SERDES: dict[Any, Serde[Any]] = {int: Long(), float: Double(), Decimal: Json(Decimal)}


class Total(msgspec.Struct, Generic[T], frozen=True):
    """The entry of a mean's store: the sum and the count."""

    sum: T
    count: int


_TOTALS: dict[Any, Serde[Any]] = {int: Json(Total[int]), float: Json(Total[float]), Decimal: Json(Total[Decimal])}


@dataclass(frozen=True)
class Numbers:
    """The numbers that an aggregate takes from its values."""

    selector: Callable[[Any], Any] | None
    kind: Any
    """`int`, `float` or `Decimal`; None: already reported."""

    @property
    def zero(self) -> Any:
        """Where a sum begins."""
        return Decimal(0) if self.kind is Decimal else 0.0 if self.kind is float else 0

    @property
    def serde(self) -> Serde[Any]:
        """The serde of a sum."""
        return _SERDES.get(self.kind, _SERDES[int])

    @property
    def totals(self) -> Serde[Any]:
        """The serde of a mean's sum and count."""
        return _TOTALS.get(self.kind, _TOTALS[int])

    @property
    def mean(self) -> Any:
        """The type of a mean."""
        return float if self.kind is float else Decimal

    def of(self, value: Any) -> Any:
        """The number of a value; None if it has none."""
        number = value if self.selector is None or value is None else self.selector(value)
        if number is None:
            return None
        if self.kind is float and isinstance(number, int | float):
            return float(number)
        if self.kind is Decimal and isinstance(number, Decimal | int):
            number = Decimal(number)
            if not number.is_finite():
                raise ValueError(f"{number} is no number")
            return number
        if self.kind is int and isinstance(number, int):
            return number
        raise TypeError(f"the number is {type(number).__name__}, not {self.kind.__name__}")

    def plus(self, one: Any, other: Any) -> Any:
        """The exact sum; of floats, the rounded one."""
        return _EXACT.add(one, other) if self.kind is Decimal else self._fitting(one + other)

    def minus(self, one: Any, other: Any) -> Any:
        """The exact difference."""
        return _EXACT.subtract(one, other) if self.kind is Decimal else self._fitting(one - other)

    def _fitting(self, total: Any) -> Any:
        if self.kind is int and not -(2**63) <= total < 2**63:
            raise OverflowError(f"the sum {total} does not fit into 64 bits; Decimal has no such limit")
        return total


def numbers(
    at: Point,
    selector: Callable[[Any], Any] | None,
    value: Typed[Any] | None,
    operator: str,
    where: Origin,
    *,
    exact: bool = False,
) -> Numbers:
    """The numbers of the values at a point; reports a type that is none.

    Args:
        exact: floats are none, because a float that was added cannot be subtracted exactly.
    """
    known = selected(at, selector, value, operator, where)
    kind = without_none(getattr(known, "type", None))
    if kind not in _SERDES or (exact and kind is float):
        if isinstance(known, Unknown):
            at.need(known, operator=operator, argument="value", where=where)
        else:
            at.graph.report(
                f"{operator} takes int{'' if exact else ', float'} and Decimal, not {known.name}.",
                where,
                f"{operator}(lambda order: order.amount, value=Decimal, store='...')",
            )
        kind = None
    return Numbers(selector, kind)


def selected(
    at: Point, selector: Callable[[Any], Any] | None, value: Typed[Any] | None, operator: str, where: Origin
) -> Known:
    """The type of what a selector makes, or of the values themselves."""
    if selector is None:
        return at.value_or(value, operator=operator, where=where)
    check_function(at.graph, selector, "selector(value)", operator=operator, where=where)
    return at.settle(value, returned(selector), operator=operator, argument="value", where=where)


def check_ordered(at: Point, known: Known, operator: str, where: Origin) -> None:
    """Reports values of a type that has no order."""
    kind = without_none(getattr(known, "type", None))
    if isinstance(kind, type) and not _has_order(kind):
        at.graph.report(
            f"{operator} compares values, but those of {known.name} have no order.",
            where,
            f"{operator}(lambda order: order.amount, value=Decimal, store='...')",
        )


def _has_order(kind: type) -> bool:
    if issubclass(kind, msgspec.Struct):
        return bool(kind.__struct_config__.order)
    return any("__lt__" in vars(each) for each in kind.__mro__ if each is not object)


def sums(numbers: Numbers) -> Aggregate:
    """Adds numbers up; None before the first."""

    def plus(one: Any, other: Any) -> Any:
        return other if one is None else one if other is None else numbers.plus(one, other)

    return Aggregate(
        lambda: None,
        lambda _, value, total: plus(total, numbers.of(value)),
        lambda _, total, other: plus(total, other),
    )


def totals(numbers: Numbers) -> Aggregate:
    """Adds numbers up and counts them; None before the first."""

    def plus(one: Total[Any] | None, other: Total[Any] | None) -> Any:
        if one is None or other is None:
            return one or other
        return Total(numbers.plus(one.sum, other.sum), one.count + other.count)

    def total(value: Any) -> Total[Any] | None:
        return None if (number := numbers.of(value)) is None else Total(number, 1)

    return Aggregate(
        lambda: None,
        lambda _, value, so_far: plus(so_far, total(value)),
        lambda _, so_far, other: plus(so_far, other),
    )


def extremes(selector: Callable[[Any], Any] | None, *, largest: bool) -> Aggregate:
    """Keeps the smallest or the largest; of equal ones, the first."""

    def better(one: Any, other: Any) -> Any:
        if one is None or other is None:
            return other if one is None else one
        wins = one < other if largest else other < one
        return other if wins else one

    def ordered(value: Any) -> Any:
        chosen = value if selector is None or value is None else selector(value)
        if chosen != chosen:
            raise ValueError(f"{chosen} is neither smaller nor larger than another value")
        return chosen

    return Aggregate(
        lambda: None,
        lambda _, value, so_far: better(so_far, ordered(value)),
        lambda _, so_far, other: better(so_far, other),
    )


def table_sums(numbers: Numbers) -> TableFold:
    """Adds the numbers of rows that enter a group, subtracts those of rows that leave it."""

    def changed(change: Callable[[Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
        def fold(_: Any, value: Any, total: Any) -> Any:
            return total if (number := numbers.of(value)) is None else change(total, number)

        return fold

    return TableFold(lambda: numbers.zero, changed(numbers.plus), changed(numbers.minus))


def table_totals(numbers: Numbers) -> TableFold:
    """`table_sums` with a count."""

    def changed(change: Callable[[Any, Any], Any], rows: int) -> Callable[[Any, Any, Any], Any]:
        def fold(_: Any, value: Any, total: Total[Any]) -> Any:
            number = numbers.of(value)
            return total if number is None else Total(change(total.sum, number), total.count + rows)

        return fold

    return TableFold(lambda: Total(numbers.zero, 0), changed(numbers.plus, 1), changed(numbers.minus, -1))


def quotient(scale: int) -> Callable[[Total[Any]], Any]:
    """The mean of a total; None of nothing.

    Args:
        scale: digits after the point, for all but floats.
    """
    step = Decimal(1).scaleb(-scale)

    def mean(total: Total[Any]) -> Any:
        if total.count == 0:
            return None
        if isinstance(total.sum, float):
            return total.sum / total.count
        return _ROUNDED.quantize(_ROUNDED.divide(Decimal(total.sum), Decimal(total.count)), step)

    return mean
