"""Grouped streams: aggregates per key, and the way to windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

from deltaworks.dsl.cogrouped import CogroupedKStream
from deltaworks.dsl.graph import call_site
from deltaworks.dsl.ktable import KTable
from deltaworks.dsl.materialize import Grouping, Wanted, aggregated
from deltaworks.dsl.materialized import Stored
from deltaworks.dsl.mistakes import check_function, need_windows
from deltaworks.dsl.number_aggregates import NumberAggregates
from deltaworks.dsl.point import Typed
from deltaworks.dsl.shown import handle
from deltaworks.dsl.windowed import SessionWindowedKStream, TimeWindowedKStream
from deltaworks.serdes import Long
from deltaworks.serdes.inference import returned
from deltaworks.topology.nodes.aggregates import Aggregate, Count, Reduce
from deltaworks.topology.windows import (
    AnyWindows,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
    Windows,
)

K = TypeVar("K")
V = TypeVar("V")
VA = TypeVar("VA")


class KGroupedStream(NumberAggregates[K, V], Generic[K, V]):
    """A stream grouped by key; a handle, made by `group_by_key` and `group_by`.

    Aggregates per key drop null keys and null values.

    >>> from deltaworks import StreamsBuilder
    >>> from deltaworks.testing import TopologyTestDriver
    >>> builder = StreamsBuilder()
    >>> words = builder.stream("words", key=str, value=str)
    >>> words.group_by(lambda _, word: word, key=str).count(store="counts").to_stream().to("totals")
    >>> driver = TopologyTestDriver(builder.build())
    >>> driver.create_input_topic("words").pipe_value_list(["to", "be", "or", "not", "to", "be"])
    >>> driver.create_output_topic("totals").read_key_values_to_list()[-2:]
    [('to', 2), ('be', 2)]
    """

    def __init__(self, grouping: Grouping) -> None:
        self.grouping = grouping

    def __repr__(self) -> str:
        return handle(self, self.grouping.at)

    def count(self, *, store: Stored = "", name: str | None = None) -> KTable[K, int]:
        """Counts records per key.

        Shape: `-> KTable[K, int]`; n records -> 1 row per key, updated.

        Args:
            store: name of its store; part of the pipeline's state, so keep it.
            name: name of the node.

        State: a count per key, for ever.
        Source: `KGroupedStream#count`; differs: no.
        """
        return aggregated(self.grouping, Wanted("count", Count(), Long(), store, call_site(), name))

    def reduce(self, reducer: Callable[[V, V], V], *, store: Stored = "", name: str | None = None) -> KTable[K, V]:
        """Combines the values per key.

        Shape: `-> KTable[K, V]`; n records -> 1 row per key, updated.

        Args:
            reducer: `(aggregate, value) -> aggregate`; not called for the first value. None deletes the row.
            store: name of its store; part of the pipeline's state, so keep it.
            name: name of the node.

        State: a value per key, for ever.
        Source: `KGroupedStream#reduce`; differs: no.
        """
        where = call_site()
        check_function(self.grouping.at.graph, reducer, "reducer(aggregate, value)", operator="reduce", where=where)
        wanted = Wanted("reduce", Reduce(reducer), self.grouping.at.value, store, where, name)
        return aggregated(self.grouping, wanted)

    def aggregate(
        self,
        initializer: Callable[[], VA],
        aggregator: Callable[[K, V, VA], VA],
        *,
        value: Typed[VA] | None = None,
        store: Stored = "",
        name: str | None = None,
    ) -> KTable[K, VA]:
        """Folds the values per key into an aggregate of any type.

        Shape: `-> KTable[K, VA]`; n records -> 1 row per key, updated.

        Args:
            initializer: `() -> aggregate`, called for a key that has none.
            aggregator: `(key, value, aggregate) -> aggregate`; None deletes the row, and so does a function that
                changes the aggregate and returns nothing.
            value: type or serde of the aggregate, if neither function says what it returns.
            store: name of its store; part of the pipeline's state, so keep it.
            name: name of the node.

        State: an aggregate per key, for ever.
        Source: `KGroupedStream#aggregate`; differs: no.
        """
        where = call_site()
        check_function(self.grouping.at.graph, initializer, "initializer()", operator="aggregate", where=where)
        check_function(
            self.grouping.at.graph, aggregator, "aggregator(key, value, aggregate)", operator="aggregate", where=where
        )
        known = self.grouping.at.settle(
            value, returned(aggregator) or returned(initializer), operator="aggregate", argument="value", where=where
        )
        return aggregated(
            self.grouping, Wanted("aggregate", Aggregate(initializer, aggregator), known, store, where, name)
        )

    def cogroup(
        self, aggregator: Callable[[K, V, VA], VA], *, value: Typed[VA] | None = None
    ) -> CogroupedKStream[K, VA]:
        """Begins an aggregate of several streams; add the others with `CogroupedKStream.cogroup`.

        Args:
            aggregator: `(key, value, aggregate) -> aggregate`, for the records of this stream.
            value: type or serde of the aggregate, if no aggregator says what it returns.

        Source: `KGroupedStream#cogroup`; differs: no.
        """
        where = call_site()
        check_function(
            self.grouping.at.graph, aggregator, "aggregator(key, value, aggregate)", operator="cogroup", where=where
        )
        return CogroupedKStream(((self.grouping, aggregator),), value, where)

    def _aggregated(self, wanted: Wanted) -> KTable[K, Any]:
        return aggregated(self.grouping, wanted)

    @overload
    def windowed_by(
        self, windows: TimeWindows | UnlimitedWindows | SlidingWindows | Windows
    ) -> TimeWindowedKStream[K, V]: ...

    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedKStream[K, V]: ...

    def windowed_by(self, windows: AnyWindows) -> TimeWindowedKStream[K, V] | SessionWindowedKStream[K, V]:
        """Cuts the stream of each key by time.

        Args:
            windows: `TimeWindows` (tumbling, hopping), `SlidingWindows`, `SessionWindows`, `UnlimitedWindows` or your
                own `Windows`.

        Source: `KGroupedStream#windowedBy`; differs: no.
        """
        need_windows(self.grouping.at.graph, windows)
        match windows:
            case SessionWindows():
                return SessionWindowedKStream(self.grouping, windows)
            case _:
                return TimeWindowedKStream(self.grouping, windows)
