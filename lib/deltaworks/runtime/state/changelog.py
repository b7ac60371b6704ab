"""The changelog of a task's stores: binary segments in Spark's state, merged in tiers.

Each batch appends one segment, which leads from the version before it to its own. When a tier holds `FANOUT` segments,
they are merged into one of the next tier before another one is added. So a restore reads about as much as is alive, and
every entry is rewritten a logarithmic number of times. A batch never merges its own segment, so a local store that is
one batch behind always finds it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from deltaworks.kernel.stores.state import StoreChanges
from deltaworks.runtime.state.local_store import Changes, StateVersion

FANOUT = 8
_CHUNK_BYTES = 4 << 20

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
    """Encodes one segment as chunks of bounded size, because each travels through one call to Spark's state."""
    data = _encoder.encode(changes)
    return [data[i : i + _CHUNK_BYTES] for i in range(0, len(data), _CHUNK_BYTES)]


def decode(chunks: Sequence[bytes]) -> dict[str, StoreChanges]:
    return _decoder.decode(b"".join(chunks))


def entry_count(changes: Changes) -> int:
    return sum(len(change.entries) for change in changes.values())


def merge(segments: Sequence[Changes], *, oldest: bool) -> dict[str, StoreChanges]:
    """Merges segments into one with the same effect.

    Args:
        segments: Consecutive segments, oldest first.
        oldest: There are no earlier segments, so deletes need not be kept.
    """
    merged: dict[str, dict[bytes, bytes | None]] = {}
    bounds: dict[str, int | None] = {}
    for changes in segments:
        for name, change in changes.items():
            entries = merged.setdefault(name, {})
            entries.update(change.entries)
            bound = change.expire_before_ms
            if bound is not None:
                bounds[name] = max(bound, bounds.get(name) or bound)
    return {
        name: StoreChanges(_alive(entries, bounds.get(name), oldest=oldest), bounds.get(name))
        for name, entries in merged.items()
    }


def _alive(
    entries: dict[bytes, bytes | None], bound_ms: int | None, *, oldest: bool
) -> list[tuple[bytes, bytes | None]]:
    return [
        (key, value)
        for key, value in entries.items()
        if (value is not None or not oldest) and (bound_ms is None or int.from_bytes(key[-8:], "big") >= bound_ms)
    ]


def tier_to_merge(segments: Sequence[SegmentRef]) -> Sequence[SegmentRef]:
    """The newest run of `FANOUT` segments of one tier, or nothing. Segments are ordered oldest first."""
    run = segments[-FANOUT:]
    if len(run) == FANOUT and len({segment.tier for segment in run}) == 1:
        return run
    return ()
