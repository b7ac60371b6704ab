"""The store of one side of a stream-stream join: every record of a key, gone once older than the retention."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

from deltaworks.kernel.stores.entries import TIME_BYTES, Codec
from deltaworks.kernel.stores.lists import pack, pack_one, unpack
from deltaworks.kernel.stores.state import NEVER, StateReader, StoreChanges
from deltaworks.topology.stages import StoreSpec

Row = tuple[int, Any]
"""`(time_ms, value as the codec keeps it)`; `(time_ms,)` comes before all rows of that time."""


class JoinWindowStore:
    """Window store that keeps duplicates, of one task: the records of a key are read once, then kept as a sorted list.

    A record is visible while `time > newest time ever put - retention`, so with a retention of 0 none ever is.
    """

    def __init__(self, spec: StoreSpec, reader: StateReader, *, newest_ms: int, max_cached: int) -> None:
        if spec.retention_ms is None:
            raise ValueError(f"join store '{spec.name}' needs a retention")
        self.spec = spec
        self.codec = Codec(spec)
        self.retention_ms = spec.retention_ms
        self.newest_ms = newest_ms
        """The newest time ever put."""
        self._by_key: dict[Any, list[Row]] = {}
        """The rows of a key, oldest first; rows of one time in the order in which they came."""
        self._held = 0
        """Keys and records in memory."""
        self._put: list[tuple[Any, Row]] = []
        """Keys and rows put since the last commit at times that had no row before."""
        self._put_again: dict[tuple[Any, int], None] = {}
        """Key and time of rows that were added to others of the same time."""
        self._committed_newest_ms = newest_ms
        self._reader = reader
        self._max_cached = max_cached

    @property
    def expired_before_ms(self) -> int:
        """Records of earlier times are gone."""
        return self.newest_ms - self.retention_ms + 1

    def put(self, cached_key: Any, kept: Any, time_ms: int) -> None:
        """Keeps one more record; one that is older than the retention is not kept."""
        if time_ms > self.newest_ms:
            self.newest_ms = time_ms
        expired_ms = self.newest_ms - self.retention_ms
        if time_ms <= expired_ms:
            return
        rows = self._by_key.get(cached_key)
        if rows is None:
            rows = self._load(cached_key)
        self._held += 1
        row = (time_ms, kept)
        if not rows or rows[-1][0] < time_ms:
            # Twice the retention, so that this moves each record at most once.
            if rows and rows[0][0] < expired_ms - self.retention_ms:
                self._forget_expired(rows)
            rows.append(row)
            self._put.append((cached_key, row))
            return
        at = bisect_left(rows, (time_ms + 1,))
        if at and rows[at - 1][0] == time_ms:
            self._put_again[cached_key, time_ms] = None
        else:
            self._put.append((cached_key, row))
        rows.insert(at, row)

    def between(self, cached_key: Any, from_ms: int, to_ms: int) -> Sequence[Row]:
        """The visible records of a key in an interval, both bounds inclusive."""
        rows = self._by_key.get(cached_key)
        if rows is None:
            rows = self._load(cached_key)
        visible_ms = self.newest_ms - self.retention_ms + 1
        if from_ms < visible_ms:
            from_ms = visible_ms
        if not rows or rows[-1][0] < from_ms:
            return ()
        first = bisect_left(rows, (from_ms,))
        return rows[first : bisect_left(rows, (to_ms + 1,), first)]

    def all(self) -> Iterator[tuple[Any, int, Any]]:
        """`(key, time_ms, value)`, ordered by key bytes, then time."""
        codec = self.codec
        stored = {data[:-TIME_BYTES] for data, _ in self._reader.scan_time(max(0, self.expired_before_ms), None)}
        put = {codec.cached_key_bytes(cached_key) for cached_key, _ in self._put}
        for key_bytes in sorted(stored | put):
            key = codec.key_object(key_bytes)
            entry_key = key if codec.cache_key is None else key_bytes
            for time_ms, kept in self.between(entry_key, 0, self.newest_ms):
                yield key, time_ms, codec.value_of_cached(kept)

    def take_changes(self) -> StoreChanges | None:
        """The records put or expired since the last call; None if there are none."""
        codec, visible_ms, again = self.codec, self.expired_before_ms, self._put_again
        key_bytes, value_bytes = codec.cached_key_bytes, codec.value_bytes
        changed: list[tuple[bytes, bytes | None]] = []
        for cached_key, (time_ms, kept) in self._put:
            if time_ms >= visible_ms and not (again and (cached_key, time_ms) in again):
                key = key_bytes(cached_key) + time_ms.to_bytes(TIME_BYTES, "big")
                changed.append((key, pack_one(value_bytes(kept))))
        for cached_key, time_ms in again:
            if time_ms >= visible_ms:
                key = key_bytes(cached_key) + time_ms.to_bytes(TIME_BYTES, "big")
                of_time = self.between(cached_key, time_ms, time_ms)
                changed.append((key, pack(value_bytes(kept) for _, kept in of_time)))
        self._put = []
        self._put_again = {}
        expires = self.newest_ms > self._committed_newest_ms and visible_ms > 0
        self._committed_newest_ms = self.newest_ms
        if self._held > self._max_cached:
            self._trim()
        return StoreChanges(changed, visible_ms if expires else None) if changed or expires else None

    def _load(self, cached_key: Any) -> list[Row]:
        rows: list[Row] = []
        self._by_key[cached_key] = rows
        self._held += 1
        if self._committed_newest_ms == NEVER:
            return rows
        codec = self.codec
        prefix = codec.cached_key_bytes(cached_key)
        first_ms = max(0, self.expired_before_ms)
        stop = prefix + (self._committed_newest_ms + 1).to_bytes(TIME_BYTES, "big")
        for data, raw in self._reader.scan(prefix + first_ms.to_bytes(TIME_BYTES, "big"), stop):
            # A longer key that starts with this one may lie between its records.
            if len(data) == len(prefix) + TIME_BYTES:
                time_ms = int.from_bytes(data[-TIME_BYTES:], "big")
                rows.extend((time_ms, codec.cached_value_of_bytes(value)) for value in unpack(raw))
        self._held += len(rows)
        return rows

    def _forget_expired(self, rows: list[Row]) -> None:
        expired = bisect_left(rows, (self.expired_before_ms,))
        del rows[:expired]
        self._held -= expired

    def _trim(self) -> None:
        """Keeps half of the allowed entries: removes expired ones first, then the keys that were read first."""
        for cached_key, rows in list(self._by_key.items()):
            self._forget_expired(rows)
            if not rows or self._held > self._max_cached // 2:
                del self._by_key[cached_key]
                self._held -= 1 + len(rows)
