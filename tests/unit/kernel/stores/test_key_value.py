from deltaworks import Json, Long, String
from deltaworks.kernel.stores.key_value import KeyValueStore
from deltaworks.kernel.stores.memory import MemoryState
from deltaworks.topology.stages import StoreSpec


def store_on(state: MemoryState, max_cached: int = 1000) -> KeyValueStore:
    spec = StoreSpec(name="t", kind="key-value", key=String(), value=Long())
    return KeyValueStore(spec, state.reader("t"), max_cached=max_cached)


def commit(store: KeyValueStore, state: MemoryState) -> int:
    changes = store.take_changes()
    if changes is None:
        return 0
    state.apply({"t": changes})
    return len(changes.entries)


def test_last_write_of_a_key_is_the_only_change() -> None:
    state = MemoryState()
    store = store_on(state)
    store.entries.updates["k"] = (1, 10)
    store.entries.updates["k"] = (2, 11)

    assert commit(store, state) == 1
    assert state.reader("t").get(b"k") == (11).to_bytes(8, "big") + (2).to_bytes(8, "big")


def test_delete_is_a_change_only_if_there_may_be_something_to_delete() -> None:
    state = MemoryState()
    store = store_on(state)
    store.entries.get("never")
    store.entries.updates["never"] = (None, 1)
    assert commit(store, state) == 0

    store.entries.updates["k"] = (1, 10)
    commit(store, state)
    store.entries.updates["k"] = (None, 11)
    assert commit(store, state) == 1
    assert store.get("k") is None
    assert list(store.all()) == []


def test_keys_that_do_not_fit_in_memory_are_read_from_the_state() -> None:
    state = MemoryState()
    store = store_on(state, max_cached=4)
    for number in range(10):
        store.entries.updates[str(number)] = (number, number)
        commit(store, state)

    assert len(store.entries.committed) <= 5
    assert [store.get(str(number)) for number in range(10)] == list(range(10))


def test_value_that_can_change_is_a_fresh_copy_at_every_read() -> None:
    spec = StoreSpec(name="t", kind="key-value", key=String(), value=Json(list[int]))
    store = KeyValueStore(spec, MemoryState().reader("t"), max_cached=10)
    store.entries.updates["k"] = (store.codec.cached_value([1]), 0)

    first = store.get("k")
    assert first is not None
    first.append(2)

    assert store.get("k") == [1]


def test_key_without_a_hash_is_kept_by_its_bytes() -> None:
    spec = StoreSpec(name="t", kind="key-value", key=Json(dict[str, int]), value=Long())
    store = KeyValueStore(spec, MemoryState().reader("t"), max_cached=10)
    assert store.codec.cache_key is not None
    store.entries.updates[store.codec.cache_key({"a": 1})] = (5, 0)

    assert store.get({"a": 1}) == 5
    assert list(store.all()) == [({"a": 1}, 5, 0)]
