"""Joins."""

from __future__ import annotations

from typing import Any

from deltaworks.kernel.context import Process
from deltaworks.kernel.processors.tables import row_of_view
from deltaworks.kernel.processors.wiring import Wiring
from deltaworks.kernel.records import Headers
from deltaworks.topology.nodes.joins import StreamTableJoin


def stream_table_join(node: StreamTableJoin, wiring: Wiring) -> Process:
    """Null values are dropped; a null key is dropped by an inner join and joins nothing in a left one (KIP-962)."""
    name, joiner, view, left = node.name, node.joiner, node.table_view, node.kind == "left"
    forward, failed, drop = wiring.forward(name), wiring.context.failed, wiring.context.drop
    store = wiring.key_value_store(node.table_store)
    cache_key, thaw, entries = store.codec.cache_key, store.codec.thaw, store.entries

    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
        if value is None or (key is None and not left):
            return drop()
        try:
            slot = key if cache_key is None or key is None else cache_key(key)
        except Exception as error:
            return failed(name, error)
        # Outside of any try: a store that cannot be read is no fault of the record.
        row = None if slot is None else entries.get(slot)[0]
        try:
            if thaw is not None and row is not None:
                row = thaw(row)
            for operator in view:
                row = row_of_view(operator, key, row)
            if row is None and not left:
                return None
            joined = joiner(key, value, row)
        except Exception as error:
            return failed(name, error)
        return forward(key, joined, timestamp_ms, headers)

    return process
