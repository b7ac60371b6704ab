"""Operators on tables: a record's value is a `Change`."""

from __future__ import annotations

from typing import Any

from deltaworks.kernel.context import Process
from deltaworks.kernel.processors.rows import keeper
from deltaworks.kernel.processors.views import is_versioned, row_function
from deltaworks.kernel.processors.wiring import Wiring
from deltaworks.kernel.records import Headers
from deltaworks.serdes.change import Change
from deltaworks.topology.nodes.table_operators import TableFilter, TableMapValues, TableToStream


def table_view(node: TableFilter | TableMapValues, wiring: Wiring) -> Process:
    """A filter or mapper of rows. A row that the filter drops is a delete, forwarded only if there was a row before.

    Source: `KTableFilter`, `KTableMapValues`.
    """
    name, old_values = node.name, node.old_values
    row = row_function(node)
    skips = old_values and isinstance(node, TableFilter) and not is_versioned(node.parents[0], wiring)
    if node.store is not None:
        return _kept(node, node.store, skips, wiring)
    forward, failed = wiring.forward(name), wiring.context.failed

    def process(key: Any, change: Change, timestamp_ms: int, headers: Headers) -> None:
        try:
            new = row(key, change.new)
            old = row(key, change.old) if old_values else None
        except Exception as error:
            return failed(name, error, key, change, timestamp_ms, headers)
        if skips and new is None and old is None:
            return None
        return forward(key, Change(new, old, change.is_latest), timestamp_ms, headers)

    return process


def _kept(node: TableFilter | TableMapValues, store_name: str, skips: bool, wiring: Wiring) -> Process:
    """A table with its own store, which knows the old value."""
    name, store, row = node.name, wiring.table_store(store_name), row_function(node)
    failed, keep = wiring.context.failed, keeper(node, store, wiring)
    cache_key, freeze, thaw, entries = store.codec.cache_key, store.codec.freeze, store.codec.thaw, store.entries
    reads_old = node.old_values and (skips or not store.spec.cached)

    def process(key: Any, change: Change, timestamp_ms: int, headers: Headers) -> None:
        try:
            new = row(key, change.new)
            entry_key = key if cache_key is None else cache_key(key)
            kept = new if freeze is None or new is None else freeze(new)
            old = entries.get(entry_key)[0] if reads_old else None
            if old is not None and thaw is not None:
                old = thaw(old)
        except Exception as error:
            return failed(name, error, key, change, timestamp_ms, headers)
        if skips and new is None and old is None:
            return None
        return keep(entry_key, key, kept, new, old, timestamp_ms, headers)

    return process


def table_to_stream(node: TableToStream, wiring: Wiring) -> Process:
    forward = wiring.forward(node.name)

    def process(key: Any, change: Change, timestamp_ms: int, headers: Headers) -> None:
        forward(key, change.new, timestamp_ms, headers)

    return process
