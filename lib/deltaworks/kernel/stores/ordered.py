"""Iterating over a store in the order of its key bytes: the committed entries, overlaid with the writes since.

The result is fixed at the call, because writes continue during an iteration.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import islice
from operator import itemgetter
from typing import Any, TypeVar

from deltaworks.kernel.stores.entries import Codec, Entries, Entry

T = TypeVar("T")

_FIRST = itemgetter(0)
_SHORTEST_SEGMENT_MS = 60_000


def overlaid(committed: Iterable[tuple[bytes, T]], written: Iterable[tuple[bytes, T]]) -> Iterator[tuple[bytes, T]]:
    """Merges two series in byte order; for a key in both, only the written entry counts."""
    ours = iter(written)
    mine = next(ours, None)
    for each in committed:
        while mine is not None and mine[0] < each[0]:
            yield mine
            mine = next(ours, None)
        if mine is not None and mine[0] == each[0]:
            continue
        yield each
    if mine is not None:
        yield mine
        yield from ours


def after_prefix(prefix: bytes) -> bytes | None:
    """The first key behind all keys that begin with `prefix`; None: there is none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None


def segment_ms(retention_ms: int) -> int:
    """The time span of a segment in Kafka Streams' persistent window and session stores. There, iterators over several
    keys go segment by segment. Ours have no segments, but the same order."""
    return max(retention_ms // 2, _SHORTEST_SEGMENT_MS)


class WrittenKeys:
    """The keys that were written since the last commit, in byte order; brought up to date on request."""

    def __init__(self, codec: Codec, entries: Entries) -> None:
        self._codec = codec
        self._entries = entries
        self._of: dict[Any, Entry] | None = None
        self._keys: list[tuple[bytes, Any]] = []
        """`(key bytes, cached key)`"""

    def between(self, start: bytes, stop: bytes | None) -> list[tuple[bytes, Entry]]:
        """`(key bytes, entry)` with `start <= key < stop` as they are now."""
        updates = self._entries.updates
        if updates is not self._of:
            self._of, self._keys = updates, []
        new = len(updates) - len(self._keys)
        if new:
            # A dictionary keeps the order of insertion, so new keys are at its end.
            self._keys += [(self._codec.cached_key_bytes(key), key) for key in islice(reversed(updates), new)]
            self._keys.sort(key=_FIRST)
        first = bisect_left(self._keys, start, key=_FIRST)
        last = len(self._keys) if stop is None else bisect_left(self._keys, stop, key=_FIRST)
        return [(key_bytes, updates[key]) for key_bytes, key in self._keys[first:last]]
