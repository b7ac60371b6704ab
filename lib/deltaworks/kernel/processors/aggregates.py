"""Aggregates of a stream per key, per key and time window, per key and session.

Lateness is decided per record and window, against the largest timestamp that this aggregate has seen. A record whose
function raises has moved that time and changed nothing else.
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
from deltaworks.kernel.stores.window import NEVER
from deltaworks.serdes.windowed import Windowed
from deltaworks.topology.nodes.aggregates import SessionAggregate, StreamAggregate, WindowAggregate


def stream_aggregate(node: StreamAggregate, wiring: Wiring) -> Process:
    """Null keys and null values are dropped."""
    name, context, store = node.name, wiring.context, wiring.key_value_store(node.store)
    forward, failed, drop = wiring.forward(name), context.failed, context.drop
    does, codec, entries = functions(node.aggregation), store.codec, store.entries
    initial, update = does.initial, does.update
    cache_key, thaw, freeze = codec.cache_key, codec.thaw, codec.freeze
    old_values, cached = name in wiring.old_values, store.spec.cached
    if cached:
        wiring.flushes.append(forward_at_commit(store, context, forward, old_values=old_values))

    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
        if key is None or value is None:
            return drop()
        try:
            slot = key if cache_key is None else cache_key(key)
        except Exception as error:
            return failed(name, error)
        kept, newest_ms = entries.get(slot)[:2]
        try:
            if kept is None:
                # Forwarded as the old value although no row had it: so does Kafka Streams.
                old, newest_ms = initial(), timestamp_ms
            else:
                old = kept if thaw is None else thaw(kept)
            new = update(key, value, old)
            kept = new if freeze is None or new is None else freeze(new)
        except Exception as error:
            return failed(name, error)
        if cached:
            time_ms = timestamp_ms if new is None or timestamp_ms > newest_ms else newest_ms
            entries.updates[slot] = (kept, time_ms, context.number, context.index)
            return None
        time_ms = timestamp_ms if timestamp_ms > newest_ms else newest_ms
        entries.updates[slot] = (kept, time_ms)
        return forward(key, Change(new, old if old_values else None), time_ms, headers)

    return process


class WindowAggregating:
    """Null keys are dropped, null values are not; a window is late once `end <= observed time - grace`."""

    __slots__ = (
        "_advance_ms",
        "_cache_key",
        "_cached",
        "_context",
        "_forward",
        "_freeze",
        "_grace_ms",
        "_initial",
        "_name",
        "_old_values",
        "_size_ms",
        "_store",
        "_thaw",
        "_update",
        "observed_ms",
    )

    def __init__(self, node: WindowAggregate, wiring: Wiring) -> None:
        self.observed_ms = wiring.observed_ms.get(node.store, NEVER)
        self._name, self._context = node.name, wiring.context
        windows = node.windows
        self._size_ms, self._advance_ms, self._grace_ms = windows.size_ms, windows.advance_ms, windows.grace_ms
        self._store = store = wiring.window_store(node.store)
        self._cache_key, self._thaw, self._freeze = store.codec.cache_key, store.codec.thaw, store.codec.freeze
        self._cached = store.spec.cached
        does = functions(node.aggregation)
        self._initial, self._update = does.initial, does.update
        self._forward, self._old_values = wiring.forward(node.name), node.name in wiring.old_values
        _check_retention(node.store, store.retention_ms, self._size_ms + self._grace_ms)
        if self._cached:
            flush = forward_windows_at_commit(
                store, self._size_ms, wiring.context, self._forward, old_values=self._old_values
            )
            wiring.flushes.append(flush)

    def final_before_ms(self) -> int:
        return self.observed_ms - self._grace_ms + 1

    def process(self, key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
        if key is None:
            return self._context.drop()
        if timestamp_ms > self.observed_ms:
            self.observed_ms = timestamp_ms
        try:
            slot = key if self._cache_key is None else self._cache_key(key)
        except Exception as error:
            return self._context.failed(self._name, error)
        closed_ms, size_ms, store = self.observed_ms - self._grace_ms, self._size_ms, self._store
        advance_ms = self._advance_ms
        start_ms = max(0, timestamp_ms - size_ms + advance_ms) // advance_ms * advance_ms
        while start_ms <= timestamp_ms:
            end_ms = start_ms + size_ms
            if end_ms <= closed_ms:
                self._context.metrics.late += 1
                start_ms += advance_ms
                continue
            window = store.windows.get(start_ms) or store.window(start_ms)
            entry = window.updates.get(slot) or window.committed_entry(slot)
            kept, time_ms = entry[0], entry[1]
            try:
                if kept is None:
                    old, time_ms = self._initial(), timestamp_ms
                else:
                    old = kept if self._thaw is None else self._thaw(kept)
                new = self._update(key, value, old)
                kept = new if self._freeze is None or new is None else self._freeze(new)
            except Exception as error:
                return self._context.failed(self._name, error)
            if start_ms > store.newest_ms:
                store.newest_ms = start_ms
            if self._cached:
                if timestamp_ms > time_ms or new is None:
                    time_ms = timestamp_ms
                window.updates[slot] = (kept, time_ms, self._context.number, self._context.index)
            else:
                if timestamp_ms > time_ms:
                    time_ms = timestamp_ms
                window.updates[slot] = (kept, time_ms)
                self._forward(
                    Windowed(key, start_ms, end_ms), Change(new, old if self._old_values else None), time_ms, headers
                )
            start_ms += advance_ms
        return None


class SessionAggregating:
    """Null keys are dropped, null values are not.

    Sessions at most a gap away from a record become one; a tombstone goes out for each of them, then the new one.
    A record is late if the session it would belong to has `end < observed time - grace - gap`.
    """

    def __init__(self, node: SessionAggregate, wiring: Wiring) -> None:
        self.observed_ms = wiring.observed_ms.get(node.store, NEVER)
        self._name, self._context = node.name, wiring.context
        self._gap_ms, self._grace_ms = node.windows.gap_ms, node.windows.grace_ms
        self._store = wiring.session_store(node.store)
        self._codec, self._cached = self._store.codec, self._store.spec.cached
        self._does = functions(node.aggregation)
        self._forward, self._old_values = wiring.forward(node.name), node.name in wiring.old_values
        _check_retention(node.store, self._store.retention_ms, self._gap_ms + self._grace_ms)
        if self._cached:
            flush = forward_sessions_at_commit(self._store, wiring.context, self._forward, old_values=self._old_values)
            wiring.flushes.append(flush)

    def final_before_ms(self) -> int:
        return self.observed_ms - self._grace_ms - self._gap_ms

    def process(self, key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
        context, codec, does = self._context, self._codec, self._does
        if key is None:
            return context.drop()
        if timestamp_ms > self.observed_ms:
            self.observed_ms = timestamp_ms
        try:
            slot = key if codec.cache_key is None else codec.cache_key(key)
        except Exception as error:
            return context.failed(self._name, error)
        near = self._store.find(slot, timestamp_ms - self._gap_ms, timestamp_ms + self._gap_ms)
        start_ms = end_ms = timestamp_ms
        try:
            new = does.initial()
            for session_end_ms, session_start_ms, kept in near:
                new = does.merge(key, new, codec.value_of_cached(kept))
                start_ms, end_ms = min(start_ms, session_start_ms), max(end_ms, session_end_ms)
        except Exception as error:
            return context.failed(self._name, error)
        if end_ms < self.final_before_ms():
            context.metrics.late += 1
            return None
        if (start_ms, end_ms) != (timestamp_ms, timestamp_ms):
            self._replace(key, slot, near, headers)
        try:
            new = does.update(key, value, new)
            kept = codec.cached_value(new)
        except Exception as error:
            return context.failed(self._name, error)
        self._store.put(slot, start_ms, end_ms, (kept, end_ms, context.number, context.index))
        if not self._cached:
            self._forward(Windowed(key, start_ms, end_ms), Change(new), end_ms, headers)
        return None

    def _replace(self, key: Any, slot: Any, near: list[Session], headers: Headers) -> None:
        for end_ms, start_ms, kept in near:
            self._store.remove(slot, start_ms, end_ms, (None, end_ms, self._context.number, self._context.index))
            if not self._cached:
                old = self._codec.value_of_cached(kept) if self._old_values else None
                self._forward(Windowed(key, start_ms, end_ms), Change(None, old), end_ms, headers)


def _check_retention(store: str, retention_ms: int, needed_ms: int) -> None:
    if retention_ms < needed_ms:
        raise ValueError(f"store '{store}' keeps {retention_ms} ms; its windows with their grace need {needed_ms} ms")
