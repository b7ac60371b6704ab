"""Key-value store: one value and timestamp per key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from deltaworks.kernel.stores.entries import Codec, Entries, Entry
from deltaworks.kernel.stores.ordered import WrittenKeys, overlaid
from deltaworks.kernel.stores.state import NEVER, StateReader, StoreChanges
from deltaworks.topology.stages import StoreSpec


class KeyValueStore:
    """Key-value store of one task; whether its entries carry a time is up to the spec.

    Processors of operators work on `entries` directly; the methods are for all other callers.
    """

    newest_ms = NEVER

    def __init__(self, spec: StoreSpec, reader: StateReader, *, max_cached: int) -> None:
        self.spec = spec
        self.codec = Codec(spec)
        self.entries = Entries(self.codec, reader)
        self._reader = reader
        self._max_cached = max_cached
        self._written = WrittenKeys(self.codec, self.entries)

    def get(self, key: Any) -> Any | None:
        """The value of a key."""
        return self.codec.value_of_cached(self.entry(key)[0])

    def entry(self, key: Any) -> Entry:
        """The entry of a key, or `ABSENT`."""
        return self.entries.get(key if self.codec.cache_key is None else self.codec.cache_key(key))

    def all(self) -> Iterator[tuple[Any, Any, int]]:
        """`(key, value, timestamp_ms)` in the order of the key bytes."""
        return self.between(b"", None)

    def between(self, start: bytes, stop: bytes | None, *, backward: bool = False) -> Iterator[tuple[Any, Any, int]]:
        """`(key, value, timestamp_ms)` of the keys whose bytes are in `[start, stop)`, in that order or backward."""
        codec = self.codec
        committed = ((key, codec.entry(raw)) for key, raw in self._reader.scan(start, stop))
        merged: Iterable[tuple[bytes, Entry]] = overlaid(committed, self._written.between(start, stop))
        if backward:
            merged = reversed(list(merged))
        return (
            (codec.key_object(key_bytes), codec.value_of_cached(entry[0]), entry[1])
            for key_bytes, entry in merged
            if entry[0] is not None
        )

    def take_changes(self) -> StoreChanges | None:
        """The entries written since the last call; None if there are none."""
        changed: list[tuple[bytes, bytes | None]] = []
        self.entries.take_changes(changed)
        self._trim()
        return StoreChanges(changed) if changed else None

    def _trim(self) -> None:
        committed = self.entries.committed
        if len(committed) > self._max_cached:
            for key in list(islice(committed, len(committed) - self._max_cached // 2)):
                del committed[key]
