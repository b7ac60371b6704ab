"""How an operator keeps the rows of its table and tells its readers, whatever kind of store it has.

A key-value store keeps the last value; with a record cache the commit tells the readers. A versioned store keeps the
versions; a version that came too late is dropped, one that came out of order is marked (`Change.is_latest`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, assert_never

from deltaworks.kernel.processors.caching import forward_at_commit
from deltaworks.kernel.processors.wiring import Wiring
from deltaworks.kernel.records import Headers
from deltaworks.kernel.stores.key_value import KeyValueStore
from deltaworks.kernel.stores.versioned import IS_LATEST, NOT_PUT, VersionedStore
from deltaworks.serdes.change import Change
from deltaworks.topology.nodes.base import Node

Keep: TypeAlias = Callable[[Any, Any, Any, Any, Any, int, Headers], None]
"""`(cached key, key, cached value, value, old value, timestamp_ms, headers)`"""


def keeper(node: Node, store: KeyValueStore | VersionedStore, wiring: Wiring) -> Keep:
    """Writes a row and forwards the update.

    Source: `KeyValueStoreWrapper#put`, `TimestampedTupleForwarder`.
    """
    match store:
        case KeyValueStore() if store.spec.cached:
            return _cached(node, store, wiring)
        case KeyValueStore():
            return _last_value(node, store, wiring)
        case VersionedStore():
            return _versions(node, store, wiring)
        case _:
            assert_never(store)


def _cached(node: Node, store: KeyValueStore, wiring: Wiring) -> Keep:
    context, entries = wiring.context, store.entries
    forward = wiring.forward(node.name)
    wiring.flushes.append(forward_at_commit(store, context, forward, old_values=node.old_values))

    def keep(entry_key: Any, key: Any, kept: Any, value: Any, old: Any, timestamp_ms: int, headers: Headers) -> None:
        entries.updates[entry_key] = (kept, timestamp_ms, context.number, context.index)

    return keep


def _last_value(node: Node, store: KeyValueStore, wiring: Wiring) -> Keep:
    entries, forward = store.entries, wiring.forward(node.name)

    def keep(entry_key: Any, key: Any, kept: Any, value: Any, old: Any, timestamp_ms: int, headers: Headers) -> None:
        entries.updates[entry_key] = (kept, timestamp_ms)
        forward(key, Change(value, old), timestamp_ms, headers)

    return keep


def _versions(node: Node, store: VersionedStore, wiring: Wiring) -> Keep:
    put, forward, drop = store.put_cached, wiring.forward(node.name), wiring.context.drop

    def keep(entry_key: Any, key: Any, kept: Any, value: Any, old: Any, timestamp_ms: int, headers: Headers) -> None:
        valid_to_ms = put(entry_key, kept, timestamp_ms)
        if valid_to_ms == NOT_PUT:
            return drop()
        return forward(key, Change(value, old, valid_to_ms == IS_LATEST), timestamp_ms, headers)

    return keep
