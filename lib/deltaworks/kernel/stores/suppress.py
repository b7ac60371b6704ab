"""The updates that a suppressed table holds back: one per key, in the order in which they may be forwarded.

All of it is in memory, as in Kafka Streams; the state only serves to restore it.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any

import msgspec

from deltaworks.kernel.records import Coordinates, Headers, RecordBatch
from deltaworks.kernel.stores.entries import HASHABLE_AS_BYTES, Codec
from deltaworks.kernel.stores.state import NEVER, StateReader, StoreChanges
from deltaworks.serdes.windowed import SessionWindowed, TimeWindowed
from deltaworks.topology.stages import StoreSpec

_FIXED_BYTES = 28
"""The buffer time, and from the context: timestamp, offset, partition."""


class Held(msgspec.Struct, gc=False):
    """The last update of a key. Values have their form in the caches of stores."""

    time_ms: int
    """Its place in the queue, that of the first update held."""
    new: Any
    old: Any
    prior: Any
    """The value before the first update held, which readers below still see."""
    timestamp_ms: int
    batch: RecordBatch | None
    """The batch of the record until the next commit; after that, `source` has the coordinates."""
    index: int
    headers: Headers
    size_bytes: int = 0
    """0 if bytes are not counted."""
    clean: bool = False
    """Whether it is as it was committed."""
    source: Coordinates | None = None

    @property
    def coordinates(self) -> Coordinates:
        """Where the record came from."""
        if self.batch is None:
            assert self.source is not None
            return self.source
        return Coordinates(self.batch.topic, self.batch.partition, self.batch.offsets[self.index])


class HeldBytes(msgspec.Struct, frozen=True, array_like=True):
    """`Held` in the state; the rest follows from it."""

    time_ms: int
    new: bytes | None
    old: bytes | None
    prior: bytes | None
    timestamp_ms: int
    source: Coordinates
    headers: Headers


encode = msgspec.msgpack.Encoder().encode
"""From `HeldBytes` to an entry of the state."""
decode = msgspec.msgpack.Decoder(HeldBytes).decode


class SuppressBuffer:
    """The held updates of one suppressed table in one task.

    Processors work on `held`, `queue` and `dirty` directly; a key there is the object itself if equal objects have
    equal bytes (`plain_keys`), else its bytes.
    """

    newest_ms = NEVER

    def __init__(self, spec: StoreSpec, reader: StateReader) -> None:
        self.spec = spec
        self.codec = Codec(spec)
        inner = spec.key.inner if isinstance(spec.key, TimeWindowed | SessionWindowed) else spec.key
        self.plain_keys = inner.type in HASHABLE_AS_BYTES
        self.held: dict[Any, Held] = {}
        self.queue: list[tuple[int, bytes, Any]] = []
        """A heap of `(time_ms, key bytes, key)`; one entry per key held."""
        self.dirty: dict[Any, bool] = {}
        """Keys that changed since the last commit, and whether they were held at that commit."""
        self.size_bytes = 0
        self.counts_bytes = False
        self._reader = reader

    def load(self, *, counts_bytes: bool) -> None:
        """Reads the updates held at the last commit.

        Args:
            counts_bytes: Whether `size_bytes` is wanted, which costs serializing every value.
        """
        self.counts_bytes = counts_bytes
        codec = self.codec
        for key_bytes, data in self._reader.scan(b"", None):
            each = decode(data)
            new, old, prior = (
                None if value is None else codec.cached_value_of_bytes(value)
                for value in (each.new, each.old, each.prior)
            )
            key = self.spec.key.deserialize(key_bytes) if self.plain_keys else key_bytes
            self.held[key] = held = Held(
                each.time_ms, new, old, prior, each.timestamp_ms, None, -1, each.headers, 0, True, each.source
            )
            self.queue.append((each.time_ms, key_bytes, key))
            if counts_bytes:
                held.size_bytes = _size(key_bytes, each)
                self.size_bytes += held.size_bytes
        heapify(self.queue)

    def add(self, key: Any, held: Held) -> None:
        """Holds the first update of a key back."""
        heappush(self.queue, (held.time_ms, self.key_bytes(key), key))
        self.held[key] = held
        self.dirty.setdefault(key, False)

    def count(self, key: Any, held: Held) -> None:
        """Counts the bytes of an update that was added or changed."""
        self.size_bytes -= held.size_bytes
        held.size_bytes = _size(self.key_bytes(key), self._serialized(held))
        self.size_bytes += held.size_bytes

    def remove_first(self) -> None:
        """Forgets the first update of the queue, which has been forwarded."""
        key = heappop(self.queue)[2]
        held = self.held.pop(key)
        if held.clean:
            self.dirty[key] = True
        self.size_bytes -= held.size_bytes

    def key_bytes(self, key: Any) -> bytes:
        """From a key of `held` to its bytes."""
        return self.spec.key.serialize(key) if self.plain_keys else key

    def take_changes(self) -> StoreChanges | None:
        """The updates held or forwarded since the last call; None if there are none."""
        changed: list[tuple[bytes, bytes | None]] = []
        for key, was_held in self.dirty.items():
            held = self.held.get(key)
            if held is not None:
                changed.append((self.key_bytes(key), encode(self._serialized(held))))
                held.source, held.batch, held.clean = held.coordinates, None, True
            elif was_held:
                changed.append((self.key_bytes(key), None))
        self.dirty.clear()
        return StoreChanges(changed) if changed else None

    def _serialized(self, held: Held) -> HeldBytes:
        value_bytes = self.codec.value_bytes
        return HeldBytes(
            held.time_ms,
            None if held.new is None else value_bytes(held.new),
            None if held.old is None else value_bytes(held.old),
            None if held.prior is None else value_bytes(held.prior),
            held.timestamp_ms,
            held.coordinates,
            held.headers,
        )


def _size(key: bytes, held: HeldBytes) -> int:
    """The size as Kafka Streams counts it; a prior value that is the old one counts once.

    Source: `InMemoryTimeOrderedKeyValueChangeBuffer#computeRecordSize`.
    """
    size_bytes = _FIXED_BYTES + len(key) + len(held.new or b"") + len(held.prior or b"") + len(held.source.topic)
    if held.old != held.prior:
        size_bytes += len(held.old or b"")
    return size_bytes + sum(len(name) + len(value or b"") for name, value in held.headers)
