"""Sessions that wait for their final result: found by their end, although no other reader finds them any more.

With the default retention a session has left the store when it closes. A session is kept until it has been read back.
To be compatible with Kafka Streams, it is kept until the segment of the store that it lies in would be gone: one that
has not been read back by then is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Any

from deltaworks.kernel.stores.by_time import CommittedByTime
from deltaworks.kernel.stores.entries import TIME_BYTES, Codec
from deltaworks.kernel.stores.ordered import segment_ms
from deltaworks.kernel.stores.state import NEVER, StateReader

_Identity = tuple[int, int, Any]
"""`(end_ms, start_ms, cached key)`"""


class ClosingSessions:
    """The sessions of one store ordered by end: the committed ones, with the writes since."""

    def __init__(self, codec: Codec, retention_ms: int, reader: StateReader, *, keeps_unforwarded: bool) -> None:
        self.done_before_ms = NEVER
        """Sessions that end earlier have been read back."""
        self._codec = codec
        self._retention_ms = retention_ms
        self._segment_ms = segment_ms(retention_ms)
        self._reader = reader
        self._keeps_unforwarded = keeps_unforwarded
        self._lost = 0
        self.forget()

    def forget(self) -> None:
        """Called when the written sessions are committed."""
        self._by_time = CommittedByTime(self._reader)
        self._written: dict[_Identity, Any] = {}
        self._ends: list[_Identity] = []
        """A heap of `_written` and of replaced sessions."""
        self._replaced: set[_Identity] = set()

    def replace(self, cached_key: Any, old: Sequence[tuple[Any, ...]], new: tuple[Any, ...] | None) -> None:
        """As in `SessionStore`."""
        for session in old:
            identity = session[0], session[1], cached_key
            self._written.pop(identity, None)
            self._replaced.add(identity)
        if new is not None:
            identity = new[0], new[1], cached_key
            # A session with these bounds may have left the store unseen.
            self._replaced.add(identity)
            if new[2] is not None:
                self._written[identity] = new[2]
                heappush(self._ends, identity)

    def take(self, to_ms: int, newest_ms: int) -> list[tuple[int, int, Any, Any]]:
        """`(end_ms, start_ms, key, value)` of sessions up to an end that have not been read back, in this order.

        Args:
            newest_ms: The newest end ever put.
        """
        self._lose_expired(newest_ms, to_ms + 1)
        found = self._ending_between(self.done_before_ms, to_ms)
        self.done_before_ms = max(self.done_before_ms, to_ms + 1)
        codec = self._codec
        return [
            (end_ms, start_ms, codec.key_object(key), codec.value_of_cached(kept))
            for (end_ms, start_ms, key), kept in sorted(found.items(), key=lambda item: item[0])
        ]

    def take_lost(self) -> int:
        """How many sessions have expired before they were read back, since the last call."""
        lost, self._lost = self._lost, 0
        return lost

    def kept_from_ms(self, newest_ms: int) -> int:
        """Sessions that end earlier are not needed any more. Called when the writes are committed."""
        self._lose_expired(newest_ms, newest_ms + 1)
        return self.done_before_ms

    def _lose_expired(self, newest_ms: int, before_ms: int) -> None:
        live_from_ms = max(0, newest_ms - self._retention_ms) // self._segment_ms * self._segment_ms
        before_ms = min(before_ms, live_from_ms)
        if not self._keeps_unforwarded and before_ms > self.done_before_ms:
            self._lost += len(self._ending_between(self.done_before_ms, before_ms - 1))
            self.done_before_ms = before_ms

    def _ending_between(self, from_ms: int, to_ms: int) -> dict[tuple[int, int, bytes], Any]:
        """`(end_ms, start_ms, bytes of the key)` -> cached value; spans only move forward between two commits."""
        codec, found = self._codec, dict[tuple[int, int, bytes], Any]()
        for end_ms, data, raw in self._by_time.take(from_ms, to_ms):
            start_ms = int.from_bytes(data[-2 * TIME_BYTES : -TIME_BYTES], "big")
            key = data[: -2 * TIME_BYTES]
            entry_key = key if codec.write_key is None else codec.key_object(key)
            if (end_ms, start_ms, entry_key) not in self._replaced:
                found[end_ms, start_ms, key] = codec.cached_value_of_bytes(raw)
        while self._ends and self._ends[0][0] <= to_ms:
            identity = heappop(self._ends)
            kept = self._written.get(identity)
            if kept is not None and identity[0] >= from_ms:
                found[identity[0], identity[1], codec.cached_key_bytes(identity[2])] = kept
        return found
