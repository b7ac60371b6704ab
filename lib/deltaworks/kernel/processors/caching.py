"""The record cache: a commit forwards the last update per key, with the value as of the previous commit.

The stores already keep the writes since the last commit, so the cache costs nothing per record. Keys are forwarded in
the order of their first writes (Kafka Streams: last writes), except sliding windows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from deltaworks.kernel.context import Process, TaskContext
from deltaworks.kernel.stores.entries import Codec, Entries
from deltaworks.kernel.stores.key_value import KeyValueStore
from deltaworks.kernel.stores.session import SessionStore
from deltaworks.kernel.stores.window import WindowStore
from deltaworks.serdes.change import Change
from deltaworks.serdes.windowed import Windowed


def forward_at_commit(
    store: KeyValueStore, context: TaskContext, forward: Process, *, old_values: bool
) -> Callable[[], None]:
    """Forwards the rows of a key-value store."""
    codec, entries = store.codec, store.entries

    def flush() -> None:
        for cached_key, change, time_ms in _changes(entries, codec, context, old_values):
            forward(codec.key_of_cached(cached_key), change, time_ms, context.headers)

    return flush


def forward_windows_at_commit(
    store: WindowStore, end_of: Callable[[int], int], context: TaskContext, forward: Process, *, old_values: bool
) -> Callable[[], None]:
    """Forwards the rows of a window store, one start after the other."""
    codec = store.codec

    def flush() -> None:
        for start_ms in sorted(start_ms for start_ms, entries in store.windows.items() if entries.updates):
            end_ms = end_of(start_ms)
            entries, left_store = store.windows[start_ms], store.left_store(start_ms)
            for cached_key, change, time_ms in _changes(entries, codec, context, old_values, left_store):
                key = Windowed(codec.key_of_cached(cached_key), start_ms, end_ms)
                forward(key, change, time_ms, context.headers)

    return flush


def forward_sliding_windows_at_commit(
    store: WindowStore, size_ms: int, context: TaskContext, forward: Process, *, old_values: bool
) -> Callable[[], None]:
    """Forwards the rows of a window store in the order in which they were last written.

    One record writes several windows of its key out of time order, so readers would notice another order.
    """
    codec = store.codec

    def flush() -> None:
        for start_ms, cached_key in store.written:
            entries, left_store = store.windows[start_ms], store.left_store(start_ms)
            value, time_ms, context.number, context.index = entries.updates[cached_key]
            old = None
            if (old_values or value is None) and not left_store:
                old = entries.committed_entry(cached_key)[0]
            if value is None and old is None:
                continue
            change = Change(codec.value_of_cached(value), codec.value_of_cached(old) if old_values else None)
            key = Windowed(codec.key_of_cached(cached_key), start_ms, start_ms + size_ms)
            forward(key, change, time_ms, context.headers)
        store.written.clear()

    return flush


def forward_sessions_at_commit(
    store: SessionStore, context: TaskContext, forward: Process, *, old_values: bool
) -> Callable[[], None]:
    """Forwards the rows of a session store; a session that came and went since the last commit is never seen."""
    codec = store.codec

    def flush() -> None:
        for cached_key, removed, written, latest in list(store.changes()):
            key = codec.key_of_cached(cached_key)
            if latest is not None:
                context.number, context.index = latest[3], latest[4]
            for end_ms, start_ms, value, *_ in removed:
                if store.left_store(end_ms):
                    # The session was merged away in the cache; the store never had it, so nothing is forwarded.
                    continue
                old = codec.value_of_cached(value) if old_values else None
                forward(Windowed(key, start_ms, end_ms), Change(None, old), end_ms, context.headers)
            for (end_ms, start_ms, value, number, index), before in written:
                context.number, context.index = number, index
                known = old_values and before is not None and not store.left_store(end_ms)
                old = codec.value_of_cached(before[2]) if known and before is not None else None
                change = Change(codec.value_of_cached(value), old)
                forward(Windowed(key, start_ms, end_ms), change, end_ms, context.headers)

    return flush


def _changes(
    entries: Entries, codec: Codec, context: TaskContext, old_values: bool, left_store: bool = False
) -> Iterator[tuple[Any, Change, int]]:
    """`(cached key, change, timestamp_ms)`; while a change is forwarded, the record that caused it is in process."""
    for cached_key, (value, time_ms, number, index) in entries.updates.items():
        old = None
        if (old_values or value is None) and not left_store:
            old = entries.committed_entry(cached_key)[0]
        if value is None and old is None:
            continue
        context.number, context.index = number, index
        change = Change(codec.value_of_cached(value), codec.value_of_cached(old) if old_values else None)
        yield cached_key, change, time_ms
