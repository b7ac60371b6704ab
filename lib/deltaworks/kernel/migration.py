"""The schema of a store's values is kept with them; when it changes, the values are converted or the task refuses.

The task's own store keeps, per store, the schemas with which its entries may have been written. A task that is built
with another schema continues if it can read the old entries (`serdes/schema.py` says when), or if the user has said how
old values become new ones; then every entry is converted at once. Both are part of the next commit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, assert_never

from deltaworks.errors import IncompatibleCheckpointError
from deltaworks.kernel.stores.entries import TIME_BYTES
from deltaworks.kernel.stores.lists import Several
from deltaworks.kernel.stores.memory import MemoryState
from deltaworks.kernel.stores.state import StateBackend, StateReader, StoreChanges
from deltaworks.kernel.stores.versioned import LATEST_MS
from deltaworks.kernel.task_times import SCHEMA, TASK_STORE
from deltaworks.serdes.base import Serde
from deltaworks.serdes.schema import breaking_changes, in_words, schema_of
from deltaworks.topology.stages import Migration, StoreSpec

Convert = Callable[[bytes, bytes], bytes | None]
"""`(key, old entry) -> new entry`, None to delete it."""
Value = Callable[[bytes], bytes | None]


class StoredSchemas:
    """The schemas of a task's stores, and the entries that are converted to a new one."""

    def __init__(self, specs: Iterable[StoreSpec], state: StateBackend) -> None:
        """
        Raises:
            IncompatibleCheckpointError: The entries of a store cannot be read with the serdes that it has now.
        """
        self._state = state
        self._remembered = state.reader(TASK_STORE)
        self._schemas: dict[bytes, bytes] = {}
        """The schemas that are not yet committed."""
        self._converted: dict[str, dict[bytes, bytes | None]] = {}
        """Converted entries that are not yet committed, by store."""
        self._overlay = MemoryState()
        self._readers: dict[str, _SwitchingReader] = {}
        for spec in specs:
            self._check(spec)

    def reader(self, store: str) -> StateReader:
        """The entries of a store as they will be when the converted ones are committed."""
        if store not in self._converted:
            return self._state.reader(store)
        self._readers[store] = _SwitchingReader(self._overlay.reader(store))
        return self._readers[store]

    def add_to(self, changes: dict[str, StoreChanges]) -> None:
        """Adds the schemas and converted entries to a commit, once."""
        for store, converted in self._converted.items():
            change = changes.get(store, StoreChanges([]))
            changes[store] = StoreChanges(list({**converted, **dict(change.entries)}.items()), change.expire_before_ms)
        if self._converted:
            self._overlay.apply({store: changes[store] for store in self._converted})
        if self._schemas:
            times = changes.get(TASK_STORE, StoreChanges([]))
            changes[TASK_STORE] = StoreChanges(sorted([*times.entries, *self._schemas.items()]))
        self._schemas, self._converted = {}, {}

    def committed(self) -> None:
        """The host has made the last commit durable, if there was one."""
        if self._readers and not self._converted:
            for store, reader in self._readers.items():
                reader.switch(self._state.reader(store))
            self._readers, self._overlay = {}, MemoryState()

    def _check(self, spec: StoreSpec) -> None:
        place = f"{SCHEMA}{spec.name}".encode()
        raw = self._remembered.get(place)
        key, value = schema_of(spec.key), schema_of(spec.value)
        if raw is None:
            self._schemas[place] = _remembered(key, [value])
            return
        before = json.loads(raw)
        if before["key"] != key:
            raise IncompatibleCheckpointError(
                f"store '{spec.name}' has keys of {in_words(before['key'])}; now they are {in_words(key)}, in other"
                " bytes or of another meaning.",
                hint="give the new state a new store name; it begins empty",
            )
        known: list[str] = before["value"]
        if known[0] == value:
            return
        if spec.migrate is not None:
            self._converted[spec.name] = dict(self._convert(spec, spec.migrate, known))
            self._overlay.apply({spec.name: StoreChanges(list(self._rewritten(spec)))})
            self._schemas[place] = _remembered(key, [value])
            return
        others = [schema for schema in known if schema != value]
        reasons = [reason for schema in others for reason in breaking_changes(schema, value)]
        if reasons:
            raise IncompatibleCheckpointError(
                f"store '{spec.name}' holds values that cannot be read any more: {'; '.join(dict.fromkeys(reasons))}.",
                hint=f"say how they change, Materialized('{spec.name}', migrate=(old_serde, old_to_new)), or give the"
                " new state a new store name",
            )
        # Entries are rewritten only when their rows change, so old schemas stay possible.
        self._schemas[place] = _remembered(key, [value, *others])

    def _rewritten(self, spec: StoreSpec) -> Iterator[tuple[bytes, bytes | None]]:
        converted = self._converted[spec.name]
        for key, data in self._state.reader(spec.name).scan(b"", None):
            yield key, converted.get(key, data)

    def _convert(self, spec: StoreSpec, migrate: Migration, known: list[str]) -> Iterator[tuple[bytes, bytes | None]]:
        old, function = migrate
        readable = schema_of(old)
        reasons = [reason for schema in known for reason in breaking_changes(schema, readable)]
        if reasons:
            raise IncompatibleCheckpointError(
                f"store '{spec.name}': migrate= reads {in_words(readable)}, which is not what the store holds:"
                f" {'; '.join(dict.fromkeys(reasons))}.",
                hint="the serde in migrate= is the one that the store had before",
            )
        convert = _entry_converter(spec, old, function)
        for key, data in self._state.reader(spec.name).scan(b"", None):
            try:
                yield key, convert(key, data)
            except Exception as error:
                raise IncompatibleCheckpointError(
                    f"store '{spec.name}': migrate= failed for an entry: {type(error).__name__}: {error}",
                    hint="nothing has been changed; correct the function",
                ) from error


class _SwitchingReader:
    """Reads converted entries until the host has them, then the host's own."""

    def __init__(self, reader: StateReader) -> None:
        self._reader = reader

    def switch(self, reader: StateReader) -> None:
        self._reader = reader

    def get(self, key: bytes) -> bytes | None:
        return self._reader.get(key)

    def scan(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        return self._reader.scan(start, stop)

    def scan_time(self, start_ms: int, stop_ms: int | None) -> Iterator[tuple[bytes, bytes]]:
        return self._reader.scan_time(start_ms, stop_ms)


def _entry_converter(spec: StoreSpec, old: Serde[Any], function: Callable[[Any], Any]) -> Convert:
    """Converts the bytes of an entry to those of the new one; its times stay."""

    def value(data: bytes) -> bytes | None:
        new = function(old.deserialize(data))
        return None if new is None else spec.value.serialize(new)

    def values(data: bytes) -> bytes | None:
        new = [function(each) for each in Several(old).deserialize(data)]
        kept = tuple(each for each in new if each is not None)
        return Several(spec.value).serialize(kept) if kept else None

    match spec.kind:
        case "key-value" | "window":
            return _behind(TIME_BYTES if spec.timestamped else 0, values if spec.retain_duplicates else value)
        case "lru":
            return _behind(TIME_BYTES, value)
        case "session":
            return _behind(0, value)
        case "versioned":
            return _version_converter(value)
        case "suppress" | "subscriptions" | "custom" | "join-window" | "join-buffer" | "waiting-list":
            raise IncompatibleCheckpointError(
                f"store '{spec.name}' ({spec.kind}) belongs to its operator, so migrate= cannot convert it.",
                hint="give the operator a new name; its state begins empty",
            )
        case _:
            assert_never(spec.kind)


def _behind(size: int, value: Value) -> Convert:
    """Converts an entry of a time with this many bytes and the value."""

    def convert(_key: bytes, data: bytes) -> bytes | None:
        new = value(data[size:])
        return None if new is None else data[:size] + new

    return convert


def _version_converter(value: Value) -> Convert:
    """Converts an entry of a versioned store; see `stores/versioned.py` for its form."""
    latest, of_latest = LATEST_MS.to_bytes(TIME_BYTES, "big"), _behind(TIME_BYTES, value)

    def convert(key: bytes, data: bytes) -> bytes | None:
        if key.endswith(latest):
            return of_latest(key, data)
        if not data[TIME_BYTES]:
            return data
        new = value(data[TIME_BYTES + 1 :])
        return data[:TIME_BYTES] + (b"\x00" if new is None else b"\x01" + new)

    return convert


def both(entries: Iterable[bytes]) -> bytes:
    """What is remembered of a store that has entries of several tasks, whose keys have the same schema."""
    found = [json.loads(entry) for entry in entries]
    return _remembered(found[0]["key"], list(dict.fromkeys(schema for each in found for schema in each["value"])))


def _remembered(key: str, values: list[str]) -> bytes:
    return json.dumps({"key": key, "value": values}).encode()
