"""Values that wait for their time: lists ordered by time, then by the rest of the key."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from itertools import islice

from deltaworks.kernel.stores.entries import TIME_BYTES
from deltaworks.kernel.stores.lists import pack, unpack
from deltaworks.kernel.stores.state import StateReader, StoreChanges
from deltaworks.topology.stages import StoreSpec

_AFTER_ALL_TIMES = b"\x80"
_KEPT = 64
"""Up to this number, removed keys always stay."""


class TimeOrderedStore:
    """Store of one task, walked from the earliest entry on; all of it is in memory, because it is short.

    A key begins with a time (8 bytes, big-endian). Values are bytes, several per key, in the order in which they came.
    """

    def __init__(self, spec: StoreSpec, reader: StateReader, *, newest_ms: int) -> None:
        self.spec = spec
        self.newest_ms = newest_ms
        """The largest timestamp that its operator has seen; the operator moves it, the task remembers it."""
        self._reader = reader
        self._values: dict[bytes, list[bytes]] = {key: unpack(raw) for key, raw in reader.scan(b"", _AFTER_ALL_TIMES)}
        self._keys = list(self._values)
        """Sorted; keys that were removed stay for a while, because taking one out of the middle is slow."""
        self._first = 0
        """The position of the first key; all before it are removed."""
        self._gone: set[bytes] = set()
        """The removed keys behind that position."""
        self._committed = set(self._keys)
        self._changed: dict[bytes, None] = {}

    def __len__(self) -> int:
        return len(self._values)

    def add(self, key: bytes, value: bytes) -> None:
        """Adds one more value of a key."""
        self._changed[key] = None
        values = self._values.get(key)
        if values is not None:
            values.append(value)
            return
        self._values[key] = [value]
        if key in self._gone:
            self._gone.remove(key)
        elif len(self._keys) == self._first or self._keys[-1] < key:
            self._keys.append(key)
        else:
            insort(self._keys, key, lo=self._first)

    def remove(self, key: bytes) -> None:
        """Removes all values of a key, if there are any."""
        if self._values.pop(key, None) is None:
            return
        self._changed[key] = None
        self._gone.add(key)
        if len(self._values) + _KEPT < len(self._keys) // 2:
            self._keys = [key for key in islice(self._keys, self._first, None) if key not in self._gone]
            self._first = 0
            self._gone = set()

    def remove_first(self, key: bytes) -> None:
        """Removes the oldest value of a key."""
        values = self._values[key]
        if len(values) == 1:
            self.remove(key)
        else:
            self._changed[key] = None
            del values[0]

    def walk(self) -> Iterator[tuple[bytes, list[bytes]]]:
        """Keys and their values in order; entries may be removed on the way, but not added."""
        values_of = self._values
        for key in islice(self._keys, self._first, None):
            values = values_of.get(key)
            if values is not None:
                yield key, values

    def first(self) -> bytes | None:
        """The key with the earliest time."""
        keys, gone = self._keys, self._gone
        while self._first < len(keys):
            key = keys[self._first]
            if key not in gone:
                return key
            gone.remove(key)
            self._first += 1
        return None

    def values(self, key: bytes) -> list[bytes]:
        """The values of a key. Callers must not change the list."""
        return self._values[key]

    def take_changes(self) -> StoreChanges | None:
        """The values added or removed since the last call; None if there are none."""
        changed: list[tuple[bytes, bytes | None]] = []
        for key in self._changed:
            values = self._values.get(key)
            if values is not None:
                changed.append((key, pack(values)))
                self._committed.add(key)
            elif key in self._committed:
                changed.append((key, None))
                self._committed.remove(key)
        self._changed = {}
        changed += self._take_marks()
        return StoreChanges(changed) if changed else None

    def _take_marks(self) -> list[tuple[bytes, bytes | None]]:
        return []


def time_of(key: bytes) -> int:
    """The time that a key begins with."""
    return int.from_bytes(key[:TIME_BYTES], "big")
