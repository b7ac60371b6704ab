"""The local store is ordered bytes with an index by time, one transaction per batch, and believes nothing by itself."""

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltaworks.errors import StateError
from deltaworks.kernel.stores.memory import MemoryState
from deltaworks.kernel.stores.state import StoreChanges
from deltaworks.runtime.state import local_store
from deltaworks.runtime.state.local_store import EMPTY, LocalStore, StateVersion, discard
from tests.support.processes import ended

STORES = {"counts": False, "windows": True}
_NEAR = bytes(each % 3 if each < 128 else 0 for each in range(256))
"""Few bytes, none of them large, so that keys and times meet again."""
FIRST, SECOND = StateVersion(1, b"a"), StateVersion(2, b"b")


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "0-0", STORES)


def at(key: bytes, time_ms: int) -> bytes:
    return key + time_ms.to_bytes(8, "big")


def entries(store: LocalStore, name: str) -> list[tuple[bytes, bytes]]:
    return list(store.reader(name).scan(b"", None))


@contextmanager
def woken_up(process: subprocess.Popen[bytes], *, after_s: float) -> Iterator[None]:
    """Lets a suspended process go on after a while, so that who waits for it goes on, too."""
    timer = threading.Timer(after_s, process.send_signal, [signal.SIGCONT])
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def put(store: LocalStore, version: StateVersion, previous: StateVersion | None, **changes: StoreChanges) -> None:
    store.commit(changes, version, previous)


def test_scan_is_in_byte_order_between_its_bounds(store: LocalStore) -> None:
    put(store, FIRST, None, counts=StoreChanges([(k, k.upper()) for k in (b"b", b"", b"a", b"ab", b"c")]))
    assert [k for k, _ in store.reader("counts").scan(b"a", b"c")] == [b"a", b"ab", b"b"]
    assert [k for k, _ in store.reader("counts").scan(b"", None)] == [b"", b"a", b"ab", b"b", b"c"]


def test_keys_longer_than_lmdb_allows_keep_order_and_identity(store: LocalStore) -> None:
    keys = [b"x" * 459, b"x" * 460, b"x" * 461, b"x" * 600 + b"a", b"x" * 600 + b"b", b"x" * 2000, b"y"]
    put(store, FIRST, None, counts=StoreChanges([(k, b"%d" % len(k)) for k in reversed(keys)]))
    assert [k for k, _ in entries(store, "counts")] == sorted(keys)
    assert [store.reader("counts").get(k) for k in keys] == [b"%d" % len(k) for k in keys]
    assert [k for k, _ in store.reader("counts").scan(b"x" * 600 + b"b", b"y")] == [b"x" * 600 + b"b", b"x" * 2000]


def test_time_index_follows_puts_and_deletes(store: LocalStore) -> None:
    keys = [at(b"u" * 500, 30), at(b"b", 20), at(b"a", 20), at(b"a", 10)]
    put(store, FIRST, None, windows=StoreChanges([(k, b"v") for k in keys]))
    put(store, SECOND, FIRST, windows=StoreChanges([(at(b"a", 20), None), (at(b"b", 20), b"w")]))
    assert list(store.reader("windows").scan_time(10, 31)) == [
        (at(b"a", 10), b"v"), (at(b"b", 20), b"w"), (at(b"u" * 500, 30), b"v"),
    ]  # fmt: skip
    assert [k for k, _ in store.reader("windows").scan_time(11, 30)] == [at(b"b", 20)]


def test_expiry_deletes_every_entry_below_the_bound(store: LocalStore) -> None:
    put(store, FIRST, None, windows=StoreChanges([(at(b"a", t), b"v") for t in (1, 2, 3)], expire_before_ms=3))
    assert entries(store, "windows") == [(at(b"a", 3), b"v")]
    assert list(store.reader("windows").scan_time(0, None)) == [(at(b"a", 3), b"v")]


_keys = st.binary(min_size=8, max_size=9) | st.sampled_from([b"x" * 460, b"x" * 461, b"x" * 600, b"y" * 2000])
_entries = st.dictionaries(_keys.map(lambda key: key[:-8] + key[-8:].translate(_NEAR)), st.none() | st.binary())
_batches = st.lists(st.tuples(_entries, _entries, st.none() | st.integers(0, 1 << 62)), min_size=1, max_size=4)


@settings(max_examples=100, deadline=None)
@given(_batches)
def test_any_changes_leave_what_they_leave_in_memory(
    batches: list[tuple[dict[bytes, bytes | None], dict[bytes, bytes | None], int | None]],
) -> None:
    memory = MemoryState()
    with TemporaryDirectory() as folder, closing(LocalStore(Path(folder) / "0-0", STORES)) as store:
        for number, (counts, windows, bound) in enumerate(batches, start=1):
            changes = {"counts": StoreChanges([*counts.items()]), "windows": StoreChanges([*windows.items()], bound)}
            memory.apply(changes)
            store.commit(changes, StateVersion(number, b"n"), store.version())
            for name in STORES:
                assert entries(store, name) == list(memory.reader(name).scan(b"", None))
            by_time = [list(each.reader("windows").scan_time(0, None)) for each in (store, memory)]
            assert sorted(by_time[0], key=_time) == by_time[0]
            assert sorted(by_time[0]) == sorted(by_time[1])


def _time(entry: tuple[bytes, bytes]) -> bytes:
    return entry[0][-8:]


def test_another_process_sees_what_was_committed(store: LocalStore, tmp_path: Path) -> None:
    put(store, FIRST, None, counts=StoreChanges([(b"a", b"1")]))
    code = (
        "from pathlib import Path; from deltaworks.runtime.state.local_store import LocalStore; "
        f"s = LocalStore(Path({str(tmp_path / '0-0')!r}), {STORES!r}); "
        "print(s.reader('counts').get(b'a'), s.version())"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "b'1' StateVersion(number=1, nonce=b'a')"


def test_what_cannot_be_read_is_no_fault_of_a_record(store: LocalStore) -> None:
    reader = store.reader("windows")
    store.close()

    for read in (
        lambda: reader.get(b"k"),
        lambda: list(reader.scan(b"", None)),
        lambda: list(reader.scan_time(0, None)),
    ):
        with pytest.raises(StateError, match="cannot be read"):
            read()


def test_a_transaction_reads_its_own_writes_and_counts_as_a_whole(store: LocalStore) -> None:
    put(store, FIRST, None, windows=StoreChanges([(at(b"a", 1), b"old"), (at(b"b", 2), b"v")]))
    with store.transaction() as transaction:
        inside = transaction.reader("windows")
        transaction.apply({"windows": StoreChanges([(at(b"a", 1), b"new"), (at(b"c", 3), b"v")])})
        transaction.apply({"windows": StoreChanges([(at(b"d", 4), b"v")], expire_before_ms=3)})
        assert list(inside.scan(b"", None)) == [(at(b"c", 3), b"v"), (at(b"d", 4), b"v")]
        assert [key for key, _ in inside.scan_time(0, 4)] == [at(b"c", 3)]
        assert [inside.get(at(key, time)) for key, time in ((b"a", 1), (b"d", 4))] == [None, b"v"]
        assert entries(store, "windows") == [(at(b"a", 1), b"old"), (at(b"b", 2), b"v")]
        assert transaction.entry_count() == 2
        transaction.commit(SECOND)
    assert [key for key, _ in entries(store, "windows")] == [at(b"c", 3), at(b"d", 4)]
    assert store.version() == SECOND


def test_sizes_are_those_of_each_store_with_its_index(store: LocalStore) -> None:
    page = os.sysconf("SC_PAGE_SIZE")
    assert store.sizes() == {"counts": (0, 0), "windows": (0, 0)}
    many = StoreChanges([(number.to_bytes(4, "big"), b"v" * 100) for number in range(1_000)])
    put(store, FIRST, None, counts=many, windows=StoreChanges([(at(b"a", 1), b"v"), (at(b"b", 2), b"v")]))

    sizes = store.sizes()

    assert sizes["windows"] == (2, 2 * page), "a page of entries, and one of times"
    entries, size_bytes = sizes["counts"]
    assert entries == 1_000
    assert 100 * 1_000 < size_bytes < 300 * 1_000 and size_bytes % page == 0
    assert sum(number for number, _ in sizes.values()) == store.entry_count()


@pytest.mark.parametrize("raised", [False, True])
def test_a_transaction_that_is_not_committed_leaves_nothing(store: LocalStore, raised: bool) -> None:
    put(store, FIRST, None, counts=StoreChanges([(b"a", b"1")]))
    with suppress(KeyError), store.transaction() as transaction:
        transaction.apply({"counts": StoreChanges([(b"a", b"2")])})
        if raised:
            raise KeyError
    assert store.version() == FIRST
    assert entries(store, "counts") == [(b"a", b"1")]


def test_a_late_writer_changes_nothing(store: LocalStore) -> None:
    """Batch 2 is tried twice; the first attempt wakes up when the store has long gone on."""
    fifth, sixth, late = StateVersion(5, b"e"), StateVersion(6, b"f"), StateVersion(2, b"late")
    put(store, FIRST, None, counts=StoreChanges([(b"k", b"1")]))
    put(store, fifth, FIRST, counts=StoreChanges([(b"k", b"5")]))
    with pytest.raises(StateError, match="at version 5, but version 1 was read"):
        put(store, late, FIRST, counts=StoreChanges([(b"k", b"2-stale")]))
    with pytest.raises(StateError, match="another process has written it meanwhile"):
        store.rebuild(iter(()), late, FIRST)
    put(store, sixth, fifth, counts=StoreChanges([(b"q", b"6")]))
    assert (store.version(), entries(store, "counts")) == (sixth, [(b"k", b"5"), (b"q", b"6")])


def test_a_writer_that_is_suspended_stops_nobody_for_ever(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, FIRST, None, counts=StoreChanges([(b"a", b"1")]))
    code = (
        "import os, signal; from pathlib import Path; from deltaworks.runtime.state.local_store import *; "
        f"s = LocalStore(Path({str(tmp_path / '0-0')!r}), {STORES!r})\n"
        "with s.transaction() as t: os.kill(os.getpid(), signal.SIGSTOP); t.commit(StateVersion(9, b'late'))\n"
    )
    monkeypatch.setattr(local_store, "_PATIENCE_S", 0.1)
    late = subprocess.Popen([sys.executable, "-c", code])
    with ended(late), woken_up(late, after_s=10.0):
        assert os.WIFSTOPPED(os.waitpid(late.pid, os.WUNTRACED)[1])
        with pytest.raises(StateError, match=r"writes to it has made no progress for more than 0[.]1 s"):
            put(store, SECOND, FIRST)
        with closing(LocalStore.copy(tmp_path / "0-0", STORES)) as new:
            assert new.version() == EMPTY
            put(new, SECOND, None, counts=StoreChanges([(b"a", b"2")]))
            late.send_signal(signal.SIGCONT)
            assert late.wait(timeout=30) == 0
            assert new.version() == SECOND
            assert not new.refresh()
        assert store.refresh()
        assert (store.version(), entries(store, "counts")) == (SECOND, [(b"a", b"2")])


def test_what_another_process_has_thrown_away_is_opened_again(store: LocalStore, tmp_path: Path) -> None:
    put(store, FIRST, None, counts=StoreChanges([(b"a", b"1")]))
    assert not store.refresh()
    discard(tmp_path / "0-0")
    assert entries(store, "counts") == [(b"a", b"1")], "who reads goes on with what he has"
    assert store.refresh()
    assert (store.version(), entries(store, "counts")) == (EMPTY, [])


def test_a_store_is_as_large_as_it_says(store: LocalStore, tmp_path: Path) -> None:
    """Also when LMDB has taken pages and given them back; else it would be taken for one that was cut off."""
    rng = random.Random(1)
    for batch in range(30):
        keys = [b"%d-%d" % (batch, number) for number in range(rng.randrange(1, 400))]
        with store.transaction() as transaction:
            transaction.apply({"counts": StoreChanges([(key, bytes(rng.choice([10, 1000, 9000]))) for key in keys])})
            transaction.apply({"counts": StoreChanges([(key, None) for key in keys if rng.random() < 0.98])})
            transaction.commit(FIRST)
        seen_by_another = shutil.copytree(tmp_path / "0-0", tmp_path / f"copy-{batch}")
        with closing(LocalStore(seen_by_another, STORES)) as opened:
            assert opened.version() == FIRST


def test_who_throws_a_store_away_keeps_the_new_one_that_another_process_has_made(
    store: LocalStore, tmp_path: Path
) -> None:
    put(store, FIRST, None, counts=StoreChanges([(b"a", b"1")]))
    subprocess.run(
        [sys.executable, "-c", (
            "from pathlib import Path; from deltaworks.runtime.state.local_store import *; "
            f"s = LocalStore(Path({str(tmp_path / '0-0')!r}), {STORES!r}); s.discard(); "
            "s.commit({}, StateVersion(2, b'b'), None)"
        )],
        check=True,
    )  # fmt: skip
    store.discard()
    assert (store.version(), entries(store, "counts")) == (SECOND, [])
    store.discard()
    assert store.version() == EMPTY


def test_pages_that_a_killed_reader_has_seen_are_used_again(store: LocalStore, tmp_path: Path) -> None:
    put(store, FIRST, None, counts=StoreChanges([(b"a", b"1")]))
    code = (
        "import lmdb, os, signal; "
        f"env = lmdb.open({str(tmp_path / '0-0')!r}, readonly=True, lock=True); txn = env.begin(); "
        "print(env.readers()); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)

    size = 0
    for number in range(2, 60):
        changed = StoreChanges([(b"%d" % each, os.urandom(100)) for each in range(200)])
        put(store, StateVersion(number, b"n"), StateVersion(number - 1, b"n" if number > 2 else b"a"), counts=changed)
        if number == 10:
            size = store._size_bytes()
    assert store._size_bytes() == size, "it grows with every batch"
