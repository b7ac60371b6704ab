"""Aggregates of a stream per key, per key and time window, per key and session.

Lateness is decided per record and window, against the largest timestamp that this aggregate has seen. A record whose
function raises has moved that time; what it had already changed and forwarded stays.

These functions are the hottest of all: each is one closure, and works on the caches of its store directly.
"""

from __future__ import annotations

from typing import Any

from deltaworks.kernel.change import Change
from deltaworks.kernel.context import Process
from deltaworks.kernel.processors.aggregations import functions
from deltaworks.kernel.processors.caching import (
    forward_at_commit,
    forward_sessions_at_commit,
    forward_windows_at_commit,
)
from deltaworks.kernel.processors.wiring import Wiring
from deltaworks.kernel.records import Headers
from deltaworks.kernel.stores.session import Session
from deltaworks.serdes.windowed import Windowed
from deltaworks.topology.nodes.aggregates import Count, SessionAggregate, StreamAggregate, WindowAggregate


def stream_aggregate(node: StreamAggregate, wiring: Wiring) -> Process:
    """Null keys and null values are dropped."""
    name, context, store = node.name, wiring.context, wiring.key_value_store(node.store)
    forward, failed, drop = wiring.forward(name), context.failed, context.drop
    does, codec, entries = functions(node.aggregation), store.codec, store.entries
    initial, update = does.initial, does.update
    cache_key, thaw, freeze = codec.cache_key, codec.thaw, codec.freeze
    old_values, cached = node.old_values, store.spec.cached
    if cached:
        wiring.flushes.append(forward_at_commit(store, context, forward, old_values=old_values))

    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
        if key is None or value is None:
            return drop()
        try:
            slot = key if cache_key is None else cache_key(key)
        except Exception as error:
            return failed(name, error)
        entry = entries.get(slot)
        kept, time_ms = entry[0], entry[1]
        try:
            if kept is None:
                # Forwarded as the old value although no row had it: so does Kafka Streams.
                old, time_ms = initial(), timestamp_ms
            else:
                old = kept if thaw is None else thaw(kept)
            new = kept = update(key, value, old)
            if freeze is not None and new is not None:
                kept = freeze(new)
        except Exception as error:
            return failed(name, error)
        if timestamp_ms > time_ms:
            time_ms = timestamp_ms
        if cached:
            entries.updates[slot] = (kept, timestamp_ms if new is None else time_ms, context.number, context.index)
            return None
        entries.updates[slot] = (kept, time_ms)
        return forward(key, Change(new, old if old_values else None), time_ms, headers)

    return process


def window_aggregate(node: WindowAggregate, wiring: Wiring) -> Process:
    """Null keys are dropped, null values are not; a window is late once `end <= observed time - grace`."""
    name, context, store = node.name, wiring.context, wiring.window_store(node.store)
    forward, failed, drop = wiring.forward(name), context.failed, context.drop
    does, codec, windows = functions(node.aggregation), store.codec, store.windows
    initial, update = does.initial, does.update
    cache_key, thaw, freeze = codec.cache_key, codec.thaw, codec.freeze
    old_values, cached = node.old_values, store.spec.cached
    size_ms, advance_ms, grace_ms = node.windows.size_ms, node.windows.advance_ms, node.windows.grace_ms
    # The most common aggregate of all is worth a branch: it needs no call and cannot fail.
    counts = isinstance(node.aggregation, Count) and freeze is None
    before_last_ms = size_ms - advance_ms
    clock = wiring.clock(node, stays_open_ms=grace_ms - 1)
    closed_ms = clock.observed_ms - grace_ms
    _check_retention(node.store, store.retention_ms, size_ms + grace_ms)
    if cached:
        wiring.flushes.append(forward_windows_at_commit(store, size_ms, context, forward, old_values=old_values))

    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
        nonlocal closed_ms
        if key is None:
            return drop()
        if timestamp_ms > clock.observed_ms:
            clock.observed_ms = timestamp_ms
            closed_ms = timestamp_ms - grace_ms
        try:
            slot = key if cache_key is None else cache_key(key)
        except Exception as error:
            return failed(name, error)
        start_ms = (timestamp_ms - before_last_ms) // advance_ms * advance_ms
        if start_ms < 0:
            start_ms = 0
        while start_ms <= timestamp_ms:
            end_ms = start_ms + size_ms
            if end_ms <= closed_ms:
                context.metrics.late += 1
                start_ms += advance_ms
                continue
            window = windows.get(start_ms) or store.window(start_ms)
            entry = window.updates.get(slot) or window.committed_entry(slot)
            kept, time_ms = entry[0], entry[1]
            if counts:
                old = kept or 0
                new = kept = old + 1
            else:
                try:
                    if kept is None:
                        old, time_ms = initial(), timestamp_ms
                    else:
                        old = kept if thaw is None else thaw(kept)
                    new = kept = update(key, value, old)
                    if freeze is not None and new is not None:
                        kept = freeze(new)
                except Exception as error:
                    return failed(name, error)
            if start_ms > store.newest_ms:
                store.newest_ms = start_ms
            if timestamp_ms > time_ms:
                time_ms = timestamp_ms
            if cached:
                time_ms = timestamp_ms if new is None else time_ms
                window.updates[slot] = (kept, time_ms, context.number, context.index)
            else:
                window.updates[slot] = (kept, time_ms)
                change = Change(new, old if old_values else None)
                forward(Windowed(key, start_ms, end_ms), change, time_ms, headers)
            start_ms += advance_ms
        return None

    return process


def session_aggregate(node: SessionAggregate, wiring: Wiring) -> Process:
    """Null keys are dropped, null values are not.

    Sessions at most a gap away from a record become one; a tombstone goes out for each of them, then the new one.
    A record is late if the session it would belong to has `end < observed time - grace - gap`.
    """
    name, context, store = node.name, wiring.context, wiring.session_store(node.store)
    forward, failed, drop = wiring.forward(name), context.failed, context.drop
    does, codec = functions(node.aggregation), store.codec
    initial, update, merge = does.initial, does.update, does.merge
    cache_key, thaw, freeze = codec.cache_key, codec.thaw, codec.freeze
    old_values, cached = node.old_values, store.spec.cached
    gap_ms, grace_ms = node.windows.gap_ms, node.windows.grace_ms
    clock = wiring.clock(node, stays_open_ms=grace_ms + gap_ms)
    _check_retention(node.store, store.retention_ms, gap_ms + grace_ms)
    if cached:
        wiring.flushes.append(forward_sessions_at_commit(store, context, forward, old_values=old_values))

    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
        if key is None:
            return drop()
        if timestamp_ms > clock.observed_ms:
            clock.observed_ms = timestamp_ms
        try:
            slot = key if cache_key is None else cache_key(key)
        except Exception as error:
            return failed(name, error)
        earliest_ms, latest_ms = timestamp_ms - gap_ms, timestamp_ms + gap_ms
        sessions = store.sessions(slot)
        near: list[Session] = []
        start_ms = end_ms = timestamp_ms
        try:
            new = initial()
            for session in sessions:
                if session[0] >= earliest_ms and session[1] <= latest_ms:
                    near.append(session)
                    kept = session[2]
                    new = merge(key, new, kept if thaw is None else thaw(kept))
                    if session[1] < start_ms:
                        start_ms = session[1]
                    if session[0] > end_ms:
                        end_ms = session[0]
        except Exception as error:
            return failed(name, error)
        if end_ms < clock.final_before_ms:
            context.metrics.late += 1
            return None
        moves = start_ms != end_ms
        if moves and not cached:
            for session in near:
                old = codec.value_of_cached(session[2]) if old_values else None
                forward(Windowed(key, session[1], session[0]), Change(None, old), session[0], headers)
        try:
            new = kept = update(key, value, new)
            if freeze is not None and new is not None:
                kept = freeze(new)
        except Exception as error:
            # Kafka Streams has already removed what was to be merged, unless the session stays where it is.
            store.replace(slot, near if moves else (), None)
            return failed(name, error)
        if cached:
            store.replace(slot, near, (end_ms, start_ms, kept, context.number, context.index))
            return None
        store.replace(slot, near, (end_ms, start_ms, kept))
        return forward(Windowed(key, start_ms, end_ms), Change(new), end_ms, headers)

    return process


def _check_retention(store: str, retention_ms: int, needed_ms: int) -> None:
    if retention_ms < needed_ms:
        raise ValueError(f"store '{store}' keeps {retention_ms} ms; its windows with their grace need {needed_ms} ms")
