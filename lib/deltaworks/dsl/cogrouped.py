"""Several grouped streams that feed one aggregate."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, overload

from deltaworks.dsl import shown
from deltaworks.dsl.graph import call_site
from deltaworks.dsl.ktable import KTable
from deltaworks.dsl.materialize import Grouping, Wanted, cogrouped
from deltaworks.dsl.materialized import Stored
from deltaworks.dsl.mistakes import Handle, check_function, need_handle, need_windows
from deltaworks.dsl.point import Typed
from deltaworks.serdes import Windowed
from deltaworks.serdes.inference import returned
from deltaworks.topology.nodes.aggregates import Aggregate
from deltaworks.topology.nodes.base import Origin
from deltaworks.topology.windows import (
    AnyWindows,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
    Windows,
)

if TYPE_CHECKING:
    from deltaworks.dsl.grouped import KGroupedStream

K = TypeVar("K")
V = TypeVar("V")
VA = TypeVar("VA")

Streams: TypeAlias = tuple[tuple[Grouping, Callable[[Any, Any, Any], Any]], ...]
"""Each stream with its aggregator."""


class CogroupedKStream(Handle, Generic[K, VA]):
    """Grouped streams that share one aggregate, each with its own aggregator; made by `cogroup`.

    There is one store and one update per record; joining one aggregate per stream would take several. Null keys and
    null values are dropped.

    >>> from deltaworks import StreamsBuilder
    >>> from deltaworks.testing import TopologyTestDriver
    >>> builder = StreamsBuilder()
    >>> carts = builder.stream("carts", key=str, value=int).group_by_key()
    >>> refunds = builder.stream("refunds", key=str, value=int).group_by_key()
    >>> spent = carts.cogroup(lambda _, price, total: total + price, value=int)
    >>> spent = spent.cogroup(refunds, lambda _, price, total: total - price)
    >>> spent.aggregate(lambda: 0, store="spent").to_stream().to("spent")
    >>> driver = TopologyTestDriver(builder.build())
    >>> driver.create_input_topic("carts").pipe_input("ann", 30)
    >>> driver.create_input_topic("refunds").pipe_input("ann", 10)
    >>> driver.create_output_topic("spent").read_key_values_to_list()
    [('ann', 30), ('ann', 20)]
    """

    def __init__(self, streams: Streams, value: Typed[VA] | None, where: Origin) -> None:
        self.streams = streams
        self.value = value
        self.where = where

    def __repr__(self) -> str:
        return shown.cogrouped(self, [grouping.at for grouping, _ in self.streams], self.value)

    def cogroup(self, group: KGroupedStream[K, V], aggregator: Callable[[K, V, VA], VA]) -> CogroupedKStream[K, VA]:
        """Adds a stream; a stream that is already there gets the new aggregator instead of its old one.

        Args:
            group: grouped by a key of the same type.
            aggregator: `(key, value, aggregate) -> aggregate`, for the records of that stream.

        Source: `CogroupedKStream#cogroup`; differs: returns a new handle.
        """
        from deltaworks.dsl.grouped import KGroupedStream

        graph, where = self.streams[0][0].at.graph, call_site()
        need_handle(graph, group, KGroupedStream, operator="cogroup", where=where)
        shape = "aggregator(key, value, aggregate)"
        check_function(graph, aggregator, shape, operator="cogroup", where=where)
        streams = [(known, aggregator if known is group.grouping else own) for known, own in self.streams]
        if all(known is not group.grouping for known, _ in streams):
            streams.append((group.grouping, aggregator))
        return CogroupedKStream(tuple(streams), self.value, self.where)

    def aggregate(
        self,
        initializer: Callable[[], VA],
        *,
        value: Typed[VA] | None = None,
        store: Stored = "",
        name: str | None = None,
    ) -> KTable[K, VA]:
        """Folds the values of all streams into one aggregate per key.

        Shape: `-> KTable[K, VA]`; n records -> 1 row per key, updated.

        Args:
            initializer: `() -> aggregate`, called for a key that has none.
            value: type or serde of the aggregate, as in `cogroup`.
            store: name of its store; part of the pipeline's state, so keep it.
            name: base name of the nodes; each node adds its role to it.

        State: an aggregate per key, for ever.
        Source: `CogroupedKStream#aggregate`; differs: no.
        """
        return _aggregate(self, value, initializer, None, None, store, None, name)

    @overload
    def windowed_by(
        self, windows: TimeWindows | UnlimitedWindows | SlidingWindows | Windows
    ) -> TimeWindowedCogroupedKStream[K, VA]: ...

    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedCogroupedKStream[K, VA]: ...

    def windowed_by(
        self, windows: AnyWindows
    ) -> TimeWindowedCogroupedKStream[K, VA] | SessionWindowedCogroupedKStream[K, VA]:
        """Cuts the streams of each key by time.

        Each stream has its own time, which decides whether its records are late. A window of a Delta table is final
        when it is final for all streams.

        Args:
            windows: `TimeWindows`, `SlidingWindows`, `SessionWindows`, `UnlimitedWindows` or your own `Windows`.

        Source: `CogroupedKStream#windowedBy`; differs: no.
        """
        need_windows(self.streams[0][0].at.graph, windows)
        match windows:
            case SessionWindows():
                return SessionWindowedCogroupedKStream(self, windows)
            case _:
                return TimeWindowedCogroupedKStream(self, windows)


class TimeWindowedCogroupedKStream(Handle, Generic[K, VA]):
    """Cogrouped streams cut into windows; a handle, made by `windowed_by`.

    >>> from deltaworks import StreamsBuilder
    >>> from deltaworks.testing import TopologyTestDriver
    >>> builder = StreamsBuilder()
    >>> ins, outs = (builder.stream(topic, key=str, value=str).group_by_key() for topic in ("ins", "outs"))
    >>> inside = ins.cogroup(lambda *_: _[2] + 1, value=int).cogroup(outs, lambda *_: _[2] - 1)
    >>> day = TimeWindows(size=timedelta(days=1), grace=timedelta(0))
    >>> inside.windowed_by(day).aggregate(lambda: 0, store="inside").to_delta("inside")
    >>> driver = TopologyTestDriver(builder.build())
    >>> for topic in ("ins", "ins", "outs"):
    ...     driver.create_input_topic(topic).pipe_input("door", "")
    >>> {str(key): count for key, count in driver.table("inside").rows.items()}
    {'[door@0/86400000]': 1}
    """

    def __init__(
        self, cogroup: CogroupedKStream[K, VA], windows: TimeWindows | UnlimitedWindows | SlidingWindows | Windows
    ) -> None:
        self.cogroup = cogroup
        self.windows = windows

    def __repr__(self) -> str:
        streams = [grouping.at for grouping, _ in self.cogroup.streams]
        return shown.cogrouped(self, streams, self.cogroup.value, repr(self.windows))

    def aggregate(
        self,
        initializer: Callable[[], VA],
        *,
        value: Typed[VA] | None = None,
        store: Stored = "",
        retention: timedelta | None = None,
        name: str | None = None,
    ) -> KTable[Windowed[K], VA]:
        """Folds the values of all streams into one aggregate per key and window.

        Shape: `-> KTable[Windowed[K], VA]`; n records -> 1 row per key and window, updated.

        Args:
            initializer: `() -> aggregate`, called for each new window.
            value: type or serde of the aggregate, as in `cogroup`.
            store: name of its store; part of the pipeline's state, so keep it.
            retention: how long the store keeps a window, as in `TimeWindowedKStream`; it counts from the newest window
                of all streams, so make it longer if one of them may be far behind.
            name: base name of the nodes; each node adds its role to it.

        State: an aggregate per key and window, for `retention`.
        Source: `TimeWindowedCogroupedKStream#aggregate`; differs: no.
        """
        return _aggregate(self.cogroup, value, initializer, None, self.windows, store, retention, name)


class SessionWindowedCogroupedKStream(Handle, Generic[K, VA]):
    """Cogrouped streams cut into sessions; a handle, made by `windowed_by`.

    >>> from deltaworks import StreamsBuilder
    >>> from deltaworks.testing import TopologyTestDriver
    >>> builder = StreamsBuilder()
    >>> clicks, buys = (builder.stream(topic, key=str, value=str).group_by_key() for topic in ("clicks", "buys"))
    >>> visits = clicks.cogroup(lambda *_: _[2] + "c", value=str).cogroup(buys, lambda *_: _[2] + "b")
    >>> sessions = visits.windowed_by(SessionWindows(gap=timedelta(minutes=5), grace=timedelta(0)))
    >>> sessions.aggregate(str, lambda _, left, right: left + right, store="visits").to_delta("visits")
    >>> driver = TopologyTestDriver(builder.build())
    >>> driver.create_input_topic("clicks").pipe_input("ann", "", timestamp_ms=0)
    >>> driver.create_input_topic("buys").pipe_input("ann", "", timestamp_ms=60_000)
    >>> {str(key): visit for key, visit in driver.table("visits").rows.items()}
    {'[ann@0/60000]': 'cb'}
    """

    def __init__(self, cogroup: CogroupedKStream[K, VA], windows: SessionWindows) -> None:
        self.cogroup = cogroup
        self.windows = windows

    def __repr__(self) -> str:
        streams = [grouping.at for grouping, _ in self.cogroup.streams]
        return shown.cogrouped(self, streams, self.cogroup.value, repr(self.windows))

    def aggregate(
        self,
        initializer: Callable[[], VA],
        merger: Callable[[K, VA, VA], VA],
        *,
        value: Typed[VA] | None = None,
        store: Stored = "",
        retention: timedelta | None = None,
        name: str | None = None,
    ) -> KTable[Windowed[K], VA]:
        """Folds the values of all streams into one aggregate per key and session.

        Shape: `-> KTable[Windowed[K], VA]`; n records -> 1 row per key and session, updated.

        Args:
            initializer: `() -> aggregate`.
            merger: `(key, aggregate so far, aggregate of the next session) -> aggregate`, in order of time.
            value: type or serde of the aggregate, as in `cogroup`.
            store: name of its store; part of the pipeline's state, so keep it.
            retention: how long the store keeps a session, at least gap plus grace (the default); it counts from the
                newest session of all streams.
            name: base name of the nodes; each node adds its role to it.

        State: an aggregate per key and session, for `retention`.
        Source: `SessionWindowedCogroupedKStream#aggregate`; differs: no.
        """
        return _aggregate(self.cogroup, value, initializer, merger, self.windows, store, retention, name)


def _aggregate(
    cogroup: CogroupedKStream[Any, Any],
    value: Typed[Any] | None,
    initializer: Callable[[], Any],
    merger: Callable[[Any, Any, Any], Any] | None,
    windows: AnyWindows | None,
    store: Stored,
    retention: timedelta | None,
    name: str | None,
) -> KTable[Any, Any]:
    where = call_site()
    graph = cogroup.streams[0][0].at.graph
    check_function(graph, initializer, "initializer()", operator="aggregate", where=where)
    if merger is not None:
        check_function(graph, merger, "merger(key, aggregate, other)", operator="aggregate", where=where)
    streams = [(grouping, Aggregate(initializer, aggregator, merger)) for grouping, aggregator in cogroup.streams]
    hints = [returned(aggregator) for _, aggregator in cogroup.streams]
    hinted = next(filter(None, hints), None) or returned(initializer)
    at = cogroup.streams[0][0].at
    given = cogroup.value if value is None else value
    known = at.settle(given, hinted, operator="cogroup", argument="value", where=cogroup.where)
    wanted = Wanted("aggregate", streams[0][1], known, store, where, name)
    return cogrouped(streams, wanted, windows, retention=retention)
