"""From a grouped stream to a table: the hop if the key changed, the aggregate, its store."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeVar

from deltaworks.dsl.hops import hop
from deltaworks.dsl.ktable import KTable
from deltaworks.dsl.materialized import Materialized, Stored
from deltaworks.dsl.point import Known, Point
from deltaworks.dsl.stores import store_spec
from deltaworks.serdes import SessionWindowed, TimeWindowed
from deltaworks.topology.nodes import SessionAggregate, StreamAggregate, TableSource, WindowAggregate
from deltaworks.topology.nodes.aggregates import Aggregation, Reduce
from deltaworks.topology.nodes.base import Origin
from deltaworks.topology.stages import StoreKind
from deltaworks.topology.windows import SessionWindows, TimeWindows

K = TypeVar("K")

_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True)
class Grouping:
    """A stream whose records belong together by key; the hop is made by the aggregate that needs it."""

    at: Point
    name: str | None = None
    """Of the hop. Several aggregates share a hop that has a name; without one, each makes its own."""


@dataclass(frozen=True)
class Wanted:
    """What an aggregate is to be, apart from its windows."""

    operator: str
    aggregation: Aggregation
    value: Known
    store: Stored
    where: Origin
    name: str | None = None


def per_key(grouping: Grouping, wanted: Wanted) -> KTable[Any, Any]:
    """An aggregate per key."""
    name, at, kept = _connect(grouping, wanted)
    store = _store(at, wanted, kept, kind="key-value", retention_ms=None)
    node = StreamAggregate(
        name=name, parents=(at.node,), aggregation=wanted.aggregation, store=store, origin=wanted.where
    )
    return KTable(at.then(node, value=wanted.value))


def per_window(
    grouping: Grouping, windows: TimeWindows, wanted: Wanted, retention: timedelta | None
) -> KTable[Any, Any]:
    """An aggregate per key and time window."""
    name, at, kept = _connect(grouping, wanted)
    least_ms = windows.size_ms + windows.grace_ms
    retention_ms = _retention(at, wanted, least_ms, "size plus grace", retention or kept.retention)
    store = _store(at, wanted, kept, kind="window", retention_ms=retention_ms, window_size_ms=windows.size_ms)
    node = WindowAggregate(
        name=name, parents=(at.node,), aggregation=wanted.aggregation, windows=windows, store=store, origin=wanted.where
    )
    at = at.then(node, key=TimeWindowed(at.key, windows.size_ms), value=wanted.value)
    return KTable(at, window_node=name)


def per_session(
    grouping: Grouping, windows: SessionWindows, wanted: Wanted, retention: timedelta | None
) -> KTable[Any, Any]:
    """An aggregate per key and session."""
    name, at, kept = _connect(grouping, wanted)
    least_ms = windows.gap_ms + windows.grace_ms
    retention_ms = _retention(at, wanted, least_ms, "gap plus grace", retention or kept.retention)
    store = _store(at, wanted, kept, kind="session", retention_ms=retention_ms)
    node = SessionAggregate(
        name=name, parents=(at.node,), aggregation=wanted.aggregation, windows=windows, store=store, origin=wanted.where
    )
    return KTable(at.then(node, key=SessionWindowed(at.key), value=wanted.value), window_node=name)


def _connect(grouping: Grouping, wanted: Wanted) -> tuple[str, Point, Materialized]:
    """Name of the aggregate, where it connects, and its store with a name."""
    at = grouping.at
    prefix = "KSTREAM-REDUCE-" if isinstance(wanted.aggregation, Reduce) else "KSTREAM-AGGREGATE-"
    kept = Materialized.of(wanted.store)
    named = replace(kept, name=at.graph.store_name(kept.name, prefix))
    name = at.graph.name_of(wanted.name, prefix)
    if at.rekeyed:
        at = hop(at, grouping.name or named.name, operator=wanted.operator, where=wanted.where)
    if not kept.name:
        at.graph.demand_name(wanted.operator, wanted.where)
    return name, at, named


def _store(
    at: Point,
    wanted: Wanted,
    kept: Materialized,
    *,
    kind: StoreKind,
    retention_ms: int | None,
    window_size_ms: int | None = None,
) -> str:
    spec = store_spec(
        at,
        kept,
        kind=kind,
        value=wanted.value,
        operator=wanted.operator,
        where=wanted.where,
        retention_ms=retention_ms,
        window_size_ms=window_size_ms,
    )
    at.graph.add_store(spec, wanted.where)
    return spec.name


def table_source(at: Point, name: str, kept: Materialized, named: Materialized, *, operator: str, where: Origin) -> Any:
    """A table of the records at a point. Without a name for its store it gets one when somebody needs its rows.

    Args:
        name: of the node.
        kept: its store as the user gave it.
        named: the same with a name.
    """
    graph = at.graph
    spec = store_spec(
        at,
        named,
        kind="key-value" if kept.history is None else "versioned",
        value=at.value,
        operator=operator,
        where=where,
        retention_ms=kept.history_ms,
    )
    table = KTable[Any, Any](at.then(TableSource(name=name, parents=(at.node,), store=None, origin=where)))
    graph.add_store_on_demand(name, spec, where, named=bool(kept.name))
    if kept.name or kept.history is not None:
        graph.materialize(name)
    return table


def _retention(at: Point, wanted: Wanted, least_ms: int, what: str, retention: timedelta | None) -> int:
    if retention is None:
        return least_ms
    retention_ms = retention // _MILLISECOND
    if retention_ms < least_ms:
        at.graph.report(
            f"{wanted.operator}: store '{Materialized.of(wanted.store).name}' keeps {retention_ms} ms, but its windows"
            f" need {least_ms} ms ({what}).",
            wanted.where,
            f"retention=timedelta(milliseconds={least_ms}) or more, or leave it out",
        )
    return retention_ms
