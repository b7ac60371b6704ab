"""Changes in memory over a store that does not change: a task reads its own changes before they are committed.

Used for the stores of a task in a cycle, between its turns in a batch, and for global tables in a chunk of a replay
(`replay.layers`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from heapq import merge

from deltaworks.kernel.stores.state import ReversibleReader, StateBackend, StateReader, StoreChanges
from deltaworks.runtime.state.local_store import Changes

_TIME_BYTES = 8


class Overlay:
    """The stores of one task, with its changes since the last commit."""

    def __init__(self, below: StateBackend) -> None:
        self._below = below
        self._readers: dict[str, OverlayReader] = {}

    def reader(self, store: str) -> OverlayReader:
        if store not in self._readers:
            self._readers[store] = OverlayReader(self._below.reader(store))
        return self._readers[store]

    def apply(self, changes: Changes) -> None:
        """Later reads see the changes."""
        for name, change in changes.items():
            self.reader(name).apply(change)

    def clear(self) -> None:
        """Drops the changes: the store below holds them now, or they are given up."""
        for reader in self._readers.values():
            reader.clear()


class OverlayReader:
    """`StateReader` over the entries of a store and the changes since."""

    def __init__(self, below: StateReader) -> None:
        self._below = below
        self._changed: dict[bytes, bytes | None] = {}
        self._expired_ms: int | None = None
        """Entries below with a lower time are gone."""
        self._sorted: dict[bool, list[bytes]] = {}
        """Changed keys, by key and by time; built when they are needed."""

    def clear(self) -> None:
        """Nothing has changed."""
        self._changed.clear()
        self._expired_ms = None
        self._sorted.clear()

    def apply(self, change: StoreChanges) -> None:
        """Makes changes."""
        before = len(self._changed)
        self._changed.update(change.entries)
        if change.expire_before_ms is not None:
            self._expired_ms = max(change.expire_before_ms, self._expired_ms or 0)
            for key in [key for key in self._changed if self._is_expired(key)]:
                del self._changed[key]
            before = -1
        if len(self._changed) != before:
            self._sorted.clear()

    def get(self, key: bytes) -> bytes | None:
        if key in self._changed:
            return self._changed[key]
        return None if self._is_expired(key) else self._below.get(key)

    def scan(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        keys = self._keys(by_time=False)
        above = keys[bisect_left(keys, start) : None if stop is None else bisect_left(keys, stop)]
        return self._merged(above, self._below.scan(start, stop), lambda entry: entry[0])

    def scan_back(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Like `scan`, the last first, where the store below can do that."""
        assert isinstance(self._below, ReversibleReader)
        keys = self._keys(by_time=False)
        above = keys[bisect_left(keys, start) : None if stop is None else bisect_left(keys, stop)]
        return self._merged(above[::-1], self._below.scan_back(start, stop), lambda entry: entry[0], reverse=True)

    def scan_time(self, start_ms: int, stop_ms: int | None) -> Iterator[tuple[bytes, bytes]]:
        keys = self._keys(by_time=True)
        stop = None if stop_ms is None else bisect_left(keys, stop_ms, key=_time)
        above = keys[bisect_left(keys, start_ms, key=_time) : stop]
        return self._merged(above, self._below.scan_time(start_ms, stop_ms), lambda entry: _by_time(entry[0]))

    def _merged(
        self,
        above: Sequence[bytes],
        below: Iterator[tuple[bytes, bytes]],
        order: Callable[[tuple[bytes, bytes]], bytes],
        *,
        reverse: bool = False,
    ) -> Iterator[tuple[bytes, bytes]]:
        changed = ((key, value) for key in above if (value := self._changed.get(key)) is not None)
        unchanged = (entry for entry in below if entry[0] not in self._changed and not self._is_expired(entry[0]))
        return merge(changed, unchanged, key=order, reverse=reverse)

    def _keys(self, *, by_time: bool) -> list[bytes]:
        found = self._sorted.get(by_time)
        if found is None:
            found = self._sorted[by_time] = sorted(self._changed, key=_by_time if by_time else None)
        return found

    def _is_expired(self, key: bytes) -> bool:
        return self._expired_ms is not None and _time(key) < self._expired_ms


def _time(key: bytes) -> int:
    return int.from_bytes(key[-_TIME_BYTES:], "big")


def _by_time(key: bytes) -> bytes:
    return key[-_TIME_BYTES:] + key
