"""Grouped streams cut by time: aggregates per key and window."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Generic, TypeVar

from deltaworks.dsl.graph import call_site
from deltaworks.dsl.ktable import KTable
from deltaworks.dsl.materialize import Grouping, Wanted, aggregated
from deltaworks.dsl.materialized import Stored
from deltaworks.dsl.mistakes import check_function, need_value
from deltaworks.dsl.number_aggregates import NumberAggregates
from deltaworks.dsl.point import Typed
from deltaworks.dsl.shown import handle
from deltaworks.serdes import Long, Windowed
from deltaworks.serdes.inference import returned
from deltaworks.topology.nodes.aggregates import Aggregate, Count, Reduce
from deltaworks.topology.windows import (
    EmitStrategy,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
    Windows,
)

K = TypeVar("K")
V = TypeVar("V")
VA = TypeVar("VA")


class TimeWindowedKStream(NumberAggregates[Windowed[K], V], Generic[K, V]):
    """A grouped stream cut into windows of any kind but sessions; a handle, made by `windowed_by`.

    A record counts for a window `[start, end)` as long as stream time has not reached `end + grace`, for a sliding
    window `[first, last]` as long as stream time has not passed `last + grace`. Null keys are dropped; sliding
    windows drop null values too. Results are forwarded as they change, with the time of the window's latest record.

    >>> from deltaworks import StreamsBuilder
    >>> from deltaworks.testing import TopologyTestDriver
    >>> builder = StreamsBuilder()
    >>> clicks = builder.stream("clicks", key=str, value=str).group_by_key()
    >>> minutes = TimeWindows(size=timedelta(minutes=1), grace=timedelta(0))
    >>> clicks.windowed_by(minutes).count(store="clicks").to_delta("clicks")
    >>> driver = TopologyTestDriver(builder.build())
    >>> for time in (1_000, 59_999, 60_000, 2_000):  # the last one comes after its window has ended
    ...     driver.create_input_topic("clicks").pipe_input("ann", "click", timestamp_ms=time)
    >>> {str(key): count for key, count in driver.table("clicks").rows.items()}
    {'[ann@0/60000]': 2, '[ann@60000/120000]': 1}
    """

    def __init__(
        self,
        grouping: Grouping,
        windows: TimeWindows | UnlimitedWindows | SlidingWindows | Windows,
        emit: EmitStrategy = EmitStrategy.ON_WINDOW_UPDATE,
    ) -> None:
        self.grouping = grouping
        self.windows = windows
        self.emit = emit

    def __repr__(self) -> str:
        return handle(self, self.grouping.at, repr(self.windows))

    def emit_strategy(self, emit: EmitStrategy) -> TimeWindowedKStream[K, V]:
        """When results are forwarded: at every update, or once when the window has closed.

        A window has closed when its end (the millisecond after it for a sliding window) is `grace` ago in stream
        time; the next record then sends its result. The window is kept until then. In Kafka Streams it is lost if that
        record is further ahead than the retention; `StreamsBuilder(compatible_with_kafka=True)` does the same,
        except with your own `Windows`.

        Args:
            emit: `EmitStrategy.ON_WINDOW_CLOSE` is refused on unlimited windows, which never close.

        Source: `TimeWindowedKStream#emitStrategy`; differs: returns a new handle, `emit_interval` is 0 by default, and
        no result is lost by default.
        """
        need_value(self.grouping.at.graph, emit, EmitStrategy, "EmitStrategy.ON_WINDOW_CLOSE", "emit_strategy")
        if emit is EmitStrategy.ON_WINDOW_CLOSE and isinstance(self.windows, UnlimitedWindows):
            self.grouping.at.graph.report(
                "emit_strategy: unlimited windows never close, so nothing would ever be forwarded.",
                call_site(),
                "leave out emit_strategy(EmitStrategy.ON_WINDOW_CLOSE), or use TimeWindows",
            )
        return TimeWindowedKStream(self.grouping, self.windows, emit)

    def count(
        self, *, store: Stored = "", retention: timedelta | None = None, name: str | None = None
    ) -> KTable[Windowed[K], int]:
        """Counts records per key and window.

        Shape: `-> KTable[Windowed[K], int]`; n records -> 1 row per key and window, updated.

        Args:
            store: name of its store; part of the pipeline's state, so keep it.
            retention: how long the store keeps a window; at least, and by default, size plus grace, for sliding
                windows twice the difference plus grace.
            name: name of the node.

        State: a count per key and window, for `retention`.
        Source: `TimeWindowedKStream#count`; differs: no.
        """
        wanted = Wanted("count", Count(), Long(), store, call_site(), name)
        return aggregated(self.grouping, wanted, self.windows, retention=retention, emit=self.emit)

    def reduce(
        self,
        reducer: Callable[[V, V], V],
        *,
        store: Stored = "",
        retention: timedelta | None = None,
        name: str | None = None,
    ) -> KTable[Windowed[K], V]:
        """Combines the values per key and window.

        Shape: `-> KTable[Windowed[K], V]`; n records -> 1 row per key and window, updated.

        Args:
            reducer: `(aggregate, value) -> aggregate`; not called for the first value.
            store: name of its store; part of the pipeline's state, so keep it.
            retention: how long the store keeps a window; at least, and by default, size plus grace, for sliding
                windows twice the difference plus grace.
            name: name of the node.

        State: a value per key and window, for `retention`.
        Source: `TimeWindowedKStream#reduce`; differs: no.
        """
        where = call_site()
        check_function(self.grouping.at.graph, reducer, "reducer(aggregate, value)", operator="reduce", where=where)
        wanted = Wanted("reduce", Reduce(reducer), self.grouping.at.value, store, where, name)
        return aggregated(self.grouping, wanted, self.windows, retention=retention, emit=self.emit)

    def aggregate(
        self,
        initializer: Callable[[], VA],
        aggregator: Callable[[K, V, VA], VA],
        *,
        value: Typed[VA] | None = None,
        store: Stored = "",
        retention: timedelta | None = None,
        name: str | None = None,
    ) -> KTable[Windowed[K], VA]:
        """Folds the values per key and window into an aggregate of any type.

        Shape: `-> KTable[Windowed[K], VA]`; n records -> 1 row per key and window, updated.

        Args:
            initializer: `() -> aggregate`, called for each new window.
            aggregator: `(key, value, aggregate) -> aggregate`; None deletes the row, and so does a function that
                changes the aggregate and returns nothing.
            value: type or serde of the aggregate, if neither function says what it returns.
            store: name of its store; part of the pipeline's state, so keep it.
            retention: how long the store keeps a window; at least, and by default, size plus grace, for sliding
                windows twice the difference plus grace.
            name: name of the node.

        State: an aggregate per key and window, for `retention`.
        Source: `TimeWindowedKStream#aggregate`; differs: no.
        """
        where = call_site()
        check_function(self.grouping.at.graph, initializer, "initializer()", operator="aggregate", where=where)
        check_function(
            self.grouping.at.graph, aggregator, "aggregator(key, value, aggregate)", operator="aggregate", where=where
        )
        known = self.grouping.at.settle(
            value, returned(aggregator) or returned(initializer), operator="aggregate", argument="value", where=where
        )
        wanted = Wanted("aggregate", Aggregate(initializer, aggregator), known, store, where, name)
        return aggregated(self.grouping, wanted, self.windows, retention=retention, emit=self.emit)

    def _aggregated(self, wanted: Wanted) -> KTable[Windowed[K], Any]:
        return aggregated(self.grouping, wanted, self.windows, emit=self.emit)


class SessionWindowedKStream(NumberAggregates[Windowed[K], V], Generic[K, V]):
    """A grouped stream cut into sessions; a handle, made by `windowed_by`.

    A record joins all sessions of its key that are at most `gap` away; each session that is merged away is deleted
    with a tombstone before the merged one is forwarded. Null keys are dropped, null values are not.

    >>> from deltaworks import StreamsBuilder
    >>> from deltaworks.testing import TopologyTestDriver
    >>> builder = StreamsBuilder()
    >>> clicks = builder.stream("clicks", key=str, value=str).group_by_key()
    >>> visits = SessionWindows(gap=timedelta(seconds=30), grace=timedelta(minutes=1))
    >>> clicks.windowed_by(visits).count(store="visits").to_stream().to("visits")
    >>> driver = TopologyTestDriver(builder.build())
    >>> for time in (0, 50_000, 25_000):  # the last one joins two sessions
    ...     driver.create_input_topic("clicks").pipe_input("ann", "click", timestamp_ms=time)
    >>> for key, count in driver.create_output_topic("visits").read_key_values_to_list():
    ...     print(key, count)
    [ann@0/0] 1
    [ann@50000/50000] 1
    [ann@0/0] None
    [ann@50000/50000] None
    [ann@0/50000] 3
    """

    def __init__(
        self, grouping: Grouping, windows: SessionWindows, emit: EmitStrategy = EmitStrategy.ON_WINDOW_UPDATE
    ) -> None:
        self.grouping = grouping
        self.windows = windows
        self.emit = emit

    def __repr__(self) -> str:
        return handle(self, self.grouping.at, repr(self.windows))

    def emit_strategy(self, emit: EmitStrategy) -> SessionWindowedKStream[K, V]:
        """When results are forwarded: at every update, or once when the session has closed.

        A session has closed when its last record is more than `gap + grace` ago in stream time; the next record then
        sends its result. No tombstone is ever sent. The session is kept until then. In Kafka Streams it is lost if that
        record is further ahead than the retention; `StreamsBuilder(compatible_with_kafka=True)` does the same.

        Source: `SessionWindowedKStream#emitStrategy`; differs: returns a new handle, `emit_interval` is 0 by default,
        and no result is lost by default.
        """
        need_value(self.grouping.at.graph, emit, EmitStrategy, "EmitStrategy.ON_WINDOW_CLOSE", "emit_strategy")
        return SessionWindowedKStream(self.grouping, self.windows, emit)

    def count(
        self, *, store: Stored = "", retention: timedelta | None = None, name: str | None = None
    ) -> KTable[Windowed[K], int]:
        """Counts records per key and session.

        Shape: `-> KTable[Windowed[K], int]`; n records -> 1 row per key and session, updated.

        Args:
            store: name of its store; part of the pipeline's state, so keep it.
            retention: how long the store keeps a session, at least gap plus grace (the default).
            name: name of the node.

        State: a count per key and session, for `retention`.
        Source: `SessionWindowedKStream#count`; differs: no.
        """
        wanted = Wanted("count", Count(), Long(), store, call_site(), name)
        return aggregated(self.grouping, wanted, self.windows, retention=retention, emit=self.emit)

    def reduce(
        self,
        reducer: Callable[[V, V], V],
        *,
        store: Stored = "",
        retention: timedelta | None = None,
        name: str | None = None,
    ) -> KTable[Windowed[K], V]:
        """Combines the values per key and session; sessions that meet are combined with the same reducer.

        Shape: `-> KTable[Windowed[K], V]`; n records -> 1 row per key and session, updated.

        Args:
            reducer: `(aggregate, value) -> aggregate`; not called for the first value.
            store: name of its store; part of the pipeline's state, so keep it.
            retention: how long the store keeps a session, at least gap plus grace (the default).
            name: name of the node.

        State: a value per key and session, for `retention`.
        Source: `SessionWindowedKStream#reduce`; differs: no.
        """
        where = call_site()
        check_function(self.grouping.at.graph, reducer, "reducer(aggregate, value)", operator="reduce", where=where)
        wanted = Wanted("reduce", Reduce(reducer), self.grouping.at.value, store, where, name)
        return aggregated(self.grouping, wanted, self.windows, retention=retention, emit=self.emit)

    def aggregate(
        self,
        initializer: Callable[[], VA],
        aggregator: Callable[[K, V, VA], VA],
        merger: Callable[[K, VA, VA], VA],
        *,
        value: Typed[VA] | None = None,
        store: Stored = "",
        retention: timedelta | None = None,
        name: str | None = None,
    ) -> KTable[Windowed[K], VA]:
        """Folds the values per key and session into an aggregate of any type.

        Shape: `-> KTable[Windowed[K], VA]`; n records -> 1 row per key and session, updated.

        Args:
            initializer: `() -> aggregate`.
            aggregator: `(key, value, aggregate) -> aggregate`.
            merger: `(key, aggregate so far, aggregate of the next session) -> aggregate`, in order of time.
            value: type or serde of the aggregate, if no function says what it returns.
            store: name of its store; part of the pipeline's state, so keep it.
            retention: how long the store keeps a session, at least gap plus grace (the default).
            name: name of the node.

        State: an aggregate per key and session, for `retention`.
        Source: `SessionWindowedKStream#aggregate`; differs: no.
        """
        where = call_site()
        check_function(self.grouping.at.graph, initializer, "initializer()", operator="aggregate", where=where)
        check_function(
            self.grouping.at.graph, aggregator, "aggregator(key, value, aggregate)", operator="aggregate", where=where
        )
        check_function(
            self.grouping.at.graph, merger, "merger(key, aggregate, other)", operator="aggregate", where=where
        )
        known = self.grouping.at.settle(
            value, returned(aggregator) or returned(initializer), operator="aggregate", argument="value", where=where
        )
        wanted = Wanted("aggregate", Aggregate(initializer, aggregator, merger), known, store, where, name)
        return aggregated(self.grouping, wanted, self.windows, retention=retention, emit=self.emit)

    def _aggregated(self, wanted: Wanted) -> KTable[Windowed[K], Any]:
        return aggregated(self.grouping, wanted, self.windows, emit=self.emit)
