"""Stores that users declare for their processors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Generic, TypeVar, get_args

from deltaworks.dsl.graph import call_site
from deltaworks.dsl.mistakes import Answering, named
from deltaworks.dsl.point import Typed, is_serde
from deltaworks.serdes import Bytes, Serde, SessionWindowed, Windowed, serde_for
from deltaworks.serdes.inference import is_windowed, spelled
from deltaworks.serdes.windowed import FixedSize
from deltaworks.topology.durations import milliseconds
from deltaworks.topology.nodes.base import Origin
from deltaworks.topology.stages import StoreSpec
from deltaworks.topology.state_stores import (
    KeyValueStore,
    OrderedBytes,
    SessionStore,
    TimestampedKeyValueStore,
    TimestampedWindowStore,
    VersionedKeyValueStore,
    WindowStore,
)

K = TypeVar("K")
V = TypeVar("V")
S = TypeVar("S")


@dataclass(frozen=True)
class StoreBuilder(Answering, Generic[S]):
    """A store to be added to a topology; made by `Stores`.

    Source: `StoreBuilder`; differs: `build` is the kernel's affair.
    """

    spec: StoreSpec
    origin: Origin = field(compare=False)

    @property
    def name(self) -> str:
        """Name of the store; part of the pipeline's state, so keep it."""
        return self.spec.name

    def with_caching_enabled(self) -> StoreBuilder[S]:
        """Asks for a cache. Changes nothing: each of our stores has one, and a processor never reads stale values.

        Source: `StoreBuilder#withCachingEnabled`; differs: see above.
        """
        return self

    def with_caching_disabled(self) -> StoreBuilder[S]:
        """The default; changes nothing.

        Source: `StoreBuilder#withCachingDisabled`; differs: no.
        """
        return self

    def with_logging_enabled(self) -> StoreBuilder[S]:
        """The default: the store comes back with the checkpoint.

        Source: `StoreBuilder#withLoggingEnabled`; differs: there is no topic to configure.
        """
        return self

    def with_logging_disabled(self) -> StoreBuilder[S]:
        """Asks for a store that is empty after a restart. Changes nothing: our stores always come back.

        Source: `StoreBuilder#withLoggingDisabled`; differs: see above.
        """
        return self


@dataclass(frozen=True)
class KeyValueSupplier:
    """How a key-value store keeps its entries; made by `Stores`.

    Source: `KeyValueBytesStoreSupplier`; differs: no.
    """

    name: str
    max_entries: int | None = None
    """The limit of an LRU map."""


@dataclass(frozen=True)
class VersionedSupplier:
    """How a versioned store keeps its versions; made by `Stores`.

    Source: `VersionedBytesStoreSupplier`; differs: no.
    """

    name: str
    history_ms: int


@dataclass(frozen=True)
class WindowSupplier:
    """How a window store keeps its windows; made by `Stores`.

    Source: `WindowBytesStoreSupplier`; differs: no.
    """

    name: str
    retention_ms: int
    window_size_ms: int
    retain_duplicates: bool


@dataclass(frozen=True)
class SessionSupplier:
    """How a session store keeps its sessions; made by `Stores`.

    Source: `SessionBytesStoreSupplier`; differs: no.
    """

    name: str
    retention_ms: int


class Stores(Answering):
    """Makes stores: a supplier says how a store keeps its entries, a builder adds the types.

    Our stores are in memory and durable at once, so the `in_memory_...` variants are the `persistent_...` ones.

    Source: `Stores`; differs: no segment intervals.

    >>> from deltaworks import Processor, Record, StreamsBuilder
    >>> from deltaworks.testing import TopologyTestDriver
    >>> class Count(Processor[str, str, str, int]):
    ...     def process(self, record: Record[str, str]) -> None:
    ...         counts = self.context.state_store("counts")
    ...         counts.put(record.key, (counts.get(record.key) or 0) + 1)
    >>> counts = Stores.key_value_store_builder(Stores.persistent_key_value_store("counts"), key=str, value=int)
    >>> builder = StreamsBuilder()
    >>> _ = builder.add_state_store(counts)
    >>> _ = builder.stream("words", key=str, value=str).process(Count, "counts")
    >>> driver = TopologyTestDriver(builder.build())
    >>> driver.create_input_topic("words").pipe_key_value_list([("a", ""), ("b", ""), ("a", "")])
    >>> driver.store("counts").all()
    [('a', 2), ('b', 1)]
    """

    @staticmethod
    def persistent_key_value_store(name: str) -> KeyValueSupplier:
        """One value per key.

        Source: `Stores#persistentKeyValueStore`; differs: no.
        """
        return KeyValueSupplier(name)

    @staticmethod
    def persistent_timestamped_key_value_store(name: str) -> KeyValueSupplier:
        """One value per key with its time; for `timestamped_key_value_store_builder`.

        Source: `Stores#persistentTimestampedKeyValueStore`; differs: no.
        """
        return KeyValueSupplier(name)

    @staticmethod
    def in_memory_key_value_store(name: str) -> KeyValueSupplier:
        """The same as `persistent_key_value_store`.

        Source: `Stores#inMemoryKeyValueStore`; differs: it survives restarts without being read again from a topic.
        """
        return KeyValueSupplier(name)

    @staticmethod
    def lru_map(name: str, max_cache_size: int) -> KeyValueSupplier:
        """One value per key; above `max_cache_size` keys, the least recently used one is removed.

        `get` and `put` use a key; iterating does not.

        Source: `Stores#lruMap`; differs: a restart does not forget which keys were used when.
        """
        if max_cache_size < 0:
            raise ValueError(f"store '{name}' cannot keep {max_cache_size} entries")
        return KeyValueSupplier(name, max_cache_size)

    @staticmethod
    def persistent_versioned_key_value_store(name: str, history_retention: timedelta) -> VersionedSupplier:
        """All versions of each key.

        Args:
            name: name of the store.
            history_retention: how far back versions can be read and written.

        Source: `Stores#persistentVersionedKeyValueStore`; differs: no segment interval.
        """
        return VersionedSupplier(name, _not_negative(name, "the history", history_retention))

    @staticmethod
    def persistent_window_store(
        name: str, retention: timedelta, window_size: timedelta, *, retain_duplicates: bool = False
    ) -> WindowSupplier:
        """One value per key and window.

        Args:
            name: name of the store.
            retention: how long a window is kept after the newest one; at least `window_size`.
            window_size: from the start of a window to its end.
            retain_duplicates: keep all values that are put for a key and window.

        Source: `Stores#persistentWindowStore`; differs: no.
        """
        retention_ms = _not_negative(name, "the retention", retention)
        size_ms = _not_negative(name, "the window size", window_size)
        if size_ms > retention_ms:
            raise ValueError(f"store '{name}' keeps {retention_ms} ms, which is less than a window of {size_ms} ms")
        return WindowSupplier(name, retention_ms, size_ms, retain_duplicates)

    @staticmethod
    def persistent_timestamped_window_store(
        name: str, retention: timedelta, window_size: timedelta, *, retain_duplicates: bool = False
    ) -> WindowSupplier:
        """As `persistent_window_store`; for `timestamped_window_store_builder`.

        Source: `Stores#persistentTimestampedWindowStore`; differs: no.
        """
        return Stores.persistent_window_store(name, retention, window_size, retain_duplicates=retain_duplicates)

    @staticmethod
    def in_memory_window_store(
        name: str, retention: timedelta, window_size: timedelta, *, retain_duplicates: bool = False
    ) -> WindowSupplier:
        """The same as `persistent_window_store`.

        Source: `Stores#inMemoryWindowStore`; differs: several keys come in the order of persistent stores.
        """
        return Stores.persistent_window_store(name, retention, window_size, retain_duplicates=retain_duplicates)

    @staticmethod
    def persistent_session_store(name: str, retention: timedelta) -> SessionSupplier:
        """One value per key and session.

        Args:
            name: name of the store.
            retention: how long a session is kept after the newest end.

        Source: `Stores#persistentSessionStore`; differs: no.
        """
        return SessionSupplier(name, _not_negative(name, "the retention", retention))

    @staticmethod
    def in_memory_session_store(name: str, retention: timedelta) -> SessionSupplier:
        """The same as `persistent_session_store`.

        Source: `Stores#inMemorySessionStore`; differs: several keys come in the order of persistent stores.
        """
        return Stores.persistent_session_store(name, retention)

    @staticmethod
    def key_value_store_builder(
        supplier: KeyValueSupplier, key: Typed[K], value: Typed[V]
    ) -> StoreBuilder[KeyValueStore[K, V]]:
        """A `KeyValueStore` of these types.

        Args:
            supplier: how it keeps its entries.
            key: type or serde of the keys; `Windowed[str]` and the like may be keys, too.
            value: type or serde of the values.

        Source: `Stores#keyValueStoreBuilder`; differs: no.
        """
        _supplier(supplier, KeyValueSupplier, "persistent_key_value_store('counts')")
        return StoreBuilder(_key_value(supplier, key, value, timestamped=False), call_site())

    @staticmethod
    def timestamped_key_value_store_builder(
        supplier: KeyValueSupplier, key: Typed[K], value: Typed[V]
    ) -> StoreBuilder[TimestampedKeyValueStore[K, V]]:
        """A `TimestampedKeyValueStore` of these types.

        Source: `Stores#timestampedKeyValueStoreBuilder`; differs: not over an LRU map.
        """
        _supplier(supplier, KeyValueSupplier, "persistent_timestamped_key_value_store('counts')")
        if supplier.max_entries is not None:
            raise ValueError(
                f"store '{supplier.name}' is an LRU map, which keeps no times: use key_value_store_builder"
            )
        return StoreBuilder(_key_value(supplier, key, value, timestamped=True), call_site())

    @staticmethod
    def versioned_key_value_store_builder(
        supplier: VersionedSupplier, key: Typed[K], value: Typed[V]
    ) -> StoreBuilder[VersionedKeyValueStore[K, V]]:
        """A `VersionedKeyValueStore` of these types.

        Source: `Stores#versionedKeyValueStoreBuilder`; differs: no.
        """
        _supplier(supplier, VersionedSupplier, "persistent_versioned_key_value_store('prices', timedelta(days=1))")
        spec = StoreSpec(
            name=supplier.name,
            kind="versioned",
            key=_serde(supplier.name, "key", key),
            value=_serde(supplier.name, "value", value),
            retention_ms=supplier.history_ms,
        )
        return StoreBuilder(spec, call_site())

    @staticmethod
    def window_store_builder(
        supplier: WindowSupplier, key: Typed[K], value: Typed[V]
    ) -> StoreBuilder[WindowStore[K, V]]:
        """A `WindowStore` of these types.

        Source: `Stores#windowStoreBuilder`; differs: no.
        """
        return StoreBuilder(_window(supplier, key, value, timestamped=False), call_site())

    @staticmethod
    def timestamped_window_store_builder(
        supplier: WindowSupplier, key: Typed[K], value: Typed[V]
    ) -> StoreBuilder[TimestampedWindowStore[K, V]]:
        """A `TimestampedWindowStore` of these types.

        Source: `Stores#timestampedWindowStoreBuilder`; differs: no.
        """
        return StoreBuilder(_window(supplier, key, value, timestamped=True), call_site())

    @staticmethod
    def session_store_builder(
        supplier: SessionSupplier, key: Typed[K], value: Typed[V]
    ) -> StoreBuilder[SessionStore[K, V]]:
        """A `SessionStore` of these types.

        Source: `Stores#sessionStoreBuilder`; differs: no.
        """
        _supplier(supplier, SessionSupplier, "persistent_session_store('visits', timedelta(days=1))")
        spec = StoreSpec(
            name=supplier.name,
            kind="session",
            key=_serde(supplier.name, "key", key),
            value=_serde(supplier.name, "value", value),
            retention_ms=supplier.retention_ms,
        )
        return StoreBuilder(spec, call_site())

    @staticmethod
    def custom_store_builder(name: str, factory: Callable[[OrderedBytes], S]) -> StoreBuilder[S]:
        """A store that you write: an object over ordered bytes, created again whenever its task is.

        Args:
            name: name of the store.
            factory: gets the bytes, returns what `state_store(name)` gives to processors. Only the bytes last.

        Source: a `StateStore` with a `StoreBuilder` of its own; differs: durable without a changelog of yours.

        >>> class Stack:
        ...     def __init__(self, entries: OrderedBytes) -> None:
        ...         self._entries = entries
        ...     def push(self, value: bytes) -> None:
        ...         top = next(self._entries.reverse_range(), (b"\\0" * 8, b""))[0]
        ...         self._entries.put((int.from_bytes(top, "big") + 1).to_bytes(8, "big"), value)
        ...     def pop(self) -> bytes | None:
        ...         key, value = next(self._entries.reverse_range(), (b"", None))
        ...         self._entries.put(key, None)
        ...         return value
        >>> Stores.custom_store_builder("stack", Stack).name
        'stack'
        """
        spec = StoreSpec(name=name, kind="custom", key=Bytes(), value=Bytes(), factory=factory)
        return StoreBuilder(spec, call_site())


def _supplier(given: Any, kind: type, example: str) -> None:
    """Refuses anything that is not a supplier of this kind, such as a name."""
    if not isinstance(given, kind):
        raise TypeError(f"the builder of a store needs a supplier, such as Stores.{example}, but got {named(given)}")


def _key_value(supplier: KeyValueSupplier, key: Typed[Any], value: Typed[Any], *, timestamped: bool) -> StoreSpec:
    return StoreSpec(
        name=supplier.name,
        kind="key-value" if supplier.max_entries is None else "lru",
        key=_serde(supplier.name, "key", key),
        value=_serde(supplier.name, "value", value),
        timestamped=timestamped,
        max_entries=supplier.max_entries,
    )


def _window(supplier: WindowSupplier, key: Typed[Any], value: Typed[Any], *, timestamped: bool) -> StoreSpec:
    _supplier(supplier, WindowSupplier, "persistent_window_store('clicks', timedelta(days=1), timedelta(hours=1))")
    return StoreSpec(
        name=supplier.name,
        kind="window",
        key=_serde(supplier.name, "key", key),
        value=_serde(supplier.name, "value", value),
        retention_ms=supplier.retention_ms,
        windows=FixedSize(supplier.window_size_ms),
        timestamped=timestamped,
        retain_duplicates=supplier.retain_duplicates,
    )


def _serde(name: str, argument: str, given: Typed[Any]) -> Serde[Any]:
    if is_serde(given) and not isinstance(given, type):
        return given
    found = _windowed(given) or serde_for(given)
    if found is None:
        bare = given is Windowed
        hint = "Windowed[str]" if bare else "a msgspec.Struct, a dataclass, a builtin type, or a serde of your own"
        raise ValueError(f"store '{name}': there is no serde for {argument}={spelled(given)}; give {hint}")
    return found


def _windowed(given: Any) -> Serde[Any] | None:
    """A serde that keeps both bounds of a window, for windows of every kind; Kafka Streams' own keep less."""
    if not is_windowed(given) or not get_args(given):
        return None
    inner = serde_for(get_args(given)[0])
    return None if inner is None else SessionWindowed(inner)


def _not_negative(name: str, what: str, duration: timedelta) -> int:
    duration_ms = milliseconds(duration, f"store '{name}': {what}")
    if duration_ms < 0:
        raise ValueError(f"store '{name}': {what} must not be negative, but is {duration_ms} ms")
    return duration_ms
