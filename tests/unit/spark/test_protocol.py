"""The store protocol survives failed attempts, lost disks and copies left by other attempts."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltaworks import faults
from deltaworks.kernel.stores.state import StoreChanges
from deltaworks.spark import protocol
from deltaworks.spark.changelog import FANOUT
from deltaworks.spark.local_store import LocalStore
from deltaworks.spark.protocol import Opened, commit_store, open_store
from tests.task_state import TaskState

STORES = {"counts": False, "windows": True}


class Crash(Exception):
    """An attempt ended here."""


@pytest.fixture(autouse=True)
def disarm() -> Iterator[None]:
    yield
    faults.arm(None)


def changes(batch: int) -> dict[str, StoreChanges]:
    """Deterministic changes of a batch: puts, overwrites, deletes, expiry."""
    key = b"k%d" % (batch % 5)
    window = b"w" + (batch * 10).to_bytes(8, "big")
    return {
        "counts": StoreChanges([(key, b"%d" % batch), (b"k%d" % ((batch + 2) % 5), None)]),
        "windows": StoreChanges([(window, b"%d" % batch)], expire_before_ms=max(0, batch * 10 - 45)),
    }


def content(local: LocalStore) -> dict[str, list[tuple[bytes, bytes]]]:
    return {name: list(local.reader(name).scan(b"", None)) for name in STORES}


def crash_at(point: str) -> None:
    def hook(reached: str) -> None:
        if reached == point:
            raise Crash(point)

    faults.arm(hook)


def attempt(local: LocalStore, state: TaskState, batch: int, point: str | None = None) -> TaskState:
    """One attempt at a batch on a copy of Spark's state, ended at a fault point if one is named."""
    working = copy.deepcopy(state)
    header, _ = open_store(local, working)
    if point is not None:
        crash_at(point)
    try:
        commit_store(local, working, header, changes(batch))
    finally:
        faults.arm(None)
    return working


def expected(batches: int) -> dict[str, list[tuple[bytes, bytes]]]:
    with TemporaryDirectory() as path:
        local, state = LocalStore(Path(path), STORES), TaskState()
        for batch in range(batches):
            state = attempt(local, state, batch)
        return content(local)


def test_same_stamp_goes_on(tmp_path: Path) -> None:
    local, state = LocalStore(tmp_path, STORES), TaskState()
    state = attempt(local, state, 0)
    assert open_store(local, state)[1] is Opened.SAME


@pytest.mark.parametrize("point", ["store.after_local_commit", "store.after_append", "store.after_stamp"])
def test_a_failed_attempt_is_undone(tmp_path: Path, point: str) -> None:
    local, state = LocalStore(tmp_path, STORES), TaskState()
    state = attempt(local, state, 0)
    before = content(local)
    with pytest.raises(Crash):
        attempt(local, state, 1, point)
    assert content(local) != before
    assert open_store(local, state)[1] is Opened.UNDO
    assert content(local) == before


def test_a_failed_first_attempt_is_undone_to_nothing(tmp_path: Path) -> None:
    local = LocalStore(tmp_path, STORES)
    with pytest.raises(Crash):
        attempt(local, TaskState(), 0, "store.after_stamp")
    assert open_store(local, TaskState())[1] is Opened.UNDO
    assert content(local) == {"counts": [], "windows": []}


def test_an_equal_version_with_another_nonce_is_not_trusted(tmp_path: Path) -> None:
    """Two attempts at batch 1 in two places: the loser's copy has the version of the winner's state."""
    winner, loser = LocalStore(tmp_path / "a", STORES), LocalStore(tmp_path / "b", STORES)
    state = attempt(winner, TaskState(), 0)
    open_store(loser, state)
    with pytest.raises(Crash):
        attempt(loser, state, 7, "store.after_stamp")
    state = attempt(winner, state, 1)
    assert open_store(loser, state)[1] is Opened.REBUILD
    assert content(loser) == content(winner)


def test_a_lost_disk_is_rebuilt(tmp_path: Path) -> None:
    local, state = LocalStore(tmp_path / "a", STORES), TaskState()
    for batch in range(3 * FANOUT + 2):
        state = attempt(local, state, batch)
    fresh = LocalStore(tmp_path / "b", STORES)
    assert open_store(fresh, state)[1] is Opened.REBUILD
    assert content(fresh) == content(local)


def test_segments_stay_few_and_restore_reads_little_more_than_is_alive(tmp_path: Path) -> None:
    local, state = LocalStore(tmp_path, STORES), TaskState()
    for batch in range(FANOUT**2 * 2):
        state = attempt(local, state, batch)
    assert state.stamp is not None
    assert len(state.stamp.segments) < 3 * FANOUT
    assert sum(segment.entries for segment in state.stamp.segments) < 8 * FANOUT
    assert len(state.segments) == sum(segment.chunks for segment in state.stamp.segments)


steps = st.lists(
    st.sampled_from(
        ["ok", "ok", "ok", "lose_disk", "store.before_local_commit", "store.after_local_commit", "store.after_append",
         "store.after_stamp", "checkpoint_lost", "other_worker"]
    ),
    max_size=40,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(steps)
def test_any_history_of_failures_ends_in_the_state_of_a_run_without_failures(history: list[str]) -> None:
    with TemporaryDirectory() as folder:
        root, homes = Path(folder), 2
        locals_ = [LocalStore(root / str(n), STORES) for n in range(homes)]
        state, batch, current = TaskState(), 0, 0
        for number, step in enumerate(history):
            match step:
                case "ok":
                    state = attempt(locals_[current], state, batch)
                    batch += 1
                case "lose_disk":
                    locals_[current].close()
                    locals_[current] = LocalStore(root / f"fresh{number}", STORES)
                case "other_worker":
                    current = (current + 1) % homes
                case "checkpoint_lost":
                    attempt(locals_[current], state, batch)
                case point:
                    with pytest.raises(Crash):
                        attempt(locals_[current], state, batch, point)
        open_store(locals_[current], state)
        assert content(locals_[current]) == expected(batch)
        for local in locals_:
            local.close()


@pytest.mark.parametrize("breakage", ["nonce", "undo"])
def test_the_checks_can_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, breakage: str) -> None:
    """Without the nonce, or without the undo, the stores above would be wrong."""
    if breakage == "nonce":
        monkeypatch.setattr(protocol, "same_stamp", lambda local, truth: local.version == truth.version)
        with pytest.raises(AssertionError):
            test_an_equal_version_with_another_nonce_is_not_trusted(tmp_path)
    else:
        monkeypatch.setattr(protocol, "undo", lambda local: None)
        with pytest.raises(AssertionError):
            test_a_failed_attempt_is_undone(tmp_path, "store.after_stamp")
