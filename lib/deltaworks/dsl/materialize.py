"""From a grouped stream to a table: the hop if the key changed, the aggregate, its store."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from deltaworks.dsl.hops import hop
from deltaworks.dsl.ktable import KTable
from deltaworks.dsl.point import Known, Point
from deltaworks.serdes import SessionWindowed, TimeWindowed
from deltaworks.topology.nodes import SessionAggregate, StreamAggregate, WindowAggregate
from deltaworks.topology.nodes.aggregates import Aggregation, Reduce
from deltaworks.topology.nodes.base import Origin
from deltaworks.topology.stages import StoreSpec
from deltaworks.topology.windows import SessionWindows, TimeWindows

K = TypeVar("K")


@dataclass(frozen=True)
class Grouping:
    """A stream whose records belong together by key; the hop is made by the aggregate that needs it."""

    at: Point
    name: str | None = None
    """Of the hop. Several aggregates share a hop that has a name; without one, each makes its own."""


@dataclass(frozen=True)
class Materialized:
    """What an aggregate is to be, apart from its windows."""

    operator: str
    aggregation: Aggregation
    value: Known
    store: str
    where: Origin
    name: str | None = None


def per_key(grouping: Grouping, wanted: Materialized) -> KTable[Any, Any]:
    """An aggregate per key."""
    name, at = _connect(grouping, wanted)
    store = _store(at, wanted, kind="key-value", retention_ms=None, name=name)
    node = StreamAggregate(
        name=name, parents=(at.node,), aggregation=wanted.aggregation, store=store, origin=wanted.where
    )
    return KTable(at.then(node, value=wanted.value), store=store)


def per_window(
    grouping: Grouping, windows: TimeWindows, wanted: Materialized, retention: timedelta | None
) -> KTable[Any, Any]:
    """An aggregate per key and time window."""
    name, at = _connect(grouping, wanted)
    least_ms = windows.size_ms + windows.grace_ms
    store = _store(
        at,
        wanted,
        kind="window",
        retention_ms=_retention(at, wanted, least_ms, "size plus grace", retention),
        name=name,
    )
    node = WindowAggregate(
        name=name, parents=(at.node,), aggregation=wanted.aggregation, windows=windows, store=store, origin=wanted.where
    )
    at = at.then(node, key=TimeWindowed(at.key, windows.size_ms), value=wanted.value)
    return KTable(at, store=store, window_node=name)


def per_session(
    grouping: Grouping, windows: SessionWindows, wanted: Materialized, retention: timedelta | None
) -> KTable[Any, Any]:
    """An aggregate per key and session."""
    name, at = _connect(grouping, wanted)
    least_ms = windows.gap_ms + windows.grace_ms
    store = _store(
        at,
        wanted,
        kind="session",
        retention_ms=_retention(at, wanted, least_ms, "gap plus grace", retention),
        name=name,
    )
    node = SessionAggregate(
        name=name, parents=(at.node,), aggregation=wanted.aggregation, windows=windows, store=store, origin=wanted.where
    )
    return KTable(at.then(node, key=SessionWindowed(at.key), value=wanted.value), store=store, window_node=name)


def _connect(grouping: Grouping, wanted: Materialized) -> tuple[str, Point]:
    """Name of the aggregate, and where it connects."""
    at = grouping.at
    prefix = "KSTREAM-REDUCE-" if isinstance(wanted.aggregation, Reduce) else "KSTREAM-AGGREGATE-"
    name = at.graph.name_of(wanted.name, prefix)
    if at.rekeyed:
        at = hop(at, grouping.name or wanted.store or name, operator=wanted.operator, where=wanted.where)
    return name, at


def _store(at: Point, wanted: Materialized, *, kind: Any, retention_ms: int | None, name: str) -> str:
    return add_store(
        at,
        wanted.store,
        kind=kind,
        value=wanted.value,
        operator=wanted.operator,
        where=wanted.where,
        node=name,
        retention_ms=retention_ms,
    )


def add_store(
    at: Point,
    store: str,
    *,
    kind: Any,
    value: Known,
    operator: str,
    where: Origin,
    node: str,
    retention_ms: int | None = None,
) -> str:
    """Declares the store of a node and returns its name."""
    if not store:
        at.graph.report(
            f"{operator} has no name for its store; names are state, so they are not made up.",
            where,
            f"{operator}(..., store='...')",
        )
    spec = StoreSpec(
        name=store or f"{node}-store",
        kind=kind,
        key=at.need(at.key, operator=operator, argument="key", where=where),
        value=at.need(value, operator=operator, argument="value", where=where),
        retention_ms=retention_ms,
        cached=at.graph.record_cache,
    )
    at.graph.add_store(spec, where)
    return spec.name


def _retention(at: Point, wanted: Materialized, least_ms: int, what: str, retention: timedelta | None) -> int:
    if retention is None:
        return least_ms
    retention_ms = retention // timedelta(milliseconds=1)
    if retention_ms < least_ms:
        at.graph.report(
            f"{wanted.operator}: store '{wanted.store}' keeps {retention_ms} ms, but its windows need {least_ms} ms"
            f" ({what}).",
            wanted.where,
            f"retention=timedelta(milliseconds={least_ms}) or more, or leave it out",
        )
    return retention_ms
