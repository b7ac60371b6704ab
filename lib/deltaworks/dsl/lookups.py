"""Where the rows of a table come from when a join looks one up."""

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
