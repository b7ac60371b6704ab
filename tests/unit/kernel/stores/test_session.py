from deltaworks import Long, String
from deltaworks.kernel.stores.memory import MemoryState
from deltaworks.kernel.stores.session import SessionStore
from deltaworks.kernel.stores.state import NEVER
from deltaworks.topology.stages import StoreSpec

SPEC = StoreSpec(name="s", kind="session", key=String(), value=Long(), retention_ms=100)


def store_on(state: MemoryState, newest_ms: int = NEVER) -> SessionStore:
    return SessionStore(SPEC, state.reader("s"), newest_ms=newest_ms, max_cached=1000)


def put(store: SessionStore, key: str, start_ms: int, end_ms: int, value: int) -> None:
    store.sessions(key)
    store.replace(key, [], (end_ms, start_ms, value))


def commit(store: SessionStore, state: MemoryState) -> None:
    changes = store.take_changes()
    if changes is not None:
        state.apply({"s": changes})


def test_sessions_of_a_key_that_is_the_beginning_of_another_are_told_apart() -> None:
    state = MemoryState()
    store = store_on(state)
    for key in ("", "a", "a\0", "ab"):
        put(store, key, 10, 20, len(key))
    commit(store, state)

    again = store_on(state, store.newest_ms)

    assert [again.fetch(key) for key in ("", "a", "a\0", "ab")] == [[(10, 20, n)] for n in (0, 1, 2, 2)]


def test_session_bytes_are_key_start_end() -> None:
    state = MemoryState()
    store = store_on(state)
    put(store, "k", 3, 5, 9)
    commit(store, state)

    expected = b"k" + (3).to_bytes(8, "big") + (5).to_bytes(8, "big")
    assert list(state.reader("s").scan(b"", None)) == [(expected, (9).to_bytes(8, "big"))]


def test_session_that_came_and_went_leaves_no_change() -> None:
    state = MemoryState()
    store = store_on(state)
    put(store, "k", 3, 3, 1)
    store.replace("k", store.sessions("k")[:], None)

    assert store.take_changes() is None


def test_session_is_gone_once_its_end_is_a_retention_older_than_the_newest() -> None:
    state = MemoryState()
    store = store_on(state)
    put(store, "old", 0, 10, 1)
    put(store, "new", 110, 110, 2)

    assert store.fetch("old") == []
    commit(store, state)
    assert [key for key, *_ in store.all()] == ["new"]

    edge = store_on(MemoryState())
    put(edge, "old", 0, 11, 1)
    put(edge, "new", 110, 110, 2)
    assert edge.fetch("old") == [(0, 11, 1)]
