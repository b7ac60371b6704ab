"""What waits for its time: lists of values, ordered by time, then by what else the key says."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from deltaworks.kernel.stores.entries import TIME_BYTES
from deltaworks.kernel.stores.lists import pack, unpack
from deltaworks.kernel.stores.state import StateReader, StoreChanges
from deltaworks.topology.stages import StoreSpec

_AFTER_ALL_TIMES = b"\x80"


class TimeOrderedStore:
    """Store of one task whose entries are walked from the earliest on; all of it is in memory, because it is short.

    A key begins with a time (8 bytes, big-endian). Values are bytes, several per key, in the order in which they came.
    """

    def __init__(self, spec: StoreSpec, reader: StateReader, *, newest_ms: int) -> None:
        self.spec = spec
        self.newest_ms = newest_ms
        """The largest timestamp that its operator has seen; the operator moves it, the task remembers it."""
        self._reader = reader
        self._values: dict[bytes, list[bytes]] = {key: unpack(raw) for key, raw in reader.scan(b"", _AFTER_ALL_TIMES)}
        self._keys = list(self._values)
        self._committed = set(self._keys)
        self._changed: dict[bytes, None] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: bytes) -> bool:
        return key in self._values

    def add(self, key: bytes, value: bytes) -> None:
        """One more value of a key."""
        self._changed[key] = None
        values = self._values.get(key)
        if values is not None:
            values.append(value)
            return
        self._values[key] = [value]
        if not self._keys or self._keys[-1] < key:
            self._keys.append(key)
        else:
            insort(self._keys, key)

    def remove(self, key: bytes) -> None:
        """All values of a key, if there are any."""
        if self._values.pop(key, None) is not None:
            self._changed[key] = None
            del self._keys[bisect_left(self._keys, key)]

    def remove_first(self, key: bytes) -> None:
        """The oldest value of a key."""
        values = self._values[key]
        if len(values) == 1:
            self.remove(key)
        else:
            self._changed[key] = None
            del values[0]

    def walk(self) -> Iterator[tuple[bytes, list[bytes]]]:
        """Keys and their values in order; entries may be removed on the way."""
        for key in self._keys.copy():
            yield key, self._values[key]

    def first(self) -> bytes | None:
        """The key with the earliest time."""
        return self._keys[0] if self._keys else None

    def values(self, key: bytes) -> list[bytes]:
        """The values of a key. Not to be changed."""
        return self._values[key]

    def take_changes(self) -> StoreChanges | None:
        """What was added or removed since the last call; None if nothing."""
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
