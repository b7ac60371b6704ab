"""State in memory: the backend of the test driver, and the reference for every other one."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping

from deltaworks.kernel.stores.state import StoreChanges


class MemoryState:
    """The stores of one task in dictionaries."""

    def __init__(self) -> None:
        self._stores: dict[str, _MemoryStore] = {}

    def reader(self, store: str) -> _MemoryStore:
        return self._stores.setdefault(store, _MemoryStore())

    def apply(self, changes: Mapping[str, StoreChanges]) -> None:
        """Makes a commit of a task durable."""
        for name, change in changes.items():
            self.reader(name).apply(change)

    def contents(self) -> dict[str, list[tuple[bytes, bytes]]]:
        """Every entry of every store that has one, in byte order."""
        return {name: entries for name in sorted(self._stores) if (entries := list(self.reader(name).scan(b"", None)))}


class _MemoryStore:
    """`StateReader` over a dictionary and its sorted keys."""

    def __init__(self) -> None:
        self._entries: dict[bytes, bytes] = {}
        self._keys: list[bytes] = []
        self._by_time: list[tuple[int, bytes]] | None = None
        """Time and key of each entry, sorted; made when it is first asked for."""

    def get(self, key: bytes) -> bytes | None:
        return self._entries.get(key)

    def scan(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        last = len(self._keys) if stop is None else bisect_left(self._keys, stop)
        for key in self._keys[bisect_left(self._keys, start) : last]:
            yield key, self._entries[key]

    def scan_time(self, start_ms: int, stop_ms: int | None) -> Iterator[tuple[bytes, bytes]]:
        by_time = self._timed()
        last = len(by_time) if stop_ms is None else bisect_left(by_time, (stop_ms, b""))
        for _, key in by_time[bisect_left(by_time, (start_ms, b"")) : last]:
            yield key, self._entries[key]

    def apply(self, change: StoreChanges) -> None:
        for key, value in change.entries:
            if value is None:
                self._delete(key)
            elif key in self._entries:
                self._entries[key] = value
            else:
                self._entries[key] = value
                insort(self._keys, key)
                if self._by_time is not None:
                    insort(self._by_time, (_time(key), key))
        if change.expire_before_ms is not None:
            by_time = self._timed()
            for _, key in by_time[: bisect_left(by_time, (change.expire_before_ms, b""))]:
                self._delete(key)

    def _timed(self) -> list[tuple[int, bytes]]:
        if self._by_time is None:
            self._by_time = sorted((_time(key), key) for key in self._keys)
        return self._by_time

    def _delete(self, key: bytes) -> None:
        if self._entries.pop(key, None) is None:
            return
        del self._keys[bisect_left(self._keys, key)]
        if self._by_time is not None:
            del self._by_time[bisect_left(self._by_time, (_time(key), key))]


def _time(key: bytes) -> int:
    return int.from_bytes(key[-8:], "big")
