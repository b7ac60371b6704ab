"""The current row of a table, as a join sees it: read from a store, or computed from the rows that it is made from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from deltaworks.kernel.processors.tables import row_of_view
from deltaworks.kernel.processors.wiring import Wiring
from deltaworks.kernel.stores.entries import ABSENT, Entry
from deltaworks.kernel.stores.key_value import KeyValueStore
from deltaworks.kernel.stores.versioned import VersionedStore
from deltaworks.kernel.stores.suppress import SuppressBuffer
from deltaworks.topology.nodes import Suppress, TableFilter, TableMapValues

Lookup: TypeAlias = Callable[[Any], Entry]
"""Key -> `(value, timestamp_ms)`, or `ABSENT`; raises what a user's function raises."""
LookupAsOf: TypeAlias = Callable[[Any, int], Entry]
"""The same for `(key, time in milliseconds)`."""


def lookup(table: str, wiring: Wiring) -> Lookup:
    """Reads rows of the table that a node sends the updates of.

    Source: `KTableValueGetterSupplier`.
    """
    match node := wiring.nodes[table]:
        case TableFilter(store=None) | TableMapValues(store=None):
            return _computed(node, lookup(node.parents[0], wiring))
        case Suppress():
            return _suppressed(wiring.suppress_buffer(node.store), lookup(node.parents[0], wiring))
        case _:
            return _stored(wiring.table_store(node.stores[0]))


def lookup_as_of(table: str, wiring: Wiring) -> LookupAsOf:
    """Reads rows of a versioned table (`is_versioned`) as they were.

    Source: `KTableValueGetter#get(key, asOfTimestamp)`.
    """
    match node := wiring.nodes[table]:
        case TableFilter(store=None) | TableMapValues(store=None):
            parent = lookup_as_of(node.parents[0], wiring)

            def read(key: Any, as_of_ms: int) -> Entry:
                return _row(node, key, parent(key, as_of_ms))

            return read
        case _:
            store = wiring.stores[node.stores[0]]
            assert isinstance(store, VersionedStore), node.stores
            return _version(store)


def is_versioned(table: str, wiring: Wiring) -> bool:
    """Whether the updates of a table may come out of order and say so.

    Source: `InternalStreamsBuilder#isVersionedOrVersionedUpstream`, `KTableValueGetter#isVersioned`.
    """
    match node := wiring.nodes[table]:
        case TableFilter(store=None) | TableMapValues(store=None):
            return is_versioned(node.parents[0], wiring)
        case _:
            return any(isinstance(wiring.stores[store], VersionedStore) for store in node.fills)


def _stored(store: KeyValueStore | VersionedStore) -> Lookup:
    cache_key, thaw, entries = store.codec.cache_key, store.codec.thaw, store.entries
    if cache_key is None and thaw is None:
        return entries.get

    def read(key: Any) -> Entry:
        entry = entries.get(key if cache_key is None else cache_key(key))
        if thaw is None or entry[0] is None:
            return entry
        return thaw(entry[0]), entry[1]

    return read


def _version(store: VersionedStore) -> LookupAsOf:
    cache_key, thaw, entry_as_of = store.codec.cache_key, store.codec.thaw, store.entry_as_of

    def read(key: Any, as_of_ms: int) -> Entry:
        entry = entry_as_of(key if cache_key is None else cache_key(key), as_of_ms)
        if thaw is None or entry[0] is None:
            return entry
        return thaw(entry[0]), entry[1]

    return read


def _suppressed(buffer: SuppressBuffer, parent: Lookup) -> Lookup:
    """Of a key that is held back, the value from before; nobody knows its time."""
    cache_key, held, value_of_cached = buffer.codec.cache_key, buffer.held, buffer.codec.value_of_cached

    def read(key: Any) -> Entry:
        update = held.get(key if cache_key is None else cache_key(key))
        if update is None:
            return parent(key)
        return ABSENT if update[3] is None else (value_of_cached(update[3]), -1)

    return read


def _computed(node: TableFilter | TableMapValues, parent: Lookup) -> Lookup:
    def read(key: Any) -> Entry:
        return _row(node, key, parent(key))

    return read


def _row(node: TableFilter | TableMapValues, key: Any, entry: Entry) -> Entry:
    value = row_of_view(node, key, entry[0])
    return ABSENT if value is None else (value, entry[1])
