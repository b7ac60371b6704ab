"""From a grouped stream to a table: the exchange if the key changed, the aggregate, its store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, assert_never

from deltaworks.dsl.exchanges import exchange
from deltaworks.dsl.graph import Graph
from deltaworks.dsl.ktable import KTable
from deltaworks.dsl.materialized import Materialized, Stored, rows_spec, store_spec
from deltaworks.dsl.mistakes import check_duration
from deltaworks.dsl.point import Known, Point
from deltaworks.serdes import SessionWindowed, TimeWindowed
from deltaworks.serdes.windowed import LAST_END_MS
from deltaworks.topology.nodes import (
    CogroupMerge,
    SessionAggregate,
    SlidingAggregate,
    StreamAggregate,
    TableSource,
    WindowAggregate,
)
from deltaworks.topology.nodes.aggregates import Aggregation, Reduce
from deltaworks.topology.nodes.base import Origin
from deltaworks.topology.stages import StoreKind
from deltaworks.topology.windows import (
    AnyWindows,
    EmitStrategy,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
    Windows,
)

_MILLISECOND = timedelta(milliseconds=1)
_COGROUP = "COGROUPKSTREAM-AGGREGATE-"


@dataclass(frozen=True)
class Grouping:
    """A stream whose records belong together by key; the exchange is made by the aggregate that needs it."""

    at: Point
    name: str | None = None
    """Name of the exchange. Several aggregates share a named exchange; without a name, each makes its own."""


@dataclass(frozen=True)
class Wanted:
    """An aggregate as the user wants it, apart from its windows."""

    operator: str
    aggregation: Aggregation
    value: Known
    store: Stored
    where: Origin
    name: str | None = None


def aggregated(
    grouping: Grouping,
    wanted: Wanted,
    windows: AnyWindows | None = None,
    *,
    retention: timedelta | None = None,
    emit: EmitStrategy = EmitStrategy.ON_WINDOW_UPDATE,
) -> KTable[Any, Any]:
    """Connects an aggregate per key, or per key and window."""
    prefix = "KSTREAM-REDUCE-" if isinstance(wanted.aggregation, Reduce) else "KSTREAM-AGGREGATE-"
    graph, kept = grouping.at.graph, Materialized.of(wanted.store)
    in_detail = not kept.name and (retention is not None or kept != Materialized())
    if in_detail and wanted.operator == "count" and not isinstance(windows, SlidingWindows):
        # Kafka Streams uses up a number for a name that it throws away.
        graph.next_name("")
    named = _named(graph, kept, prefix, wanted)
    name = graph.name_of(wanted.name, prefix)
    at = _exchanged(grouping, kept, named, wanted)
    store = _add_store(at, named, wanted, windows, retention, emit)
    node = aggregate_node(
        windows,
        emit,
        emit_interval_ms=graph.config.emit_interval_ms,
        name=name,
        parents=(at.node,),
        aggregation=wanted.aggregation,
        store=store,
        origin=wanted.where,
    )
    at = at.then(node, key=_windowed_key(at.key, windows), value=wanted.value)
    return KTable(at, window_node=None if windows is None else name)


def cogrouped(
    streams: Sequence[tuple[Grouping, Aggregation]],
    wanted: Wanted,
    windows: AnyWindows | None = None,
    *,
    retention: timedelta | None = None,
) -> KTable[Any, Any]:
    """Connects one aggregate of several streams: a node for each stream, a shared store, and a node that merges.

    Source: `CogroupedStreamAggregateBuilder#build`.
    """
    graph, kept = streams[0][0].at.graph, Materialized.of(wanted.store)
    named = _named(graph, kept, _COGROUP, wanted)
    points = [_exchanged(grouping, kept, named, wanted) for grouping, _ in streams]
    for point in points[1:]:
        _check_cogroup(points[0], point, wanted)
    store = _add_store(points[0], named, wanted, windows, retention, EmitStrategy.ON_WINDOW_UPDATE)
    nodes = [
        graph.add(
            aggregate_node(
                windows,
                name=graph.name_of(wanted.name and f"{wanted.name}-cogroup-agg-{number}", _COGROUP),
                parents=(point.node,),
                aggregation=aggregation,
                store=store,
                cogrouped=number,
                origin=wanted.where,
            )
        )
        for number, (point, (_, aggregation)) in enumerate(zip(points, streams, strict=True))
    ]
    merge = CogroupMerge(
        name=graph.name_of(wanted.name and f"{wanted.name}-cogroup-merge", "COGROUPKSTREAM-MERGE-"),
        parents=tuple(node.name for node in nodes),
        store=store,
        origin=wanted.where,
    )
    at = points[0].then(merge, key=_windowed_key(points[0].key, windows), value=wanted.value)
    return KTable(at, window_node=None if windows is None else merge.name)


def aggregate_node(
    windows: AnyWindows | None,
    emit: EmitStrategy = EmitStrategy.ON_WINDOW_UPDATE,
    *,
    emit_interval_ms: int = 0,
    **fields: Any,
) -> StreamAggregate | WindowAggregate | SlidingAggregate | SessionAggregate:
    """The node for a kind of windows; `fields` are those of `AggregateNode`."""
    if windows is None:
        return StreamAggregate(**fields)
    fields |= {"emit": emit, "emit_interval_ms": emit_interval_ms}
    match windows:
        case TimeWindows() | UnlimitedWindows() | Windows():
            return WindowAggregate(windows=windows, **fields)
        case SlidingWindows():
            return SlidingAggregate(windows=windows, **fields)
        case SessionWindows():
            return SessionAggregate(windows=windows, **fields)
        case _:
            assert_never(windows)


def _named(graph: Graph, kept: Materialized, prefix: str, wanted: Wanted) -> Materialized:
    """The store with a name, if need be a generated one."""
    named = replace(kept, name=graph.store_name(kept.name, prefix))
    if not kept.name:
        graph.demand_name(wanted.operator, wanted.where)
    return named


def _exchanged(grouping: Grouping, kept: Materialized, named: Materialized, wanted: Wanted) -> Point:
    """Where the aggregate connects: behind an exchange, if the key may have changed."""
    at = grouping.at
    if not at.rekeyed:
        return at
    given = bool(grouping.name or kept.name)
    return exchange(at, grouping.name or named.name, operator=wanted.operator, where=wanted.where, named=given)


def _check_cogroup(first: Point, other: Point, wanted: Wanted) -> None:
    """The streams share a store, so they must write its keys alike."""
    if other.graph is not first.graph:
        wanted_builder = "use one builder for all of them"
        first.graph.report("cogroup: the streams belong to several builders.", wanted.where, wanted_builder)
    elif first.key.name != other.key.name:
        first.graph.report(
            f"cogroup: keys of the first stream are {first.key.name}, of another one {other.key.name}; they share a"
            " store, so they need keys of one type.",
            wanted.where,
            "group_by(..., key=...) to the same type first",
        )


def _windowed_key(key: Known, windows: AnyWindows | None) -> Known:
    match windows:
        case None:
            return key
        case SessionWindows():
            return SessionWindowed(key)
        case _:
            return TimeWindowed(key, windows)


def _add_store(
    at: Point,
    kept: Materialized,
    wanted: Wanted,
    windows: AnyWindows | None,
    retention: timedelta | None,
    emit: EmitStrategy,
) -> str:
    operator, where = wanted.operator, wanted.where
    kind: StoreKind = "key-value" if kept.history is None else "versioned"
    retention_ms = kept.history_ms
    if windows is not None:
        if kept.history is not None:
            at.graph.report(
                f"{operator}: store '{kept.name}' keeps windows, so it cannot keep a history of versions.",
                where,
                "leave out history=; retention= says how long windows are kept",
            )
        kind, least_ms, what = _needs(windows)
        retention_ms = _retention(at, wanted, least_ms, what, retention or kept.retention)
    spec = store_spec(
        at,
        kept,
        kind=kind,
        value=wanted.value,
        operator=operator,
        where=where,
        retention_ms=retention_ms,
        windows=None if isinstance(windows, SessionWindows) else windows,
    )
    if emit is EmitStrategy.ON_WINDOW_CLOSE:
        # Among stores for final results, only those of time windows have a record cache in Kafka Streams.
        cached = spec.cached and isinstance(windows, TimeWindows | Windows)
        # There, final results of windows that differ in length are wrong anyway.
        keeps = isinstance(windows, Windows) or not at.graph.config.compatible_with_kafka
        spec = replace(spec, emits_final=True, keeps_unforwarded=keeps, cached=cached)
    at.graph.add_store(spec, where)
    return spec.name


def _needs(windows: AnyWindows) -> tuple[StoreKind, int, str]:
    """Kind of the store, its minimum retention, and the reason for it."""
    match windows:
        case TimeWindows() | Windows():
            return "window", windows.size_ms + windows.grace_ms, "size plus grace"
        case SlidingWindows():
            return "window", 2 * windows.difference_ms + windows.grace_ms, "2 * time difference plus grace"
        case UnlimitedWindows():
            return "window", LAST_END_MS, "they never end"
        case SessionWindows():
            return "session", windows.gap_ms + windows.grace_ms, "gap plus grace"
        case _:
            assert_never(windows)


def table_source(at: Point, name: str, kept: Materialized, named: Materialized, *, operator: str, where: Origin) -> Any:
    """A table of the records at a point. If its store has no name, it gets a store only when something needs its rows.

    Args:
        name: name of the node.
        kept: its store as the user gave it.
        named: the same with a name.
    """
    graph = at.graph
    spec = rows_spec(at, named, value=at.value, operator=operator, where=where)
    table = KTable[Any, Any](at.then(TableSource(name=name, parents=(at.node,), store=None, origin=where)))
    demanded = not kept.name and graph.config.explicit_names == "all"
    if demanded:  # whether or not something needs its rows, as in Kafka Streams
        graph.demand_name("the table", where)
    graph.add_store_on_demand(name, spec, where, named=demanded or bool(kept.name))
    if kept.name or kept.history is not None:
        graph.materialize(name)
    return table


def _retention(at: Point, wanted: Wanted, least_ms: int, what: str, retention: timedelta | None) -> int:
    if retention is None:
        return least_ms
    if not check_duration(at.graph, retention, f"{wanted.operator}: retention", where=wanted.where):
        return least_ms
    retention_ms = retention // _MILLISECOND
    if retention_ms < least_ms:
        at.graph.report(
            f"{wanted.operator}: store '{Materialized.of(wanted.store).name}' keeps {retention_ms} ms, but its windows"
            f" need {least_ms} ms ({what}).",
            wanted.where,
            "leave it out"
            if least_ms == LAST_END_MS
            else f"retention=timedelta(milliseconds={least_ms}) or more, or leave it out",
        )
    return retention_ms
