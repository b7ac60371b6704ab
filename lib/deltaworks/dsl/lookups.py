"""Where the rows of a table come from when a join looks one up."""

from __future__ import annotations

from deltaworks.dsl.graph import Graph
from deltaworks.topology.nodes import TableFilter, TableMapValues, TableSource


def lookup_stores(graph: Graph, table: str) -> tuple[str, ...]:
    """The stores that rows of a table are read from; a source without a store gets one.

    Source: `KTableImpl#valueGetterSupplier`.
    """
    match node := graph.node(table):
        case TableSource(store=None):
            graph.materialize(table)
            return graph.node(table).stores
        case TableFilter(store=None) | TableMapValues(store=None):
            return lookup_stores(graph, node.parents[0])
        case _:
            return node.stores
