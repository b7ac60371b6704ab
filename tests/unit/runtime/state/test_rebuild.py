"""A rebuild takes one document after the other: bounded, told, done by one process at a time, not trusted half-done."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from deltaworks import clock, faults, files
from deltaworks.errors import StateError
from deltaworks.kernel.stores.state import StoreChanges
from deltaworks.runtime.state import changelog, local_store, recovery
from deltaworks.runtime.state.changelog import SegmentRef
from deltaworks.runtime.state.local_store import EMPTY, UNFINISHED, LocalStore
from deltaworks.runtime.state.recovery import (
    NOTHING,
    RecoveryAction,
    Restore,
    StateHeader,
    append,
    next_version,
    open_store,
)
from tests.support.processes import ended
from tests.support.task_state import TaskState

STORES = {"counts": False, "windows": True}
ENTRIES = 200


@pytest.fixture(autouse=True)
def small_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changelog, "_CHUNK_BYTES", 400)
    monkeypatch.setattr(recovery, "_DOCUMENTS_PER_COMMIT", 4)


@pytest.fixture(autouse=True)
def disarm() -> Iterator[None]:
    yield
    faults.arm(None)


@pytest.fixture
def state() -> TaskState:
    """Several segments of several documents; later ones change entries of the first one, and remove some."""
    made, header = TaskState(), NOTHING
    for batch in range(3):
        keys = range(0, ENTRIES, batch + 1)
        counts = [(b"k%d" % n, b"%d" % batch if n % 7 else None) for n in keys]
        windows = [(b"w%d" % n + (n + batch).to_bytes(8, "big"), b"v%d" % n) for n in keys]
        changes = {"counts": StoreChanges([*counts]), "windows": StoreChanges([*windows], 40 * batch)}
        header = append(made, header, next_version(header), changelog.ordered(changes))
    return made


def content(local: LocalStore) -> dict[str, list[tuple[bytes, bytes]]]:
    return {name: list(local.reader(name).scan(b"", None)) for name in STORES} | {
        "times": list(local.reader("windows").scan_time(0, None))
    }


@pytest.fixture
def expected(state: TaskState, tmp_path: Path) -> dict[str, list[tuple[bytes, bytes]]]:
    """As a store has it that every batch was applied to as a whole."""
    with closing(LocalStore(tmp_path / "expected", STORES)) as local, local.transaction() as transaction:
        assert state.version is not None
        for segment in state.version.segments:
            chunks = [state.segment(segment.first + number) for number in range(segment.chunks)]
            transaction.apply(changelog.merge(changelog.decode(chunks), oldest=False))
        transaction.commit(state.version.version)
        return content(local)


OTHER = """
import os, pickle, signal, sys
from pathlib import Path
from deltaworks import faults
from deltaworks.runtime.state import recovery
from deltaworks.runtime.state.local_store import LocalStore

path, state, stores, what = pickle.load(sys.stdin.buffer)
recovery._DOCUMENTS_PER_COMMIT = 4
documents = 0

def hook(point):
    global documents
    documents += point == "store.rebuilding"
    if what == "die" and documents == 10:
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "slowly" and point in ("store.before_rebuild", "store.rebuilding"):
        print(point, flush=True)
        assert sys.stdin.readline()

faults.arm(hook)
print(recovery.open_store(LocalStore(path, stores), state)[1].name, documents, flush=True)
"""


@contextmanager
def other(path: Path, state: TaskState, what: str) -> Iterator[Other]:
    """Another process that opens the store, and ends here at the latest."""
    process = subprocess.Popen([sys.executable, "-c", OTHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process, ended(process):
        made = Other(process)
        made.send(pickle.dumps((path, state, STORES, what)))
        yield made


class Other:
    """What another process says and is told."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def send(self, data: bytes = b"\n") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def said(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().strip()


def test_a_rebuild_that_was_killed_is_nobodys_state_and_begins_anew(
    state: TaskState, expected: dict[str, list[tuple[bytes, bytes]]], tmp_path: Path
) -> None:
    path = tmp_path / "0-0"
    with closing(LocalStore(path, STORES)):
        pass
    with other(path, state, "die") as killed:
        assert killed.process.wait(timeout=60) == -signal.SIGKILL
    with closing(LocalStore.copy(path, STORES)) as local:
        assert local.version() == UNFINISHED
        assert 0 < local.entry_count() < ENTRIES
        assert open_store(local, state)[1] is RecoveryAction.REBUILD
        assert content(local) == expected
        assert open_store(local, state)[1] is RecoveryAction.SAME


def test_a_rebuild_that_failed_is_not_taken_for_the_state_of_a_task_that_has_never_run(
    state: TaskState, tmp_path: Path
) -> None:
    with closing(LocalStore(tmp_path / "0-0", STORES)) as local:
        interrupt(local, state, at=6)
        assert local.entry_count() > 0
        assert open_store(local, TaskState())[1] is RecoveryAction.REBUILD
        assert (local.version(), local.entry_count()) == (EMPTY, 0)


def interrupt(local: LocalStore, state: TaskState, at: int) -> None:
    """A rebuild that fails after some documents."""
    reached = iter(range(1, 1_000))

    def hook(point: str) -> None:
        if point == "store.rebuilding" and next(reached) == at:
            raise InterruptedError

    faults.arm(hook)
    with pytest.raises(InterruptedError):
        open_store(local, state)
    faults.arm(None)


@pytest.mark.parametrize("at", [1, 3, 4, 12])
def test_wherever_a_rebuild_ends_the_next_one_is_whole(
    state: TaskState, expected: dict[str, list[tuple[bytes, bytes]]], tmp_path: Path, at: int
) -> None:
    with closing(LocalStore(tmp_path / "0-0", STORES)) as local:
        interrupt(local, state, at)
        assert local.version() == (EMPTY if at < 4 else UNFINISHED)
        assert open_store(local, state)[1] is RecoveryAction.REBUILD
        assert content(local) == expected


def test_two_processes_never_rebuild_one_store_at_once(
    state: TaskState,
    expected: dict[str, list[tuple[bytes, bytes]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second one waits as long as the first one goes on, here one document each time its patience ends."""
    path, lock, waited = tmp_path / "0-0", files.lock, list[str]()
    with closing(LocalStore(path, STORES)) as local, other(path, state, "slowly") as first:
        assert first.said() == "store.before_rebuild"  # it has the lock

        def wait(file: int, *, patience_s: float) -> bool:
            if lock(file):
                return True
            first.send()
            waited.append(first.said())
            return waited[-1].startswith("REBUILD") and lock(file)

        monkeypatch.setattr(local_store, "lock", wait)
        assert open_store(local, state)[1] is RecoveryAction.SAME
        assert content(local) == expected
        documents = waited.count("store.rebuilding")
        assert documents > 8, "it was not in the middle of something long"
        assert waited[-1] == f"REBUILD {documents}"


def test_a_process_that_is_stopped_in_a_rebuild_is_not_waited_for(
    state: TaskState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "0-0"
    monkeypatch.setattr(local_store, "_PATIENCE_S", 0.1)
    with closing(LocalStore(path, STORES)) as local, other(path, state, "slowly") as first:
        assert first.said() == "store.before_rebuild"
        os.kill(first.process.pid, signal.SIGSTOP)
        with pytest.raises(StateError, match="made no progress"):
            open_store(local, state)
        local.discard()
        assert open_store(local, state)[1] is RecoveryAction.REBUILD


@dataclass
class Large(TaskState):
    """A state whose chunks are made when they are read."""

    private_kb: list[int] = field(default_factory=list)
    """Memory of this process at each of them."""

    def segment(self, segment_id: int) -> bytes:
        status = Path("/proc/self/status").read_text()
        self.private_kb.append(int(status.partition("RssAnon:")[2].split()[0]))
        entries = [(b"%016d" % (segment_id * 20_000 + n), b"v" * 80) for n in range(20_000)]
        (chunk,) = changelog.encode({"counts": StoreChanges([*entries])})
        return chunk


def test_the_memory_of_a_rebuild_does_not_grow_with_the_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One document as objects, and the pages that are not committed: here 2 MB encoded, and four of them."""
    monkeypatch.setattr(changelog, "_CHUNK_BYTES", 4 << 20)
    used_mb = {}
    for documents in (40, 120):
        version = next_version(NOTHING)
        segment = SegmentRef(0, documents, 3, documents * 20_000, version)
        state = Large(StateHeader(version, (segment,), documents))
        with closing(LocalStore(tmp_path / str(documents), STORES)) as local:
            open_store(local, state)
            assert local.entry_count() == documents * 20_000
        used_mb[documents] = (max(state.private_kb) - state.private_kb[0]) / 1024
    assert used_mb[120] < used_mb[40] + 8 < 60, used_mb


def test_a_restore_that_takes_long_says_how_far_it_has_come(
    state: TaskState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = iter(range(0, 10_000, 2))  # each document takes two seconds
    monkeypatch.setattr(clock, "ticks_s", lambda: float(next(now)))
    assert state.version is not None
    total = sum(segment.entries for segment in state.version.segments)
    restore = Restore("task 0-3")
    with closing(LocalStore(tmp_path / "0-0", STORES)) as local:
        open_store(local, state, restore=restore)
    said = [record.getMessage() for record in caplog.records]
    documents = 2 * len(said) + len(said)
    assert said[0].startswith("task 0-3: ") and said[0].endswith(
        f" of {total:,} entries restored, {said[0].split()[-1]}"
    )
    assert all(f"of {total:,} entries restored" in line for line in said)
    assert restore.entries == total
    assert documents <= restore.seconds / 2 <= documents + 3, "one line in six seconds"


def test_a_restore_that_takes_a_moment_says_nothing(
    state: TaskState, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    restore = Restore("task 0-3")
    with closing(LocalStore(tmp_path / "0-0", STORES)) as local:
        open_store(local, state, restore=restore)
        assert not caplog.records
        assert restore.entries > ENTRIES
        again = Restore("task 0-3")
        open_store(local, state, restore=again)
        assert (again.entries, again.seconds) == (0, 0.0)
