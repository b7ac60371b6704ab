from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltaworks import Json, Long, String
from deltaworks.kernel.stores.memory import MemoryState
from deltaworks.kernel.stores.state import NEVER
from deltaworks.kernel.stores.versioned import IS_LATEST, LATEST_MS, NOT_PUT, VersionedStore
from deltaworks.topology.stages import StoreSpec
from deltaworks.topology.state_stores import VersionedRecord

SPEC = StoreSpec(name="v", kind="versioned", key=String(), value=Long(), retention_ms=100)


def store_on(state: MemoryState, newest_ms: int = NEVER, *, max_cached: int = 1000) -> VersionedStore:
    return VersionedStore(SPEC, state.reader("v"), newest_ms=newest_ms, max_cached=max_cached)


def commit(store: VersionedStore, state: MemoryState) -> None:
    changes = store.take_changes()
    if changes is not None:
        state.apply({"v": changes})


def times(*milliseconds: int) -> bytes:
    return b"".join(each.to_bytes(8, "big") for each in milliseconds)


def test_a_version_is_an_entry_by_key_and_end_and_the_latest_never_ends() -> None:
    state = MemoryState()
    store = store_on(state)
    store.put("k", 1, 10)
    store.put("k", 2, 30)
    commit(store, state)

    assert list(state.reader("v").scan(b"", None)) == [
        (b"k" + times(30), times(10) + b"\x01" + times(1)),
        (b"k" + times(LATEST_MS), times(30, 2)),
    ]


def test_put_says_until_when_a_version_is_valid() -> None:
    store = store_on(MemoryState())

    assert [store.put("k", 1, 10), store.put("k", 2, 30), store.put("k", 3, 20)] == [IS_LATEST, IS_LATEST, 30]
    assert store.put("k", 4, 20) == 30
    assert store.get_record("k", 29) == VersionedRecord(4, 20)


def test_a_version_older_than_the_retention_is_not_put() -> None:
    store = store_on(MemoryState())
    store.put("other", 1, 110)

    assert store.put("k", 1, 9) == NOT_PUT
    assert store.put("k", 1, 10) == IS_LATEST


def test_before_the_retention_only_a_latest_version_is_found() -> None:
    store = store_on(MemoryState())
    store.put("k", 1, 10)
    store.put("k", 2, 50)
    store.put("lasting", 3, 10)
    store.put("other", 4, 200)

    assert store.get_record("k", 49) is None
    assert store.get_record("lasting", 49) == VersionedRecord(3, 10)


def test_a_tombstone_ends_what_is_put_before_it() -> None:
    store = store_on(MemoryState())
    store.put("k", 1, 10)

    assert store.delete("k", 40) == VersionedRecord(1, 10)
    assert store.put("k", 2, 20) == 40
    assert store.get("k") is None
    assert store.get_record("k", 39) == VersionedRecord(2, 20)


def test_a_tombstone_of_a_key_without_versions_is_remembered_by_a_restart() -> None:
    state = MemoryState()
    store = store_on(state)
    store.put("k", None, 40)
    commit(store, state)

    assert store_on(state, 40).put("k", 1, 20) == 40


def test_a_tombstone_at_the_time_of_the_only_version_is_forgotten() -> None:
    """As in Kafka Streams: nothing is left that could end an older version."""
    store = store_on(MemoryState())
    store.put("k", 1, 40)
    store.put("k", None, 40)

    assert store.put("k", 2, 20) == IS_LATEST


def test_old_versions_expire_and_latest_ones_do_not() -> None:
    state = MemoryState()
    store = store_on(state)
    store.put("k", 1, 10)
    store.put("k", 2, 20)
    commit(store, state)
    store.put("other", 3, 121)
    commit(store, state)

    assert [key for key, _ in state.reader("v").scan(b"", None)] == [
        b"k" + times(LATEST_MS),
        b"other" + times(LATEST_MS),
    ]


def test_a_longer_key_between_the_versions_of_another_is_not_taken_for_one() -> None:
    state = MemoryState()
    store = store_on(state)
    for key in ("k", "k\x00\x00\x00\x00\x00\x00\x00\x14"):
        store.put(key, 1, 10)
        store.put(key, 2, 30)
    commit(store, state)

    assert store_on(state, 30).get_record("k", 25) == VersionedRecord(1, 10)


def test_values_that_can_change_are_copies() -> None:
    spec = StoreSpec(name="v", kind="versioned", key=String(), value=Json(list[int]), retention_ms=100)
    store = VersionedStore(spec, MemoryState().reader("v"), newest_ms=NEVER, max_cached=10)
    store.put("k", [1], 10)
    store.get("k").append(2)  # type: ignore[union-attr]

    assert store.get("k") == [1]


def test_a_store_without_a_retention_is_refused() -> None:
    spec = StoreSpec(name="v", kind="versioned", key=String(), value=Long())

    with pytest.raises(ValueError, match="'v' needs a history retention"):
        VersionedStore(spec, MemoryState().reader("v"), newest_ms=NEVER, max_cached=10)


_PUTS = st.lists(
    st.tuples(st.sampled_from("ab"), st.one_of(st.none(), st.integers(0, 9)), st.integers(0, 250), st.booleans()),
    max_size=30,
)


@settings(max_examples=200, deadline=None)
@given(puts=_PUTS)
def test_restarts_and_small_caches_change_nothing(puts: list[tuple[str, int | None, int, bool]]) -> None:
    whole_state, state = MemoryState(), MemoryState()
    whole, store = store_on(whole_state), store_on(state, max_cached=0)

    for key, value, timestamp_ms, restart in puts:
        assert store.put(key, value, timestamp_ms) == whole.put(key, value, timestamp_ms)
        if restart:
            commit(store, state)
            store = store_on(state, store.newest_ms, max_cached=0)
        for at in (timestamp_ms, timestamp_ms - 1, 125):
            assert store.get_record(key, at) == whole.get_record(key, at)

    commit(whole, whole_state)
    commit(store, state)
    assert state.contents() == whole_state.contents()


@settings(max_examples=200, deadline=None)
@given(puts=_PUTS)
def test_a_version_is_found_as_of_every_time_it_was_valid(puts: list[tuple[str, int | None, int, bool]]) -> None:
    store = store_on(MemoryState())
    versions: dict[str, dict[int, int | None]] = {"a": {}, "b": {}}
    newest_ms = -1
    for key, value, timestamp_ms, _ in puts:
        if store.put(key, value, timestamp_ms) != NOT_PUT:
            newest_ms = max(newest_ms, timestamp_ms)
            versions[key][timestamp_ms] = value

    for key, by_time in versions.items():
        for at in range(max(0, newest_ms - 100), newest_ms + 1):
            valid = max((time for time in by_time if time <= at), default=None)
            value = None if valid is None else by_time[valid]
            found = store.get_record(key, at)
            # A forgotten tombstone only shows if something older is put later.
            if value is not None:
                assert found == (value, valid)
