"""Joins of a stream with a table or a global table, as nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal

from deltaworks.dsl.exchanges import exchange
from deltaworks.dsl.global_ktable import GlobalKTable
from deltaworks.dsl.ktable import KTable
from deltaworks.dsl.mistakes import check_duration
from deltaworks.dsl.point import Known, Point, Unknown
from deltaworks.dsl.table_readers import lookup_stores
from deltaworks.topology.nodes import GlobalTableJoin, StreamTableJoin
from deltaworks.topology.nodes.base import Origin
from deltaworks.topology.stages import StoreSpec

_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, kw_only=True)
class Join:
    """A join of a stream as the user wants it, whatever it joins with."""

    operator: str
    kind: Literal["inner", "left", "outer"]
    joiner: Callable[[Any, Any, Any], Any]
    """`(key, left value or None, right value or None)`"""
    value: Known
    """The type of the result."""
    name: str | None
    where: Origin


def join_table(at: Point, table: KTable[Any, Any], join: Join, *, grace: timedelta | None) -> Point:
    """Connects a stream-table join, with an exchange before it if the stream's key may have changed."""
    graph, operator, name, where = at.graph, join.operator, join.name, join.where
    if table.at.graph is not graph:
        graph.report(f"{operator}: the table belongs to another builder.", where, "use one builder for both")
        return at.typed(key=at.key, value=join.value)
    if at.rekeyed:
        at = exchange(at, name or at.node, operator=operator, where=where, named=name is not None)
    _check_keys(at, table, operator, where)
    node = StreamTableJoin(
        name=graph.name_of(name, "KSTREAM-JOIN-" if join.kind == "inner" else "KSTREAM-LEFTJOIN-"),
        parents=(at.node,),
        table=table.at.node,
        table_stores=lookup_stores(graph, table.at.node),
        joiner=join.joiner,
        kind=_one_sided(join),
        origin=where,
    )
    if grace is not None and check_duration(graph, grace, f"{operator}: grace", where=where):
        node = _with_grace(at, node, grace // _MILLISECOND, operator=operator, named=name is not None)
    return at.then(node, value=join.value)


def join_global_table(
    at: Point, table: GlobalKTable[Any, Any], join: Join, *, selector: Callable[[Any, Any], Any]
) -> Point:
    """Connects a join with a global table; the stream is not exchanged, and its key may still need an exchange later.

    Source: `KStreamImpl#globalTableJoin`; both kinds are named alike there.
    """
    graph = at.graph
    if table.at.graph is not graph:
        graph.report(f"{join.operator}: the table belongs to another builder.", join.where, "use one builder for both")
        return at.typed(key=at.key, value=join.value)
    node = GlobalTableJoin(
        name=graph.name_of(join.name, "KSTREAM-LEFTJOIN-"),
        parents=(at.node,),
        table=table.store,
        selector=selector,
        joiner=join.joiner,
        kind=_one_sided(join),
        origin=join.where,
    )
    return at.then(node, value=join.value)


def _one_sided(join: Join) -> Literal["inner", "left"]:
    assert join.kind != "outer", f"{join.operator} with a table"
    return join.kind


def _with_grace(at: Point, join: StreamTableJoin, grace_ms: int, *, operator: str, named: bool) -> StreamTableJoin:
    """The same join with a buffer, in which records wait for out-of-order rows; it requires a versioned table."""
    graph, where = at.graph, join.origin
    assert where is not None, join.name
    buffer = f"{join.name}-Buffer"
    specs = {spec.name: spec for spec, _ in graph.stores}
    for store in join.table_stores:
        spec = specs[store]
        if spec.kind != "versioned":
            graph.report(
                f"{operator}: a grace period needs a versioned table, but store '{store}' keeps only the latest rows.",
                where,
                f"store=Materialized('{store}', history=...) for the table, or leave grace out",
            )
        elif (spec.retention_ms or 0) < grace_ms:
            graph.report(
                f"{operator}: the grace period is {grace_ms} ms, but store '{store}' keeps versions for"
                f" {spec.retention_ms} ms; the history must be at least the grace period.",
                where,
                f"history=timedelta(milliseconds={grace_ms}) or more",
            )
    if grace_ms < 0:
        graph.report(f"{operator}: the grace period is negative ({grace_ms} ms).", where, "timedelta(0) or more")
    if not named and graph.config.explicit_names != "none":
        graph.report(
            f"{operator} has no name for its buffer; names are state, so they are not made up.",
            where,
            f"{operator}(..., name='...')",
        )
    graph.add_store(
        StoreSpec(
            name=buffer,
            kind="join-buffer",
            key=at.need(at.key, operator=operator, argument="key", where=where),
            value=at.need(at.value, operator=operator, argument="value", where=where),
        ),
        where,
    )
    return replace(join, grace_ms=grace_ms, buffer=buffer)


def _check_keys(at: Point, table: KTable[Any, Any], operator: str, where: Origin) -> None:
    """Rows are found by the bytes of the key, so both sides must write it alike."""
    stream_key, table_key = at.key, table.at.key
    stores = ", ".join(f"'{store}'" for store in lookup_stores(at.graph, table.at.node))
    if stream_key.name != table_key.name and not isinstance(stream_key, Unknown):
        at.graph.report(
            f"{operator}: keys of the stream are {stream_key.name}, keys of the table of store {stores} are"
            f" {table_key.name}; a join needs keys of one type.",
            where,
            "select_key(...) to the type of the table's keys first",
        )
