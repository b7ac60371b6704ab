"""When a failed record has lost its original bytes: a quirk of Kafka Streams that dead letters show.

`ErrorPolicy(keep_bytes=True)` switches it off.

Kafka Streams releases the bytes of the record in process as soon as a sink has taken it. An operator that fails later
on the very same record, not on one made from it, writes a dead letter without key and value.
Source: `RecordCollectorImpl#freeRawInputRecordFromContext`, `ProcessorContextImpl#forward`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from deltaworks.kernel.context import TaskContext
from deltaworks.kernel.records import Headers
from deltaworks.topology.nodes import AnyNode, Branch, Merge, Passthrough, ProcessorNode

Take = Callable[[Any, Any, int, Headers], None]
"""`(key, value, timestamp_ms, headers)`: a sink has written this record."""


class RawRecords:
    """Knows which operators of a task see the very same records."""

    def __init__(self, nodes: Mapping[str, AnyNode]) -> None:
        """
        Args:
            nodes: Parents before children.
        """
        self._nodes = nodes
        self._scopes: dict[str, frozenset[str]] = {}
        """Node -> the nodes that made the records which it gets."""
        for name, node in nodes.items():
            made_by = [self._scopes[each] if _passes_on(nodes[each]) else frozenset({each}) for each in node.parents]
            self._scopes[name] = frozenset[str]().union(*made_by)

    def taken_by(self, sink: str, context: TaskContext) -> Take | None:
        """A function for a sink to call after each record it has written; None if no operator can fail on it later."""
        if context.keeps_bytes:
            return None
        scope, above = self._scopes[sink], self._above(sink)
        # An operator above has done its work before the sink, except for a user's processor.
        others = {name for name in self._nodes if name not in above or isinstance(self._nodes[name], ProcessorNode)}
        if not any(scope & self._scopes[name] for name in others - {sink}):
            return None
        context.scopes, taken = self._scopes, context.taken

        def take(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
            taken[sink] = scope, context.number, context.index, key, value, timestamp_ms, headers

        return take

    def _above(self, sink: str) -> set[str]:
        above: set[str] = set()
        waiting = [sink]
        while waiting:
            for parent in self._nodes[waiting.pop()].parents:
                if parent not in above:
                    above.add(parent)
                    waiting.append(parent)
        return above


def _passes_on(node: AnyNode) -> bool:
    """Whether it forwards the record that it gets; filters, `peek` and all others that keep the key make a new one."""
    return isinstance(node, Branch | Merge | Passthrough | ProcessorNode)
