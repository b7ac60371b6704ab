"""Sum, minimum, maximum and mean, which grouped streams have with windows and without."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, overload

from deltaworks.dsl import numbers
from deltaworks.dsl.graph import call_site
from deltaworks.dsl.ktable import KTable
from deltaworks.dsl.materialize import Grouping, Wanted
from deltaworks.dsl.materialized import Stored
from deltaworks.dsl.mistakes import Handle, check_scale
from deltaworks.dsl.point import Typed


class _Ordered(Protocol):
    def __lt__(self, other: Any, /) -> bool: ...


R = TypeVar("R")
"""The key of the result: the key of the group, with its window if there is one."""
V = TypeVar("V")
N = TypeVar("N", int, float, Decimal)
E = TypeVar("E", int, Decimal)
"""Numbers whose mean is a Decimal."""
C = TypeVar("C", bound=_Ordered)


class NumberAggregates(Handle, Generic[R, V]):
    """The operators of `KGroupedStream`, `TimeWindowedKStream` and `SessionWindowedKStream` that take numbers.

    Null values, and values for which a selector returns None, are left out; a group of nothing else has no row.
    `store=Materialized(name, retention=...)` says how long windows are kept.
    """

    if TYPE_CHECKING:
        grouping: Grouping

    @overload
    def sum(self: NumberAggregates[R, int], *, store: Stored = "", name: str | None = None) -> KTable[R, int]: ...

    @overload
    def sum(self: NumberAggregates[R, float], *, store: Stored = "", name: str | None = None) -> KTable[R, float]: ...

    @overload
    def sum(
        self: NumberAggregates[R, Decimal], *, store: Stored = "", name: str | None = None
    ) -> KTable[R, Decimal]: ...

    @overload
    def sum(
        self, selector: Callable[[V], N | None], *, value: Typed[N] | None = None, store: Stored = "",
        name: str | None = None,
    ) -> KTable[R, N]: ...  # fmt: skip

    def sum(
        self,
        selector: Callable[[Any], Any] | None = None,
        *,
        value: Typed[Any] | None = None,
        store: Stored = "",
        name: str | None = None,
    ) -> KTable[R, Any]:
        """Adds up a number of each value.

        Sums of `int` and `Decimal` are exact: a record whose sum would need more than 64 bits, or 1,000 digits of a
        Decimal, fails. Floats are added in the order of their records, each sum rounded as Python does.

        Shape: `-> KTable[R, N]`; n records -> 1 row per group, updated. `R` is the key, with its window if any.

        Args:
            selector: `value -> number`; None: the values are numbers.
            value: type of the numbers, if the selector has no return annotation.
            store: name of its store; part of the pipeline's state, so keep it.
            name: name of the node.

        State: a number per group, for ever or for the retention of its window.
        Source: no; `aggregate` of Kafka Streams with a sum.

        >>> from deltaworks import StreamsBuilder
        >>> from deltaworks.testing import TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> amounts = builder.stream("amounts", key=str, value=Decimal)
        >>> amounts.group_by_key().sum(store="revenue").to_delta("revenue")
        >>> driver = TopologyTestDriver(builder.build())
        >>> topic = driver.create_input_topic("amounts")
        >>> topic.pipe_key_value_list([("ann", Decimal("0.10")), ("ann", Decimal("0.20"))])
        >>> driver.table("revenue").rows
        {'ann': Decimal('0.30')}
        """
        where = call_site()
        what = numbers.numbers(self.grouping.at, selector, value, "sum", where)
        return self._aggregated(Wanted("sum", numbers.sums(what), what.serde, store, where, name))

    @overload
    def min(self: NumberAggregates[R, C], *, store: Stored = "", name: str | None = None) -> KTable[R, C]: ...

    @overload
    def min(
        self, selector: Callable[[V], C | None], *, value: Typed[C] | None = None, store: Stored = "",
        name: str | None = None,
    ) -> KTable[R, C]: ...  # fmt: skip

    def min(
        self,
        selector: Callable[[Any], Any] | None = None,
        *,
        value: Typed[Any] | None = None,
        store: Stored = "",
        name: str | None = None,
    ) -> KTable[R, Any]:
        """Keeps the smallest of what a selector returns, or of the values; of equal ones, the first.

        Shape: `-> KTable[R, C]`; n records -> 1 row per group, updated. `R` is the key, with its window if any.

        Args:
            selector: `value -> what is compared`: a number, text, a time, anything that has an order.
            value: type of what is compared, if the selector has no return annotation.
            store: name of its store; part of the pipeline's state, so keep it.
            name: name of the node.

        State: a value per group, for ever or for the retention of its window.
        Source: no; `aggregate` of Kafka Streams with a minimum.
        """
        return self._extreme("min", selector, value, store, name)

    @overload
    def max(self: NumberAggregates[R, C], *, store: Stored = "", name: str | None = None) -> KTable[R, C]: ...

    @overload
    def max(
        self, selector: Callable[[V], C | None], *, value: Typed[C] | None = None, store: Stored = "",
        name: str | None = None,
    ) -> KTable[R, C]: ...  # fmt: skip

    def max(
        self,
        selector: Callable[[Any], Any] | None = None,
        *,
        value: Typed[Any] | None = None,
        store: Stored = "",
        name: str | None = None,
    ) -> KTable[R, Any]:
        """Keeps the largest of what a selector returns, or of the values; of equal ones, the first. See `min`.

        Shape: `-> KTable[R, C]`; n records -> 1 row per group, updated. `R` is the key, with its window if any.

        Source: no; `aggregate` of Kafka Streams with a maximum.
        """
        return self._extreme("max", selector, value, store, name)

    @overload
    def mean(
        self: NumberAggregates[R, int], *, scale: int = 18, store: Stored = "", name: str | None = None
    ) -> KTable[R, Decimal]: ...

    @overload
    def mean(
        self: NumberAggregates[R, float], *, scale: int = 18, store: Stored = "", name: str | None = None
    ) -> KTable[R, float]: ...

    @overload
    def mean(
        self: NumberAggregates[R, Decimal], *, scale: int = 18, store: Stored = "", name: str | None = None
    ) -> KTable[R, Decimal]: ...

    @overload
    def mean(  # type: ignore[overload-overlap]  # of a selector that returns nothing but None
        self, selector: Callable[[V], E | None], *, value: Typed[E] | None = None, scale: int = 18, store: Stored = "",
        name: str | None = None,
    ) -> KTable[R, Decimal]: ...  # fmt: skip

    @overload
    def mean(
        self, selector: Callable[[V], float | None], *, value: Typed[float] | None = None, scale: int = 18,
        store: Stored = "", name: str | None = None,
    ) -> KTable[R, float]: ...  # fmt: skip

    def mean(
        self,
        selector: Callable[[Any], Any] | None = None,
        *,
        value: Typed[Any] | None = None,
        scale: int = 18,
        store: Stored = "",
        name: str | None = None,
    ) -> KTable[R, Any]:
        """The mean of a number of each value.

        The store keeps the sum, as exact as that of `sum`, and the count. The mean of `int` and `Decimal` is a
        `Decimal`: their exact quotient, rounded half to even to `scale` digits after the point. That of floats is a
        float.

        Shape: `-> KTable[R, Decimal | float]`; n records -> 1 row per group, updated. `R` is the key, with its window.

        Args:
            selector: `value -> number`; None: the values are numbers.
            value: type of the numbers, if the selector has no return annotation.
            scale: digits after the point; the default is what a DECIMAL column has.
            store: name of its store; part of the pipeline's state, so keep it.
            name: name of the node that adds up; the one that divides is called `<name>-quotient`.

        State: a sum and a count per group, for ever or for the retention of its window.
        Source: no; `aggregate` and `mapValues` of Kafka Streams.
        """
        where = call_site()
        check_scale(self.grouping.at.graph, scale, operator="mean", where=where)
        what = numbers.numbers(self.grouping.at, selector, value, "mean", where)
        table = self._aggregated(Wanted("mean", numbers.totals(what), what.totals, store, where, name))
        return divided(table, what, scale, name)

    @abstractmethod
    def _aggregated(self, wanted: Wanted) -> KTable[R, Any]:
        """The table of an aggregate."""

    def _extreme(
        self,
        operator: str,
        selector: Callable[[Any], Any] | None,
        value: Typed[Any] | None,
        store: Stored,
        name: str | None,
    ) -> KTable[R, Any]:
        where = call_site()
        known = numbers.selected(self.grouping.at, selector, value, operator, where)
        numbers.check_ordered(self.grouping.at, known, operator, where)
        does = numbers.extremes(selector, largest=operator == "max")
        return self._aggregated(Wanted(operator, does, known, store, where, name))


def divided(table: KTable[R, Any], what: numbers.Numbers, scale: int, name: str | None) -> KTable[R, Any]:
    """The means of a table of totals."""
    mean: KTable[R, Any] = table.map_values(
        numbers.quotient(scale), value=what.mean, name=None if name is None else f"{name}-quotient"
    )
    return mean
