"""What the readers of a table need of it: the stores to look rows up in, and the values from before its updates."""

from __future__ import annotations

from deltaworks.dsl.graph import Graph
from deltaworks.topology.nodes import (
    CogroupMerge,
    Suppress,
    TableFilter,
    TableJoinMerge,
    TableMapValues,
    TableSource,
    TableTableJoin,
    TableTransformValues,
)


def lookup_stores(graph: Graph, table: str) -> tuple[str, ...]:
    """The stores that rows of a table are read from; a source without a store gets one.

    Source: `KTableImpl#valueGetterSupplier`.
    """
    match node := graph.node(table):
        case TableSource(store=None):
            graph.materialize(table)
            return graph.node(table).stores
        case TableFilter(store=None) | TableMapValues(store=None) | TableTransformValues(store=None):
            return lookup_stores(graph, node.parents[0])
        case TableJoinMerge(store=None):
            return tuple(dict.fromkeys(store for side in node.parents for store in lookup_stores(graph, side)))
        case TableTableJoin():
            own = lookup_stores(graph, node.parents[0])
            return tuple(dict.fromkeys((*own, *lookup_stores(graph, node.table))))
        case CogroupMerge():
            return (node.store,)
        case Suppress():
            return (node.store, *lookup_stores(graph, node.parents[0]))
        case TableTransformValues(store=str(own)):
            return (own,)
        case _:
            return node.stores


def is_versioned(graph: Graph, table: str) -> bool:
    """Whether updates of a table may belong to the past; a table without its own store is like its parent.

    Source: `InternalStreamsBuilder#isVersionedOrVersionedUpstream`.
    """
    match node := graph.node(table):
        case TableFilter(store=None) | TableMapValues(store=None) | TableTransformValues(store=None):
            return is_versioned(graph, node.parents[0])
        case _:
            own = next(iter(node.fills), None)
            return any(spec.kind == "versioned" and spec.name == own for spec, _ in graph.stores)


def ask_for_old_values(graph: Graph, table: str, *, force: bool) -> bool:
    """Makes a table send old values, if it can.

    No table does unless a reader asks. A filter asks: without the old value it could not know that there was no row
    before, and would forward a delete for every row that it never let through. It does without if that would take a
    store that nobody else needs. Joins and groupings cannot do without.

    Source: `KTableImpl#enableSendingOldValues`.

    Args:
        table: name of its node.
        force: give the source of the table a store if it has none.

    Returns:
        Whether it does now.
    """
    if table in graph.old_values:
        return True
    node = graph.node(table)
    match node:
        case TableSource(store=None):
            if not force:
                return False
            graph.materialize(table)
        case TableMapValues(store=None) | TableFilter(store=None) | TableTransformValues(store=None) | Suppress():
            if not ask_for_old_values(graph, node.parents[0], force=force):
                return False
        case CogroupMerge():
            graph.old_values.update(node.parents)
        case TableJoinMerge():
            # The results of a join are recomputed from each side's old value.
            graph.old_values.update(node.parents)
            for side in node.parents:
                ask_for_old_values(graph, graph.node(side).parents[0], force=True)
        case _:
            pass
    graph.old_values.add(table)
    return True
