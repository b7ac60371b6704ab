from __future__ import annotations

from deltaworks import String
from deltaworks.kernel.stores.memory import MemoryState
from deltaworks.kernel.stores.subscriptions import SubscriptionStore
from deltaworks.serdes.foreign_keys import SubscriptionSerde
from deltaworks.topology.stages import StoreSpec

SPEC = StoreSpec(name="s", kind="subscriptions", key=String(), value=SubscriptionSerde())


def store_on(state: MemoryState, *, max_cached: int = 1000) -> SubscriptionStore:
    return SubscriptionStore(SPEC, state.reader("s"), max_cached=max_cached)


def commit(store: SubscriptionStore, state: MemoryState) -> None:
    changes = store.take_changes()
    if changes is not None:
        state.apply({"s": changes})


def test_subscribers_come_in_the_order_of_their_keys_committed_or_not() -> None:
    state = MemoryState()
    store = store_on(state)
    store.put(b"f", b"c", (b"1", 0))
    store.put(b"f", b"a", (b"2", 1))
    commit(store, state)
    store.put(b"f", b"b", (None, 2))
    store.put(b"f", b"c", None)

    assert store.subscribers(b"f") == [(b"a", (b"2", 1)), (b"b", (None, 2))]


def test_a_foreign_key_that_begins_another_one_has_subscribers_of_its_own() -> None:
    state = MemoryState()
    store = store_on(state)
    for foreign_key in (b"", b"f", b"ff", b"\xff" * 3):
        store.put(foreign_key, b"k", (foreign_key, 0))
    commit(store, state)

    back = store_on(state)

    for foreign_key in (b"", b"f", b"ff", b"\xff" * 3):
        assert back.subscribers(foreign_key) == [(b"k", (foreign_key, 0))]
    assert back.subscribers(b"fk") == []


def test_what_is_known_of_a_row_follows_the_commits() -> None:
    for max_cached in (0, 1000):
        state = MemoryState()
        store = store_on(state, max_cached=max_cached)
        assert store.subscribers(b"f") == []
        store.put(b"f", b"a", (b"1", 0))
        commit(store, state)
        assert store.subscribers(b"f") == [(b"a", (b"1", 0))]
        store.put(b"f", b"a", None)
        commit(store, state)

        assert store.subscribers(b"f") == []
        assert state.contents() == {}
        assert store.take_changes() is None
