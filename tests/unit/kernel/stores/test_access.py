"""Stores as users' processors see them: contracts of every kind, before and after a commit, after a restart."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from deltaworks import OrderedBytes, StoreBuilder, Stores, ValueAndTimestamp, Windowed
from deltaworks.kernel.context import TaskContext
from deltaworks.kernel.errors import ErrorPolicy
from deltaworks.kernel.stores.access import access
from deltaworks.kernel.stores.build import build_store
from deltaworks.kernel.stores.memory import MemoryState
from deltaworks.kernel.stores.state import NEVER
from deltaworks.testing.capture import Capture, Topics
from deltaworks.testing.memory_tables import TablesInMemory


def ms(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)


class Host:
    """A store with its state; `restart` builds it again."""

    def __init__(self, builder: StoreBuilder[Any]) -> None:
        self._spec = builder.spec
        self._state = MemoryState()
        self._newest_ms = NEVER
        self.restart()

    @property
    def entries(self) -> list[tuple[bytes, bytes]]:
        return self._state.contents().get(self._spec.name, [])

    def restart(self) -> None:
        self._store = build_store(
            self._spec, self._state.reader(self._spec.name), newest_ms=self._newest_ms, max_cached=1
        )

    def store(self, read_only: str | None = None) -> Any:
        context = TaskContext(0, Capture(Topics(), TablesInMemory(()), None), ErrorPolicy(), {})
        return access(self._store, context, read_only=read_only)

    def commit(self) -> None:
        changes = self._store.take_changes()
        self._newest_ms = self._store.newest_ms
        if changes is not None:
            self._state.apply({self._spec.name: changes})


KEY_VALUE = Stores.key_value("s", key=str, value=int)
TIMESTAMPED = Stores.timestamped_key_value("s", key=str, value=int)
WINDOW = Stores.window("s", key=str, value=int, window_size=ms(10), retention=ms(100))
SESSION = Stores.session("s", key=str, value=int, retention=ms(100))


def test_ranges_are_in_byte_order_and_see_what_is_not_committed() -> None:
    host = Host(KEY_VALUE)
    host.store().put_all([("b", 2), ("aa", 1), ("ä", 9), ("d", 4)])
    host.commit()
    host.restart()
    store = host.store()
    store.put("c", 3)
    store.put("b", 20)
    store.delete("d")

    assert list(store.all()) == [("aa", 1), ("b", 20), ("c", 3), ("ä", 9)]
    assert list(store.reverse_all()) == [("ä", 9), ("c", 3), ("b", 20), ("aa", 1)]
    assert list(store.range("b", "c")) == [("b", 20), ("c", 3)]
    assert list(store.reverse_range(None, "b")) == [("b", 20), ("aa", 1)]
    assert list(store.range("c", "b")) == []
    assert store.approximate_num_entries() == 4


def test_a_prefix_of_the_highest_byte_ends_with_the_store() -> None:
    host = Host(Stores.key_value("s", key=bytes, value=int))
    store = host.store()
    store.put_all([(b"\xfe\xff", 1), (b"\xff", 2), (b"\xff\xff\xff", 3)])
    host.commit()

    assert list(store.prefix_scan(b"\xff")) == [(b"\xff", 2), (b"\xff\xff\xff", 3)]
    assert list(store.prefix_scan(b"\xfe")) == [(b"\xfe\xff", 1)]


def test_an_iterator_is_not_disturbed_by_writes() -> None:
    host = Host(KEY_VALUE)
    store = host.store()
    store.put_all([("a", 1), ("b", 2), ("c", 3)])
    host.commit()

    seen = []
    for key, value in store.all():
        seen.append((key, value))
        store.delete("b")
        store.put("bb", 5)

    assert seen == [("a", 1), ("b", 2), ("c", 3)]
    assert list(store.all()) == [("a", 1), ("bb", 5), ("c", 3)]


def test_what_was_absent_is_put_once() -> None:
    store = Host(KEY_VALUE).store()

    assert store.put_if_absent("k", 1) is None
    assert store.put_if_absent("k", 2) == 1
    assert store.delete("k") == 1
    assert store.delete("k") is None


def test_a_plain_store_keeps_no_times() -> None:
    plain, timestamped = Host(KEY_VALUE), Host(TIMESTAMPED)
    plain.store().put("k", 5)
    timestamped.store().put("k", 5, 77)
    plain.commit()
    timestamped.commit()

    assert plain.entries == [(b"k", (5).to_bytes(8, "big"))]
    assert timestamped.entries == [(b"k", (77).to_bytes(8, "big") + (5).to_bytes(8, "big"))]
    timestamped.restart()
    assert timestamped.store().get("k") == ValueAndTimestamp(5, 77)
    assert list(timestamped.store().range("a", "z")) == [("k", ValueAndTimestamp(5, 77))]


def test_keys_may_be_long_and_empty_and_not_null() -> None:
    host = Host(KEY_VALUE)
    store = host.store()
    store.put("x" * 5_000, 1)
    store.put("", 2)
    host.commit()
    host.restart()

    assert [value for _, value in host.store().all()] == [2, 1]
    with pytest.raises(ValueError, match="the store 's' has no null keys"):
        store.put(None, 1)
    with pytest.raises(ValueError, match="no null keys"):
        store.get(None)


def test_a_read_only_store_refuses_to_be_written() -> None:
    host = Host(KEY_VALUE)
    host.store().put("k", 1)
    store = host.store(read_only="it is global, and filled from its topic")

    assert store.get("k") == 1
    for write in (partial(store.put, "k", 2), partial(store.delete, "k"), partial(store.put_if_absent, "other", 2)):
        with pytest.raises(TypeError, match="the store 's' can only be read: it is global"):
            write()


def test_an_lru_map_drops_what_was_used_longest_ago_even_after_a_restart() -> None:
    host = Host(Stores.lru("s", key=str, value=int, max_entries=2))
    store = host.store()
    store.put("a", 1)
    store.put("b", 2)
    store.get("a")
    host.commit()
    host.restart()
    host.store().put("c", 3)

    assert list(host.store().all()) == [("a", 1), ("c", 3)]
    host.commit()
    assert [key for key, _ in host.entries] == [b"a", b"c"]


def test_looking_at_an_lru_map_as_a_whole_does_not_use_its_entries() -> None:
    store = Host(Stores.lru("s", key=str, value=int, max_entries=2)).store()
    store.put("a", 1)
    store.put("b", 2)
    assert list(store.range("a", "a")) == [("a", 1)]
    store.put("c", 3)

    assert list(store.all()) == [("b", 2), ("c", 3)]


def test_windows_are_fetched_by_key_and_start() -> None:
    host = Host(WINDOW)
    for key, value, start_ms in [("a", 1, 10), ("a", 2, 20), ("ab", 3, 15), ("b", 4, 20)]:
        host.store().put(key, value, start_ms)
    host.commit()
    host.restart()
    store = host.store()
    store.put("a", 5, 30)
    store.put("a", None, 10)

    assert list(store.fetch_range("a", 0, 30)) == [(20, 2), (30, 5)]
    assert list(store.backward_fetch_range("a", 20, 30)) == [(30, 5), (20, 2)]
    assert list(store.fetch_keys("a", "ab", 0, 100)) == [
        (Windowed("a", 20, 30), 2),
        (Windowed("a", 30, 40), 5),
        (Windowed("ab", 15, 25), 3),
    ]
    assert [value for _, value in store.backward_fetch_all(16, 30)] == [4, 5, 2]


def test_windows_of_several_keys_come_segment_by_segment() -> None:
    host = Host(Stores.window("s", key=str, value=int, window_size=ms(10), retention=ms(200_000)))
    store = host.store()
    store.put("b", 1, 99_999)
    store.put("a", 2, 100_000)
    store.put("c", 3, 0)

    assert [value for _, value in store.all()] == [1, 3, 2]


def test_a_window_leaves_with_the_retention_and_a_late_put_is_not_seen() -> None:
    host = Host(WINDOW)
    store = host.store()
    store.put("a", 1, 100)
    store.put("a", 2, 199)
    host.commit()
    assert store.fetch("a", 100) == 1
    store.put("b", 3, 200)
    store.put("a", 4, 100)

    assert store.fetch("a", 100) is None
    assert list(store.fetch_range("a", 0, 300)) == [(199, 2)]
    host.commit()
    assert len(host.entries) == 2


def test_a_deleted_window_moves_the_time_of_its_store() -> None:
    store = Host(WINDOW).store()
    store.put("a", 1, 10)
    store.put("b", None, 110)

    assert store.fetch("a", 10) is None


def test_duplicates_are_kept_in_their_order_and_a_null_adds_nothing() -> None:
    windows = Stores.window("s", key=str, value=int, window_size=ms(10), retention=ms(100), retain_duplicates=True)
    host = Host(windows)
    host.store().put("a", 2, 10)
    host.commit()
    host.restart()
    store = host.store()
    store.put("a", 1, 10)
    store.put("a", None, 10)
    store.put("a", None, 500)

    assert list(store.fetch_range("a", 0, 50)) == [(10, 2), (10, 1)]
    assert list(store.backward_fetch_range("a", 0, 50)) == [(10, 1), (10, 2)]
    assert list(store.all()) == [(Windowed("a", 10, 20), 2), (Windowed("a", 10, 20), 1)]


def test_sessions_are_found_by_end_and_start() -> None:
    host = Host(SESSION)
    host.store().put(Windowed("a", 10, 20), 1)
    host.store().put(Windowed("a", 30, 40), 2)
    host.commit()
    host.restart()
    store = host.store()
    store.put(Windowed("a", 30, 40), 3)
    store.put(Windowed("b", 0, 50), 4)

    assert list(store.find_sessions("a", 20, 30)) == [(Windowed("a", 10, 20), 1), (Windowed("a", 30, 40), 3)]
    assert list(store.find_sessions("a", 21, 30)) == [(Windowed("a", 30, 40), 3)]
    assert list(store.backward_fetch_keys(None, "a")) == [(Windowed("a", 30, 40), 3), (Windowed("a", 10, 20), 1)]
    assert store.fetch_session("a", 10, 20) == 1
    assert store.fetch_session("a", 10, 21) is None
    store.remove(Windowed("a", 10, 20))
    store.put(Windowed("b", 0, 50), None)
    assert list(store.fetch_keys(None, None)) == [(Windowed("a", 30, 40), 3)]


class Stack:
    """Last in, first out."""

    def __init__(self, entries: OrderedBytes) -> None:
        self._entries = entries

    def push(self, value: bytes) -> None:
        top, _ = next(self._entries.reverse_range(), (b"\0", b""))
        self._entries.put(bytes([top[0] + 1]), value)

    def pop(self) -> bytes | None:
        for key, value in self._entries.reverse_range():
            self._entries.put(key, None)
            return value
        return None


def test_a_store_of_ones_own_lasts_as_long_as_its_bytes() -> None:
    host = Host(Stores.custom("s", Stack))
    host.store().push(b"1")
    host.store().push(b"2")
    host.commit()
    host.restart()

    assert host.store().pop() == b"2"
    host.store().push(b"3")
    host.commit()
    host.restart()
    assert [host.store().pop() for _ in range(3)] == [b"3", b"1", None]
    host.commit()
    assert host.entries == []
