"""Joins of a stream with a global table, as nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from deltaworks.dsl.global_ktable import GlobalKTable
from deltaworks.dsl.mistakes import need_handle
from deltaworks.dsl.point import Known, Point
from deltaworks.topology.nodes import GlobalTableJoin
from deltaworks.topology.nodes.base import Origin


def join_global_table(
    at: Point,
    table: GlobalKTable[Any, Any],
    selector: Callable[[Any, Any], Any],
    joiner: Callable[[Any, Any, Any], Any],
    *,
    kind: Literal["inner", "left"],
    operator: str,
    value: Known,
    name: str | None,
    where: Origin,
) -> Point:
    """Connects a join; the stream stays where it is, and its key may still be in need of an exchange.

    Source: `KStreamImpl#globalTableJoin`; both kinds are named alike there.
    """
    graph = at.graph
    need_handle(graph, table, GlobalKTable, operator=operator, where=where)
    if table.at.graph is not graph:
        graph.report(f"{operator}: the table belongs to another builder.", where, "use one builder for both")
        return at.typed(key=at.key, value=value)
    node = GlobalTableJoin(
        name=graph.name_of(name, "KSTREAM-LEFTJOIN-"),
        parents=(at.node,),
        table=table.store,
        selector=selector,
        joiner=joiner,
        kind=kind,
        origin=where,
    )
    return at.then(node, value=value)
