"""Key-value store: one value and timestamp per key."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from deltaworks.kernel.stores.entries import Codec, Entries, Entry
from deltaworks.kernel.stores.state import NEVER, StateReader, StoreChanges
from deltaworks.topology.stages import StoreSpec


class KeyValueStore:
    """Timestamped key-value store of one task.

    Processors work on `entries` directly; the methods are for everybody else.
    """

    newest_ms = NEVER

    def __init__(self, spec: StoreSpec, reader: StateReader, *, max_cached: int) -> None:
        self.spec = spec
        self.codec = Codec(spec)
        self.entries = Entries(self.codec, reader)
        self._reader = reader
        self._max_cached = max_cached

    def get(self, key: Any) -> Any | None:
        """The value of a key."""
        entry = self.entries.get(self._cached_key(key))
        return self.codec.value_of_cached(entry[0])

    def all(self) -> Iterator[tuple[Any, Any, int]]:
        """`(key, value, timestamp_ms)` in the order of the key bytes."""
        codec = self.codec
        merged: dict[bytes, Entry] = {key: codec.entry(raw) for key, raw in self._reader.scan(b"", None)}
        merged.update((codec.cached_key_bytes(key), entry) for key, entry in self.entries.updates.items())
        for key in sorted(merged):
            value, timestamp_ms = merged[key][:2]
            if value is not None:
                yield codec.key_object(key), codec.value_of_cached(value), timestamp_ms

    def take_changes(self) -> StoreChanges | None:
        """What was written since the last call; None if nothing."""
        changed: list[tuple[bytes, bytes | None]] = []
        self.entries.take_changes(changed)
        self._trim()
        return StoreChanges(changed) if changed else None

    def _cached_key(self, key: Any) -> Any:
        return key if self.codec.cache_key is None else self.codec.cache_key(key)

    def _trim(self) -> None:
        committed = self.entries.committed
        if len(committed) > self._max_cached:
            for key in list(islice(committed, len(committed) - self._max_cached // 2)):
                del committed[key]
