"""Reading the state stores of a topology under test, what is not yet committed included."""

from __future__ import annotations

from typing import Any

from deltaworks.kernel.stores.join_window import JoinWindowStore
from deltaworks.kernel.stores.key_value import KeyValueStore
from deltaworks.kernel.stores.session import SessionStore
from deltaworks.kernel.stores.versioned import VersionedRecord, VersionedStore
from deltaworks.kernel.stores.window import WindowStore
from deltaworks.serdes.windowed import Windowed
from deltaworks.topology.windows import NO_END_MS


class ReadOnlyKeyValueStore:
    """The rows of a table or of an aggregate per key."""

    def __init__(self, store: KeyValueStore) -> None:
        self._store = store

    def get(self, key: Any) -> Any | None:
        """The value of a key, None if there is none."""
        return self._store.get(key)

    def all(self) -> list[tuple[Any, Any]]:
        """`(key, value)` in the order of the key bytes."""
        return [(key, value) for key, value, _ in self._store.all()]

    def all_with_timestamps(self) -> list[tuple[Any, Any, int]]:
        """`(key, value, timestamp_ms)` in the order of the key bytes."""
        return list(self._store.all())

    def __len__(self) -> int:
        return len(self.all())


class ReadOnlyVersionedStore:
    """The rows of a table and, as far as its history reaches, what they were."""

    def __init__(self, store: VersionedStore) -> None:
        self._store = store

    def get(self, key: Any) -> VersionedRecord | None:
        """The latest version of a key, None if there is none."""
        return self._store.get_record(key)

    def get_as_of(self, key: Any, timestamp_ms: int) -> VersionedRecord | None:
        """The version of a key that was valid then, None if there was none or it is forgotten."""
        return self._store.get_record(key, timestamp_ms)

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


class ReadOnlyJoinStore:
    """The records of one side of a stream-stream join that are still inside the retention."""

    def __init__(self, store: JoinWindowStore) -> None:
        self._store = store

    def all(self) -> list[tuple[Any, int, Any]]:
        """`(key, timestamp_ms, value)`, ordered by key bytes, then time."""
        return list(self._store.all())

    def __len__(self) -> int:
        return len(self.all())


class ReadOnlyWindowStore:
    """The rows of an aggregate per key and time window that are still inside the retention."""

    def __init__(self, store: WindowStore, size_ms: int) -> None:
        self._store = store
        self._size_ms = size_ms

    def fetch(self, key: Any, start_ms: int) -> Any | None:
        """The value of a key in the window that starts then, None if there is none."""
        return self._store.fetch(key, start_ms)

    def fetch_range(self, key: Any, from_ms: int, to_ms: int) -> list[tuple[int, Any]]:
        """`(start_ms, value)` of the windows of a key that start in `[from_ms, to_ms]`, oldest first."""
        return self._store.fetch_range(key, from_ms, to_ms)

    def all(self) -> list[tuple[Windowed[Any], Any]]:
        """`(window, value)`, ordered by key bytes, then start."""
        return [(window, value) for window, value, _ in self.all_with_timestamps()]

    def all_with_timestamps(self) -> list[tuple[Windowed[Any], Any, int]]:
        """`(window, value, timestamp_ms)`, ordered by key bytes, then start."""
        return [
            (Windowed(key, start_ms, min(start_ms + self._size_ms, NO_END_MS)), value, timestamp_ms)
            for key, start_ms, value, timestamp_ms in self._store.all()
        ]

    def __len__(self) -> int:
        return len(self.all())


class ReadOnlySessionStore:
    """The rows of an aggregate per key and session that are still inside the retention."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store

    def fetch(self, key: Any) -> list[tuple[Windowed[Any], Any]]:
        """`(session, value)` of a key, oldest first."""
        return [(Windowed(key, start_ms, end_ms), value) for start_ms, end_ms, value in self._store.fetch(key)]

    def all(self) -> list[tuple[Windowed[Any], Any]]:
        """`(session, value)`, ordered by key bytes, then end."""
        return [(Windowed(key, start_ms, end_ms), value) for key, start_ms, end_ms, value in self._store.all()]

    def __len__(self) -> int:
        return len(self.all())
