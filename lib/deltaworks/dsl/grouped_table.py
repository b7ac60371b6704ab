"""Regrouped tables: aggregates over the rows that are currently in a group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any, Generic, TypeVar, overload

from deltaworks.dsl import numbers
from deltaworks.dsl.exchanges import table_exchange
from deltaworks.dsl.graph import call_site
from deltaworks.dsl.ktable import KTable
from deltaworks.dsl.materialized import Materialized, Stored, own_store
from deltaworks.dsl.mistakes import Handle, check_function, check_scale
from deltaworks.dsl.number_aggregates import E, divided
from deltaworks.dsl.point import Known, Point, Typed
from deltaworks.dsl.shown import handle
from deltaworks.serdes import Long
from deltaworks.serdes.inference import returned
from deltaworks.topology.nodes import TableAggregate
from deltaworks.topology.nodes.base import Origin
from deltaworks.topology.nodes.grouped_table import TableFold, TableReduce

K = TypeVar("K")
V = TypeVar("V")
VA = TypeVar("VA")

_AGGREGATE = "KTABLE-AGGREGATE-"


class KGroupedTable(Handle, Generic[K, V]):
    """A regrouped table; a handle, made by `KTable.group_by`.

    A changed row leaves its old group and enters its new one, so aggregates can go down as well as up.

    >>> from deltaworks import StreamsBuilder
    >>> from deltaworks.testing import TopologyTestDriver
    >>> builder = StreamsBuilder()
    >>> cities = builder.table("cities", key=str, value=str, store="cities")
    >>> inhabitants = cities.group_by(lambda name, city: (city, name), key=str, value=str).count(store="inhabitants")
    >>> inhabitants.to_stream().to("inhabitants")
    >>> driver = TopologyTestDriver(builder.build())
    >>> moves = driver.create_input_topic("cities")
    >>> moves.pipe_key_value_list([("ann", "Gouda"), ("bob", "Gouda"), ("ann", "Utrecht")])
    >>> driver.create_output_topic("inhabitants").read_key_values_to_list()
    [('Gouda', 1), ('Gouda', 2), ('Gouda', 1), ('Utrecht', 1)]

    Args:
        at: the output with the values that leave and enter groups.
        name: name of the exchange. Aggregates of this grouping share a named exchange; without a name, each makes its
            own.
    """

    def __init__(self, at: Point, name: str | None) -> None:
        self._at = at
        self._name = name

    def __repr__(self) -> str:
        return handle(self, self._at)

    def count(self, *, store: Stored = "", name: str | None = None) -> KTable[K, int]:
        """Counts the rows per group. A group whose last row has left keeps a count of 0.

        Shape: `-> KTable[K, int]`; n rows -> 1 row per group, updated.

        Args:
            store: name of its store; part of the pipeline's state, so keep it.
            name: name of the node.

        State: a count per group, for ever.
        Source: `KGroupedTable#count`; differs: no.
        """
        fold = TableFold(lambda: 0, lambda _, value, count: count + 1, lambda _, value, count: count - 1)
        return self._aggregated(fold, _AGGREGATE, Long(), "count", store, name, call_site())

    @overload
    def sum(self: KGroupedTable[K, int], *, store: Stored = "", name: str | None = None) -> KTable[K, int]: ...

    @overload
    def sum(self: KGroupedTable[K, Decimal], *, store: Stored = "", name: str | None = None) -> KTable[K, Decimal]: ...

    @overload
    def sum(
        self, selector: Callable[[V], E | None], *, value: Typed[E] | None = None, store: Stored = "",
        name: str | None = None,
    ) -> KTable[K, E]: ...  # fmt: skip

    def sum(
        self,
        selector: Callable[[Any], Any] | None = None,
        *,
        value: Typed[Any] | None = None,
        store: Stored = "",
        name: str | None = None,
    ) -> KTable[K, Any]:
        """Adds up a number of each row that is in the group. A group whose last row has left keeps a sum of 0.

        The sum is exact, as in `KGroupedStream.sum`; floats are refused, since what was added cannot be subtracted
        exactly.

        Shape: `-> KTable[K, int | Decimal]`; n rows -> 1 row per group, updated.

        Args:
            selector: `value -> number`; None: the values are numbers.
            value: type of the numbers, if the selector has no return annotation.
            store: name of its store; part of the pipeline's state, so keep it.
            name: name of the node.

        State: a sum per group, for ever.
        Source: no; `aggregate` of Kafka Streams with a sum.
        """
        where = call_site()
        what = numbers.numbers(self._at, selector, value, "sum", where, exact=True)
        return self._aggregated(numbers.table_sums(what), _AGGREGATE, what.serde, "sum", store, name, where)

    @overload
    def mean(
        self: KGroupedTable[K, int], *, scale: int = 18, store: Stored = "", name: str | None = None
    ) -> KTable[K, Decimal]: ...

    @overload
    def mean(
        self: KGroupedTable[K, Decimal], *, scale: int = 18, store: Stored = "", name: str | None = None
    ) -> KTable[K, Decimal]: ...

    @overload
    def mean(
        self, selector: Callable[[V], E | None], *, value: Typed[E] | None = None, scale: int = 18, store: Stored = "",
        name: str | None = None,
    ) -> KTable[K, Decimal]: ...  # fmt: skip

    def mean(
        self,
        selector: Callable[[Any], Any] | None = None,
        *,
        value: Typed[Any] | None = None,
        scale: int = 18,
        store: Stored = "",
        name: str | None = None,
    ) -> KTable[K, Any]:
        """The mean of a number of each row that is in the group. A group whose last row has left has none.

        The quotient of exact sum and count, as in `KGroupedStream.mean`; floats are refused.

        Shape: `-> KTable[K, Decimal]`; n rows -> 1 row per group, updated.

        Args:
            selector: `value -> number`; None: the values are numbers.
            value: type of the numbers, if the selector has no return annotation.
            scale: digits after the point; the default is what a DECIMAL column has.
            store: name of its store; part of the pipeline's state, so keep it.
            name: name of the node that adds up; the one that divides is called `<name>-quotient`.

        State: a sum and a count per group, for ever.
        Source: no; `aggregate` and `mapValues` of Kafka Streams.
        """
        where = call_site()
        check_scale(self._at.graph, scale, operator="mean", where=where)
        what = numbers.numbers(self._at, selector, value, "mean", where, exact=True)
        table = self._aggregated(numbers.table_totals(what), _AGGREGATE, what.totals, "mean", store, name, where)
        return divided(table, what, scale, name)

    def reduce(
        self,
        adder: Callable[[V, V], V],
        subtractor: Callable[[V, V], V],
        *,
        store: Stored = "",
        name: str | None = None,
    ) -> KTable[K, V]:
        """Combines the values per group.

        Shape: `-> KTable[K, V]`; n rows -> 1 row per group, updated.

        Args:
            adder: `(aggregate, value) -> aggregate` for a value that enters the group; not called for the first.
            subtractor: `(aggregate, value) -> aggregate` for a value that leaves it. None deletes the row.
            store: name of its store; part of the pipeline's state, so keep it.
            name: name of the node.

        State: a value per group, for ever.
        Source: `KGroupedTable#reduce`; differs: no.
        """
        where = call_site()
        check_function(self._at.graph, adder, "adder(aggregate, value)", operator="reduce", where=where)
        check_function(self._at.graph, subtractor, "subtractor(aggregate, value)", operator="reduce", where=where)
        reduce = TableReduce(adder, subtractor)
        return self._aggregated(reduce, "KTABLE-REDUCE-", self._at.value, "reduce", store, name, where)

    def aggregate(
        self,
        initializer: Callable[[], VA],
        adder: Callable[[K, V, VA], VA],
        subtractor: Callable[[K, V, VA], VA],
        *,
        value: Typed[VA] | None = None,
        store: Stored = "",
        name: str | None = None,
    ) -> KTable[K, VA]:
        """Folds the values per group into an aggregate of any type.

        Shape: `-> KTable[K, VA]`; n rows -> 1 row per group, updated.

        Args:
            initializer: `() -> aggregate`, called for a group that has none.
            adder: `(group, value, aggregate) -> aggregate` for a value that enters the group.
            subtractor: the same for a value that leaves it. None deletes the row.
            value: type or serde of the aggregate, if no function says what it returns.
            store: name of its store; part of the pipeline's state, so keep it.
            name: name of the node.

        State: an aggregate per group, for ever.
        Source: `KGroupedTable#aggregate`; differs: no.
        """
        where = call_site()
        check_function(self._at.graph, initializer, "initializer()", operator="aggregate", where=where)
        check_function(self._at.graph, adder, "adder(key, value, aggregate)", operator="aggregate", where=where)
        check_function(
            self._at.graph, subtractor, "subtractor(key, value, aggregate)", operator="aggregate", where=where
        )
        hinted = returned(adder) or returned(subtractor) or returned(initializer)
        known = self._at.settle(value, hinted, operator="aggregate", argument="value", where=where)
        fold = TableFold(initializer, adder, subtractor)
        return self._aggregated(fold, _AGGREGATE, known, "aggregate", store, name, where)

    def _aggregated(
        self,
        aggregation: TableFold | TableReduce,
        prefix: str,
        value: Known,
        operator: str,
        store: Stored,
        name: str | None,
        where: Origin,
    ) -> KTable[Any, Any]:
        """Source: `KGroupedTableImpl#doAggregate`."""
        graph, given = self._at.graph, Materialized.of(store)
        kept = replace(given, name=graph.store_name(given.name, _AGGREGATE))
        sink = graph.name_of(f"{name}-sink" if name else None, "KSTREAM-SINK-")
        source = graph.name_of(f"{name}-source" if name else None, "KSTREAM-SOURCE-")
        node_name = graph.name_of(name, prefix)
        at = table_exchange(self._at, self._name or kept.name, (sink, source), operator=operator, where=where)
        if not given.name:
            graph.demand_name(operator, where)
        node = TableAggregate(
            name=node_name,
            parents=(at.node,),
            aggregation=aggregation,
            store=own_store(at, kept, value=value, operator=operator, where=where),
            origin=where,
        )
        return KTable(at.then(node, key=kept.key, value=kept.value or value))
