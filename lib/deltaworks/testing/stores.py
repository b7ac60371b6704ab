"""The state stores of a topology under test, to read and write, including uncommitted changes.

Their methods return lists, which are easy to compare. `access` is the same store as a processor sees it, with all of
its methods.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, Generic, TypeVar, assert_never

from deltaworks.dsl.mistakes import Hinted
from deltaworks.kernel.stores.access import (
    KeyValueAccess,
    LruAccess,
    SessionAccess,
    TimestampedKeyValueAccess,
    TimestampedWindowAccess,
    VersionedAccess,
    WindowAccess,
)
from deltaworks.kernel.stores.build import Store
from deltaworks.kernel.stores.custom import CustomStore
from deltaworks.kernel.stores.join_window import JoinWindowStore
from deltaworks.kernel.stores.key_value import KeyValueStore
from deltaworks.kernel.stores.lru import LruStore
from deltaworks.kernel.stores.session import SessionStore
from deltaworks.kernel.stores.subscriptions import SubscriptionStore
from deltaworks.kernel.stores.suppress import SuppressBuffer
from deltaworks.kernel.stores.time_ordered import TimeOrderedStore
from deltaworks.kernel.stores.versioned import VersionedStore
from deltaworks.kernel.stores.waiting_list import WaitingList
from deltaworks.kernel.stores.window import WindowStore
from deltaworks.kernel.task import Task
from deltaworks.serdes.type_names import type_name
from deltaworks.serdes.windowed import Windowed
from deltaworks.testing.shown import entries, html_table, typed_name
from deltaworks.topology.stages import StoreKind, StoreSpec
from deltaworks.topology.state_stores import ValueAndTimestamp, VersionedRecord

K = TypeVar("K")
V = TypeVar("V")
S = TypeVar("S", bound=Store)


class _StoreUnderTest(Hinted, ABC, Generic[S]):
    """A store that shows its first entries; a hint for a missing name includes the methods of `access`."""

    __test__ = False
    _other_names: ClassVar[dict[str, str]] = {"approximate_num_entries": "len(store)"}
    _seen_as: ClassVar[type | None] = None
    """Class of `access`."""

    def __init__(self, store: S) -> None:
        self._store = store

    @classmethod
    def _instead(cls, name: str) -> str | None:
        return super()._instead(name) or (f"access.{name}(...)" if hasattr(cls._seen_as, name) else None)

    @abstractmethod
    def _entries(self) -> Iterable[tuple[Any, Any]]:
        """Key and value of each entry."""

    def __repr__(self) -> str:
        return f"{self._title()}: {entries(self._entries())}"

    def _repr_html_(self) -> str:
        return html_table(self._title(), ("key", "value"), self._entries())

    def _title(self) -> str:
        spec = self._store.spec
        return f"{typed_name(type(self).__name__, spec.key, spec.value)} '{spec.name}'"


class TestKeyValueStore(_StoreUnderTest[KeyValueStore | LruStore], Generic[K, V]):
    """One value per key: the rows of a table or of an aggregate, the store of a processor."""

    _seen_as = KeyValueAccess

    def __init__(
        self, store: KeyValueStore | LruStore, access: KeyValueAccess | LruAccess | TimestampedKeyValueAccess
    ) -> None:
        super().__init__(store)
        self.access = access

    def get(self, key: K) -> V | None:
        """The value of a key, None if there is none."""
        found: V | None = _plain(self.access.get(key))
        return found

    def put(self, key: K, value: V | None, timestamp_ms: int = 0) -> None:
        """Sets the value of a key; None deletes it. The time is for stores that keep one."""
        if isinstance(self.access, TimestampedKeyValueAccess):
            self.access.put(key, value, timestamp_ms)
        else:
            self.access.put(key, value)

    def delete(self, key: K) -> None:
        """Deletes a key."""
        self.access.delete(key)

    def range(self, from_key: K | None, to_key: K | None) -> list[tuple[K, V]]:
        """`(key, value)` of the keys between two keys, both inclusive; None: no bound."""
        return _pairs(self.access.range(from_key, to_key))

    def prefix_scan(self, prefix: Any) -> list[tuple[K, V]]:
        """`(key, value)` of the keys whose bytes begin with those of `prefix`."""
        return _pairs(self.access.prefix_scan(prefix))

    def all(self) -> list[tuple[K, V]]:
        """`(key, value)` in the order of the key bytes."""
        return _pairs(self.access.all())

    def all_with_timestamps(self) -> list[tuple[K, V, int]]:
        """`(key, value, timestamp_ms)` in the order of the key bytes; 0 where the store keeps no times."""
        return list(self._store.all())

    @property
    def keeps_timestamps(self) -> bool:
        """Whether its entries have a time; those of tables do."""
        return isinstance(self.access, TimestampedKeyValueAccess)

    def __len__(self) -> int:
        return len(self.all())

    def _entries(self) -> Iterable[tuple[Any, Any]]:
        return ((key, _plain(found)) for key, found in self.access.all())


class TestVersionedStore(_StoreUnderTest[VersionedStore], Generic[K, V]):
    """The rows of a table, with their previous versions as far as the history reaches."""

    _seen_as = VersionedAccess

    def __init__(self, store: VersionedStore, access: VersionedAccess) -> None:
        super().__init__(store)
        self.access = access

    def get(self, key: K) -> VersionedRecord[V] | None:
        """The latest version of a key, None if there is none."""
        return self.access.get(key)

    def get_as_of(self, key: K, timestamp_ms: int) -> VersionedRecord[V] | None:
        """The version of a key that was valid at a time, None if there was none or it is forgotten."""
        return self.access.get(key, timestamp_ms)

    def put(self, key: K, value: V | None, timestamp_ms: int) -> int:
        """Adds a version; see `VersionedKeyValueStore.put`."""
        return self.access.put(key, value, timestamp_ms)

    def delete(self, key: K, timestamp_ms: int) -> VersionedRecord[V] | None:
        """Records that the key was deleted at a time; returns the version that was valid then."""
        return self.access.delete(key, timestamp_ms)

    def all_keys(self) -> list[K]:
        """The keys that have a version, deletes included, in the order of their bytes."""
        return self._store.all_keys()

    def all(self) -> list[tuple[K, V]]:
        """`(key, value)` of the latest versions, in the order of the key bytes."""
        return [(key, value) for key, value, _ in self._store.all()]

    def all_with_timestamps(self) -> list[tuple[K, V, int]]:
        """`(key, value, timestamp_ms)` of the latest versions, in the order of the key bytes."""
        return list(self._store.all())

    def __len__(self) -> int:
        return len(self.all())

    def _entries(self) -> Iterable[tuple[Any, Any]]:
        return ((key, value) for key, value, _ in self._store.all())


class TestJoinStore(_StoreUnderTest[JoinWindowStore], Generic[K, V]):
    """The records of one side of a stream-stream join that are still inside the retention."""

    def all(self) -> list[tuple[K, int, V]]:
        """`(key, timestamp_ms, value)`, ordered by key bytes, then time."""
        return list(self._store.all())

    def __len__(self) -> int:
        return len(self.all())

    def _entries(self) -> Iterable[tuple[Any, Any]]:
        return ((f"{key} at {timestamp_ms}", value) for key, timestamp_ms, value in self._store.all())


class TestWindowStore(_StoreUnderTest[WindowStore], Generic[K, V]):
    """The rows of an aggregate per key and time window, or the window store of a processor, inside the retention."""

    _seen_as = WindowAccess

    def __init__(self, store: WindowStore, access: WindowAccess | TimestampedWindowAccess) -> None:
        super().__init__(store)
        self.access = access

    def fetch(self, key: K, start_ms: int) -> V | None:
        """The value of a key in the window that starts then, None if there is none."""
        found: V | None = _plain(self.access.fetch(key, start_ms))
        return found

    def fetch_range(self, key: K, from_ms: int, to_ms: int) -> list[tuple[int, V]]:
        """`(start_ms, value)` of the windows of a key that start in `[from_ms, to_ms]`, oldest first."""
        return _pairs(self.access.fetch_range(key, from_ms, to_ms))

    def fetch_all(self, from_ms: int, to_ms: int) -> list[tuple[Windowed[K], V]]:
        """`(window, value)` of the windows of all keys that start in `[from_ms, to_ms]`."""
        return _pairs(self.access.fetch_all(from_ms, to_ms))

    def put(self, key: K, value: V | None, start_ms: int, timestamp_ms: int = 0) -> None:
        """Sets the value of a key in a window; None deletes it. The time is for stores that keep one."""
        if isinstance(self.access, TimestampedWindowAccess):
            self.access.put(key, value, start_ms, timestamp_ms)
        else:
            self.access.put(key, value, start_ms)

    def all(self) -> list[tuple[Windowed[K], V]]:
        """`(window, value)` by segment of time, then in the order of the key bytes, then of starts."""
        return _pairs(self.access.all())

    def all_with_timestamps(self) -> list[tuple[Windowed[K], V, int]]:
        """`(window, value, timestamp_ms)` in the order of `all`; 0 where the store keeps no times."""
        return self.access.rows()

    @property
    def keeps_timestamps(self) -> bool:
        """Whether its entries have a time; those of tables do."""
        return isinstance(self.access, TimestampedWindowAccess)

    def __len__(self) -> int:
        return len(self.all())

    def _entries(self) -> Iterable[tuple[Any, Any]]:
        return ((key, _plain(found)) for key, found in self.access.all())


class TestSessionStore(_StoreUnderTest[SessionStore], Generic[K, V]):
    """The rows of an aggregate per key and session, or the session store of a processor, inside the retention."""

    _seen_as = SessionAccess

    def __init__(self, store: SessionStore, access: SessionAccess) -> None:
        super().__init__(store)
        self.access = access

    def fetch(self, key: K) -> list[tuple[Windowed[K], V]]:
        """`(session, value)` of a key, oldest first."""
        return list(self.access.fetch(key))

    def find_sessions(self, key: K, earliest_end_ms: int, latest_start_ms: int) -> list[tuple[Windowed[K], V]]:
        """`(session, value)` of a key with `end >= earliest_end_ms` and `start <= latest_start_ms`, oldest first."""
        return list(self.access.find_sessions(key, earliest_end_ms, latest_start_ms))

    def put(self, session: Windowed[K], value: V | None) -> None:
        """Sets the value of a session; None deletes it."""
        self.access.put(session, value)

    def all(self) -> list[tuple[Windowed[K], V]]:
        """`(session, value)` by segment of time, then in the order of the key bytes, then of ends."""
        return list(self.access.fetch_keys(None, None))

    def __len__(self) -> int:
        return len(self.all())

    def _entries(self) -> Iterable[tuple[Any, Any]]:
        return self.access.fetch_keys(None, None)


def view_of(name: str, task: Task) -> Any:
    """A store of a task as a test sees it: one of the classes above, or a user's own.

    Raises:
        KeyError: Only its operator can read it.
    """
    match store := task.stores[name]:
        case KeyValueStore() | LruStore():
            return TestKeyValueStore(store, task.access(name))
        case VersionedStore():
            return TestVersionedStore(store, task.access(name))
        case WindowStore():
            return TestWindowStore(store, task.access(name))
        case SessionStore():
            return TestSessionStore(store, task.access(name))
        case JoinWindowStore():
            return TestJoinStore(store)
        case CustomStore():
            return store.instance
        case SuppressBuffer() | SubscriptionStore() | TimeOrderedStore() | WaitingList():
            raise KeyError(f"store '{name}' is internal to its operator, in a form that nothing else reads")
        case _:
            assert_never(store)


def other_kind(spec: StoreSpec, wanted: str) -> TypeError:
    """The error for a store of another kind than a test asks for."""
    types = f"key={type_name(spec.key.type)}, value={type_name(spec.value.type)}"
    method = _METHODS.get(spec.kind)
    hint = f"driver.{method}('{spec.name}', {types})" if method else f"driver.store('{spec.name}')"
    kind = "key-value" if spec.kind == "lru" else spec.kind
    return TypeError(f"store '{spec.name}' is a {kind} store ({types}), not a {wanted} store.\n  Hint: {hint}")


_METHODS: dict[StoreKind, str] = {
    "key-value": "key_value_store",
    "lru": "key_value_store",
    "versioned": "versioned_store",
    "window": "window_store",
    "session": "session_store",
}
"""Kind of store -> method of the test driver."""


def _plain(found: Any) -> Any:
    """A value of any store, without its time."""
    return found.value if isinstance(found, ValueAndTimestamp) else found


def _pairs(rows: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    return [(key, _plain(found)) for key, found in rows]
