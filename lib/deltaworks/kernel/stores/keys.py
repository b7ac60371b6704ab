"""Where the bytes of a store's key are in the key of an entry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_never

from deltaworks.kernel.stores import waiting_list
from deltaworks.kernel.stores.entries import TIME_BYTES
from deltaworks.kernel.stores.subscriptions import keys_of
from deltaworks.serdes.base import Serde
from deltaworks.serdes.windowed import SessionWindowed, TimeWindowed
from deltaworks.topology.stages import StoreSpec

KeyOf = Callable[[bytes], bytes]
"""From the key of an entry to a key in it."""


def key_of(spec: StoreSpec) -> KeyOf:
    """From the key of an entry to that of its store, without the times and numbers that the store adds.

    Subscriptions: the foreign key. The marks of a waiting list have none.
    """
    match spec.kind:
        case "key-value" | "lru" | "suppress" | "custom":
            return lambda key: key
        case "window" | "versioned" | "join-window":
            return lambda key: key[:-TIME_BYTES]
        case "session":
            return lambda key: key[: -2 * TIME_BYTES]
        case "join-buffer":
            return lambda key: key[TIME_BYTES:]
        case "waiting-list":
            return waiting_list.key_of
        case "subscriptions":
            return lambda key: keys_of(key)[0]
        case _:
            assert_never(spec.kind)


def window_bytes(serde: Serde[Any]) -> int:
    """Bytes at the end of a key that name its window and do not decide the partition (`WindowedStreamPartitioner`)."""
    match serde:
        case TimeWindowed():
            return TIME_BYTES
        case SessionWindowed():
            return 2 * TIME_BYTES
        case _:
            return 0


def inner_key_of(spec: StoreSpec) -> tuple[KeyOf, Serde[Any]]:
    """From the key of an entry to that of its store without windows, and the serde of that."""
    outer, serde, cut = key_of(spec), spec.key, 0
    while isinstance(serde, TimeWindowed | SessionWindowed):
        cut += window_bytes(serde)
        serde = serde.inner
    return (lambda key: outer(key)[:-cut]) if cut else outer, serde
