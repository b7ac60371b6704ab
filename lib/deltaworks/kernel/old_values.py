"""Which operators tell their readers the value from before an update.

Nobody does unless somebody downstream asks. A filter of a table asks: without the old value it could not know that
there was no row before, and would forward a delete for every row that it never let through.
Source: `KTableImpl#enableSendingOldValues`.
"""

from __future__ import annotations

from collections.abc import Sequence

from deltaworks.topology.nodes import AnyNode
from deltaworks.topology.nodes.tables import TableFilter, TableMapValues


def senders_of_old_values(nodes: Sequence[AnyNode]) -> frozenset[str]:
    """Names of the operators that send old values."""
    by_name = {node.name: node for node in nodes}
    senders: set[str] = set()
    asked = [node for node in nodes if isinstance(node, TableFilter)]
    while asked:
        node: AnyNode = asked.pop()
        senders.add(node.name)
        while isinstance(node, TableFilter | TableMapValues):
            node = by_name[node.parents[0]]
            senders.add(node.name)
    return frozenset(senders)
