from deltaworks import Long, String
from deltaworks.kernel.stores.memory import MemoryState
from deltaworks.kernel.stores.state import NEVER
from deltaworks.kernel.stores.window import WindowStore
from deltaworks.topology.stages import StoreSpec

SPEC = StoreSpec(name="w", kind="window", key=String(), value=Long(), retention_ms=100)


def store_on(state: MemoryState, newest_ms: int = NEVER, max_cached: int = 1000) -> WindowStore:
    return WindowStore(SPEC, state.reader("w"), newest_ms=newest_ms, max_cached=max_cached)


def put(store: WindowStore, key: str, start_ms: int, value: int) -> None:
    store.window(start_ms).updates[key] = (value, start_ms + 1)
    store.put_at(start_ms)


def commit(store: WindowStore, state: MemoryState) -> None:
    changes = store.take_changes()
    if changes is not None:
        state.apply({"w": changes})


def test_entry_bytes_are_key_start_and_timestamp_value() -> None:
    state = MemoryState()
    store = store_on(state)
    put(store, "k", 40, 9)
    commit(store, state)

    expected = (b"k" + (40).to_bytes(8, "big"), (41).to_bytes(8, "big") + (9).to_bytes(8, "big"))
    assert list(state.reader("w").scan(b"", None)) == [expected]


def test_entry_is_read_again_after_a_restart() -> None:
    state = MemoryState()
    store = store_on(state)
    put(store, "k", 40, 9)
    commit(store, state)

    assert store_on(state, store.newest_ms).fetch("k", 40) == 9


def test_entry_is_gone_once_its_start_is_a_retention_older_than_the_newest() -> None:
    state = MemoryState()
    store = store_on(state)
    put(store, "k", 0, 1)
    put(store, "k", 1, 2)
    commit(store, state)
    put(store, "k", 100, 3)

    assert store.fetch("k", 0) is None
    assert store.fetch("k", 1) == 2
    commit(store, state)
    assert [(start_ms, value) for _, start_ms, value, _ in store.all()] == [(1, 2), (100, 3)]


def test_entries_that_do_not_fit_in_memory_are_read_from_the_state() -> None:
    state = MemoryState()
    store = store_on(state, max_cached=2)
    for start_ms in range(10):
        put(store, "k", start_ms, start_ms)
    commit(store, state)

    assert len(store.windows) <= 2
    assert [store.fetch("k", start_ms) for start_ms in range(10)] == list(range(10))


def test_all_shows_what_is_not_committed() -> None:
    state = MemoryState()
    store = store_on(state)
    put(store, "b", 10, 1)
    commit(store, state)
    put(store, "a", 20, 2)
    store.window(10).updates["b"] = (None, 11)

    assert list(store.all()) == [("a", 20, 2, 21)]
