"""LRU store: a limited number of entries, the most recently used ones.

All of it is in memory. The state keeps a number with each entry that says how recently it was used, so that a restart
does not change which one is removed next; Kafka Streams forgets that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from deltaworks.kernel.stores.entries import TIME_BYTES
from deltaworks.kernel.stores.state import NEVER, StateReader, StoreChanges
from deltaworks.topology.stages import StoreSpec


class LruStore:
    """LRU store of one task. `get` and `put` use an entry; iterating does not.

    Source: `MemoryNavigableLRUCache`.
    """

    newest_ms = NEVER

    def __init__(self, spec: StoreSpec, reader: StateReader) -> None:
        if spec.max_entries is None:
            raise ValueError(f"LRU store '{spec.name}' needs a number of entries")
        self.spec = spec
        self._max_entries = spec.max_entries
        self._committed = {
            key: (int.from_bytes(data[:TIME_BYTES], "big"), data[TIME_BYTES:]) for key, data in reader.scan(b"", None)
        }
        self._entries = dict(sorted(self._committed.items(), key=lambda item: item[1][0]))
        """Key -> `(number, value)`, the least recently used one first; numbers grow."""
        self._touched: set[bytes] = set()

    def get(self, key: Any) -> Any | None:
        """The value of a key."""
        key_bytes = self.spec.key.serialize(key)
        entry = self._entries.get(key_bytes)
        if entry is None:
            return None
        self._use(key_bytes, entry[1])
        return self.spec.value.deserialize(entry[1])

    def put(self, key: Any, value: Any | None) -> None:
        """Sets the value of a key; None deletes it."""
        key_bytes = self.spec.key.serialize(key)
        if value is None:
            self._remove(key_bytes)
            return
        self._use(key_bytes, self.spec.value.serialize(value))
        if len(self._entries) > self._max_entries:
            self._remove(next(iter(self._entries)))

    def between(self, start: bytes, stop: bytes | None, *, backward: bool = False) -> Iterator[tuple[Any, Any, int]]:
        """`(key, value, 0)` of the keys whose bytes are in `[start, stop)`, in that order or backward."""
        keys = sorted((key for key in self._entries if start <= key and (stop is None or key < stop)), reverse=backward)
        rows = [(key, self._entries[key][1]) for key in keys]
        return ((self.spec.key.deserialize(key), self.spec.value.deserialize(data), 0) for key, data in rows)

    def all(self) -> Iterator[tuple[Any, Any, int]]:
        """`(key, value, 0)` in the order of the key bytes."""
        return self.between(b"", None)

    def take_changes(self) -> StoreChanges | None:
        """The entries written, used or removed since the last call; None if there are none."""
        changed: list[tuple[bytes, bytes | None]] = []
        for key in sorted(self._touched):
            entry = self._entries.get(key)
            if entry != self._committed.get(key):
                changed.append((key, None if entry is None else entry[0].to_bytes(TIME_BYTES, "big") + entry[1]))
                if entry is None:
                    del self._committed[key]
                else:
                    self._committed[key] = entry
        self._touched = set()
        return StoreChanges(changed) if changed else None

    def _use(self, key: bytes, value: bytes) -> None:
        """Gives an entry the next number, derived from the stored ones, so that it is the same after a restart."""
        last = next(reversed(self._entries), None)
        number = 0 if last is None else self._entries[last][0] + (last != key)
        self._entries.pop(key, None)
        self._entries[key] = (number, value)
        self._touched.add(key)

    def _remove(self, key: bytes) -> None:
        if self._entries.pop(key, None) is not None:
            self._touched.add(key)


def last_used(entries: Iterable[tuple[bytes, bytes]], count: int) -> list[tuple[bytes, bytes]]:
    """Of entries of several stores, so many that were used last, by their numbers; then by their keys."""
    return sorted(entries, key=lambda entry: (entry[1][:TIME_BYTES], entry[0]))[-count:] if count else []
