"""A segment is documents of bounded size in the order of keys; merging and cutting change nothing of its effect."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltaworks.kernel.stores.memory import MemoryState
from deltaworks.kernel.stores.state import StoreChanges
from deltaworks.runtime.state import changelog
from deltaworks.runtime.state.changelog import decode, encode, entry_count, merge, ordered
from deltaworks.runtime.state.local_store import Changes

STORES = {"counts": False, "windows": True}
Content = dict[str, dict[bytes, bytes]]


def timed(key: bytes) -> bytes:
    return key[:-1] + key[-1:].rjust(8, b"\0")


@st.composite
def batches(draw: st.DrawFn) -> dict[str, StoreChanges]:
    """The changes of a batch: one entry per key, as stores hand them over."""
    keys = st.binary(min_size=1, max_size=3)
    values = st.none() | st.binary(max_size=40)
    counts = draw(st.dictionaries(keys, values, max_size=12))
    windows = {timed(key): value for key, value in draw(st.dictionaries(keys, values, max_size=12)).items()}
    bound = draw(st.none() | st.integers(0, 255))
    found = {"counts": StoreChanges([*counts.items()]), "windows": StoreChanges([*windows.items()], bound)}
    return {name: found[name] for name in draw(st.sets(st.sampled_from(["counts", "windows"])))}


def effect(parts: list[Changes]) -> Content:
    """What is in stores to which changes are applied one after the other."""
    state = MemoryState()
    for changes in parts:
        state.apply(changes)
    return {name: dict(state.reader(name).scan(b"", None)) for name in STORES}


@settings(max_examples=200, deadline=None)
@given(batches(), st.integers(8, 200))
def test_the_documents_of_a_segment_have_its_effect_whatever_their_size(changes: Changes, size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(changelog, "_CHUNK_BYTES", size)
        chunks = encode(ordered(changes))
        documents = list(decode(chunks))
    assert effect([*documents]) == effect([changes])
    assert all(len(chunk) <= size for chunk in chunks)
    for name, change in ordered(changes).items():
        parts = [document[name] for document in documents if name in document]
        assert [entry for part in parts for entry in part.entries] == change.entries
        assert parts[-1].expire_before_ms == change.expire_before_ms
    assert all(entry_count(each) <= 1 or len(msgspec.msgpack.encode(each)) < size for each in documents)


@pytest.mark.thorough
@settings(max_examples=200, deadline=None)
@given(st.lists(batches(), max_size=5))
def test_merged_changes_are_in_the_order_of_keys_and_have_the_same_effect(parts: list[Changes]) -> None:
    for oldest in (False, True):
        merged = merge(parts, oldest=oldest)
        for change in merged.values():
            keys = [key for key, _ in change.entries]
            assert keys == sorted(set(keys))
            assert not oldest or None not in dict(change.entries).values()
        if all(changes.get("windows", StoreChanges([])).expire_before_ms is None for changes in parts):
            assert effect([merged]) == effect(parts)


def test_a_bound_holds_for_what_it_was_given_with_and_for_what_is_older() -> None:
    old, new = timed(b"a\1"), timed(b"b\5")
    parts = [{"windows": StoreChanges([(old, b"1")])}, {"windows": StoreChanges([(new, b"2")], 3)}]
    assert merge(parts, oldest=True)["windows"] == StoreChanges([(new, b"2")], 3)


@pytest.mark.parametrize("size", [16, 1 << 20])
def test_a_segment_of_format_2_is_read(size: int) -> None:
    """One document, cut into chunks without a word; its entries have the order in which they were written."""
    changes = {
        "counts": StoreChanges([(b"k%d" % (n * 7 % 50), b"v" * n) for n in range(50)]),
        "empty": StoreChanges([]),
    }
    data = msgspec.msgpack.encode(changes)
    assert list(decode([data[i : i + size] for i in range(0, len(data), size)])) == [changes]
    assert list(decode([msgspec.msgpack.encode({})])) == [{}]


def test_chunks_are_taken_when_they_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changelog, "_CHUNK_BYTES", 100)
    taken: list[int] = []
    chunks = encode({"counts": StoreChanges([(b"k%03d" % n, b"v") for n in range(100)])})
    documents = decode(taken.append(n) or chunk for n, chunk in enumerate(chunks))  # type: ignore[func-returns-value]
    for number, _ in enumerate(documents):
        assert taken == list(range(number + 1))
    assert len(taken) == len(chunks) > 5


def test_a_segment_that_ends_within_a_document_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changelog, "_CHUNK_BYTES", 100)
    chunks = encode({"counts": StoreChanges([(b"k", b"v" * 500)])})
    assert len(chunks) > 5
    with pytest.raises(AssertionError, match="ends within a document"):
        list(decode(chunks[:-1]))
