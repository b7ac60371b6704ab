"""The current row of a table, as a join sees it: read from a store, or computed from the rows that it is made from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from deltaworks.kernel.processors.tables import row_of_view
from deltaworks.kernel.processors.wiring import Wiring
from deltaworks.kernel.stores.entries import ABSENT, Entry
from deltaworks.kernel.stores.key_value import KeyValueStore
from deltaworks.topology.nodes import TableFilter, TableMapValues

Lookup: TypeAlias = Callable[[Any], Entry]
"""Key -> `(value, timestamp_ms)`, or `ABSENT`; raises what a user's function raises."""


def lookup(table: str, wiring: Wiring) -> Lookup:
    """Reads rows of the table that a node sends the updates of.

    Source: `KTableValueGetterSupplier`.
    """
    match node := wiring.nodes[table]:
        case TableFilter(store=None) | TableMapValues(store=None):
            return _computed(node, lookup(node.parents[0], wiring))
        case _:
            return _stored(wiring.key_value_store(node.stores[0]))


def _stored(store: KeyValueStore) -> Lookup:
    cache_key, thaw, entries = store.codec.cache_key, store.codec.thaw, store.entries
    if cache_key is None and thaw is None:
        return entries.get

    def read(key: Any) -> Entry:
        entry = entries.get(key if cache_key is None else cache_key(key))
        if thaw is None or entry[0] is None:
            return entry
        return thaw(entry[0]), entry[1]

    return read


def _computed(node: TableFilter | TableMapValues, parent: Lookup) -> Lookup:
    def read(key: Any) -> Entry:
        entry = parent(key)
        value = row_of_view(node, key, entry[0])
        return ABSENT if value is None else (value, entry[1])

    return read
