"""Versioned store: the versions of each key, so that joins can see a table as it was.

The versions of a key follow each other: one is valid until the next begins. All but the latest expire once they ended a
retention ago. Tombstones are versions without a value.

There is one entry per version: the key, then the end of its validity; for the latest version of a key that is
`LATEST_MS`, so it never expires. A latest version that is a tombstone has no entry: the end of the version before it
is enough.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import islice
from typing import Any

from deltaworks.kernel.stores.entries import ABSENT, TIME_BYTES, Codec, Entries, Entry
from deltaworks.kernel.stores.state import StateReader, StoreChanges
from deltaworks.topology.stages import StoreSpec
from deltaworks.topology.state_stores import VersionedRecord

LATEST_MS = 2**63 - 1
"""The end of a version that is still valid, in the keys of entries."""
IS_LATEST = -1
"""The result of `put` for a version that is still valid."""
NOT_PUT = -(2**63)
"""The result of `put` for a version that came too late."""

Version = tuple[int, int, Any]
"""`(valid to, valid from, cached value)`, both times in milliseconds; a None value is a tombstone.

A tombstone that nothing preceded begins and ends at its own time.
"""


class VersionedStore:
    """Versioned key-value store of one task.

    Processors read the latest version in `entries`, as in a key-value store, and write with `put_cached`.
    Source: `RocksDBVersionedStore`; its segments are never visible.
    """

    def __init__(self, spec: StoreSpec, reader: StateReader, *, newest_ms: int, max_cached: int) -> None:
        if spec.retention_ms is None:
            raise ValueError(f"versioned store '{spec.name}' needs a history retention")
        self.spec = spec
        self.codec = Codec(spec)
        self.retention_ms = spec.retention_ms
        self.newest_ms = newest_ms
        """The newest time ever put."""
        self.entries = Entries(self.codec, reader, LATEST_MS.to_bytes(TIME_BYTES, "big"))
        """The latest version of each key, unless it is a tombstone."""
        self._committed_newest_ms = newest_ms
        self._reader = reader
        self._max_cached = max_cached
        self._written: dict[Any, dict[int, Version]] = {}
        """Older versions written since the last commit, by cached key and end."""
        self._history: dict[Any, list[Version]] = {}
        """All older versions of the keys looked up so far, oldest first."""

    @property
    def expired_before_ms(self) -> int:
        """Older versions that ended before this are gone."""
        return self.newest_ms - self.retention_ms + 1

    def put(self, key: Any, value: Any | None, timestamp_ms: int) -> int:
        """Adds a version; None is a tombstone.

        Returns:
            The end of its validity: `IS_LATEST`, or the time of the next version; `NOT_PUT` if it came too late.
        """
        return self.put_cached(self._cached_key(key), self.codec.cached_value(value), timestamp_ms)

    def get(self, key: Any) -> Any | None:
        """The latest value of a key."""
        return self.codec.value_of_cached(self.entries.get(self._cached_key(key))[0])

    def get_record(self, key: Any, as_of_ms: int | None = None) -> VersionedRecord[Any] | None:
        """The version of a key that was valid at a time (None: that is still valid); None if there is none."""
        cached_key = self._cached_key(key)
        entry = self.entries.get(cached_key) if as_of_ms is None else self.entry_as_of(cached_key, as_of_ms)
        return None if entry[0] is None else VersionedRecord(self.codec.value_of_cached(entry[0]), entry[1])

    def delete(self, key: Any, timestamp_ms: int) -> VersionedRecord[Any] | None:
        """Adds a tombstone and returns the version that was valid at its time; None if it came too late."""
        if timestamp_ms < self.newest_ms - self.retention_ms:
            return None
        existing = self.get_record(key, timestamp_ms)
        self.put(key, None, timestamp_ms)
        return existing

    def all(self) -> Iterator[tuple[Any, Any, int]]:
        """`(key, value, timestamp_ms)` of the latest versions, in the order of the key bytes."""
        codec = self.codec
        merged: dict[bytes, Entry] = {
            key[:-TIME_BYTES]: codec.entry(raw) for key, raw in self._reader.scan_time(LATEST_MS, None)
        }
        merged.update((codec.cached_key_bytes(key), entry) for key, entry in self.entries.updates.items())
        for key_bytes in sorted(merged):
            value, timestamp_ms = merged[key_bytes][:2]
            if value is not None:
                yield codec.key_object(key_bytes), codec.value_of_cached(value), timestamp_ms

    def all_keys(self) -> list[Any]:
        """The keys of all versions that are left, in the order of their bytes."""
        committed = {key[:-TIME_BYTES] for key, _ in self._reader.scan_time(max(0, self.expired_before_ms), None)}
        written = {*self.entries.updates, *self._written}
        return [
            self.codec.key_object(key) for key in sorted(committed | set(map(self.codec.cached_key_bytes, written)))
        ]

    def put_cached(self, cached_key: Any, value: Any | None, timestamp_ms: int) -> int:
        """`put` with keys and values in their form in the caches."""
        if timestamp_ms < self.newest_ms - self.retention_ms:
            return NOT_PUT
        if timestamp_ms > self.newest_ms:
            self.newest_ms = timestamp_ms
        entries = self.entries
        latest = entries.updates.get(cached_key) or entries.committed_entry(cached_key)
        if latest[0] is None:
            return self._put_without_latest(cached_key, value, timestamp_ms)
        if timestamp_ms >= latest[1]:
            if timestamp_ms > latest[1]:
                self._write(cached_key, (timestamp_ms, latest[1], latest[0]))
            entries.updates[cached_key] = (value, timestamp_ms)
            return IS_LATEST
        return self._put_into_history(cached_key, value, timestamp_ms, latest[1])

    def entry_as_of(self, cached_key: Any, as_of_ms: int) -> Entry:
        """The version that was valid at a time, or `ABSENT`; before the retention only the latest is known."""
        latest = self.entries.get(cached_key)
        if latest[0] is not None and latest[1] <= as_of_ms:
            return latest
        if as_of_ms < self.newest_ms - self.retention_ms:
            return ABSENT
        history = self._history_of(cached_key)
        at = bisect_right(history, as_of_ms, key=_end)
        if at == len(history) or history[at][1] > as_of_ms or history[at][2] is None:
            return ABSENT
        return history[at][2], history[at][1]

    def take_changes(self) -> StoreChanges | None:
        """The entries written or expired since the last call; None if there are none."""
        changed: list[tuple[bytes, bytes | None]] = []
        self.entries.take_changes(changed)
        for cached_key, versions in self._written.items():
            key_bytes = self.codec.cached_key_bytes(cached_key)
            for end_ms, version in versions.items():
                changed.append((key_bytes + end_ms.to_bytes(TIME_BYTES, "big"), self._version_bytes(version)))
        self._written = {}
        visible = self.expired_before_ms
        expires = self.newest_ms > self._committed_newest_ms and visible > 0
        self._committed_newest_ms = self.newest_ms
        self._trim()
        return StoreChanges(changed, visible if expires else None) if changed or expires else None

    def _put_without_latest(self, cached_key: Any, value: Any | None, timestamp_ms: int) -> int:
        """Puts a version if the latest one is a tombstone, or if there is none."""
        history = self._history_of(cached_key)
        if history and history[-1][0] > timestamp_ms:
            return self._put_into_history(cached_key, value, timestamp_ms, None)
        if value is not None:
            self.entries.updates[cached_key] = (value, timestamp_ms)
        elif not history or history[-1][0] != timestamp_ms:
            self._write(cached_key, (timestamp_ms, timestamp_ms, None))
        return IS_LATEST

    def _put_into_history(self, cached_key: Any, value: Any | None, timestamp_ms: int, latest_ms: int | None) -> int:
        """Puts a version that is older than the latest, or than the tombstone that ends the history."""
        history = self._history_of(cached_key)
        at = bisect_right(history, timestamp_ms, key=_end)
        if at == len(history):
            assert latest_ms is not None
            end_ms = latest_ms
        elif history[at][1] > timestamp_ms:
            end_ms = history[at][1]
        else:
            end_ms, begin_ms, before = history[at]
            if begin_ms < timestamp_ms:
                self._write(cached_key, (timestamp_ms, begin_ms, before))
        self._write(cached_key, (end_ms, timestamp_ms, value))
        return end_ms

    def _write(self, cached_key: Any, version: Version) -> None:
        """Keeps an older version, instead of one with the same end."""
        end_ms = version[0]
        if end_ms < self.expired_before_ms:
            return
        self._written.setdefault(cached_key, {})[end_ms] = version
        history = self._history.get(cached_key)
        if history is not None:
            _insert(history, version)
            if history[0][0] < self.expired_before_ms:
                del history[: bisect_left(history, self.expired_before_ms, key=_end)]

    def _history_of(self, cached_key: Any) -> list[Version]:
        history = self._history.get(cached_key)
        if history is None:
            history = self._history[cached_key] = self._read_history(cached_key)
        return history

    def _read_history(self, cached_key: Any) -> list[Version]:
        key_bytes = self.codec.cached_key_bytes(cached_key)
        first, last = max(0, self.expired_before_ms), self._committed_newest_ms + 1
        history: list[Version] = []
        if first < last:
            bounds = [key_bytes + time_ms.to_bytes(TIME_BYTES, "big") for time_ms in (first, last)]
            # Longer keys that begin with this one may lie between the bounds.
            for key, raw in self._reader.scan(bounds[0], bounds[1]):
                if len(key) == len(key_bytes) + TIME_BYTES:
                    history.append(self._version(int.from_bytes(key[-TIME_BYTES:], "big"), raw))
        for version in self._written.get(cached_key, {}).values():
            _insert(history, version)
        return history

    def _version(self, end_ms: int, raw: bytes) -> Version:
        begin_ms, data = int.from_bytes(raw[:TIME_BYTES], "big"), raw[TIME_BYTES + 1 :]
        return end_ms, begin_ms, self.codec.cached_value_of_bytes(data) if raw[TIME_BYTES] else None

    def _version_bytes(self, version: Version) -> bytes:
        _, begin_ms, value = version
        marked = b"\x00" if value is None else b"\x01" + self.codec.value_bytes(value)
        return begin_ms.to_bytes(TIME_BYTES, "big") + marked

    def _cached_key(self, key: Any) -> Any:
        return key if self.codec.cache_key is None else self.codec.cache_key(key)

    def _trim(self) -> None:
        for cache in (self.entries.committed, self._history):
            if len(cache) > self._max_cached:
                for key in list(islice(cache, len(cache) - self._max_cached // 2)):
                    del cache[key]


def _insert(history: list[Version], version: Version) -> None:
    at = bisect_left(history, version[0], key=_end)
    if at < len(history) and history[at][0] == version[0]:
        history[at] = version
    else:
        history.insert(at, version)


def _end(version: Version) -> int:
    return version[0]
