"""State stores as processors and tests see them, with typed keys and values.

Iterators are ordered by the bytes of the keys. They see all writes before their call, and later writes do not disturb
them. A null key is refused, a null value deletes. `dsl/state_stores.py` declares stores, `kernel/stores` keeps their
bytes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from deltaworks.serdes.base import Serde
from deltaworks.serdes.windowed import Windowed

K = TypeVar("K")
KIn = TypeVar("KIn", contravariant=True)
V = TypeVar("V")
S = TypeVar("S")


class DeclaredStore(Generic[S]):
    """The declaration of a store that a processor gets as an `S`."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the store; part of the pipeline's state, so keep it."""


class ValueAndTimestamp(NamedTuple, Generic[V]):
    """A value and the time it belongs to.

    Source: `ValueAndTimestamp`; differs: no.
    """

    value: V
    timestamp_ms: int


class VersionedRecord(NamedTuple, Generic[V]):
    """One version of a key, and the time from which it is valid.

    Source: `VersionedRecord`; differs: it does not say until when.
    """

    value: V
    timestamp_ms: int


class KeyValueStore(Protocol[K, V]):
    """One value per key; also an LRU map, which forgets the least recently used key.

    Source: `KeyValueStore`; differs: no.

    >>> from deltaworks import Processor, Record, Stores, StreamsBuilder
    >>> from deltaworks.testing import TopologyTestDriver
    >>> class New(Processor[str, str, str, str]):
    ...     def process(self, record: Record[str, str]) -> None:
    ...         seen: KeyValueStore[str, str] = self.context.state_store("seen")
    ...         if seen.put_if_absent(record.key, record.value) is None:
    ...             self.context.forward(record)
    >>> builder = StreamsBuilder()
    >>> seen = Stores.key_value("seen", key=str, value=str)
    >>> builder.add_state_store(seen).stream("in", key=str, value=str).process(New, "seen").to("new")
    >>> driver = TopologyTestDriver(builder.build())
    >>> driver.create_input_topic("in").pipe_key_value_list([("a", "1"), ("b", "2"), ("a", "3")])
    >>> driver.create_output_topic("new").read_key_values_to_list()
    [('a', '1'), ('b', '2')]
    """

    def get(self, key: K) -> V | None:
        """The value of a key, None if there is none."""

    def put(self, key: K, value: V | None) -> None:
        """Sets the value of a key; None deletes it."""

    def put_if_absent(self, key: K, value: V) -> V | None:
        """Sets the value of a key that has none; returns the previous value."""

    def put_all(self, entries: Iterable[tuple[K, V | None]]) -> None:
        """Sets the values of several keys."""

    def delete(self, key: K) -> V | None:
        """Deletes a key; returns the previous value."""

    def range(self, from_key: K | None, to_key: K | None) -> Iterator[tuple[K, V]]:
        """`(key, value)` of the keys between two keys, both inclusive; None: no bound."""

    def reverse_range(self, from_key: K | None, to_key: K | None) -> Iterator[tuple[K, V]]:
        """Like `range`, the last key first."""

    def all(self) -> Iterator[tuple[K, V]]:
        """`(key, value)` of every key."""

    def reverse_all(self) -> Iterator[tuple[K, V]]:
        """Like `all`, the last key first."""

    def prefix_scan(self, prefix: Any, serde: Serde[Any] | None = None) -> Iterator[tuple[K, V]]:
        """`(key, value)` of the keys whose bytes begin with those of `prefix`.

        Args:
            prefix: A part of a key.
            serde: Makes its bytes; None: the serde of the keys.
        """

    def approximate_num_entries(self) -> int:
        """The number of keys; ours is exact, because it counts them."""


class TimestampedKeyValueStore(Protocol[K, V]):
    """One value per key with its time; the store of a table is one.

    Source: `TimestampedKeyValueStore`; differs: values and times are put as two arguments.

    >>> from deltaworks import Processor, Record, StreamsBuilder
    >>> from deltaworks.testing import TopologyTestDriver
    >>> class Since(Processor[str, str, str, int]):
    ...     def process(self, record: Record[str, str]) -> None:
    ...         users: TimestampedKeyValueStore[str, str] = self.context.state_store("users")
    ...         user = users.get(record.key)
    ...         if user is not None:
    ...             self.context.forward(record.with_value(user.timestamp_ms))
    >>> builder = StreamsBuilder()
    >>> users = builder.table("users", key=str, value=str, store="users")
    >>> builder.stream("in", key=str, value=str).process(Since, "users").to("since")
    >>> driver = TopologyTestDriver(builder.build())
    >>> driver.create_input_topic("users").pipe_input("ann", "Ann Smith", timestamp_ms=5)
    >>> driver.create_input_topic("in").pipe_input("ann", "visit", timestamp_ms=9)
    >>> driver.create_output_topic("since").read_key_value()
    ('ann', 5)
    """

    def get(self, key: K) -> ValueAndTimestamp[V] | None:
        """The value of a key and its time, None if there is none."""

    def put(self, key: K, value: V | None, timestamp_ms: int) -> None:
        """Sets the value of a key and its time; a None value deletes it."""

    def put_if_absent(self, key: K, value: V, timestamp_ms: int) -> ValueAndTimestamp[V] | None:
        """Sets the value of a key that has none; returns what was there before."""

    def put_all(self, entries: Iterable[tuple[K, V | None, int]]) -> None:
        """Sets the values of several keys: `(key, value, timestamp_ms)`."""

    def delete(self, key: K) -> ValueAndTimestamp[V] | None:
        """Deletes a key; returns what was there before."""

    def range(self, from_key: K | None, to_key: K | None) -> Iterator[tuple[K, ValueAndTimestamp[V]]]:
        """`(key, value and time)` of the keys between two keys, both inclusive; None: no bound."""

    def reverse_range(self, from_key: K | None, to_key: K | None) -> Iterator[tuple[K, ValueAndTimestamp[V]]]:
        """Like `range`, the last key first."""

    def all(self) -> Iterator[tuple[K, ValueAndTimestamp[V]]]:
        """`(key, value and time)` of every key."""

    def reverse_all(self) -> Iterator[tuple[K, ValueAndTimestamp[V]]]:
        """Like `all`, the last key first."""

    def prefix_scan(self, prefix: Any, serde: Serde[Any] | None = None) -> Iterator[tuple[K, ValueAndTimestamp[V]]]:
        """See `KeyValueStore.prefix_scan`."""

    def approximate_num_entries(self) -> int:
        """The number of keys; ours is exact, because it counts them."""


class VersionedKeyValueStore(Protocol[KIn, V]):
    """All versions of each key, as far back as the history goes.

    Source: `VersionedKeyValueStore`; differs: no.
    """

    def put(self, key: KIn, value: V | None, timestamp_ms: int) -> int:
        """Adds a version; a None value says that the key was deleted then.

        Returns:
            The end of its validity: -1 if it is the latest, -2**63 if it is too old to be kept.
        """

    def delete(self, key: KIn, timestamp_ms: int) -> VersionedRecord[V] | None:
        """Records that the key was deleted at a time; returns the version that was valid then."""

    def get(self, key: KIn, as_of_ms: int | None = None) -> VersionedRecord[V] | None:
        """The version that was valid at a time; None: the latest one. Times before the history have no version."""


class WindowStore(Protocol[K, V]):
    """One value per key and window, or with `retain_duplicates` all values that were put.

    A window is visible as long as `start > newest start ever put - retention`. Bounds of time are bounds of the start,
    both inclusive. Iterators over several keys are ordered by segment of time (half the retention, at least a minute),
    then by key, then by start, as in Kafka Streams.

    Source: `WindowStore`; differs: `fetch` with two times is called `fetch_range`, with two keys `fetch_keys`.
    """

    def put(self, key: K, value: V | None, start_ms: int) -> None:
        """Sets the value of a key in the window that starts then; None deletes it.

        With `retain_duplicates` the value is added to the others, and None does nothing.
        """

    def fetch(self, key: K, start_ms: int) -> V | None:
        """The value of a key in the window that starts then, None if there is none."""

    def fetch_range(self, key: K, from_ms: int, to_ms: int) -> Iterator[tuple[int, V]]:
        """`(start_ms, value)` of the windows of a key that start in `[from_ms, to_ms]`, oldest first."""

    def backward_fetch_range(self, key: K, from_ms: int, to_ms: int) -> Iterator[tuple[int, V]]:
        """Like `fetch_range`, the newest first."""

    def fetch_keys(
        self, from_key: K | None, to_key: K | None, from_ms: int, to_ms: int
    ) -> Iterator[tuple[Windowed[K], V]]:
        """`(window, value)` of the keys between two keys, both inclusive; None: no bound."""

    def backward_fetch_keys(
        self, from_key: K | None, to_key: K | None, from_ms: int, to_ms: int
    ) -> Iterator[tuple[Windowed[K], V]]:
        """Like `fetch_keys`, the last first."""

    def fetch_all(self, from_ms: int, to_ms: int) -> Iterator[tuple[Windowed[K], V]]:
        """`(window, value)` of the windows of all keys that start in `[from_ms, to_ms]`."""

    def backward_fetch_all(self, from_ms: int, to_ms: int) -> Iterator[tuple[Windowed[K], V]]:
        """Like `fetch_all`, the last first."""

    def all(self) -> Iterator[tuple[Windowed[K], V]]:
        """`(window, value)` of all windows."""

    def backward_all(self) -> Iterator[tuple[Windowed[K], V]]:
        """Like `all`, the last first."""


class TimestampedWindowStore(Protocol[K, V]):
    """A `WindowStore` that keeps a time with each value; the store of a windowed table is one.

    Source: `TimestampedWindowStore`; differs: as `WindowStore`; values and times are put as two arguments.
    """

    def put(self, key: K, value: V | None, start_ms: int, timestamp_ms: int) -> None:
        """Sets the value of a key and its time in the window that starts then; a None value deletes it."""

    def fetch(self, key: K, start_ms: int) -> ValueAndTimestamp[V] | None:
        """The value of a key in the window that starts then and its time, None if there is none."""

    def fetch_range(self, key: K, from_ms: int, to_ms: int) -> Iterator[tuple[int, ValueAndTimestamp[V]]]:
        """See `WindowStore.fetch_range`."""

    def backward_fetch_range(self, key: K, from_ms: int, to_ms: int) -> Iterator[tuple[int, ValueAndTimestamp[V]]]:
        """See `WindowStore.backward_fetch_range`."""

    def fetch_keys(
        self, from_key: K | None, to_key: K | None, from_ms: int, to_ms: int
    ) -> Iterator[tuple[Windowed[K], ValueAndTimestamp[V]]]:
        """See `WindowStore.fetch_keys`."""

    def backward_fetch_keys(
        self, from_key: K | None, to_key: K | None, from_ms: int, to_ms: int
    ) -> Iterator[tuple[Windowed[K], ValueAndTimestamp[V]]]:
        """See `WindowStore.backward_fetch_keys`."""

    def fetch_all(self, from_ms: int, to_ms: int) -> Iterator[tuple[Windowed[K], ValueAndTimestamp[V]]]:
        """See `WindowStore.fetch_all`."""

    def backward_fetch_all(self, from_ms: int, to_ms: int) -> Iterator[tuple[Windowed[K], ValueAndTimestamp[V]]]:
        """See `WindowStore.backward_fetch_all`."""

    def all(self) -> Iterator[tuple[Windowed[K], ValueAndTimestamp[V]]]:
        """`(window, value and time)` of all windows."""

    def backward_all(self) -> Iterator[tuple[Windowed[K], ValueAndTimestamp[V]]]:
        """Like `all`, the last first."""


class SessionStore(Protocol[K, V]):
    """One value per key and session; `end_ms` of a session is inclusive.

    A session is visible as long as `end > newest end ever put - retention`. Iterators are ordered by segment of time
    (half the retention, at least a minute), then by key, end and start.

    Source: `SessionStore`; differs: two bounds of keys make a method of their own.
    """

    def put(self, session: Windowed[K], value: V | None) -> None:
        """Sets the value of a session; None deletes it."""

    def remove(self, session: Windowed[K]) -> None:
        """Deletes a session."""

    def fetch_session(self, key: K, start_ms: int, end_ms: int) -> V | None:
        """The value of the session with exactly these bounds, None if there is none."""

    def fetch(self, key: K) -> Iterator[tuple[Windowed[K], V]]:
        """`(session, value)` of a key, oldest first."""

    def backward_fetch(self, key: K) -> Iterator[tuple[Windowed[K], V]]:
        """Like `fetch`, the newest first."""

    def fetch_keys(self, from_key: K | None, to_key: K | None) -> Iterator[tuple[Windowed[K], V]]:
        """`(session, value)` of the keys between two keys, both inclusive; None: no bound."""

    def backward_fetch_keys(self, from_key: K | None, to_key: K | None) -> Iterator[tuple[Windowed[K], V]]:
        """Like `fetch_keys`, the last first."""

    def find_sessions(self, key: K, earliest_end_ms: int, latest_start_ms: int) -> Iterator[tuple[Windowed[K], V]]:
        """`(session, value)` of a key with `end >= earliest_end_ms` and `start <= latest_start_ms`, oldest first."""

    def backward_find_sessions(
        self, key: K, earliest_end_ms: int, latest_start_ms: int
    ) -> Iterator[tuple[Windowed[K], V]]:
        """Like `find_sessions`, the newest first."""


class OrderedBytes(Protocol):
    """The entries of a store that you write: bytes in byte order, durable at the next commit.

    It is the only lasting memory: the store is built again from it whenever its task is.
    """

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, None if there is none."""

    def put(self, key: bytes, value: bytes | None) -> None:
        """Sets the value of a key; None deletes it."""

    def range(self, start: bytes = b"", stop: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Entries with `start <= key < stop`, in byte order; None: to the end."""

    def reverse_range(self, start: bytes = b"", stop: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Like `range`, the last first."""
