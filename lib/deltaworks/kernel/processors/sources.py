"""Where records enter. Reading and decoding are the task's; this file has what a table does with a record."""

from __future__ import annotations

from typing import Any

from deltaworks.kernel.change import Change
from deltaworks.kernel.context import Process
from deltaworks.kernel.processors.caching import forward_at_commit
from deltaworks.kernel.processors.wiring import Wiring
from deltaworks.kernel.records import Headers
from deltaworks.topology.nodes.sources import TableSource


def table_source(node: TableSource, wiring: Wiring) -> Process:
    """Keeps the last record per key, whatever its timestamp."""
    if node.store is None:
        return _passing(node, wiring)
    name, context, store = node.name, wiring.context, wiring.key_value_store(node.store)
    forward, failed, drop = wiring.forward(name), wiring.context.failed, wiring.context.drop
    codec, entries = store.codec, store.entries
    old_values, cached = node.old_values, store.spec.cached
    if cached:
        wiring.flushes.append(forward_at_commit(store, context, forward, old_values=old_values))

    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
        if key is None:
            return drop()
        try:
            slot = key if codec.cache_key is None else codec.cache_key(key)
            kept = codec.cached_value(value)
        except Exception as error:
            return failed(name, error)
        if cached:
            entries.updates[slot] = (kept, timestamp_ms, context.number, context.index)
            return None
        old = codec.value_of_cached(entries.get(slot)[0]) if old_values else None
        entries.updates[slot] = (kept, timestamp_ms)
        return forward(key, Change(value, old), timestamp_ms, headers)

    return process


def _passing(node: TableSource, wiring: Wiring) -> Process:
    forward, drop = wiring.forward(node.name), wiring.context.drop

    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
        if key is None:
            return drop()
        return forward(key, Change(value), timestamp_ms, headers)

    return process
