"""Which tables send their readers the value from before an update.

A table does so only if a reader asks. A filter asks: without the old value it could not know that there was no row
before, and would forward a delete for every row that it never let through. It does without if old values would take a
store that nothing else needs. Joins and groupings always need old values.
Source: `KTableImpl#enableSendingOldValues`.
"""

from __future__ import annotations

from deltaworks.dsl.graph import Graph
from deltaworks.topology.nodes import (
    CogroupMerge,
    Suppress,
    TableFilter,
    TableJoinMerge,
    TableMapValues,
    TableSource,
    TableTransformValues,
)


def ask_for_old_values(graph: Graph, table: str, *, force: bool) -> bool:
    """Makes a table send old values, if it can.

    Args:
        table: name of its node.
        force: give the source of the table a store if it has none.

    Returns:
        Whether it sends them now.
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
            # A join computes its old result from the old value of each side.
            graph.old_values.update(node.parents)
            for side in node.parents:
                ask_for_old_values(graph, graph.node(side).parents[0], force=True)
        case _:
            pass
    graph.old_values.add(table)
    return True
