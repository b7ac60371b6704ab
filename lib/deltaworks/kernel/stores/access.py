"""Stores as processors of users and tests see them: `topology/state_stores.py` over the stores of a task.

The table in `access` says which class a store gets.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias, assert_never

from deltaworks.kernel.context import NO_HEADERS, TaskContext
from deltaworks.kernel.records import Coordinates
from deltaworks.kernel.stores.build import Store
from deltaworks.kernel.stores.custom import CustomStore
from deltaworks.kernel.stores.join_window import JoinWindowStore
from deltaworks.kernel.stores.key_value import KeyValueStore
from deltaworks.kernel.stores.lru import LruStore
from deltaworks.kernel.stores.ordered import after_prefix
from deltaworks.kernel.stores.session import SessionStore
from deltaworks.kernel.stores.subscriptions import SubscriptionStore
from deltaworks.kernel.stores.suppress import SuppressBuffer
from deltaworks.kernel.stores.time_ordered import TimeOrderedStore
from deltaworks.kernel.stores.versioned import VersionedStore
from deltaworks.kernel.stores.waiting_list import WaitingList
from deltaworks.kernel.stores.window import WindowStore
from deltaworks.serdes.base import Serde
from deltaworks.serdes.windowed import Windowed
from deltaworks.topology.stages import StoreSpec
from deltaworks.topology.state_stores import ValueAndTimestamp, VersionedRecord

_NO_TIME_LIMIT_MS = 2**63 - 1
StoreAccess: TypeAlias = Any
"""One of the classes below, or a user's own."""


def access(store: Store, context: TaskContext, *, read_only: str | None = None) -> StoreAccess:
    """The view of a store that a user gets.

    Args:
        context: Of the task that owns it.
        read_only: The reason why it may only be read, for the message; None: it may be written.
    """
    match store:
        case KeyValueStore() if store.spec.timestamped:
            return TimestampedKeyValueAccess(store, context, read_only)
        case KeyValueStore():
            return KeyValueAccess(store, context, read_only)
        case LruStore():
            return LruAccess(store, context, read_only)
        case VersionedStore():
            return VersionedAccess(store, context, read_only)
        case WindowStore() if store.spec.timestamped:
            return TimestampedWindowAccess(store, context, read_only)
        case WindowStore():
            return WindowAccess(store, context, read_only)
        case SessionStore():
            return SessionAccess(store, context, read_only)
        case CustomStore():
            return store.instance
        case SuppressBuffer() | SubscriptionStore() | JoinWindowStore() | TimeOrderedStore() | WaitingList():
            raise KeyError(f"the store '{store.spec.name}' is internal to its operator")
        case _:
            assert_never(store)


Shown: TypeAlias = Callable[[Iterable[tuple[Any, Any, int]]], Iterator[tuple[Any, Any]]]
"""From rows with times to what an iterator gives."""


def _pairs(rows: Iterable[tuple[Any, Any, int]]) -> Iterator[tuple[Any, Any]]:
    return ((key, value) for key, value, _ in rows)


def _timed(rows: Iterable[tuple[Any, Any, int]]) -> Iterator[tuple[Any, ValueAndTimestamp[Any]]]:
    return ((key, ValueAndTimestamp(value, timestamp_ms)) for key, value, timestamp_ms in rows)


class _Access:
    """The base of all views."""

    def __init__(self, spec: StoreSpec, context: TaskContext, read_only: str | None) -> None:
        self.spec = spec
        self._context = context
        self._read_only = read_only

    def _begin_write(self, key: Any) -> None:
        if self._read_only is not None:
            raise TypeError(f"the store '{self.spec.name}' can only be read: {self._read_only}")
        self._check(key)

    def _check(self, key: Any) -> None:
        if key is None:
            raise ValueError(f"the store '{self.spec.name}' has no null keys")

    @property
    def _written(self) -> tuple[int, ...]:
        """The part of an entry besides value and time, if its update is forwarded at the next commit."""
        if not self.spec.cached:
            return ()
        context = self._context
        if not context.batches:
            # A test writes, between two records.
            context.resume(Coordinates("", -1, -1), 0, NO_HEADERS)
        return context.number, context.index


class _Ranges(_Access):
    """Iterating over key-value stores."""

    _shown: Shown = staticmethod(_pairs)

    def __init__(self, store: KeyValueStore | LruStore, context: TaskContext, read_only: str | None) -> None:
        super().__init__(store.spec, context, read_only)
        self._rows = store.between

    def range(self, from_key: Any | None, to_key: Any | None) -> Iterator[tuple[Any, Any]]:
        return self._shown(self._range(from_key, to_key))

    def reverse_range(self, from_key: Any | None, to_key: Any | None) -> Iterator[tuple[Any, Any]]:
        return self._shown(self._range(from_key, to_key, backward=True))

    def all(self) -> Iterator[tuple[Any, Any]]:
        return self._shown(self._rows(b"", None))

    def reverse_all(self) -> Iterator[tuple[Any, Any]]:
        return self._shown(self._rows(b"", None, backward=True))

    def prefix_scan(self, prefix: Any, serde: Serde[Any] | None = None) -> Iterator[tuple[Any, Any]]:
        self._check(prefix)
        start = (serde or self.spec.key).serialize(prefix)
        return self._shown(self._rows(start, after_prefix(start)))

    def approximate_num_entries(self) -> int:
        return sum(1 for _ in self.all())

    def _range(
        self, from_key: Any | None, to_key: Any | None, *, backward: bool = False
    ) -> Iterator[tuple[Any, Any, int]]:
        write = self.spec.key.serialize
        start = b"" if from_key is None else write(from_key)
        stop = None if to_key is None else write(to_key) + b"\0"
        return self._rows(start, stop, backward=backward)


class _Plain(_Ranges, ABC):
    """A value per key, without a time."""

    def __init__(self, store: KeyValueStore | LruStore, context: TaskContext, read_only: str | None) -> None:
        super().__init__(store, context, read_only)
        self._read = store.get

    def get(self, key: Any) -> Any | None:
        self._check(key)
        return self._read(key)

    @abstractmethod
    def put(self, key: Any, value: Any | None) -> None: ...

    def put_if_absent(self, key: Any, value: Any) -> Any | None:
        before = self.get(key)
        if before is None:
            self.put(key, value)
        return before

    def put_all(self, entries: Iterable[tuple[Any, Any | None]]) -> None:
        for key, value in entries:
            self.put(key, value)

    def delete(self, key: Any) -> Any | None:
        before = self.get(key)
        self.put(key, None)
        return before


class KeyValueAccess(_Plain):
    """See `topology.state_stores.KeyValueStore`."""

    def __init__(self, store: KeyValueStore, context: TaskContext, read_only: str | None) -> None:
        super().__init__(store, context, read_only)
        self._store = store

    def put(self, key: Any, value: Any | None) -> None:
        self._begin_write(key)
        codec = self._store.codec
        entry_key = key if codec.cache_key is None else codec.cache_key(key)
        self._store.entries.updates[entry_key] = (codec.cached_value(value), 0, *self._written)


class LruAccess(_Plain):
    """See `topology.state_stores.KeyValueStore`."""

    def __init__(self, store: LruStore, context: TaskContext, read_only: str | None) -> None:
        super().__init__(store, context, read_only)
        self._write = store.put

    def put(self, key: Any, value: Any | None) -> None:
        self._begin_write(key)
        self._write(key, value)


class TimestampedKeyValueAccess(_Ranges):
    """See `topology.state_stores.TimestampedKeyValueStore`."""

    _shown: Shown = staticmethod(_timed)

    def __init__(self, store: KeyValueStore, context: TaskContext, read_only: str | None) -> None:
        super().__init__(store, context, read_only)
        self._store = store

    def get(self, key: Any) -> ValueAndTimestamp[Any] | None:
        self._check(key)
        entry = self._store.entry(key)
        return None if entry[0] is None else ValueAndTimestamp(self._store.codec.value_of_cached(entry[0]), entry[1])

    def put(self, key: Any, value: Any | None, timestamp_ms: int) -> None:
        self._begin_write(key)
        codec = self._store.codec
        entry_key = key if codec.cache_key is None else codec.cache_key(key)
        self._store.entries.updates[entry_key] = (codec.cached_value(value), timestamp_ms, *self._written)

    def put_if_absent(self, key: Any, value: Any, timestamp_ms: int) -> ValueAndTimestamp[Any] | None:
        before = self.get(key)
        if before is None:
            self.put(key, value, timestamp_ms)
        return before

    def put_all(self, entries: Iterable[tuple[Any, Any | None, int]]) -> None:
        for key, value, timestamp_ms in entries:
            self.put(key, value, timestamp_ms)

    def delete(self, key: Any) -> ValueAndTimestamp[Any] | None:
        before = self.get(key)
        self.put(key, None, 0)
        return before


class VersionedAccess(_Access):
    """See `topology.state_stores.VersionedKeyValueStore`."""

    def __init__(self, store: VersionedStore, context: TaskContext, read_only: str | None) -> None:
        super().__init__(store.spec, context, read_only)
        self._store = store

    def put(self, key: Any, value: Any | None, timestamp_ms: int) -> int:
        self._begin_write(key)
        return self._store.put(key, value, timestamp_ms)

    def delete(self, key: Any, timestamp_ms: int) -> VersionedRecord[Any] | None:
        self._begin_write(key)
        return self._store.delete(key, timestamp_ms)

    def get(self, key: Any, as_of_ms: int | None = None) -> VersionedRecord[Any] | None:
        self._check(key)
        return self._store.get_record(key, as_of_ms)


class _Windows(_Access):
    """Reading window stores."""

    _shown: Shown = staticmethod(_pairs)

    def __init__(self, store: WindowStore, context: TaskContext, read_only: str | None) -> None:
        super().__init__(store.spec, context, read_only)
        self._store = store
        assert store.spec.windows is not None, store.spec.name
        self._end_of = store.spec.windows.end_of

    def fetch(self, key: Any, start_ms: int) -> Any | None:
        self._check(key)
        value = self._store.fetch(key, start_ms)
        return value[-1] if self.spec.retain_duplicates and value is not None else value

    def fetch_range(self, key: Any, from_ms: int, to_ms: int) -> Iterator[tuple[int, Any]]:
        return self._shown(self._fetch(key, from_ms, to_ms))

    def backward_fetch_range(self, key: Any, from_ms: int, to_ms: int) -> Iterator[tuple[int, Any]]:
        return self._shown(self._fetch(key, from_ms, to_ms)[::-1])

    def fetch_keys(
        self, from_key: Any | None, to_key: Any | None, from_ms: int, to_ms: int
    ) -> Iterator[tuple[Windowed[Any], Any]]:
        return self._shown(self.rows(from_key, to_key, from_ms, to_ms))

    def backward_fetch_keys(
        self, from_key: Any | None, to_key: Any | None, from_ms: int, to_ms: int
    ) -> Iterator[tuple[Windowed[Any], Any]]:
        return self._shown(self.rows(from_key, to_key, from_ms, to_ms)[::-1])

    def fetch_all(self, from_ms: int, to_ms: int) -> Iterator[tuple[Windowed[Any], Any]]:
        return self.fetch_keys(None, None, from_ms, to_ms)

    def backward_fetch_all(self, from_ms: int, to_ms: int) -> Iterator[tuple[Windowed[Any], Any]]:
        return self.backward_fetch_keys(None, None, from_ms, to_ms)

    def all(self) -> Iterator[tuple[Windowed[Any], Any]]:
        return self.fetch_all(0, _NO_TIME_LIMIT_MS)

    def backward_all(self) -> Iterator[tuple[Windowed[Any], Any]]:
        return self.backward_fetch_all(0, _NO_TIME_LIMIT_MS)

    def _fetch(self, key: Any, from_ms: int, to_ms: int) -> list[tuple[int, Any, int]]:
        self._check(key)
        rows = self._store.fetch_range(key, from_ms, to_ms)
        if self.spec.retain_duplicates:
            return [(start_ms, value, timestamp_ms) for start_ms, values, timestamp_ms in rows for value in values]
        return rows

    def rows(
        self, from_key: Any | None = None, to_key: Any | None = None, from_ms: int = 0, to_ms: int = _NO_TIME_LIMIT_MS
    ) -> list[tuple[Windowed[Any], Any, int]]:
        """`(window, value, timestamp_ms)`, whether or not the store shows times."""
        rows = [
            (Windowed(key, start_ms, self._end_of(start_ms)), value, timestamp_ms)
            for key, start_ms, value, timestamp_ms in self._store.between(from_key, to_key, from_ms, to_ms)
        ]
        if self.spec.retain_duplicates:
            return [(window, value, timestamp_ms) for window, values, timestamp_ms in rows for value in values]
        return rows

    def _put(self, key: Any, value: Any | None, start_ms: int, timestamp_ms: int) -> None:
        self._begin_write(key)
        if self.spec.retain_duplicates:
            if value is None:
                return
            value = (*(self._store.fetch(key, start_ms) or ()), value)
        self._store.put(key, start_ms, self._store.codec.cached_value(value), timestamp_ms, *self._written)


class WindowAccess(_Windows):
    """See `topology.state_stores.WindowStore`."""

    def put(self, key: Any, value: Any | None, start_ms: int) -> None:
        self._put(key, value, start_ms, 0)


class TimestampedWindowAccess(_Windows):
    """See `topology.state_stores.TimestampedWindowStore`."""

    _shown: Shown = staticmethod(_timed)

    def put(self, key: Any, value: Any | None, start_ms: int, timestamp_ms: int) -> None:
        self._put(key, value, start_ms, timestamp_ms)

    def fetch(self, key: Any, start_ms: int) -> ValueAndTimestamp[Any] | None:
        value = super().fetch(key, start_ms)
        return None if value is None else ValueAndTimestamp(value, self._store.entry(key, start_ms)[1])


class SessionAccess(_Access):
    """See `topology.state_stores.SessionStore`."""

    def __init__(self, store: SessionStore, context: TaskContext, read_only: str | None) -> None:
        super().__init__(store.spec, context, read_only)
        self._store = store

    def put(self, session: Windowed[Any], value: Any | None) -> None:
        self._begin_write(session.key)
        if not 0 <= session.start_ms <= session.end_ms:
            raise ValueError(f"a session cannot begin at {session.start_ms} ms and end at {session.end_ms} ms")
        kept = self._store.codec.cached_value(value)
        self._store.put(session.key, session.start_ms, session.end_ms, kept, *self._written)

    def remove(self, session: Windowed[Any]) -> None:
        self.put(session, None)

    def fetch_session(self, key: Any, start_ms: int, end_ms: int) -> Any | None:
        found = (value for session, value in self._of(key) if (session.start_ms, session.end_ms) == (start_ms, end_ms))
        return next(found, None)

    def fetch(self, key: Any) -> Iterator[tuple[Windowed[Any], Any]]:
        return iter(self._of(key))

    def backward_fetch(self, key: Any) -> Iterator[tuple[Windowed[Any], Any]]:
        return iter(self._of(key)[::-1])

    def fetch_keys(self, from_key: Any | None, to_key: Any | None) -> Iterator[tuple[Windowed[Any], Any]]:
        return iter(self._between(from_key, to_key))

    def backward_fetch_keys(self, from_key: Any | None, to_key: Any | None) -> Iterator[tuple[Windowed[Any], Any]]:
        return iter(self._between(from_key, to_key)[::-1])

    def find_sessions(
        self, key: Any, earliest_end_ms: int, latest_start_ms: int
    ) -> Iterator[tuple[Windowed[Any], Any]]:
        return iter(self._find(key, earliest_end_ms, latest_start_ms))

    def backward_find_sessions(
        self, key: Any, earliest_end_ms: int, latest_start_ms: int
    ) -> Iterator[tuple[Windowed[Any], Any]]:
        return iter(self._find(key, earliest_end_ms, latest_start_ms)[::-1])

    def _of(self, key: Any) -> list[tuple[Windowed[Any], Any]]:
        self._check(key)
        return [(Windowed(key, start_ms, end_ms), value) for start_ms, end_ms, value in self._store.fetch(key)]

    def _between(self, from_key: Any | None, to_key: Any | None) -> list[tuple[Windowed[Any], Any]]:
        rows = self._store.between(from_key, to_key)
        return [(Windowed(key, start_ms, end_ms), value) for key, start_ms, end_ms, value in rows]

    def _find(self, key: Any, earliest_end_ms: int, latest_start_ms: int) -> list[tuple[Windowed[Any], Any]]:
        return [
            (session, value)
            for session, value in self._of(key)
            if session.end_ms >= earliest_end_ms and session.start_ms <= latest_start_ms
        ]
