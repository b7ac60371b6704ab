"""Window store: one value per key and window start, gone once older than the retention."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from itertools import islice
from typing import Any

from deltaworks.kernel.stores.by_time import CommittedByTime
from deltaworks.kernel.stores.entries import ABSENT, TIME_BYTES, Codec, Entries, Entry
from deltaworks.kernel.stores.ordered import segment_ms
from deltaworks.kernel.stores.state import FOR_EVER_MS, StateReader, StoreChanges
from deltaworks.topology.stages import StoreSpec


class WindowStore:
    """Window store of one task; the spec says whether its entries carry a time besides their start.

    An entry is visible while `start > newest start ever put - retention`. Processors of operators work on
    `window(start)` directly and then call `put_at`; the other methods are for all other callers. Iterators over several
    keys are ordered by segment of time, then by bytes of key and start, as in Kafka Streams' persistent stores.
    """

    def __init__(self, spec: StoreSpec, reader: StateReader, *, newest_ms: int, max_cached: int) -> None:
        if spec.retention_ms is None:
            raise ValueError(f"window store '{spec.name}' needs a retention")
        self.spec = spec
        self.codec = Codec(spec)
        self.retention_ms = FOR_EVER_MS if spec.expired_stay_cached else spec.retention_ms
        self.newest_ms = newest_ms
        """The newest start ever put."""
        self.windows: dict[int, Entries] = {}
        """Entries by start. A missing start has not been touched since it was last dropped from the cache."""
        self._committed_newest_ms = newest_ms
        self._reader = reader
        self._max_cached = max_cached
        self._segment_ms = segment_ms(spec.retention_ms)
        self._starts: list[int] = []
        """Starts in `windows`, sorted, brought up to date on request."""
        self.written: dict[tuple[int, Any], None] = {}
        """`(start, cached key)` in the order of the last writes since the commit, where a record cache needs it."""
        self._starts_by_key: dict[Any, list[int]] | None = None
        self._by_time: CommittedByTime | None = None
        # Kafka Streams' stores for final results keep a window a millisecond longer than others.
        self.keeps_ms = self.retention_ms + 1 if spec.emits_final else self.retention_ms
        self._unforwarded_from_ms: int | None = None
        self._lost = 0
        self._gone_before_ms = self.expired_before_ms

    def window(self, start_ms: int) -> Entries:
        """The entries of one window start."""
        entries = self.windows.get(start_ms)
        if entries is None:
            fresh = start_ms > self._committed_newest_ms
            suffix = start_ms.to_bytes(TIME_BYTES, "big")
            entries = self.windows[start_ms] = Entries(self.codec, self._reader, suffix, complete=fresh)
        return entries

    def put_at(self, start_ms: int) -> None:
        """Records that something was put into this start."""
        if start_ms > self.newest_ms:
            self.newest_ms = start_ms

    @property
    def expired_before_ms(self) -> int:
        """Starts below this are gone."""
        return self.newest_ms - self.keeps_ms + 1

    def fetch(self, key: Any, start_ms: int) -> Any | None:
        """The value of a key in the window that starts then."""
        return self.codec.value_of_cached(self.entry(key, start_ms)[0])

    def entry(self, key: Any, start_ms: int) -> Entry:
        """The entry of a key in the window that starts then, or `ABSENT`."""
        if start_ms < self.expired_before_ms or start_ms > self.newest_ms:
            return ABSENT
        return self.window(start_ms).get(self._cached_key(key))

    def put(self, key: Any, start_ms: int, kept: Any, *written: int) -> None:
        """Writes an entry: the value's form in the caches, then as in `Entry`."""
        cached_key = self._cached_key(key)
        self.window(start_ms).updates[cached_key] = (kept, *written)
        self.put_at(start_ms)
        if self._starts_by_key is not None:
            self.note(cached_key, start_ms, there=kept is not None)

    def fetch_range(self, key: Any, from_ms: int, to_ms: int) -> list[tuple[int, Any, int]]:
        """`(start_ms, value, timestamp_ms)` of a key, both bounds inclusive, oldest first."""
        codec, cached_key = self.codec, self._cached_key(key)
        from_ms, to_ms = self._visible(from_ms, to_ms)
        if from_ms > to_ms:
            return []
        prefix = codec.cached_key_bytes(cached_key)
        start, stop = (prefix + time_ms.to_bytes(TIME_BYTES, "big") for time_ms in (from_ms, to_ms + 1))
        found: dict[int, Entry] = {
            int.from_bytes(data[-TIME_BYTES:], "big"): codec.entry(raw)
            for data, raw in self._reader.scan(start, stop)
            # A longer key that starts with this one may lie between its windows.
            if len(data) == len(start)
        }
        for start_ms in self._starts_between(from_ms, to_ms):
            written = self.windows[start_ms].updates.get(cached_key)
            if written is not None:
                found[start_ms] = written
        return [
            (start_ms, codec.value_of_cached(found[start_ms][0]), found[start_ms][1])
            for start_ms in sorted(found)
            if found[start_ms][0] is not None
        ]

    def all(self) -> Iterator[tuple[Any, int, Any, int]]:
        """`(key, start_ms, value, timestamp_ms)` of every window."""
        return iter(self.between(None, None, 0, self.newest_ms))

    def between(
        self, from_key: Any | None, to_key: Any | None, from_ms: int, to_ms: int
    ) -> list[tuple[Any, int, Any, int]]:
        """`(key, start_ms, value, timestamp_ms)` within bounds of key and start, all inclusive; None: no bound."""
        codec = self.codec
        from_ms, to_ms = self._visible(from_ms, to_ms)
        if from_ms > to_ms:
            return []
        found: dict[bytes, Entry] = {data: codec.entry(raw) for data, raw in self._reader.scan_time(from_ms, to_ms + 1)}
        for start_ms in self._starts_between(from_ms, to_ms):
            suffix, updates = start_ms.to_bytes(TIME_BYTES, "big"), self.windows[start_ms].updates
            found.update((codec.cached_key_bytes(key) + suffix, entry) for key, entry in updates.items())
        first = None if from_key is None else codec.key_bytes(from_key)
        last = None if to_key is None else codec.key_bytes(to_key)
        rows: list[tuple[int, bytes, Entry]] = []
        for data, entry in found.items():
            if entry[0] is None or (first is not None and data[:-TIME_BYTES] < first):
                continue
            if last is None or data[:-TIME_BYTES] <= last:
                rows.append((int.from_bytes(data[-TIME_BYTES:], "big"), data, entry))
        rows.sort(key=lambda row: (row[0] // self._segment_ms, row[1]))
        return [
            (codec.key_object(data[:-TIME_BYTES]), start_ms, codec.value_of_cached(entry[0]), entry[1])
            for start_ms, data, entry in rows
        ]

    def forwarded_before(self, start_ms: int) -> None:
        """Records that final results are forwarded up to this start; called first when the task is built."""
        if self._unforwarded_from_ms is None:
            self._gone_before_ms = self._kept_from_ms(start_ms)
        self._unforwarded_from_ms = start_ms

    def take_closed(self, to_ms: int) -> list[tuple[Any, int, Any, int]]:
        """`(key, start_ms, value, timestamp_ms)` of windows up to a start that have not been forwarded.

        Ordered by start, then bytes of the key. A window that has expired meanwhile is there if the store keeps it,
        else it is lost.
        """
        from_ms = max(0, self._lose_expired(to_ms + 1))
        self._unforwarded_from_ms = to_ms + 1
        return self._rows(self._written_between(from_ms, to_ms))

    def closed_at(self, start_ms: int) -> list[tuple[Any, int, Any, int]]:
        """The same for one start, in any order of starts; the caller says what has been forwarded."""
        found = {(start_ms, data[:-TIME_BYTES]): raw for data, raw in self._reader.scan_time(start_ms, start_ms + 1)}
        return self._rows(self._with_changes(found, [start_ms] if start_ms in self.windows else []))

    def committed_starts(self) -> Iterator[int]:
        """The starts at which something was committed, oldest first."""
        from_ms = 0
        while (entry := next(self._reader.scan_time(from_ms, None), None)) is not None:
            start_ms = int.from_bytes(entry[0][-TIME_BYTES:], "big")
            yield start_ms
            from_ms = start_ms + 1

    def take_lost(self) -> int:
        """How many windows have expired before they were forwarded, since the last call."""
        lost, self._lost = self._lost, 0
        return lost

    def _lose_expired(self, before_ms: int) -> int:
        """Counts windows that have expired before they were forwarded; returns the first start after them."""
        from_ms, expired_before_ms = self._unforwarded_from_ms, self.expired_before_ms
        assert from_ms is not None, self.spec.name
        if self.spec.keeps_unforwarded or expired_before_ms <= from_ms:
            return from_ms
        self._lost += len(self._written_between(max(0, from_ms), min(expired_before_ms, before_ms) - 1))
        return expired_before_ms

    def _written_between(self, from_ms: int, to_ms: int) -> list[tuple[tuple[int, bytes], Entry]]:
        """Windows that start in a span, also just expired ones. Spans may only move forward between two commits."""
        if self._by_time is None:
            self._by_time = CommittedByTime(self._reader)
        found = {(start_ms, data[:-TIME_BYTES]): raw for start_ms, data, raw in self._by_time.take(from_ms, to_ms)}
        return self._with_changes(found, self._starts_between(from_ms, to_ms))

    def _with_changes(
        self, committed: dict[tuple[int, bytes], bytes], changed: list[int]
    ) -> list[tuple[tuple[int, bytes], Entry]]:
        """Committed entries by start and bytes of the key, with the changes of some starts."""
        codec = self.codec
        found = {at: codec.entry(raw) for at, raw in committed.items()}
        for start_ms in changed:
            for cached_key, entry in self.windows[start_ms].updates.items():
                found[start_ms, codec.cached_key_bytes(cached_key)] = entry
        return sorted(((at, entry) for at, entry in found.items() if entry[0] is not None), key=lambda item: item[0])

    def _rows(self, found: list[tuple[tuple[int, bytes], Entry]]) -> list[tuple[Any, int, Any, int]]:
        codec = self.codec
        return [
            (codec.key_object(key), start_ms, codec.value_of_cached(entry[0]), entry[1])
            for (start_ms, key), entry in found
        ]

    def index_keys(self) -> None:
        """Enables `starts` from now on."""
        if self._starts_by_key is None:
            self._starts_by_key = {}

    def starts(self, cached_key: Any) -> list[int]:
        """The starts at which a key has a value, oldest first. Writers to `windows` keep it up to date with `note`."""
        assert self._starts_by_key is not None, self.spec.name
        starts = self._starts_by_key.get(cached_key)
        if starts is None:
            starts = self._starts_by_key[cached_key] = self._load_starts(cached_key)
        gone_ms = self.newest_ms - self.keeps_ms
        if starts and starts[0] <= gone_ms:
            del starts[: bisect_right(starts, gone_ms)]
        return starts

    def note(self, cached_key: Any, start_ms: int, *, there: bool) -> None:
        """Records whether a key has a value at a start."""
        starts = self.starts(cached_key)
        at = bisect_left(starts, start_ms)
        if at < len(starts) and starts[at] == start_ms:
            if not there:
                del starts[at]
        elif there:
            starts.insert(at, start_ms)

    def left_store(self, start_ms: int) -> bool:
        """Whether only a record cache still shows it; its updates do not know an old value."""
        return self.spec.expired_stay_cached and start_ms <= self._committed_newest_ms - (self.spec.retention_ms or 0)

    def take_changes(self) -> StoreChanges | None:
        """The entries written or expired since the last call; None if there are none."""
        changed: list[tuple[bytes, bytes | None]] = []
        visible = self.expired_before_ms
        if self._unforwarded_from_ms is not None:
            self._unforwarded_from_ms = self._lose_expired(visible)
            visible = self._kept_from_ms(self._unforwarded_from_ms)
        for start_ms in [start_ms for start_ms in self.windows if start_ms < visible]:
            del self.windows[start_ms]
        self._starts = []
        self._by_time = None
        for entries in self.windows.values():
            if entries.updates:
                entries.take_changes(changed)
        expires = visible > max(0, self._gone_before_ms)
        self._gone_before_ms = visible
        self._committed_newest_ms = self.newest_ms
        self._trim()
        return StoreChanges(changed, visible if expires else None) if changed or expires else None

    def _kept_from_ms(self, unforwarded_from_ms: int) -> int:
        """Windows that start earlier can go."""
        expired_before_ms = self.expired_before_ms
        return min(expired_before_ms, unforwarded_from_ms) if self.spec.keeps_unforwarded else expired_before_ms

    def _cached_key(self, key: Any) -> Any:
        return key if self.codec.cache_key is None else self.codec.cache_key(key)

    def _visible(self, from_ms: int, to_ms: int) -> tuple[int, int]:
        return max(from_ms, self.expired_before_ms, 0), min(to_ms, self.newest_ms)

    def _starts_between(self, from_ms: int, to_ms: int) -> list[int]:
        """The starts of windows in memory within bounds. Between two commits their number only grows."""
        for start_ms in islice(reversed(self.windows), len(self.windows) - len(self._starts)):
            insort(self._starts, start_ms)
        return self._starts[bisect_left(self._starts, from_ms) : bisect_right(self._starts, to_ms)]

    def _load_starts(self, cached_key: Any) -> list[int]:
        prefix = self.codec.cached_key_bytes(cached_key)
        from_ms = max(self._committed_newest_ms - self.keeps_ms + 1, 0)
        start, stop = (prefix + time.to_bytes(TIME_BYTES, "big") for time in (from_ms, self._committed_newest_ms + 1))
        starts: list[int] = []
        for data, raw in self._reader.scan(start, stop):
            if len(data) == len(start):
                start_ms = int.from_bytes(data[-TIME_BYTES:], "big")
                self.window(start_ms).committed[cached_key] = self.codec.entry(raw)
                starts.append(start_ms)
        return starts

    def _trim(self) -> None:
        by_key = self._starts_by_key
        if by_key is not None and len(by_key) > self._max_cached:
            for key in list(islice(by_key, len(by_key) - self._max_cached // 2)):
                del by_key[key]
        cached = sum(len(entries.committed) for entries in self.windows.values())
        for start_ms in sorted(self.windows):
            if cached <= self._max_cached:
                return
            cached -= len(self.windows.pop(start_ms).committed)
