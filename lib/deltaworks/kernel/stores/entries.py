"""The cache under every store: the writes since the last commit, and known committed entries.

An entry is a tuple that starts with the value and its timestamp; `ABSENT` stands for "there is none".
With a record cache it also says which record wrote it (`batch number, index`), because its update is forwarded later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deltaworks.kernel.stores.lists import Several
from deltaworks.kernel.stores.mutability import is_immutable
from deltaworks.kernel.stores.state import StateReader
from deltaworks.topology.stages import StoreSpec

Entry = tuple[Any, ...]
"""`(value, timestamp_ms)`, with a record cache `(value, timestamp_ms, batch number, index)`; a None value deletes."""
ABSENT: Entry = (None, -1)
TIME_BYTES = 8
HASHABLE_AS_BYTES = (str, int, bytes)
"""Key types whose objects are equal exactly if their bytes are."""


class Codec:
    """Converts between a store's keys and values, their bytes, and their form in the caches."""

    def __init__(self, spec: StoreSpec) -> None:
        value = Several(spec.value) if spec.retain_duplicates else spec.value
        self.key_object = spec.key.deserialize
        self.key_bytes = spec.key.serialize
        plain_key = spec.key.type in HASHABLE_AS_BYTES
        self.cache_key: Callable[[Any], Any] | None = None if plain_key else spec.key.serialize
        """From a key to the key of the caches; None: the key itself."""
        keeps_objects = is_immutable(value.type)
        self.freeze: Callable[[Any], bytes] | None = None if keeps_objects else value.serialize
        """From a value to its form in the caches; None: the value itself."""
        self.thaw: Callable[[bytes], Any] | None = None if keeps_objects else value.deserialize
        self.write_key: Callable[[Any], bytes] | None = spec.key.serialize if plain_key else None
        """From the key of the caches to bytes; None: it is bytes."""
        self.write_value: Callable[[Any], bytes] | None = value.serialize if keeps_objects else None
        """From the value's form in the caches to bytes; None: it is bytes."""
        self.timestamped = spec.timestamped
        self._deserialize = value.deserialize

    def cached_key_bytes(self, cached: Any) -> bytes:
        return cached if self.write_key is None else self.write_key(cached)

    def key_of_cached(self, cached: Any) -> Any:
        return cached if self.cache_key is None else self.key_object(cached)

    def cached_value(self, value: Any) -> Any:
        return value if self.freeze is None or value is None else self.freeze(value)

    def value_of_cached(self, cached: Any) -> Any:
        return cached if self.thaw is None or cached is None else self.thaw(cached)

    def value_bytes(self, cached: Any) -> bytes:
        return cached if self.write_value is None else self.write_value(cached)

    def cached_value_of_bytes(self, data: bytes) -> Any:
        return self._deserialize(data) if self.freeze is None else data

    def entry(self, data: bytes) -> Entry:
        """The entry from its bytes; an entry without a time has time zero."""
        if not self.timestamped:
            return self.cached_value_of_bytes(data), 0
        return self.cached_value_of_bytes(data[TIME_BYTES:]), int.from_bytes(data[:TIME_BYTES], "big")


class Entries:
    """The entries of one key-value store, or of one window start of a window store."""

    __slots__ = ("_codec", "_reader", "_suffix", "committed", "complete", "updates")

    def __init__(self, codec: Codec, reader: StateReader, suffix: bytes = b"", *, complete: bool = False) -> None:
        self._codec = codec
        self._reader = reader
        self._suffix = suffix
        self.complete = complete
        """Whether the caches hold every entry, so that nothing has to be read."""
        self.updates: dict[Any, Entry] = {}
        """Written since the last commit. Processors write here."""
        self.committed: dict[Any, Entry] = {}

    def get(self, cached_key: Any) -> Entry:
        """The current entry, or `ABSENT`."""
        return self.updates.get(cached_key) or self.committed.get(cached_key) or self.committed_entry(cached_key)

    def committed_entry(self, cached_key: Any) -> Entry:
        """The entry as of the last commit, or `ABSENT`."""
        entry = self.committed.get(cached_key)
        if entry is not None:
            return entry
        if self.complete:
            return ABSENT
        raw = self._reader.get(self._codec.cached_key_bytes(cached_key) + self._suffix)
        entry = ABSENT if raw is None else self._codec.entry(raw)
        self.committed[cached_key] = entry
        return entry

    def take_changes(self, into: list[tuple[bytes, bytes | None]]) -> None:
        """Moves the updates to the committed entries and their bytes to `into`."""
        committed, suffix, updates = self.committed, self._suffix, self.updates
        write_key, write_value, timestamped = self._codec.write_key, self._codec.write_value, self._codec.timestamped
        deleted: list[Any] = []
        for key, entry in updates.items():
            value = entry[0]
            if value is None:
                deleted.append(key)
                continue
            key_bytes = key if write_key is None else write_key(key)
            value_bytes = value if write_value is None else write_value(value)
            if timestamped:
                value_bytes = entry[1].to_bytes(TIME_BYTES, "big") + value_bytes
            into.append((key_bytes + suffix, value_bytes))
        for key in deleted:
            if committed.get(key, ABSENT if self.complete else None) is not ABSENT:
                into.append((self._codec.cached_key_bytes(key) + suffix, None))
        committed.update(updates)
        committed.update(dict.fromkeys(deleted, ABSENT))
        self.updates = {}
