"""Aggregates of a stream per key, the merge of a cogroup's streams, and the functions of every aggregation.

Aggregates over windows are in `windowed_aggregates.py`, `sliding.py`, `sessions.py`. The aggregates are the hottest
functions of all: each is one closure, and works on the caches of its store directly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, assert_never

from deltaworks.kernel.context import Process
from deltaworks.kernel.processors.caching import forward_at_commit
from deltaworks.kernel.processors.rows import keeper
from deltaworks.kernel.processors.window_clock import CogroupClock
from deltaworks.kernel.processors.wiring import Wiring
from deltaworks.kernel.records import Headers
from deltaworks.kernel.stores.versioned import VersionedStore
from deltaworks.serdes.change import Change
from deltaworks.topology.nodes.aggregates import Aggregate, Aggregation, CogroupMerge, Count, Reduce, StreamAggregate


@dataclass(frozen=True)
class Functions:
    """What an aggregation does to its state."""

    initial: Callable[[], Any]
    update: Callable[[Any, Any, Any], Any]
    """`(key, value, aggregate) -> aggregate`"""
    merge: Callable[[Any, Any, Any], Any]
    """`(key, aggregate so far, aggregate of the next session) -> aggregate`"""


def functions(aggregation: Aggregation) -> Functions:
    """Count, reduce and aggregate as the same three functions, for every kind of window."""
    match aggregation:
        case Count():
            return Functions(lambda: 0, lambda key, value, count: count + 1, lambda key, left, right: left + right)
        case Reduce():
            reducer = aggregation.reducer

            def reduce(key: Any, value: Any, aggregate: Any) -> Any:
                return value if aggregate is None else reducer(aggregate, value)

            return Functions(lambda: None, reduce, lambda key, left, right: reduce(key, right, left))
        case Aggregate():
            return Functions(aggregation.initializer, aggregation.aggregator, aggregation.merger or _no_merger)
        case _:
            assert_never(aggregation)


def check_retention(store: str, retention_ms: int | None, needed_ms: int) -> None:
    """The DSL has told the user; this is for plans made without it."""
    if retention_ms is None or retention_ms < needed_ms:
        raise ValueError(f"store '{store}' keeps {retention_ms} ms; its windows with their grace need {needed_ms} ms")


def stream_aggregate(node: StreamAggregate, wiring: Wiring) -> Process:
    """Null keys and null values are dropped."""
    if isinstance(versioned := wiring.table_store(node.store), VersionedStore):
        return _versioned(node, versioned, wiring)
    name, context, store = node.name, wiring.context, wiring.key_value_store(node.store)
    forward, failed, drop = wiring.forward(name), context.failed, context.drop
    does, codec, entries = functions(node.aggregation), store.codec, store.entries
    initial, update = does.initial, does.update
    cache_key, thaw, freeze = codec.cache_key, codec.thaw, codec.freeze
    old_values, cached = node.old_values, store.spec.cached
    if cached and not node.cogrouped:
        wiring.flushes.append(forward_at_commit(store, context, forward, old_values=old_values))

    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
        if key is None or value is None:
            return drop()
        try:
            entry_key = key if cache_key is None else cache_key(key)
        except Exception as error:
            return failed(name, error, key, value, timestamp_ms, headers)
        entry = entries.get(entry_key)
        kept, time_ms = entry[0], entry[1]
        try:
            if kept is None:
                # Forwarded as the old value although no row had it, as in Kafka Streams.
                old, time_ms = initial(), timestamp_ms
            else:
                old = kept if thaw is None else thaw(kept)
            new = kept = update(key, value, old)
            if freeze is not None and new is not None:
                kept = freeze(new)
        except Exception as error:
            return failed(name, error, key, value, timestamp_ms, headers)
        if timestamp_ms > time_ms:
            time_ms = timestamp_ms
        if cached:
            entries.updates[entry_key] = (kept, timestamp_ms if new is None else time_ms, context.number, context.index)
            return None
        entries.updates[entry_key] = (kept, time_ms)
        return forward(key, Change(new, old if old_values else None), time_ms, headers)

    return process


def _versioned(node: StreamAggregate, store: VersionedStore, wiring: Wiring) -> Process:
    """The same with a history of the aggregates: a separate closure, so that the usual one stays lean."""
    name, failed, drop = node.name, wiring.context.failed, wiring.context.drop
    does, codec, old_values = functions(node.aggregation), store.codec, node.old_values
    keep = keeper(node, store, wiring)

    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
        if key is None or value is None:
            return drop()
        try:
            entry_key = key if codec.cache_key is None else codec.cache_key(key)
            entry = store.entries.get(entry_key)
            old = does.initial() if entry[0] is None else codec.value_of_cached(entry[0])
            time_ms = timestamp_ms if entry[0] is None else max(timestamp_ms, entry[1])
            new = does.update(key, value, old)
            kept = codec.cached_value(new)
        except Exception as error:
            return failed(name, error, key, value, timestamp_ms, headers)
        return keep(entry_key, key, kept, new, old if old_values else None, time_ms, headers)

    return process


def cogroup_merge(node: CogroupMerge, wiring: Wiring) -> Process:
    """Merges the updates of all streams of a cogroup; a window is final when it is final for each of them."""
    wiring.clocks[node.name] = CogroupClock(wiring.clocks, node.parents)
    return wiring.forward(node.name)


def _no_merger(key: Any, left: Any, right: Any) -> Any:
    raise TypeError("an aggregate over sessions needs a merger")
