"""Window store: one value and timestamp per key and window start, gone once older than the retention."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from deltaworks.kernel.stores.entries import TIME_BYTES, Codec, Entries, Entry
from deltaworks.kernel.stores.state import StateReader, StoreChanges
from deltaworks.topology.stages import StoreSpec


class WindowStore:
    """Timestamped window store of one task.

    An entry is visible while `start > newest start ever put - retention`. Processors work on `window(start)` directly
    and then call `put_at`; the other methods are for everybody else.
    """

    def __init__(self, spec: StoreSpec, reader: StateReader, *, newest_ms: int, max_cached: int) -> None:
        if spec.retention_ms is None:
            raise ValueError(f"window store '{spec.name}' needs a retention")
        self.spec = spec
        self.codec = Codec(spec)
        self.retention_ms = spec.retention_ms
        self.newest_ms = newest_ms
        """The newest start ever put."""
        self.windows: dict[int, Entries] = {}
        """By start. A start that is not here has not been touched since it was last dropped from the cache."""
        self._committed_newest_ms = newest_ms
        self._reader = reader
        self._max_cached = max_cached

    def window(self, start_ms: int) -> Entries:
        """The entries of one window start."""
        entries = self.windows.get(start_ms)
        if entries is None:
            fresh = start_ms > self._committed_newest_ms
            suffix = start_ms.to_bytes(TIME_BYTES, "big")
            entries = self.windows[start_ms] = Entries(self.codec, self._reader, suffix, complete=fresh)
        return entries

    def put_at(self, start_ms: int) -> None:
        """Says that something was put into this start."""
        if start_ms > self.newest_ms:
            self.newest_ms = start_ms

    @property
    def expired_before_ms(self) -> int:
        """Starts below are gone."""
        return self.newest_ms - self.retention_ms + 1

    def fetch(self, key: Any, start_ms: int) -> Any | None:
        """The value of a key in the window that starts then."""
        if start_ms < self.expired_before_ms:
            return None
        cached_key = key if self.codec.cache_key is None else self.codec.cache_key(key)
        return self.codec.value_of_cached(self.window(start_ms).get(cached_key)[0])

    def fetch_range(self, key: Any, from_ms: int, to_ms: int) -> list[tuple[int, Any]]:
        """`(start_ms, value)` of a key, both bounds inclusive, oldest first."""
        return [(start, value) for k, start, value, _ in self.all() if k == key and from_ms <= start <= to_ms]

    def all(self) -> Iterator[tuple[Any, int, Any, int]]:
        """`(key, start_ms, value, timestamp_ms)`, ordered by key bytes, then start."""
        codec, visible = self.codec, max(0, self.expired_before_ms)
        merged: dict[bytes, Entry] = {key: codec.entry(raw) for key, raw in self._reader.scan_time(visible, None)}
        for start_ms, entries in self.windows.items():
            if start_ms >= visible:
                suffix = start_ms.to_bytes(TIME_BYTES, "big")
                merged.update((codec.cached_key_bytes(k) + suffix, entry) for k, entry in entries.updates.items())
        for data in sorted(merged, key=lambda data: (data[:-TIME_BYTES], data[-TIME_BYTES:])):
            value, timestamp_ms = merged[data][:2]
            if value is not None:
                start_ms = int.from_bytes(data[-TIME_BYTES:], "big")
                yield codec.key_object(data[:-TIME_BYTES]), start_ms, codec.value_of_cached(value), timestamp_ms

    def take_changes(self) -> StoreChanges | None:
        """What was written or has expired since the last call; None if nothing."""
        changed: list[tuple[bytes, bytes | None]] = []
        visible = self.expired_before_ms
        for start_ms in [start_ms for start_ms in self.windows if start_ms < visible]:
            del self.windows[start_ms]
        for entries in self.windows.values():
            if entries.updates:
                entries.take_changes(changed)
        expires = self.newest_ms > self._committed_newest_ms and visible > 0
        self._committed_newest_ms = self.newest_ms
        self._trim()
        return StoreChanges(changed, visible if expires else None) if changed or expires else None

    def _trim(self) -> None:
        cached = sum(len(entries.committed) for entries in self.windows.values())
        for start_ms in sorted(self.windows):
            if cached <= self._max_cached:
                return
            cached -= len(self.windows.pop(start_ms).committed)
