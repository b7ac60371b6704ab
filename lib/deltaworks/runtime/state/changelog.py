"""The changelog of a task's stores: binary segments in Spark's state, merged in tiers.

Each batch appends one segment, which leads from the version before it to its own. When a tier holds `FANOUT` segments,
they are merged into one of the next tier before another one is added. So a restore reads about as much as is alive, and
every entry is rewritten a logarithmic number of times. A batch never merges its own segment, so a local store that is
one batch behind always finds it.

A segment consists of documents of some megabytes, which are applied one after the other, so a restore never holds more
than one. Entries are sorted by key, because a local store takes them fastest in that order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import itemgetter

import msgspec

from deltaworks.kernel.stores.state import StoreChanges
from deltaworks.runtime.state.local_store import Changes, StateVersion

FANOUT = 8
_CHUNK_BYTES = 4 << 20
"""The most that a chunk has, and a document, unless that has a larger entry."""
_LAST, _MORE = b"\0", b"\1"
"""The first byte of a chunk: its document ends here, or goes on in the next chunk."""
_MAP = 0x80
"""No smaller byte begins a map in msgpack, and so a segment of format 2 (`recovery`): one document, cut into chunks."""
_KEY = itemgetter(0)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(dict[str, StoreChanges])


class SegmentRef(msgspec.Struct, frozen=True, array_like=True):
    """One segment; its bytes lie under the ids `first .. first + chunks - 1`."""

    first: int
    chunks: int
    tier: int
    entries: int
    version: StateVersion
    """The version of the state that it leads to."""


def encode(changes: Changes) -> list[bytes]:
    """Encodes one segment as chunks of bounded size, because each travels through one call to Spark's state.

    Args:
        changes: entries in the order of their keys (`ordered`, `merge`).
    """
    return [chunk for document in _documents(changes) for chunk in _chunks(document)]


def decode(chunks: Iterable[bytes]) -> Iterator[dict[str, StoreChanges]]:
    """The documents of a segment, to be applied in this order; a chunk is taken when it is needed."""
    remaining = iter(chunks)
    first = next(remaining)
    if first[0] >= _MAP:
        yield _decoder.decode(b"".join([first, *remaining]))
        return
    pieces: list[memoryview] = []
    for chunk in chain([first], remaining):
        pieces.append(memoryview(chunk)[len(_LAST) :])
        if chunk[:1] == _LAST:
            yield _decoder.decode(b"".join(pieces))
            pieces.clear()
    assert not pieces, "a segment ends within a document"


def _documents(changes: Changes) -> Iterator[bytes]:
    """The changes in documents that fit into a chunk, as far as entries do."""
    data, count = _encoder.encode(changes), entry_count(changes)
    if len(data) < _CHUNK_BYTES or count <= 1:
        yield data
        return
    most = max(1, count * _CHUNK_BYTES // len(data) * 9 // 10)
    for name, change in changes.items():
        for begin in range(0, max(1, len(change.entries)), most):
            is_last = begin + most >= len(change.entries)
            part = StoreChanges(change.entries[begin : begin + most], change.expire_before_ms if is_last else None)
            yield from _documents({name: part})


def _chunks(document: bytes) -> Iterator[bytes]:
    size = _CHUNK_BYTES - len(_LAST)
    for begin in range(0, len(document), size):
        yield (_LAST if begin + size >= len(document) else _MORE) + document[begin : begin + size]


def entry_count(changes: Changes) -> int:
    return sum(len(change.entries) for change in changes.values())


def ordered(changes: Changes) -> dict[str, StoreChanges]:
    """The same changes, with the entries of each store in the order of their keys."""
    return {
        name: StoreChanges(sorted(change.entries, key=_KEY), change.expire_before_ms)
        for name, change in changes.items()
    }


def merge(parts: Iterable[Changes], *, oldest: bool) -> dict[str, StoreChanges]:
    """Merges consecutive changes into one with the same effect, in the order of keys.

    Args:
        parts: The changes, such as the documents of consecutive segments, oldest first.
        oldest: There are no earlier changes, so deletes need not be kept.
    """
    found: dict[str, list[tuple[bytes, bytes | None]]] = defaultdict(list)
    bounds: dict[str, int | None] = {}
    for changes in parts:
        for name, change in changes.items():
            found[name] += change.entries
            bound = change.expire_before_ms
            if bound is not None:
                bounds[name] = max(bound, bounds.get(name) or bound)
    return {
        name: StoreChanges(_alive(entries, bounds.get(name), oldest=oldest), bounds.get(name))
        for name, entries in found.items()
    }


def _alive(
    entries: list[tuple[bytes, bytes | None]], bound_ms: int | None, *, oldest: bool
) -> list[tuple[bytes, bytes | None]]:
    """The last entry of each key, given the oldest first, unless nothing is left of it."""
    entries.sort(key=_KEY)  # it keeps the order of equal keys; runs that are sorted, as those of segments, cost little
    following: Iterable[bytes | None] = chain((key for key, _ in islice(entries, 1, None)), [None])
    return [
        entry
        for entry, next_key in zip(entries, following, strict=False)
        if entry[0] != next_key
        and (entry[1] is not None or not oldest)
        and (bound_ms is None or int.from_bytes(entry[0][-8:], "big") >= bound_ms)
    ]


def tier_to_merge(segments: Sequence[SegmentRef]) -> Sequence[SegmentRef]:
    """The newest run of `FANOUT` segments of one tier, or nothing. Segments are ordered oldest first."""
    run = segments[-FANOUT:]
    if len(run) == FANOUT and len({segment.tier for segment in run}) == 1:
        return run
    return ()
