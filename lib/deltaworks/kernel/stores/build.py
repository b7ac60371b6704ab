"""The table of all kinds of stores."""

from __future__ import annotations

from typing import TypeAlias, assert_never

from deltaworks.kernel.stores.custom import CustomStore
from deltaworks.kernel.stores.join_window import JoinWindowStore
from deltaworks.kernel.stores.key_value import KeyValueStore
from deltaworks.kernel.stores.lru import LruStore
from deltaworks.kernel.stores.session import SessionStore
from deltaworks.kernel.stores.state import StateReader
from deltaworks.kernel.stores.subscriptions import SubscriptionStore
from deltaworks.kernel.stores.suppress import SuppressBuffer
from deltaworks.kernel.stores.time_ordered import TimeOrderedStore
from deltaworks.kernel.stores.versioned import VersionedStore
from deltaworks.kernel.stores.waiting_list import WaitingList
from deltaworks.kernel.stores.window import WindowStore
from deltaworks.topology.stages import StoreSpec

Store: TypeAlias = (
    KeyValueStore
    | VersionedStore
    | WindowStore
    | SessionStore
    | SuppressBuffer
    | SubscriptionStore
    | JoinWindowStore
    | TimeOrderedStore
    | WaitingList
    | LruStore
    | CustomStore
)


def build_store(spec: StoreSpec, reader: StateReader, *, newest_ms: int, max_cached: int) -> Store:
    """A store over its committed entries.

    Args:
        newest_ms: The newest time ever put, for stores that expire by time.
        max_cached: The number of committed entries that stay in memory as objects.
    """
    match spec.kind:
        case "key-value":
            return KeyValueStore(spec, reader, max_cached=max_cached)
        case "versioned":
            return VersionedStore(spec, reader, newest_ms=newest_ms, max_cached=max_cached)
        case "window":
            return WindowStore(spec, reader, newest_ms=newest_ms, max_cached=max_cached)
        case "session":
            return SessionStore(spec, reader, newest_ms=newest_ms, max_cached=max_cached)
        case "suppress":
            return SuppressBuffer(spec, reader)
        case "subscriptions":
            return SubscriptionStore(spec, reader, max_cached=max_cached)
        case "join-window":
            return JoinWindowStore(spec, reader, newest_ms=newest_ms, max_cached=max_cached)
        case "join-buffer":
            return TimeOrderedStore(spec, reader, newest_ms=newest_ms)
        case "waiting-list":
            return WaitingList(spec, reader, newest_ms=newest_ms)
        case "lru":
            return LruStore(spec, reader)
        case "custom":
            return CustomStore(spec, reader)
        case _:
            assert_never(spec.kind)
