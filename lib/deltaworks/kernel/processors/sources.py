"""Where records enter. The task reads and decodes; this file says which records a stream or a table takes."""

from __future__ import annotations

from typing import Any

from deltaworks.kernel.context import Process
from deltaworks.kernel.processors.rows import keeper
from deltaworks.kernel.processors.wiring import Wiring
from deltaworks.kernel.records import Headers
from deltaworks.serdes.change import Change
from deltaworks.topology.nodes.sources import Source, TableSource


def source(node: Source, wiring: Wiring) -> Process:
    """Hands records on; a null value that its stream does not want is dropped when its turn comes."""
    forward, drop = wiring.forward(node.name), wiring.context.drop
    if node.on_null == "forward":
        return forward

    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
        if value is None:
            return drop()
        return forward(key, value, timestamp_ms, headers)

    return process


def table_source(node: TableSource, wiring: Wiring) -> Process:
    """Keeps the last record per key, whatever its timestamp; a versioned store keeps the versions."""
    if node.store is None:
        return _passing(node, wiring)
    name, store = node.name, wiring.table_store(node.store)
    failed, drop, keep = wiring.context.failed, wiring.context.drop, keeper(node, store, wiring)
    cache_key, freeze, thaw, entries = store.codec.cache_key, store.codec.freeze, store.codec.thaw, store.entries
    deletes_once = node.deletes_once
    # With a record cache the commit finds the old value.
    wants_old = node.old_values and not store.spec.cached

    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
        if key is None:
            return drop()
        try:
            entry_key = key if cache_key is None else cache_key(key)
            if deletes_once and value is None and entries.get(entry_key)[0] is None:
                return drop()
            kept = value if freeze is None or value is None else freeze(value)
            old = entries.get(entry_key)[0] if wants_old else None
            if old is not None and thaw is not None:
                old = thaw(old)
        except Exception as error:
            return failed(name, error, key, value, timestamp_ms, headers)
        return keep(entry_key, key, kept, value, old, timestamp_ms, headers)

    return process


def _passing(node: TableSource, wiring: Wiring) -> Process:
    forward, drop = wiring.forward(node.name), wiring.context.drop

    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
        if key is None:
            return drop()
        return forward(key, Change(value), timestamp_ms, headers)

    return process
