"""The current row of a table, as a join sees it: read from a store, or computed from the rows of its parents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, assert_never

from deltaworks.kernel.context import NO_HEADERS
from deltaworks.kernel.processors.transformers import transformer
from deltaworks.kernel.processors.wiring import Wiring
from deltaworks.kernel.records import Coordinates
from deltaworks.kernel.stores.entries import ABSENT, Entry
from deltaworks.kernel.stores.key_value import KeyValueStore
from deltaworks.kernel.stores.session import SessionStore
from deltaworks.kernel.stores.state import NEVER
from deltaworks.kernel.stores.suppress import SuppressBuffer
from deltaworks.kernel.stores.versioned import VersionedStore
from deltaworks.kernel.stores.window import WindowStore
from deltaworks.serdes.windowed import Windowed
from deltaworks.topology.nodes import (
    CogroupMerge,
    SessionAggregate,
    SlidingAggregate,
    Suppress,
    TableFilter,
    TableJoinMerge,
    TableMapValues,
    TableTableJoin,
    TableTransformValues,
    WindowAggregate,
)
from deltaworks.topology.nodes.base import Node

_NOWHERE = Coordinates("", -1, -1)
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
            return _computed(row_function(node), lookup(node.parents[0], wiring))
        case TableTransformValues(store=None):
            parent, transform = lookup(node.parents[0], wiring), _transformed(node, wiring)
            return lambda key: transform(key, parent(key))
        case TableJoinMerge(store=None):
            return lookup(node.parents[0], wiring)
        case TableTableJoin():
            return _joined(node, lookup(node.parents[0], wiring), lookup(node.table, wiring))
        case CogroupMerge():
            return lookup(node.parents[0], wiring)
        case WindowAggregate() | SlidingAggregate():
            return _windowed(wiring.window_store(node.store))
        case SessionAggregate():
            return _session(wiring.session_store(node.store))
        case Suppress():
            return _suppressed(wiring.suppress_buffer(node.store), lookup(node.parents[0], wiring))
        case _:
            return stored(wiring.table_store(node.stores[0]))


def lookup_as_of(table: str, wiring: Wiring) -> LookupAsOf:
    """Reads rows of a versioned table (`is_versioned`) as they were.

    Source: `KTableValueGetter#get(key, asOfTimestamp)`.
    """
    match node := wiring.nodes[table]:
        case TableFilter(store=None) | TableMapValues(store=None):
            return _computed_as_of(row_function(node), lookup_as_of(node.parents[0], wiring))
        case TableTransformValues(store=None):
            parent, transform = lookup_as_of(node.parents[0], wiring), _transformed(node, wiring)
            return lambda key, as_of_ms: transform(key, parent(key, as_of_ms))
        case _:
            store = wiring.stores[node.stores[0]]
            assert isinstance(store, VersionedStore), node.stores
            return _version(store)


def is_versioned(table: str, wiring: Wiring) -> bool:
    """Whether the updates of a table may come out of order and say so.

    Source: `InternalStreamsBuilder#isVersionedOrVersionedUpstream`, `KTableValueGetter#isVersioned`.
    """
    match node := wiring.nodes[table]:
        case TableFilter(store=None) | TableMapValues(store=None) | TableTransformValues(store=None):
            return is_versioned(node.parents[0], wiring)
        case _:
            own = next(iter(node.fills), None)
            return own is not None and isinstance(wiring.stores[own], VersionedStore)


def stored(store: KeyValueStore | VersionedStore) -> Lookup:
    """Reads the current rows of a store."""
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
    """Rows of a suppressed table: a held key has its previous value, whose time is unknown."""
    held, value_of_cached = buffer.held, buffer.codec.value_of_cached
    entry_key_of = None if buffer.plain_keys else buffer.spec.key.serialize

    def read(key: Any) -> Entry:
        update = held.get(key if entry_key_of is None else entry_key_of(key))
        if update is None:
            return parent(key)
        return ABSENT if update.prior is None else (value_of_cached(update.prior), -1)

    return read


def row_function(view: TableFilter | TableMapValues) -> Callable[[Any, Any | None], Any | None]:
    """The function of a filter or mapper for one row: `(key, value or None) -> value or None`."""
    match view:
        case TableFilter():
            predicate, unwanted = view.predicate, not view.negate

            def wanted(key: Any, value: Any | None) -> Any | None:
                return None if value is None or (not predicate(key, value)) is unwanted else value

            return wanted
        case TableMapValues():
            mapper = view.mapper

            def mapped(key: Any, value: Any | None) -> Any | None:
                return None if value is None else mapper(key, value)

            return mapped
        case _:
            assert_never(view)


def _computed(row: Callable[[Any, Any | None], Any | None], parent: Lookup) -> Lookup:
    def read(key: Any) -> Entry:
        entry = parent(key)
        value = row(key, entry[0])
        return ABSENT if value is None else (value, entry[1])

    return read


def _computed_as_of(row: Callable[[Any, Any | None], Any | None], parent: LookupAsOf) -> LookupAsOf:
    def read(key: Any, as_of_ms: int) -> Entry:
        entry = parent(key, as_of_ms)
        value = row(key, entry[0])
        return ABSENT if value is None else (value, entry[1])

    return read


def _transformed(node: TableTransformValues, wiring: Wiring) -> Callable[[Any, Entry], Entry]:
    """Rows made by a separate object, for which the row is the record in process; where it was read is unknown.

    Source: `KTableTransformValuesGetter`.
    """
    context = wiring.context
    transform = transformer(node, Node(name=f"{node.name}-lookup"), wiring)

    def row(key: Any, entry: Entry) -> Entry:
        number, index = context.number, context.index
        timestamp_ms = NEVER if entry[0] is None else entry[1]
        context.resume(_NOWHERE, timestamp_ms, NO_HEADERS)
        try:
            value = transform(key, entry[0])
        finally:
            context.number, context.index = number, index
        return ABSENT if value is None else (value, timestamp_ms)

    return row


def _joined(node: TableTableJoin, left: Lookup, right: Lookup) -> Lookup:
    """The row of a join that has no store, read from its left side."""
    joiner, needs_left, needs_right = node.joiner, node.kind != "outer", node.kind == "inner"

    def read(key: Any) -> Entry:
        left_entry = left(key)
        if left_entry[0] is None and needs_left:
            return ABSENT
        right_entry = right(key)
        if right_entry[0] is None and (needs_right or left_entry[0] is None):
            return ABSENT
        value = joiner(left_entry[0], right_entry[0])
        if value is None:
            return ABSENT
        # A deleted row has a time as well, which does not count.
        return value, max(entry[1] for entry in (left_entry, right_entry) if entry[0] is not None)

    return read


def _windowed(store: WindowStore) -> Lookup:
    codec = store.codec

    def read(key: Windowed[Any]) -> Entry:
        if key.start_ms < store.expired_before_ms:
            return ABSENT
        entry = store.window(key.start_ms).get(key.key if codec.cache_key is None else codec.cache_key(key.key))
        return codec.value_of_cached(entry[0]), entry[1]

    return read


def _session(store: SessionStore) -> Lookup:
    """Rows of a session store; the time of a session is its end."""
    codec = store.codec

    def read(key: Windowed[Any]) -> Entry:
        entry_key = key.key if codec.cache_key is None else codec.cache_key(key.key)
        for session in store.sessions(entry_key):
            if session[0] == key.end_ms and session[1] == key.start_ms:
                return codec.value_of_cached(session[2]), key.end_ms
        return ABSENT

    return read
