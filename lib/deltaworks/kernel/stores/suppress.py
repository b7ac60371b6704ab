"""What a suppressed table holds back: one update per key, in the order in which they may go.

It is in memory as a whole, as in Kafka Streams; the state only serves to come back.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any

import msgspec

from deltaworks.kernel.records import Coordinates, Headers
from deltaworks.kernel.stores.entries import Codec
from deltaworks.kernel.stores.state import NEVER, StateReader, StoreChanges
from deltaworks.topology.stages import StoreSpec

_FIXED_BYTES = 28
"""The buffer time, and of the context: timestamp, offset, partition."""


Held = tuple[int, Any, Any, Any, int, Coordinates, Headers, int]
"""`(time_ms, new, old, prior, timestamp_ms, source, headers, size_bytes)`: the last update of a key.

Values are as the caches of stores hold them. `time_ms` is its place in the queue, that of the first update held;
`prior` the value before that one, which readers below still see; `size_bytes` is 0 if nobody counts.
"""


class _HeldBytes(msgspec.Struct, frozen=True, array_like=True):
    """`Held` in the state; the size follows from it."""

    time_ms: int
    new: bytes | None
    old: bytes | None
    prior: bytes | None
    timestamp_ms: int
    source: Coordinates
    headers: Headers


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_HeldBytes).decode


class SuppressBuffer:
    """The updates that one suppressed table of one task holds back."""

    newest_ms = NEVER

    def __init__(self, spec: StoreSpec, reader: StateReader) -> None:
        self.spec = spec
        self.codec = Codec(spec)
        self.held: dict[Any, Held] = {}
        self.queue: list[tuple[int, bytes, Any]] = []
        """A heap of `(time_ms, key bytes, cached key)`; one entry per key held."""
        self.size_bytes = 0
        self.counts_bytes = False
        self._dirty: dict[Any, bool] = {}
        """Keys that changed since the last commit, and whether they were held at that commit."""
        self._reader = reader

    def load(self, *, counts_bytes: bool) -> None:
        """Reads what was held at the last commit.

        Args:
            counts_bytes: `size_bytes` is wanted, which costs serializing every value.
        """
        self.counts_bytes = counts_bytes
        codec = self.codec
        for key_bytes, data in self._reader.scan(b"", None):
            each = _decode(data)
            new, old, prior = (
                None if value is None else codec.cached_value_of_bytes(value)
                for value in (each.new, each.old, each.prior)
            )
            size_bytes = _size(key_bytes, each) if counts_bytes else 0
            cached_key = key_bytes if codec.cache_key is not None else codec.key_object(key_bytes)
            self.held[cached_key] = (
                each.time_ms,
                new,
                old,
                prior,
                each.timestamp_ms,
                each.source,
                each.headers,
                size_bytes,
            )
            self.queue.append((each.time_ms, key_bytes, cached_key))
            self.size_bytes += size_bytes
        heapify(self.queue)

    def put(
        self,
        cached_key: Any,
        time_ms: int,
        new: Any,
        old: Any,
        timestamp_ms: int,
        source: Coordinates,
        headers: Headers,
    ) -> None:
        """Holds an update back; it takes the place of the one held for its key, if there is one."""
        held = self.held
        before = held.get(cached_key)
        if cached_key not in self._dirty:
            self._dirty[cached_key] = before is not None
        if before is None:
            prior = old
            heappush(self.queue, (time_ms, self.codec.cached_key_bytes(cached_key), cached_key))
        else:
            time_ms, prior = before[0], before[3]
        size_bytes = 0
        if self.counts_bytes:
            size_bytes = self._size(cached_key, new, old, prior, source, headers)
            self.size_bytes += size_bytes - (0 if before is None else before[7])
        held[cached_key] = (time_ms, new, old, prior, timestamp_ms, source, headers, size_bytes)

    def remove_first(self) -> None:
        """Forgets the first of the queue, which has gone."""
        cached_key = heappop(self.queue)[2]
        self._dirty.setdefault(cached_key, True)
        self.size_bytes -= self.held.pop(cached_key)[7]

    def take_changes(self) -> StoreChanges | None:
        """What is held or has gone since the last call; None if nothing."""
        codec, held = self.codec, self.held
        changed: list[tuple[bytes, bytes | None]] = []
        for cached_key, was_held in self._dirty.items():
            now = held.get(cached_key)
            if now is not None:
                changed.append((codec.cached_key_bytes(cached_key), self._bytes(now)))
            elif was_held:
                changed.append((codec.cached_key_bytes(cached_key), None))
        self._dirty = {}
        return StoreChanges(changed) if changed else None

    def _bytes(self, held: Held) -> bytes:
        time_ms, new, old, prior, timestamp_ms, source, headers, _ = held
        value_bytes = self.codec.value_bytes
        return _encode(
            _HeldBytes(
                time_ms,
                None if new is None else value_bytes(new),
                None if old is None else value_bytes(old),
                None if prior is None else value_bytes(prior),
                timestamp_ms,
                source,
                headers,
            )
        )

    def _size(self, cached_key: Any, new: Any, old: Any, prior: Any, source: Coordinates, headers: Headers) -> int:
        new, old, prior = (None if value is None else self.codec.value_bytes(value) for value in (new, old, prior))
        return _size(self.codec.cached_key_bytes(cached_key), _HeldBytes(0, new, old, prior, 0, source, headers))


def _size(key: bytes, held: _HeldBytes) -> int:
    """As Kafka Streams counts; a prior value that is the old one counts once.

    Source: `InMemoryTimeOrderedKeyValueChangeBuffer#computeRecordSize`.
    """
    size_bytes = _FIXED_BYTES + len(key) + len(held.new or b"") + len(held.prior or b"") + len(held.source.topic)
    if held.old != held.prior:
        size_bytes += len(held.old or b"")
    return size_bytes + sum(len(name) + len(value or b"") for name, value in held.headers)
