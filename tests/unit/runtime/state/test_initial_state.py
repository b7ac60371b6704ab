"""A task that begins with an initial state has the stores it was made from, whatever happens to its first attempts."""

from __future__ import annotations

import copy
import random
from pathlib import Path

import pytest

from deltaworks.errors import IncompatibleCheckpointError
from deltaworks.kernel.stores.state import StoreChanges
from deltaworks.runtime.state import changelog, initial_state
from deltaworks.runtime.state.changelog import FANOUT
from deltaworks.runtime.state.local_store import LocalStore, StateVersion
from deltaworks.runtime.state.recovery import RecoveryAction, append, next_version, open_store
from tests.support.task_state import TaskState

STORES = {"counts": False, "windows": True, "empty": False}
Content = dict[str, dict[bytes, bytes]]


def content(local: LocalStore) -> Content:
    return {name: dict(local.reader(name).scan(b"", None)) for name in STORES}


def filled(path: Path, entries: int) -> LocalStore:
    """As a replay leaves it; one key is longer than LMDB's."""
    local, rng = LocalStore(path, STORES), random.Random(entries)
    counts = [(b"k%d" % n, rng.randbytes(20)) for n in range(entries // 2)] + [(b"long" * 200, b"value")]
    windows = [(b"w%d" % n + (n * 10).to_bytes(8, "big"), rng.randbytes(20)) for n in range(entries // 2)]
    changes = {"counts": StoreChanges([*counts]), "windows": StoreChanges([*windows])}
    local.commit(changes, StateVersion(7, b"replay"), None)
    return local


@pytest.fixture(params=[10, 200])
def made(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Content:
    """What the initial state of task (0, 3) in `tmp_path` was made from; the larger one has several segments."""
    monkeypatch.setattr(initial_state, "_MIN_ENTRIES", 20)
    monkeypatch.setattr(changelog, "_CHUNK_BYTES", 256)
    local = filled(tmp_path / "replay", request.param)
    initial_state.write(initial_state.path_of(tmp_path, 0, 3), local, STORES, batches=70)
    expected = content(local)
    local.close()
    return expected


def test_a_task_of_which_nothing_is_known_takes_its_initial_state(tmp_path: Path, made: Content) -> None:
    local, state = LocalStore(tmp_path / "local", STORES), TaskState()

    header, opened = open_store(local, initial_state.with_initial_state(state, tmp_path, 0, 3))

    assert opened is RecoveryAction.REBUILD
    assert content(local) == made
    assert 1 <= len(header.segments) < FANOUT
    assert {segment.tier for segment in header.segments} == {2}
    assert state == TaskState(), "written before there was a batch"


def batch(local: LocalStore, state: TaskState, root: Path, key: bytes) -> tuple[TaskState, RecoveryAction]:
    """One batch that ends well, on a copy of Spark's state."""
    working = copy.deepcopy(state)
    committed = initial_state.with_initial_state(working, root, 0, 3)
    header, opened = open_store(local, committed)
    append(committed, header, next_version(header), {"counts": StoreChanges([(key, b"new"), (b"k0", None)])})
    return working, opened


def after(made: Content, *keys: bytes) -> Content:
    counts = {key: value for key, value in made["counts"].items() if key != b"k0"}
    return made | {"counts": counts | dict.fromkeys(keys, b"new")}


def test_with_its_first_batch_the_initial_state_becomes_part_of_the_state(tmp_path: Path, made: Content) -> None:
    local = LocalStore(tmp_path / "local", STORES)
    state, _ = batch(local, TaskState(), tmp_path, b"k1")
    initial_state.path_of(tmp_path, 0, 3).unlink()
    assert open_store(local, initial_state.with_initial_state(state, tmp_path, 0, 3))[1] is RecoveryAction.CAUGHT_UP

    again = LocalStore(tmp_path / "another disk", STORES)
    _, opened = open_store(again, initial_state.with_initial_state(state, tmp_path, 0, 3))

    assert opened is RecoveryAction.REBUILD
    assert content(local) == content(again) == after(made, b"k1")


def test_an_attempt_that_failed_leaves_nothing_and_a_lost_disk_is_filled_again(tmp_path: Path, made: Content) -> None:
    local, state = LocalStore(tmp_path / "local", STORES), TaskState()
    batch(local, state, tmp_path, b"k1")  # what it wrote to the state is lost

    state, opened = batch(local, state, tmp_path, b"k2")
    assert opened is RecoveryAction.SAME
    assert content(local) == made
    batch(local, state, tmp_path, b"k5")
    assert content(local) == after(made, b"k2")

    again = LocalStore(tmp_path / "another disk", STORES)
    state, opened = batch(again, TaskState(), tmp_path, b"k3")
    assert opened is RecoveryAction.REBUILD
    _, opened = batch(again, state, tmp_path, b"k4")
    assert opened is RecoveryAction.CAUGHT_UP
    assert content(again) == after(made, b"k3")
    _, opened = batch(local, state, tmp_path, b"k4")
    assert opened is RecoveryAction.REBUILD, "that state is of another attempt"
    assert content(local) == after(made, b"k3")


def test_the_segments_of_the_initial_state_are_merged_with_those_that_follow(
    tmp_path: Path, made: Content, monkeypatch: pytest.MonkeyPatch
) -> None:
    local, state, keys = LocalStore(tmp_path / "local", STORES), TaskState(), [b"k%d" % n for n in range(1, 9)]
    source = LocalStore(tmp_path / "replay", STORES)
    initial_state.write(
        initial_state.path_of(tmp_path, 0, 3), source, STORES, batches=1
    )  # the lowest tier: merged soon
    source.close()

    for number in range(2 * FANOUT):
        state, _ = batch(local, state, tmp_path, keys[number % len(keys)])

    again = LocalStore(tmp_path / "another disk", STORES)
    header, _ = open_store(again, initial_state.with_initial_state(state, tmp_path, 0, 3))
    open_store(local, initial_state.with_initial_state(state, tmp_path, 0, 3))
    assert content(again) == content(local) == after(made, *keys)
    assert max(segment.tier for segment in header.segments) >= 1
    referred = {n for segment in header.segments for n in range(segment.first, segment.first + segment.chunks)}
    assert set(state.segments) == referred, "nothing is left behind"


def test_a_task_without_stores_begins_empty(tmp_path: Path) -> None:
    initial_state.write(initial_state.path_of(tmp_path, 1, 0), None, STORES, batches=9)
    local = LocalStore(tmp_path / "local", STORES)

    header, opened = open_store(local, initial_state.with_initial_state(TaskState(), tmp_path, 1, 0))

    assert opened is RecoveryAction.NEW
    assert header.segments == ()


def test_an_initial_state_that_is_gone_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    with pytest.raises(IncompatibleCheckpointError, match=r"1-0\.state is missing"):
        initial_state.with_initial_state(TaskState(), tmp_path, 1, 0).header()


def test_an_initial_state_that_is_cut_off_anywhere_is_refused(tmp_path: Path, made: Content) -> None:
    path = initial_state.path_of(tmp_path, 0, 3)
    whole = path.read_bytes()
    for size in {*range(0, len(whole), 97), *range(len(whole) - 40, len(whole))}:
        path.write_bytes(whole[:size])
        with pytest.raises(IncompatibleCheckpointError, match=r"0-3\.state.*(cut off|differs from what was written)"):
            initial_state.with_initial_state(TaskState(), tmp_path, 0, 3).header()


def test_an_initial_state_in_which_a_byte_is_another_one_is_refused(tmp_path: Path, made: Content) -> None:
    path = initial_state.path_of(tmp_path, 0, 3)
    whole = path.read_bytes()
    for at in range(0, len(whole), 61):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(IncompatibleCheckpointError, match=r"0-3\.state"):
            open_store(
                LocalStore(tmp_path / f"local-{at}", STORES),
                initial_state.with_initial_state(TaskState(), tmp_path, 0, 3),
            )
