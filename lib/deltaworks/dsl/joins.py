"""Joins, as nodes: what `KStream.join` and its relatives have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from deltaworks.dsl.hops import hop
from deltaworks.dsl.ktable import KTable
from deltaworks.dsl.lookups import lookup_stores
from deltaworks.dsl.point import Point, Typed, Unknown
from deltaworks.topology.nodes import StreamTableJoin
from deltaworks.topology.nodes.base import Origin


def join_table(
    at: Point,
    table: KTable[Any, Any],
    joiner: Callable[[Any, Any, Any], Any],
    *,
    hinted: Any,
    kind: Literal["inner", "left"],
    operator: str,
    value: Typed[Any] | None,
    name: str | None,
    where: Origin,
) -> Point:
    """Connects a stream-table join, with a hop before it if the stream's key may have changed."""
    new_value = at.settle(value, hinted, operator=operator, argument="value", where=where)
    if table.at.graph is not at.graph:
        at.graph.report(f"{operator}: the table belongs to another builder.", where, "use one builder for both")
        return at.typed(key=at.key, value=new_value)
    if at.rekeyed:
        at = hop(at, name or at.node, operator=operator, where=where)
    _check_keys(at, table, operator, where)
    node = StreamTableJoin(
        name=at.graph.name_of(name, "KSTREAM-JOIN-" if kind == "inner" else "KSTREAM-LEFTJOIN-"),
        parents=(at.node,),
        table=table.at.node,
        table_stores=lookup_stores(at.graph, table.at.node),
        joiner=joiner,
        kind=kind,
        origin=where,
    )
    return at.then(node, value=new_value)


def _check_keys(at: Point, table: KTable[Any, Any], operator: str, where: Origin) -> None:
    """Rows are found by the bytes of the key, so both sides must write it alike."""
    stream_key, table_key = at.key, table.at.key
    stores = ", ".join(f"'{store}'" for store in lookup_stores(at.graph, table.at.node))
    if table.window_node is not None:
        at.graph.report(
            f"{operator}: the table of store {stores} is windowed, so no key of a stream finds its rows.",
            where,
            "join a table that is not windowed",
        )
    elif stream_key.name != table_key.name and not isinstance(stream_key, Unknown):
        at.graph.report(
            f"{operator}: keys of the stream are {stream_key.name}, keys of the table of store {stores} are"
            f" {table_key.name}; a join needs keys of one type.",
            where,
            "select_key(...) to the type of the table's keys first",
        )
