"""The state stores of a topology under test, to read and write, including uncommitted changes.

Their methods return lists, which are easy to compare. `access` is the same store as a processor sees it, with all of
its methods.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from deltaworks.kernel.stores.access import (
    KeyValueAccess,
    LruAccess,
    SessionAccess,
    TimestampedKeyValueAccess,
    TimestampedWindowAccess,
    VersionedAccess,
    WindowAccess,
)
from deltaworks.kernel.stores.join_window import JoinWindowStore
from deltaworks.kernel.stores.key_value import KeyValueStore
from deltaworks.kernel.stores.lru import LruStore
from deltaworks.kernel.stores.session import SessionStore
from deltaworks.kernel.stores.versioned import VersionedStore
from deltaworks.kernel.stores.window import WindowStore
from deltaworks.serdes.windowed import Windowed
from deltaworks.topology.state_stores import ValueAndTimestamp, VersionedRecord


class TestKeyValueStore:
    """One value per key: the rows of a table or of an aggregate, the store of a processor."""

    __test__ = False

    def __init__(
        self, store: KeyValueStore | LruStore, access: KeyValueAccess | LruAccess | TimestampedKeyValueAccess
    ) -> None:
        self._store = store
        self.access = access

    def get(self, key: Any) -> Any | None:
        """The value of a key, None if there is none."""
        return _plain(self.access.get(key))

    def put(self, key: Any, value: Any | None, timestamp_ms: int = 0) -> None:
        """Sets the value of a key; None deletes it. The time is for stores that keep one."""
        if isinstance(self.access, TimestampedKeyValueAccess):
            self.access.put(key, value, timestamp_ms)
        else:
            self.access.put(key, value)

    def delete(self, key: Any) -> None:
        """Deletes a key."""
        self.access.delete(key)

    def range(self, from_key: Any | None, to_key: Any | None) -> list[tuple[Any, Any]]:
        """`(key, value)` of the keys between two keys, both inclusive; None: no bound."""
        return _pairs(self.access.range(from_key, to_key))

    def prefix_scan(self, prefix: Any) -> list[tuple[Any, Any]]:
        """`(key, value)` of the keys whose bytes begin with those of `prefix`."""
        return _pairs(self.access.prefix_scan(prefix))

    def all(self) -> list[tuple[Any, Any]]:
        """`(key, value)` in the order of the key bytes."""
        return _pairs(self.access.all())

    def all_with_timestamps(self) -> list[tuple[Any, Any, int]]:
        """`(key, value, timestamp_ms)` in the order of the key bytes; 0 where the store keeps no times."""
        return list(self._store.all())

    @property
    def keeps_timestamps(self) -> bool:
        """Whether its entries have a time; those of tables do."""
        return isinstance(self.access, TimestampedKeyValueAccess)

    def __len__(self) -> int:
        return len(self.all())


class TestVersionedStore:
    """The rows of a table, with their previous versions as far as the history reaches."""

    __test__ = False

    def __init__(self, store: VersionedStore, access: VersionedAccess) -> None:
        self._store = store
        self.access = access

    def get(self, key: Any) -> VersionedRecord[Any] | None:
        """The latest version of a key, None if there is none."""
        return self.access.get(key)

    def get_as_of(self, key: Any, timestamp_ms: int) -> VersionedRecord[Any] | None:
        """The version of a key that was valid at a time, None if there was none or it is forgotten."""
        return self.access.get(key, timestamp_ms)

    def put(self, key: Any, value: Any | None, timestamp_ms: int) -> int:
        """Adds a version; see `VersionedKeyValueStore.put`."""
        return self.access.put(key, value, timestamp_ms)

    def delete(self, key: Any, timestamp_ms: int) -> VersionedRecord[Any] | None:
        """Records that the key was deleted at a time; returns the version that was valid then."""
        return self.access.delete(key, timestamp_ms)

    def all_keys(self) -> list[Any]:
        """The keys that have a version, deletes included, in the order of their bytes."""
        return self._store.all_keys()

    def all(self) -> list[tuple[Any, Any]]:
        """`(key, value)` of the latest versions, in the order of the key bytes."""
        return [(key, value) for key, value, _ in self._store.all()]

    def all_with_timestamps(self) -> list[tuple[Any, Any, int]]:
        """`(key, value, timestamp_ms)` of the latest versions, in the order of the key bytes."""
        return list(self._store.all())

    def __len__(self) -> int:
        return len(self.all())


class TestJoinStore:
    """The records of one side of a stream-stream join that are still inside the retention."""

    __test__ = False

    def __init__(self, store: JoinWindowStore) -> None:
        self._store = store

    def all(self) -> list[tuple[Any, int, Any]]:
        """`(key, timestamp_ms, value)`, ordered by key bytes, then time."""
        return list(self._store.all())

    def __len__(self) -> int:
        return len(self.all())


class TestWindowStore:
    """The rows of an aggregate per key and time window, or the window store of a processor, inside the retention."""

    __test__ = False

    def __init__(self, store: WindowStore, access: WindowAccess | TimestampedWindowAccess) -> None:
        self._store = store
        self.access = access

    def fetch(self, key: Any, start_ms: int) -> Any | None:
        """The value of a key in the window that starts then, None if there is none."""
        return _plain(self.access.fetch(key, start_ms))

    def fetch_range(self, key: Any, from_ms: int, to_ms: int) -> list[tuple[int, Any]]:
        """`(start_ms, value)` of the windows of a key that start in `[from_ms, to_ms]`, oldest first."""
        return _pairs(self.access.fetch_range(key, from_ms, to_ms))

    def fetch_all(self, from_ms: int, to_ms: int) -> list[tuple[Windowed[Any], Any]]:
        """`(window, value)` of the windows of all keys that start in `[from_ms, to_ms]`."""
        return _pairs(self.access.fetch_all(from_ms, to_ms))

    def put(self, key: Any, value: Any | None, start_ms: int, timestamp_ms: int = 0) -> None:
        """Sets the value of a key in a window; None deletes it. The time is for stores that keep one."""
        if isinstance(self.access, TimestampedWindowAccess):
            self.access.put(key, value, start_ms, timestamp_ms)
        else:
            self.access.put(key, value, start_ms)

    def all(self) -> list[tuple[Windowed[Any], Any]]:
        """`(window, value)` by segment of time, then in the order of the key bytes, then of starts."""
        return _pairs(self.access.all())

    def all_with_timestamps(self) -> list[tuple[Windowed[Any], Any, int]]:
        """`(window, value, timestamp_ms)` in the order of `all`; 0 where the store keeps no times."""
        return self.access.rows()

    @property
    def keeps_timestamps(self) -> bool:
        """Whether its entries have a time; those of tables do."""
        return isinstance(self.access, TimestampedWindowAccess)

    def __len__(self) -> int:
        return len(self.all())


class TestSessionStore:
    """The rows of an aggregate per key and session, or the session store of a processor, inside the retention."""

    __test__ = False

    def __init__(self, store: SessionStore, access: SessionAccess) -> None:
        self._store = store
        self.access = access

    def fetch(self, key: Any) -> list[tuple[Windowed[Any], Any]]:
        """`(session, value)` of a key, oldest first."""
        return list(self.access.fetch(key))

    def find_sessions(self, key: Any, earliest_end_ms: int, latest_start_ms: int) -> list[tuple[Windowed[Any], Any]]:
        """`(session, value)` of a key with `end >= earliest_end_ms` and `start <= latest_start_ms`, oldest first."""
        return list(self.access.find_sessions(key, earliest_end_ms, latest_start_ms))

    def put(self, session: Windowed[Any], value: Any | None) -> None:
        """Sets the value of a session; None deletes it."""
        self.access.put(session, value)

    def all(self) -> list[tuple[Windowed[Any], Any]]:
        """`(session, value)` by segment of time, then in the order of the key bytes, then of ends."""
        return list(self.access.fetch_keys(None, None))

    def __len__(self) -> int:
        return len(self.all())


def _plain(found: Any) -> Any:
    """A value of any store, without its time."""
    return found.value if isinstance(found, ValueAndTimestamp) else found


def _pairs(rows: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    return [(key, _plain(found)) for key, found in rows]
