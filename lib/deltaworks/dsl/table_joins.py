"""Joins of two tables, as nodes: one per side, and one that puts their results together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

from deltaworks.dsl.materialized import Materialized, Stored, own_store
from deltaworks.dsl.point import Known, Point, Unknown
from deltaworks.dsl.table_readers import ask_for_old_values, lookup_stores
from deltaworks.topology.nodes import TableJoinMerge, TableTableJoin
from deltaworks.topology.nodes.base import Origin

_MERGE = "KTABLE-MERGE-"


def join_tables(
    left: Point,
    right: Point,
    joiner: Callable[[Any, Any], Any],
    *,
    kind: Literal["inner", "left", "outer"],
    operator: str,
    value: Known,
    store: Stored,
    name: str | None,
    window_nodes: tuple[str | None, str | None],
    where: Origin,
) -> Point:
    """Connects a join of two tables.

    Source: `KTableImpl#doJoin`.
    """
    graph = left.graph
    if right.graph is not graph:
        graph.report(f"{operator}: the other table belongs to another builder.", where, "use one builder for both")
        return left.typed(key=left.key, value=value)
    _check_keys(left, right, operator, where)
    kept = Materialized.of(store)
    if isinstance(store, Materialized):
        if not kept.name:
            graph.demand_name(operator, where)
        kept = replace(kept, name=graph.store_name(kept.name, _MERGE))
    merge = graph.name_of(name, _MERGE)
    if kind != "inner":
        ask_for_old_values(graph, left.node, force=True)
    if kind == "outer":
        ask_for_old_values(graph, right.node, force=True)
    left_stores, right_stores = lookup_stores(graph, left.node), lookup_stores(graph, right.node)
    this = graph.add(
        TableTableJoin(
            name=graph.name_of(f"{name}-join-this" if name else None, "KTABLE-JOINTHIS-"),
            parents=(left.node,),
            kind=kind,
            side="left",
            joiner=joiner,
            table=right.node,
            table_stores=right_stores,
            origin=where,
        )
    )
    other = graph.add(
        TableTableJoin(
            name=graph.name_of(f"{name}-join-other" if name else None, "KTABLE-JOINOTHER-"),
            parents=(right.node,),
            kind=kind,
            side="right",
            joiner=joiner,
            table=left.node,
            table_stores=left_stores,
            origin=where,
        )
    )
    node = TableJoinMerge(
        name=merge,
        parents=(this.name, other.name),
        store=own_store(left, kept, value=value, operator=operator, where=where) if kept.name else None,
        window_nodes=tuple(node for node in window_nodes if node is not None),
        origin=where,
    )
    return left.then(node, key=kept.key, value=kept.value or value)


def _check_keys(left: Point, right: Point, operator: str, where: Origin) -> None:
    """Rows are found by the bytes of the key, so both sides must write it alike."""
    if left.key.name != right.key.name and not isinstance(left.key, Unknown) and not isinstance(right.key, Unknown):
        left.graph.report(
            f"{operator}: keys of this table are {left.key.name}, keys of the other one are {right.key.name};"
            " a join needs keys of one type.",
            where,
            f"{operator.replace('outer', 'left')}(other, joiner, foreign_key=lambda key, value: value)",
        )
