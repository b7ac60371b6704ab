"""Stores that users declare for their processors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypedDict, TypeVar, Unpack, get_args

from deltaworks.dsl.graph import call_site
from deltaworks.dsl.mistakes import Answering, named
from deltaworks.dsl.point import Typed
from deltaworks.serdes import Bytes, Serde, SessionWindowed, Windowed, serde_for
from deltaworks.serdes.base import is_serde
from deltaworks.serdes.inference import is_windowed, spelled
from deltaworks.serdes.windowed import FixedSize
from deltaworks.topology.durations import milliseconds
from deltaworks.topology.nodes.base import Origin
from deltaworks.topology.stages import StoreKind, StoreSpec
from deltaworks.topology.state_stores import (
    DeclaredStore,
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
class StoreBuilder(DeclaredStore[S], Answering):
    """A store that is declared by `Stores`, for a processor.

    Source: `StoreBuilder`; differs: `build` is the kernel's affair, settings are arguments of `Stores`.
    """

    spec: StoreSpec
    origin: Origin = field(compare=False)

    @property
    def name(self) -> str:
        return self.spec.name


class StoreOptions(TypedDict, total=False):
    """Options that every declaration takes: one of ours, and those of Kafka Streams that change nothing here."""

    record_key: Callable[[Any], Any]
    """From a key of the store to the key of the records that it belongs to, such as `lambda key: key`, or
    `lambda key: key.customer`. `deltaworks rescale` needs it: an entry goes where such records go."""

    caching: bool
    """Changes nothing: each of our stores has a cache, and a processor never reads stale values."""
    logging: bool
    """Changes nothing: our stores come back with the checkpoint, so there is no topic to configure or to leave out."""
    in_memory: bool
    """Changes nothing: our stores are in memory and durable at once."""


class Stores(Answering):
    """Declares stores for processors, each kind by one call with the types of its keys and values.

    Source: `Stores`, a supplier and a `StoreBuilder` in one; differs: no segment intervals.

    >>> from deltaworks import Processor, Record, StreamsBuilder
    >>> from deltaworks.testing import TopologyTestDriver
    >>> COUNTS = Stores.key_value("counts", key=str, value=int)
    >>> class Count(Processor[str, str, str, int]):
    ...     stores = (COUNTS,)
    ...     def process(self, record: Record[str, str]) -> None:
    ...         counts = self.context.state_store(COUNTS)
    ...         counts.put(record.key, (counts.get(record.key) or 0) + 1)
    >>> builder = StreamsBuilder()
    >>> _ = builder.stream("words", key=str, value=str).process(Count)
    >>> driver = TopologyTestDriver(builder.build())
    >>> driver.create_input_topic("words").pipe_key_value_list([("a", ""), ("b", ""), ("a", "")])
    >>> driver.store("counts").all()
    [('a', 2), ('b', 1)]
    """

    @staticmethod
    def key_value(
        name: str, *, key: Typed[K], value: Typed[V], **options: Unpack[StoreOptions]
    ) -> StoreBuilder[KeyValueStore[K, V]]:
        """One value per key.

        Args:
            name: name of the store; part of the pipeline's state, so keep it.
            key: type or serde of the keys.
            value: type or serde of the values.
            options: see `StoreOptions`.

        Source: `Stores#persistentKeyValueStore`, `#inMemoryKeyValueStore`, `#keyValueStoreBuilder`; differs: no.
        """
        return _declared(name, "key-value", key, value, options, timestamped=False)

    @staticmethod
    def timestamped_key_value(
        name: str, *, key: Typed[K], value: Typed[V], **options: Unpack[StoreOptions]
    ) -> StoreBuilder[TimestampedKeyValueStore[K, V]]:
        """One value per key with its time. Arguments as of `key_value`.

        Source: `Stores#persistentTimestampedKeyValueStore`, `#timestampedKeyValueStoreBuilder`; differs: no.
        """
        return _declared(name, "key-value", key, value, options, timestamped=True)

    @staticmethod
    def lru(
        name: str, *, key: Typed[K], value: Typed[V], max_entries: int, **options: Unpack[StoreOptions]
    ) -> StoreBuilder[KeyValueStore[K, V]]:
        """One value per key; above `max_entries` keys, the least recently used one is removed.

        `get` and `put` use a key; iterating does not.

        Args:
            name: name of the store; part of the pipeline's state, so keep it.
            key: type or serde of the keys.
            value: type or serde of the values.
            max_entries: how many keys are kept.
            options: see `StoreOptions`.

        Source: `Stores#lruMap`; differs: a restart does not forget which keys were used when.
        """
        if max_entries < 0:
            raise ValueError(f"store '{name}' cannot keep {max_entries} entries")
        return _declared(name, "lru", key, value, options, timestamped=False, max_entries=max_entries)

    @staticmethod
    def versioned(
        name: str, *, key: Typed[K], value: Typed[V], history: timedelta, **options: Unpack[StoreOptions]
    ) -> StoreBuilder[VersionedKeyValueStore[K, V]]:
        """All versions of each key.

        Args:
            name: name of the store; part of the pipeline's state, so keep it.
            key: type or serde of the keys.
            value: type or serde of the values.
            history: how far back versions can be read and written.
            options: see `StoreOptions`.

        Source: `Stores#persistentVersionedKeyValueStore`, `#versionedKeyValueStoreBuilder`; differs: no segment
        interval.
        """
        history_ms = _not_negative(name, "the history", history)
        return _declared(name, "versioned", key, value, options, retention_ms=history_ms)

    @staticmethod
    def window(
        name: str,
        *,
        key: Typed[K],
        value: Typed[V],
        window_size: timedelta,
        retention: timedelta,
        retain_duplicates: bool = False,
        **options: Unpack[StoreOptions],
    ) -> StoreBuilder[WindowStore[K, V]]:
        """One value per key and window.

        Args:
            name: name of the store; part of the pipeline's state, so keep it.
            key: type or serde of the keys.
            value: type or serde of the values.
            window_size: from the start of a window to its end.
            retention: how long a window is kept after the newest one; at least `window_size`.
            retain_duplicates: keep all values that are put for a key and window.
            options: see `StoreOptions`.

        Source: `Stores#persistentWindowStore`, `#inMemoryWindowStore`, `#windowStoreBuilder`; differs: several keys
        always come in the order of persistent stores.
        """
        times = _window_times(name, window_size, retention)
        extra = {"retain_duplicates": retain_duplicates, "timestamped": False}
        return _declared(name, "window", key, value, options, **times, **extra)

    @staticmethod
    def timestamped_window(
        name: str,
        *,
        key: Typed[K],
        value: Typed[V],
        window_size: timedelta,
        retention: timedelta,
        retain_duplicates: bool = False,
        **options: Unpack[StoreOptions],
    ) -> StoreBuilder[TimestampedWindowStore[K, V]]:
        """One value per key and window with its time. Arguments as of `window`.

        Source: `Stores#persistentTimestampedWindowStore`, `#timestampedWindowStoreBuilder`; differs: no.
        """
        times = _window_times(name, window_size, retention)
        extra = {"retain_duplicates": retain_duplicates, "timestamped": True}
        return _declared(name, "window", key, value, options, **times, **extra)

    @staticmethod
    def session(
        name: str, *, key: Typed[K], value: Typed[V], retention: timedelta, **options: Unpack[StoreOptions]
    ) -> StoreBuilder[SessionStore[K, V]]:
        """One value per key and session.

        Args:
            name: name of the store; part of the pipeline's state, so keep it.
            key: type or serde of the keys.
            value: type or serde of the values.
            retention: how long a session is kept after the newest end.
            options: see `StoreOptions`.

        Source: `Stores#persistentSessionStore`, `#inMemorySessionStore`, `#sessionStoreBuilder`; differs: several keys
        always come in the order of persistent stores.
        """
        retention_ms = _not_negative(name, "the retention", retention)
        return _declared(name, "session", key, value, options, retention_ms=retention_ms)

    @staticmethod
    def custom(name: str, factory: Callable[[OrderedBytes], S]) -> StoreBuilder[S]:
        """A store that you write: an object over ordered bytes, created again whenever its task is.

        If the object has a method `flush()`, it is called once for each commit of its task: after the task's records
        and what its record caches forward, before the changes are taken. So an object may hold writes back until then.
        Several stores are flushed in the order of their names. An error in `flush` ends the stream.

        Args:
            name: name of the store; part of the pipeline's state, so keep it.
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
        >>> Stores.custom("stack", Stack).name
        'stack'
        """
        if not callable(factory):
            raise TypeError(f"store '{name}' needs a function that makes it of its bytes, but got {named(factory)}")
        spec = StoreSpec(name=_named(name), kind="custom", key=Bytes(), value=Bytes(), factory=factory)
        return StoreBuilder(spec, call_site())


def example(name: str = "counts") -> str:
    """A declaration, for hints."""
    return f"Stores.key_value({name!r}, key=str, value=int)"


def _declared(
    name: str, kind: StoreKind, key: Typed[Any], value: Typed[Any], options: StoreOptions, **fields: Any
) -> StoreBuilder[Any]:
    unknown = sorted(options.keys() - StoreOptions.__annotations__.keys())
    if unknown:
        known = ", ".join(f"{option}=" for option in StoreOptions.__annotations__)
        raise TypeError(f"store '{name}' has no option '{unknown[0]}'; besides its own arguments it takes {known}")
    spec = StoreSpec(
        name=_named(name),
        kind=kind,
        key=_serde(name, "key", key),
        value=_serde(name, "value", value),
        record_key=options.get("record_key"),
        **fields,
    )
    return StoreBuilder(spec, call_site())


def _named(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(f"a store is declared with its name, such as {example()}, but got {named(name)}")
    return name


def _window_times(name: str, window_size: timedelta, retention: timedelta) -> dict[str, Any]:
    retention_ms = _not_negative(name, "the retention", retention)
    size_ms = _not_negative(name, "the window size", window_size)
    if size_ms > retention_ms:
        raise ValueError(f"store '{name}' keeps {retention_ms} ms, which is less than a window of {size_ms} ms")
    return {"retention_ms": retention_ms, "windows": FixedSize(size_ms)}


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
