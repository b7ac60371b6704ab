"""The record cache: with it, a commit forwards the last update per key, with the value from before the commit.

The stores know what was written since the last commit, so the cache is that knowledge and costs nothing per record.
Keys are forwarded in the order in which they were first written (Kafka Streams: last written).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deltaworks.kernel.change import Change
from deltaworks.kernel.context import Process, TaskContext
from deltaworks.kernel.stores.entries import Entries
from deltaworks.kernel.stores.key_value import KeyValueStore
from deltaworks.kernel.stores.session import SessionStore
from deltaworks.kernel.stores.window import WindowStore
from deltaworks.serdes.windowed import Windowed


def forward_at_commit(
    store: KeyValueStore, context: TaskContext, forward: Process, *, old_values: bool
) -> Callable[[], None]:
    """Forwards the rows of a key-value store."""
    codec = store.codec

    def flush() -> None:
        _forward_entries(store.entries, codec.key_of_cached, codec.value_of_cached, context, forward, old_values)

    return flush


def forward_windows_at_commit(
    store: WindowStore, size_ms: int, context: TaskContext, forward: Process, *, old_values: bool
) -> Callable[[], None]:
    """Forwards the rows of a window store, one start after the other."""
    codec = store.codec

    def flush() -> None:
        for start_ms in sorted(start_ms for start_ms, entries in store.windows.items() if entries.updates):

            def windowed(cached_key: Any, start_ms: int = start_ms) -> Windowed[Any]:
                return Windowed(codec.key_of_cached(cached_key), start_ms, start_ms + size_ms)

            entries = store.windows[start_ms]
            _forward_entries(entries, windowed, codec.value_of_cached, context, forward, old_values)

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
                old = codec.value_of_cached(value) if old_values else None
                forward(Windowed(key, start_ms, end_ms), Change(None, old), end_ms, context.headers)
            for (end_ms, start_ms, value, number, index), before in written:
                context.number, context.index = number, index
                old = codec.value_of_cached(before[2]) if old_values and before is not None else None
                change = Change(codec.value_of_cached(value), old)
                forward(Windowed(key, start_ms, end_ms), change, end_ms, context.headers)

    return flush


def _forward_entries(
    entries: Entries,
    key_of: Callable[[Any], Any],
    value_of: Callable[[Any], Any],
    context: TaskContext,
    forward: Process,
    old_values: bool,
) -> None:
    for cached_key, (value, timestamp_ms, number, index) in list(entries.updates.items()):
        old = entries.committed_entry(cached_key)[0] if old_values or value is None else None
        if value is None and old is None:
            continue
        context.number, context.index = number, index
        change = Change(value_of(value), value_of(old) if old_values else None)
        forward(key_of(cached_key), change, timestamp_ms, context.headers)
