"""Regrouping a table: old values are subtracted from their group, new ones are added to theirs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, assert_never

from deltaworks.kernel.context import Process
from deltaworks.kernel.processors.rows import keeper
from deltaworks.kernel.processors.stateless import not_a_pair
from deltaworks.kernel.processors.views import is_versioned
from deltaworks.kernel.processors.wiring import Wiring
from deltaworks.kernel.records import Headers
from deltaworks.serdes.change import Change
from deltaworks.topology.nodes.grouped_table import TableAggregate, TableFold, TableGroupBy, TableReduce

_NO_PAIR = (None, None)


def table_group_by(node: TableGroupBy, wiring: Wiring) -> Process:
    """Sends leaving values before entering ones; if the group stays, both go in one record (KIP-904).

    Pairs with a null group or a null value are skipped. Only the latest versions of a versioned table are grouped.
    Source: `KTableRepartitionMap`.
    """
    name, selector = node.name, node.selector
    forward, failed = wiring.forward(name), wiring.context.failed
    skips_late = is_versioned(node.parents[0], wiring)

    def process(key: Any, change: Change, timestamp_ms: int, headers: Headers) -> None:
        made: Any = _NO_PAIR
        try:
            if key is None:
                raise ValueError("a table that is grouped has no null keys")
            if skips_late and not change.is_latest:
                return None
            made = _NO_PAIR if change.new is None else selector(key, change.new)
            new_group, new = made
            made = _NO_PAIR if change.old is None else selector(key, change.old)
            old_group, old = made
            comes = new_group is not None and new is not None
            leaves = old_group is not None and old is not None
            stays = comes and leaves and new_group == old_group
        except Exception as error:
            return failed(name, not_a_pair(made, error), key, change, timestamp_ms, headers)
        if stays:
            return forward(new_group, Change(new, old, change.is_latest), timestamp_ms, headers)
        if leaves:
            forward(old_group, Change(None, old, change.is_latest), timestamp_ms, headers)
        if comes:
            forward(new_group, Change(new, None, change.is_latest), timestamp_ms, headers)
        return None

    return process


def table_aggregate(node: TableAggregate, wiring: Wiring) -> Process:
    """Subtracts first. A group without an aggregate has nothing to subtract from.

    The result's time is the later one of record and aggregate, if the aggregate went into it.
    Source: `KTableAggregate`, `KTableReduce`.
    """
    name, store = node.name, wiring.table_store(node.store)
    failed, keep = wiring.context.failed, keeper(node, store, wiring)
    cache_key, freeze, thaw, entries = store.codec.cache_key, store.codec.freeze, store.codec.thaw, store.entries
    does = _functions(node)
    first, add, subtract = does.first, does.add, does.subtract
    cached, old_values = store.spec.cached, node.old_values

    def process(key: Any, change: Change, timestamp_ms: int, headers: Headers) -> None:
        result_ms = timestamp_ms
        try:
            if key is None:
                raise ValueError("a group of a table has no null key")
            entry_key = key if cache_key is None else cache_key(key)
            entry = entries.get(entry_key)
            new = old = entry[0] if thaw is None or entry[0] is None else thaw(entry[0])
            if change.old is not None and old is not None:
                new = subtract(key, change.old, old)
                if entry[1] > result_ms:
                    result_ms = entry[1]
            if change.new is not None:
                if new is None:
                    new = first(key, change.new)
                else:
                    new = add(key, change.new, new)
                    if entry[1] > result_ms:
                        result_ms = entry[1]
            kept = new if freeze is None or new is None else freeze(new)
        except Exception as error:
            return failed(name, error, key, change, timestamp_ms, headers)
        if cached and new is None:
            result_ms = timestamp_ms
        return keep(entry_key, key, kept, new, old if old_values else None, result_ms, headers)

    return process


@dataclass(frozen=True)
class _Functions:
    first: Callable[[Any, Any], Any]
    """`(group, value) -> aggregate`, where there is no aggregate"""
    add: Callable[[Any, Any, Any], Any]
    """`(group, value, aggregate) -> aggregate`"""
    subtract: Callable[[Any, Any, Any], Any]


def _functions(node: TableAggregate) -> _Functions:
    match aggregation := node.aggregation:
        case TableReduce(adder, subtractor):
            return _Functions(
                first=lambda key, value: value,
                add=lambda key, value, aggregate: adder(aggregate, value),
                subtract=lambda key, value, aggregate: subtractor(aggregate, value),
            )
        case TableFold(initializer, add, subtract):
            return _Functions(lambda key, value: add(key, value, initializer()), add, subtract)
        case _:
            assert_never(aggregation)
