"""The store protocol survives failed attempts, lost disks and copies left by other attempts."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltaworks import faults
from deltaworks.errors import IncompatibleCheckpointError, StateError
from deltaworks.kernel.stores.state import StoreChanges
from deltaworks.runtime.state import recovery
from deltaworks.runtime.state.changelog import FANOUT, SegmentRef
from deltaworks.runtime.state.local_store import LocalStore, StateVersion
from deltaworks.runtime.state.recovery import (
    NOTHING,
    Pending,
    RecoveryAction,
    StateHeader,
    append,
    decode_header,
    encode_header,
    next_version,
    open_store,
)
from tests.support.task_state import TaskState

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


@dataclass
class Home:
    """A disk with the process that works on it."""

    local: LocalStore
    pending: Pending | None = None

    def open(self, state: TaskState) -> RecoveryAction:
        pending, self.pending = self.pending, None
        return open_store(self.local, state, pending)[1]

    def attempt(self, state: TaskState, batch: int, point: str | None = None) -> TaskState:
        """One attempt at a batch on a copy of Spark's state, ended at a fault point if one is named."""
        working = copy.deepcopy(state)
        if point is not None:
            crash_at(point)
        try:
            self.open(working)
            header = working.version or NOTHING
            version = next_version(header)
            append(working, header, version, changes(batch))
            self.pending = Pending(batch, header.version, version, changes(batch), 0.0)
        finally:
            faults.arm(None)
        return working


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(LocalStore(tmp_path / "here", STORES))


@pytest.fixture
def elsewhere(tmp_path: Path) -> Home:
    return Home(LocalStore(tmp_path / "elsewhere", STORES))


def expected(batches: int) -> dict[str, list[tuple[bytes, bytes]]]:
    with TemporaryDirectory() as path:
        home, state = Home(LocalStore(Path(path), STORES)), TaskState()
        for batch in range(batches):
            state = home.attempt(state, batch)
        home.open(state)
        found = content(home.local)
        home.local.close()
        return found


def test_nothing_of_a_batch_is_in_the_store_before_spark_has_committed_it(home: Home) -> None:
    state = home.attempt(TaskState(), 0)
    assert content(home.local) == expected(0)
    assert home.open(state) is RecoveryAction.APPLIED
    assert content(home.local) == expected(1)
    assert home.open(state) is RecoveryAction.SAME


@pytest.mark.parametrize("point", ["store.after_append", "store.after_version"])
def test_a_failed_attempt_leaves_nothing(home: Home, point: str) -> None:
    state = home.attempt(TaskState(), 0)
    with pytest.raises(Crash):
        home.attempt(state, 1, point)
    assert content(home.local) == expected(1)
    assert home.open(state) is RecoveryAction.SAME


def test_what_a_process_has_kept_of_an_attempt_that_was_not_committed_is_forgotten(home: Home) -> None:
    state = home.attempt(TaskState(), 0)
    home.attempt(state, 7)  # ends well here; Spark never commits it
    assert home.open(state) is RecoveryAction.SAME
    assert content(home.local) == expected(1)


def test_a_process_that_died_after_spark_had_committed_is_made_up_for_by_the_last_segment(home: Home) -> None:
    state = home.attempt(home.attempt(TaskState(), 0), 1)
    home.pending = None  # the process is another one
    assert home.open(state) is RecoveryAction.CAUGHT_UP
    assert content(home.local) == expected(2)


@pytest.mark.parametrize("batches", range(1, 2 * FANOUT + 2))
def test_a_store_that_is_some_batches_behind_catches_up(home: Home, elsewhere: Home, batches: int) -> None:
    state = home.attempt(TaskState(), 0)
    home.open(state)
    for batch in range(1, batches + 1):
        state = elsewhere.attempt(state, batch)
    home.pending = None
    # In its own batch the newest segment is not merged, but those before it may be, with the one that is here.
    assert home.open(state) is (RecoveryAction.CAUGHT_UP if batches < FANOUT else RecoveryAction.REBUILD)
    assert content(home.local) == expected(batches + 1)


@pytest.mark.parametrize("batches", range(1, FANOUT**2 + 3))
def test_a_store_that_is_one_batch_behind_never_has_to_be_rebuilt(home: Home, batches: int) -> None:
    state = TaskState()
    for batch in range(batches):
        home.open(state)
        state = home.attempt(state, batch)
    home.pending = None
    assert home.open(state) is (RecoveryAction.REBUILD if batches == 1 else RecoveryAction.CAUGHT_UP)
    assert content(home.local) == expected(batches)


def test_an_equal_version_with_another_nonce_is_not_trusted(home: Home, elsewhere: Home) -> None:
    """Two attempts at batch 1 in two places: the loser takes its own for committed."""
    state = home.attempt(TaskState(), 0)
    elsewhere.open(state)
    assert elsewhere.open(elsewhere.attempt(state, 7)) is RecoveryAction.APPLIED
    state = home.attempt(state, 1)
    home.open(state)
    assert elsewhere.open(state) is RecoveryAction.REBUILD
    assert content(elsewhere.local) == content(home.local)


def test_a_lost_disk_is_rebuilt(home: Home, elsewhere: Home) -> None:
    state = TaskState()
    for batch in range(3 * FANOUT + 2):
        state = home.attempt(state, batch)
    home.open(state)
    assert elsewhere.open(state) is RecoveryAction.REBUILD
    assert content(elsewhere.local) == content(home.local)


def test_segments_stay_few_and_restore_reads_little_more_than_is_alive(home: Home) -> None:
    state = TaskState()
    for batch in range(FANOUT**2 * 2):
        state = home.attempt(state, batch)
    assert state.version is not None
    assert len(state.version.segments) < 3 * FANOUT
    assert sum(segment.entries for segment in state.version.segments) < 16 * FANOUT
    assert len(state.segments) == sum(segment.chunks for segment in state.version.segments)


steps = st.lists(
    st.sampled_from(
        ["ok", "ok", "ok", "lose_disk", "store.before_apply", "store.after_apply", "store.after_append",
         "store.after_version", "store.before_rebuild", "store.after_rebuild", "checkpoint_lost", "other_worker",
         "late_writer"]
    ),
    max_size=40,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(steps)
def test_any_history_of_failures_ends_in_the_state_of_a_run_without_failures(history: list[str]) -> None:
    with TemporaryDirectory() as folder:
        root = Path(folder)
        homes = [Home(LocalStore(root / str(n), STORES)) for n in range(2)]
        state, batch, current = TaskState(), 0, 0
        for number, step in enumerate(history):
            match step:
                case "ok":
                    state = homes[current].attempt(state, batch)
                    batch += 1
                case "lose_disk":
                    homes[current].local.close()
                    homes[current] = Home(LocalStore(root / f"fresh{number}", STORES))
                case "other_worker":
                    current = (current + 1) % len(homes)
                case "checkpoint_lost":
                    homes[current].attempt(state, batch)
                case "late_writer":  # takes for committed what is not, if nobody was faster
                    if (pending := homes[current].pending) is not None:
                        with suppress(StateError):
                            homes[current].local.commit(pending.changes, pending.version, pending.base)
                case point:
                    with suppress(Crash):
                        homes[current].attempt(state, batch, point)
        homes[current].open(state)
        assert content(homes[current].local) == expected(batch)
        for home in homes:
            home.local.close()


def test_a_header_of_another_format_is_refused() -> None:
    header = StateHeader(StateVersion(1, b"n"), (SegmentRef(0, 1, 0, 5, StateVersion(1, b"n")),), 1)
    assert decode_header(encode_header(header), "the state") == header
    first_format = msgspec.msgpack.encode(((1, b"n"), ((0, 1, 0, 5),), 1))
    later_format = msgspec.msgpack.encode((recovery.FORMAT + 1, (1, 2, 3)))
    for data, said in ((first_format, "no format that is known"), (later_format, f"format {recovery.FORMAT + 1}")):
        with pytest.raises(IncompatibleCheckpointError, match=f"the state has {said}"):
            decode_header(data, "the state")
