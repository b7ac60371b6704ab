"""The subscriptions of a foreign-key join: per row of the right table, the subscribed rows of the left one.

The key of an entry in the state: 4 bytes length of the foreign key, the foreign key, the key of the left row. So the
subscribers of one row lie together, in the order of their keys.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from deltaworks.kernel.stores.state import NEVER, StateReader, StoreChanges
from deltaworks.topology.stages import StoreSpec

Subscriber: TypeAlias = tuple[bytes | None, int]
"""`(digest of the left value, task of the left row)`"""

_LENGTH_BYTES = 4
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[bytes | None, int]).decode


class SubscriptionStore:
    """Subscription store of one task; keys are bytes, because their order and equality are those of bytes."""

    newest_ms = NEVER

    def __init__(self, spec: StoreSpec, reader: StateReader, *, max_cached: int) -> None:
        self.spec = spec
        self._updates: dict[bytes, dict[bytes, Subscriber | None]] = {}
        """Foreign key -> key -> the write since the last commit; None deletes."""
        self._committed: dict[bytes, dict[bytes, Subscriber]] = {}
        """Foreign key -> all of its subscribers as of the last commit, for the foreign keys looked up so far."""
        self._reader = reader
        self._max_cached = max_cached

    def put(self, foreign_key: bytes, key: bytes, subscriber: Subscriber | None) -> None:
        """Keeps a subscription; None forgets it."""
        self._updates.setdefault(foreign_key, {})[key] = subscriber

    def subscribers(self, foreign_key: bytes) -> list[tuple[bytes, Subscriber]]:
        """`(key, subscriber)` of a row, in the order of the keys."""
        found = self._committed.get(foreign_key)
        if found is None:
            found = self._committed[foreign_key] = self._load(foreign_key)
        updates = self._updates.get(foreign_key)
        if not updates:
            return list(found.items())
        merged: dict[bytes, Subscriber | None] = {**found, **updates}
        return sorted((key, subscriber) for key, subscriber in merged.items() if subscriber is not None)

    def take_changes(self) -> StoreChanges | None:
        """The entries written since the last call; None if there are none."""
        changed: list[tuple[bytes, bytes | None]] = []
        for foreign_key, updates in self._updates.items():
            prefix = _prefix(foreign_key)
            changed += [
                (prefix + key, None if subscriber is None else _encode(subscriber))
                for key, subscriber in updates.items()
            ]
            if foreign_key in self._committed:
                self._committed[foreign_key] = dict(self.subscribers(foreign_key))
        self._updates = {}
        if sum(map(len, self._committed.values())) > self._max_cached:
            self._committed.clear()
        return StoreChanges(changed) if changed else None

    def _load(self, foreign_key: bytes) -> dict[bytes, Subscriber]:
        prefix = _prefix(foreign_key)
        stop = (int.from_bytes(prefix, "big") + 1).to_bytes(len(prefix), "big")
        return {data[len(prefix) :]: _decode(raw) for data, raw in self._reader.scan(prefix, stop)}


def keys_of(data: bytes) -> tuple[bytes, bytes]:
    """The foreign key and the key of the left row, from the key of an entry."""
    at = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "big")
    return data[_LENGTH_BYTES:at], data[at:]


def with_task(value: bytes, task: int) -> bytes:
    """The value of an entry with another task of the left row."""
    return _encode((_decode(value)[0], task))


def _prefix(foreign_key: bytes) -> bytes:
    """The prefix of exactly the entries with this foreign key, because its length comes first."""
    return len(foreign_key).to_bytes(_LENGTH_BYTES, "big") + foreign_key
