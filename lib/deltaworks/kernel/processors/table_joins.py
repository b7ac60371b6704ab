"""Joins of two tables: an update of either side is joined with the current row of the other."""

from __future__ import annotations

from typing import Any

from deltaworks.kernel.context import Process
from deltaworks.kernel.processors.rows import keeper
from deltaworks.kernel.processors.views import is_versioned, lookup
from deltaworks.kernel.processors.window_clock import CogroupClock
from deltaworks.kernel.processors.wiring import Wiring
from deltaworks.kernel.records import Headers
from deltaworks.serdes.change import Change
from deltaworks.topology.nodes.table_joins import TableJoinMerge, TableTableJoin


def table_table_join(node: TableTableJoin, wiring: Wiring) -> Process:
    """One side of a join. A result has the later timestamp of update and row.

    Only the latest versions of a versioned table are joined.
    Source: `KTableKTableInnerJoin`, `KTableKTableLeftJoin`, `KTableKTableRightJoin`, `KTableKTableOuterJoin`.
    """
    name, joiner, old_values, left = node.name, node.joiner, node.old_values, node.side == "left"
    forward, failed, drop = wiring.forward(name), wiring.context.failed, wiring.context.drop
    row_of = lookup(node.table, wiring)
    needs_row = node.kind == "inner" or (node.kind == "left" and not left)
    row_suffices = node.kind == "outer" or (node.kind == "left" and not left)
    skips_late = is_versioned(node.parents[0], wiring)

    def process(key: Any, change: Change, timestamp_ms: int, headers: Headers) -> None:
        if key is None:
            return drop()
        if skips_late and not change.is_latest:
            return drop()
        new, old, result_ms = change.new, change.old, timestamp_ms
        try:
            entry = row_of(key)
            row = entry[0]
            if row is None:
                if needs_row or (new is None and old is None):
                    return None
                joins_null = False
            else:
                joins_null = row_suffices
                if entry[1] > result_ms:
                    result_ms = entry[1]
            if new is not None or joins_null:
                new = joiner(new, row) if left else joiner(row, new)
            if not old_values:
                old = None
            elif old is not None or joins_null:
                old = joiner(old, row) if left else joiner(row, old)
        except Exception as error:
            return failed(name, error, key, change, timestamp_ms, headers)
        return forward(key, Change(new, old, change.is_latest), result_ms, headers)

    return process


def table_join_merge(node: TableJoinMerge, wiring: Wiring) -> Process:
    """Merges the results of both sides in their order of arrival; a window is final when it is final for both.

    Source: `KTableKTableJoinMerger`.
    """
    if node.window_nodes:
        wiring.clocks[node.name] = CogroupClock(wiring.clocks, node.window_nodes)
    if node.store is None:
        return wiring.forward(node.name)
    name, store, failed = node.name, wiring.table_store(node.store), wiring.context.failed
    cache_key, freeze, keep = store.codec.cache_key, store.codec.freeze, keeper(node, store, wiring)

    def process(key: Any, change: Change, timestamp_ms: int, headers: Headers) -> None:
        value = change.new
        try:
            entry_key = key if cache_key is None else cache_key(key)
            kept = value if freeze is None or value is None else freeze(value)
        except Exception as error:
            return failed(name, error, key, change, timestamp_ms, headers)
        return keep(entry_key, key, kept, value, change.old, timestamp_ms, headers)

    return process
