"""Joins."""

from __future__ import annotations

from typing import Any

from deltaworks.kernel.context import Process
from deltaworks.kernel.processors.views import lookup
from deltaworks.kernel.processors.wiring import Wiring
from deltaworks.kernel.records import Headers
from deltaworks.topology.nodes.joins import StreamTableJoin


def stream_table_join(node: StreamTableJoin, wiring: Wiring) -> Process:
    """Null values are dropped; a null key is dropped by an inner join and joins nothing in a left one (KIP-962)."""
    name, joiner, left = node.name, node.joiner, node.kind == "left"
    forward, failed, drop = wiring.forward(name), wiring.context.failed, wiring.context.drop
    row_of = lookup(node.table, wiring)

    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
        if value is None or (key is None and not left):
            return drop()
        try:
            row = None if key is None else row_of(key)[0]
            if row is None and not left:
                return None
            joined = joiner(key, value, row)
        except Exception as error:
            return failed(name, error)
        return forward(key, joined, timestamp_ms, headers)

    return process
