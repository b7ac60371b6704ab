"""Fence, record of batches and Spark's folders in an object store, where nothing is locked, linked or appended to."""

from __future__ import annotations

import itertools
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from deltaworks.cascade import release
from deltaworks.config import Reference
from deltaworks.control import batches, batches_in_store, checkpoint_folders, fence
from deltaworks.control.batches import BatchRecord
from deltaworks.control.paths import PipelinePaths
from deltaworks.errors import ConfigurationError, FencedError, IncompatibleCheckpointError, TransientError
from deltaworks.files import Files, files_in
from deltaworks.object_path import ObjectPath, connect
from deltaworks.replay import handover, runs
from deltaworks.settings import Settings
from tests.support import object_stores

ROUNDS = 100
_numbers = itertools.count()


@pytest.fixture
def path(in_store: ObjectPath) -> ObjectPath:
    """The fence of a pipeline."""
    return in_store / "generation"


def on_another_machine(path: ObjectPath, local: Path) -> None:
    """From now on this process is on a machine that shares only the store with the one before."""
    connect(str(path), object_stores.access(), local)


# ---- The fence


def test_a_generation_runs_on_one_machine(path: ObjectPath, tmp_path: Path) -> None:
    fence.advance(path, 3, "orders")

    on_another_machine(path, tmp_path / "other")
    with pytest.raises(FencedError, match="generation 3 of pipeline 'orders' was admitted on another machine"):
        fence.advance(path, 3, "orders")
    fence.advance(path, 4, "orders")

    on_another_machine(path, tmp_path / "local")
    with pytest.raises(FencedError, match="was admitted on another machine"):
        fence.advance(path, 4, "orders")
    with pytest.raises(FencedError, match="was replaced by generation 4"):
        fence.check(path, 3, "orders")


def test_a_copied_home_is_another_machine(path: ObjectPath, monkeypatch: pytest.MonkeyPatch) -> None:
    fence.advance(path, 3, "orders")
    fence.advance(path, 3, "orders")

    monkeypatch.setattr(socket, "gethostname", lambda: "other")
    with pytest.raises(FencedError, match="was admitted on another machine"):
        fence.advance(path, 3, "orders")


@pytest.mark.parametrize("data", [b"", b"-1\n", b"x", b"1\n2\n", b"1\n0123\n", b"1" * 19, b"\x00"])
def test_a_damaged_fence_admits_nobody(path: ObjectPath, data: bytes) -> None:
    path.write_bytes(data)

    for ask in (fence.advance, fence.check):
        with pytest.raises(IncompatibleCheckpointError, match="instead of the number of the last generation"):
            ask(path, 99, "orders")
    assert path.read_bytes() == data


def test_of_two_machines_that_take_the_next_number_at_once_one_is_admitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With moto it fails now and then: there a condition and its put are not one step."""
    with object_stores.seaweed():
        _race(connect(f"s3://{object_stores.BUCKET}/race", object_stores.access(), tmp_path) / "fence", monkeypatch)


def _race(path: ObjectPath, monkeypatch: pytest.MonkeyPatch) -> None:
    barrier, mine = threading.Barrier(2, timeout=60), threading.local()
    monkeypatch.setattr(fence, "_machine", lambda path: mine.id)

    def admitted(machine: str) -> list[bool]:
        mine.id, found = machine * 16, []
        for _ in range(ROUNDS):
            number = fence.read(path) + 1
            barrier.wait()
            try:
                fence.advance(path, number, "orders")
                found.append(True)
            except FencedError:
                found.append(False)
            barrier.wait()
        return found

    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(admitted, "ab")

    assert [*map(sum, zip(one, other, strict=True))] == [1] * ROUNDS
    assert fence.read(path) == ROUNDS


@pytest.mark.parametrize("before", [0, 4])
@pytest.mark.parametrize("fault", ["answer lost", "failed after all", "conflict"])
def test_who_is_admitted_knows_it_whatever_becomes_of_the_answer(
    path: ObjectPath, tmp_path: Path, before: int, fault: object_stores.Fault
) -> None:
    if before:
        fence.advance(path, before, "orders")
    with object_stores.Faults(object_stores.access().endpoint or "") as proxy:
        connect(str(path), object_stores.access(proxy.endpoint), tmp_path / "local")
        proxy.plan("PUT", fault)

        fence.advance(path, 5, "orders")

        assert not proxy.planned["PUT"]
        assert fence.read(path) == 5


def test_who_was_admitted_without_an_answer_and_replaced_since_does_not_run(path: ObjectPath, tmp_path: Path) -> None:
    fence.advance(path, 4, "orders")

    def successor() -> None:
        path.write_bytes(b"6\n")

    with object_stores.Faults(object_stores.access().endpoint or "") as proxy:
        connect(str(path), object_stores.access(proxy.endpoint), tmp_path / "local")
        proxy.plan("PUT", "answer lost")
        proxy.between = successor

        with pytest.raises(TransientError, match="whether it was written in between is unknown"):
            fence.advance(path, 5, "orders")
        with pytest.raises(FencedError, match="was replaced by generation 6"):
            fence.advance(path, 5, "orders")


# ---- The record of batches


def record(batch: int, wall_clock_ms: int = 0) -> BatchRecord:
    return BatchRecord(batch, wall_clock_ms, {"t": {"0": (batch, batch + 1)}})


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four batches are in the index, and about six in a file."""
    monkeypatch.setattr(batches_in_store, "INDEX_RECORDS", 4)
    monkeypatch.setattr(batches_in_store, "FILE_RECORDS", 6)


def numbers(directory: Path) -> list[int]:
    return [each.batch for each in batches.read(directory)]


@pytest.mark.usefixtures("small")
def test_the_batches_since_a_time_are_read_from_the_last_files_only(
    in_store: ObjectPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        batches.append(in_store, record(number, 1_000 * number))
    opened: list[str] = []
    lines_of = batches_in_store.StoredRecords._lines_of

    def noted(own: Any, file: Any) -> Any:
        opened.append(file.name)
        return lines_of(own, file)

    monkeypatch.setattr(batches_in_store.StoredRecords, "_lines_of", noted)
    for since, files in ((0, 3), (9, 2), (19, 0), (20, 0)):
        opened.clear()
        assert [each.batch for each in batches.since(in_store, 1_000 * since)] == list(range(since, 20))
        assert len(opened) == files, (since, opened)
    assert batches.since(in_store / "none", 0) == []


@contextmanager
def crash_before_the_index() -> Iterator[None]:
    """The process ends when it is about to replace the index."""

    def crash(*_: Any) -> bool:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches_in_store.StoredRecords, "_swap", crash)
        with pytest.raises(KeyboardInterrupt):
            yield


Step = tuple[str, int]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 5)),
        st.tuples(st.just("again"), st.just(0)),
        st.tuples(st.just("crash"), st.just(0)),
        st.tuples(st.just("set aside"), st.integers(0, 7)),
    ),
    max_size=14,
)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
@example(
    steps=[("append", 4), ("crash", 0), ("again", 0), ("append", 3), ("crash", 0), ("set aside", 5), ("append", 5)]
)
def test_a_record_in_a_store_says_what_one_in_a_folder_does(
    in_store: ObjectPath, small: None, steps: list[Step]
) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        places: tuple[Path, Path] = Path(temporary), in_store / str(next(_numbers))
        for number, (step, count) in enumerate(steps):
            following = batches.last_number(places[0] / "batches") + 1
            for place in places:
                directory = place / "batches"
                if step == "append":
                    for batch in range(following, following + count):
                        batches.append(directory, record(batch))
                elif step == "again" and following:
                    batches.append(directory, record(following - 1))
                elif step == "crash" and isinstance(directory, ObjectPath):
                    with crash_before_the_index():
                        batches.append(directory, record(following))
                elif step == "set aside":
                    batches.set_aside(directory, following - count, place / f"aside-{number}")
            local, stored = places
            for folder in ("batches", f"aside-{number}"):
                expected = list(batches.read(local / folder))
                assert list(batches.read(stored / folder)) == expected
                assert batches.last(stored / folder) == batches.last(local / folder)
                assert batches.last_number(stored / folder) == batches.last_number(local / folder)


def files_of(folder: ObjectPath) -> list[str]:
    return sorted(path.name.partition("-")[0] for path in folder.iterdir())


@pytest.mark.usefixtures("small")
def test_the_last_batches_are_in_the_index_and_the_others_in_files_that_it_names(in_store: ObjectPath) -> None:
    for number in range(14):
        batches.append(in_store, record(number))

    assert files_of(in_store) == ["000000000000", "000000000006", "index"]
    assert numbers(in_store) == list(range(14))


@pytest.mark.usefixtures("small")
def test_of_a_batch_that_ran_twice_the_last_record_counts_wherever_it_is(in_store: ObjectPath) -> None:
    for number in range(5):
        batches.append(in_store, record(number))
    batches.append(in_store, record(4, wall_clock_ms=1))  # those before it have moved out of the index

    assert batches.last(in_store) == record(4, wall_clock_ms=1)
    assert [*batches.read(in_store)][-1] == record(4, wall_clock_ms=1)


@pytest.mark.usefixtures("small")
def test_batches_that_run_again_from_an_earlier_one_on_change_nothing(in_store: ObjectPath) -> None:
    for number in (*range(9), *range(1, 9)):
        batches.append(in_store, record(number))

    assert numbers(in_store) == list(range(9))


@pytest.mark.usefixtures("small")
def test_a_crash_before_the_moved_batches_leave_the_index_changes_nothing(in_store: ObjectPath) -> None:
    for number in range(4):
        batches.append(in_store, record(number))

    for _ in range(2):
        with crash_before_the_index():
            batches.append(in_store, record(4))
        assert numbers(in_store) == [0, 1, 2, 3]
        assert batches.last_number(in_store) == 3

    batches.append(in_store, record(4))
    assert numbers(in_store) == [0, 1, 2, 3, 4]


class Interrupted:
    """`Files` where somebody else does something just before the next change that names a file."""

    def __init__(self, files: Files, name: str, meanwhile: Callable[[], None]) -> None:
        self._files, self._name, self._meanwhile = files, name, [meanwhile]

    def _before(self, name: str) -> None:
        if name == self._name and self._meanwhile:
            self._meanwhile.pop()()

    def put_if_absent(self, name: str, data: bytes) -> bool:
        self._before(name)
        return self._files.put_if_absent(name, data)

    def replace(self, name: str, data: bytes, version: str) -> bool:
        self._before(name)
        return self._files.replace(name, data, version)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)


def interrupt(
    monkeypatch: pytest.MonkeyPatch, directory: Path, meanwhile: Callable[[], None], name: str = batches_in_store.INDEX
) -> None:
    """Lets somebody do something between what the next writer has read and what it writes to a file."""
    found = Interrupted(files_in(directory), name, meanwhile)

    def once(folder: Path) -> Files:
        monkeypatch.setattr(batches_in_store, "files_in", files_in)
        return found

    monkeypatch.setattr(batches_in_store, "files_in", once)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("before", range(9))
def test_nothing_of_another_writer_is_lost(in_store: ObjectPath, monkeypatch: pytest.MonkeyPatch, before: int) -> None:
    for number in range(before):
        batches.append(in_store, record(number))
    interrupt(monkeypatch, in_store, lambda: batches.append(in_store, record(before)))

    batches.append(in_store, record(before + 1))

    assert numbers(in_store) == list(range(before + 2))
    assert batches.last_number(in_store) == before + 1


class Driver:
    """A driver that asks the fence whether it may write, and is replaced just after it has been told that it may."""

    def __init__(self, fence: ObjectPath, successor: Callable[[], None]) -> None:
        self._fence, self._successor, self.asked = fence, [successor], 0

    @contextmanager
    def admitted(self) -> Iterator[None]:
        self.asked += 1
        with fence.held(self._fence, 1, "orders"):
            if self._successor:
                self._successor.pop()()
            yield


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("before", range(9))
def test_who_was_replaced_writes_nothing_once_its_successor_has(in_store: ObjectPath, before: int) -> None:
    place, lock = in_store / "batches", in_store / "generation"
    fence.advance(lock, 1, "orders")
    for number in range(before):
        batches.append(place, record(number))

    def successor() -> None:
        fence.advance(lock, 2, "orders")
        batches.append(place, record(before, wall_clock_ms=2))

    driver = Driver(lock, successor)
    with pytest.raises(FencedError):
        batches.append(place, record(before, wall_clock_ms=1), driver.admitted)
    with pytest.raises(FencedError):
        batches.append(place, record(before + 1, wall_clock_ms=1), driver.admitted)

    assert driver.asked == 3
    assert [*batches.read(place)] == [*map(record, range(before)), record(before, wall_clock_ms=2)]


@pytest.mark.usefixtures("small")
def test_who_was_replaced_brings_nothing_back_that_was_set_aside(in_store: ObjectPath) -> None:
    place, lock = in_store / "batches", in_store / "generation"
    fence.advance(lock, 1, "orders")
    for number in range(4):
        batches.append(place, record(number))

    def successor() -> None:
        fence.advance(lock, 2, "orders")
        batches.set_aside(place, 2, in_store / "aside")

    with pytest.raises(FencedError):
        batches.append(place, record(4), Driver(lock, successor).admitted)

    assert numbers(place) == [0, 1]


# ---- Spark's folders


def started(checkpoint: Path, generation: int, *, complete: bool = True, file: str = "offsets/0") -> str:
    """The name of the folder that a start has made."""
    folder = checkpoint_folders.following(checkpoint, generation)
    (folder / file).write_bytes(b"")
    if complete:
        checkpoint_folders.complete(checkpoint, folder)
    return folder.name


def folders(checkpoint: Path) -> list[str]:
    found = checkpoint / "spark"
    return sorted(path.name for path in found.iterdir()) if found.exists() else []


def ready(checkpoint: Path) -> list[str]:
    return sorted(path.name for path in (checkpoint / "spark-ready").iterdir())


def test_before_the_first_start_there_is_no_folder(in_store: ObjectPath) -> None:
    assert not checkpoint_folders.current(in_store).exists()
    assert checkpoint_folders.following(in_store, 7) == in_store / "spark" / "000000000007-01"
    checkpoint_folders.expire(in_store)


def test_the_folder_of_the_last_complete_start_of_the_last_generation_holds(in_store: ObjectPath) -> None:
    names = [started(in_store, 2), started(in_store, 2), started(in_store, 10), started(in_store, 10)]

    assert names == ["000000000002-01", "000000000002-02", "000000000010-01", "000000000010-02"]
    assert checkpoint_folders.current(in_store) == in_store / "spark" / "000000000010-02"


def test_a_folder_that_is_not_complete_never_counts_and_is_not_used_again(in_store: ObjectPath) -> None:
    started(in_store, 2)
    assert started(in_store, 2, complete=False) == "000000000002-02"
    assert started(in_store, 3, complete=False) == "000000000003-01"

    assert checkpoint_folders.current(in_store).name == "000000000002-01"
    assert started(in_store, 3) == "000000000003-02"
    assert checkpoint_folders.current(in_store).name == "000000000003-02"


def test_who_was_replaced_completes_nothing_that_counts(in_store: ObjectPath) -> None:
    late = checkpoint_folders.following(in_store, 2)
    started(in_store, 3)

    checkpoint_folders.complete(in_store, late)

    assert checkpoint_folders.current(in_store).name == "000000000003-01"
    with pytest.raises(ValueError, match="has a folder of a later generation than 2"):
        checkpoint_folders.following(in_store, 2)


def test_an_incomplete_folder_of_a_later_generation_shuts_nobody_out(in_store: ObjectPath) -> None:
    started(in_store, 3, complete=False)

    assert started(in_store, 2) == "000000000002-01"
    assert checkpoint_folders.current(in_store).name == "000000000002-01"


def test_the_last_two_complete_folders_stay_and_newer_ones_too(in_store: ObjectPath) -> None:
    started(in_store, 1)
    started(in_store, 2)
    started(in_store, 2, complete=False)
    started(in_store, 3)
    started(in_store, 3, complete=False)
    started(in_store, 4)
    started(in_store, 4, complete=False)
    started(in_store, 5, complete=False)

    checkpoint_folders.expire(in_store)

    kept = ["000000000003-01", "000000000003-02", "000000000004-01", "000000000004-02", "000000000005-01"]
    assert folders(in_store) == kept
    assert ready(in_store) == ["000000000003-01", "000000000004-01"]
    assert checkpoint_folders.current(in_store).name == "000000000004-01"


def test_what_a_replaced_driver_writes_later_goes_too(in_store: ObjectPath) -> None:
    late = checkpoint_folders.following(in_store, 1)
    for generation in (1, 2, 3):
        started(in_store, generation)
    checkpoint_folders.expire(in_store)
    (late / "commits/9").write_bytes(b"")
    checkpoint_folders.complete(in_store, late)
    assert checkpoint_folders.current(in_store).name == "000000000003-01"

    checkpoint_folders.expire(in_store)

    assert folders(in_store) == ready(in_store) == ["000000000002-01", "000000000003-01"]


def test_nothing_goes_before_there_is_a_second_complete_folder(in_store: ObjectPath) -> None:
    started(in_store, 1, complete=False)
    checkpoint_folders.expire(in_store)
    assert folders(in_store) == ["000000000001-01"]
    started(in_store, 2)

    checkpoint_folders.expire(in_store)

    assert folders(in_store) == ready(in_store) == ["000000000002-01"]


def test_a_generation_may_start_more_than_99_times(in_store: ObjectPath) -> None:
    for start in (98, 99):
        checkpoint_folders.complete(in_store, in_store / "spark" / f"000000000007-{start}")

    assert started(in_store, 7) == "000000000007-100"
    assert checkpoint_folders.current(in_store).name == "000000000007-100"


# ---- Where what is


LASTING = (
    "fence",
    "pointer",
    "batches",
    "publications",
    "handovers",
    "codes",
    "erasures",
    "resends",
    "closed_days",
    "records_set_aside",
    "checkpoints",
)
OF_THIS_MACHINE = ("root", "heartbeat", "lease", "next_tick", "commands", "replays", "scratch", "questions", "stop")
LASTING_OF_A_CHECKPOINT = ("root", "spark", "plan", "intents", "accepted", "initial_state", "moved_pages", "undone")
CHECKPOINT_OF_THIS_MACHINE = ("here", "local", "synced", "trash", "open_batch", "sizes")


@pytest.fixture
def home(tmp_path: Path) -> Settings:
    return Settings.from_environment({"DELTAWORKS_PROJECT": str(tmp_path)})


def places(owner: object, names: tuple[str, ...]) -> dict[str, Path]:
    return {name: getattr(owner, name) for name in names}


def test_what_a_stream_needs_to_go_on_is_in_the_store_and_all_else_on_this_machine(
    home: Settings, in_store: ObjectPath
) -> None:
    found = settings_in(home, in_store)
    paths = PipelinePaths.of(found, "orders")
    stored, here = in_store / "pipelines" / "orders", home.home / "pipelines" / "orders"

    lasting, local = places(paths, LASTING), places(paths, OF_THIS_MACHINE)
    local |= {"drain": paths.drain(3), "finishing": paths.finishing(3), "outcome": paths.outcome(3)}
    lasting |= {"cascade": paths.cascade("run-1"), "handover": paths.handover("run-1")}
    for checkpoint, below in ((paths.first, Path()), (paths.checkpoint_of("run-1"), Path("checkpoints/run-1"))):
        assert (checkpoint.root, checkpoint.here) == (stored / below, here / below)
        lasting |= places(checkpoint, LASTING_OF_A_CHECKPOINT)
        local |= places(checkpoint, CHECKPOINT_OF_THIS_MACHINE)
        assert all(
            each.is_relative_to(checkpoint.root) for each in places(checkpoint, LASTING_OF_A_CHECKPOINT).values()
        )
        assert all(
            each.is_relative_to(checkpoint.here) for each in places(checkpoint, CHECKPOINT_OF_THIS_MACHINE).values()
        )
        for folder in checkpoint.all_of_spark:
            assert folder.is_relative_to(checkpoint.root)

    assert {name for name, each in lasting.items() if not isinstance(each, ObjectPath)} == set()
    assert {name for name, each in local.items() if isinstance(each, ObjectPath)} == set()
    assert {name for name, each in lasting.items() if not each.is_relative_to(stored)} == set()
    assert {name for name, each in local.items() if not each.is_relative_to(here)} == set()
    assert found.home == home.home


def settings_in(home: Settings, place: ObjectPath) -> Settings:
    """Settings of a home whose streams are in a store."""
    access = object_stores.access()
    assert access.endpoint is not None
    table: dict[str, str | Reference] = {"endpoint": access.endpoint, "region": "us-east-1", "path_style": "true"}
    keys: dict[str, str | Reference] = {"access_key": "tests", "secret_key": "tests"}
    values = replace(home.values, tables={("s3", ""): table | keys})
    return replace(home, storage_address=str(place), values=values)


def test_what_was_done_for_a_run_is_found_in_the_store_also_by_another_machine(
    home: Settings, in_store: ObjectPath, tmp_path: Path
) -> None:
    stored = settings_in(home, in_store)
    own = PipelinePaths.of(stored, "orders")
    files = own.publications / "r1.json", own.handover("r2"), own.cascade("r3")
    for file in files:
        file.write_bytes(b"{}")
    PipelinePaths.of(stored, "other").fence.write_bytes(b"1")

    for here in (stored, replace(stored, home=tmp_path / "elsewhere")):
        assert runs.publication_of(here, "r1") == ("orders", files[0])
        assert handover.record_of(here, "r2") == files[1]
        assert release.record_of(here, "r3") == files[2]
        assert handover.record_of(here, "r1") is release.record_of(here, "r1") is None
        with pytest.raises(ConfigurationError, match="publications: r1"):
            runs.publication_of(here, "r2")


def test_without_a_store_all_is_in_one_folder(home: Settings) -> None:
    paths = PipelinePaths.of(home, "orders")
    here = home.home / "pipelines" / "orders"

    assert paths == PipelinePaths.at(here)
    assert (paths.first.root, paths.first.here) == (here, here)
    checkpoint = paths.checkpoint_of("run-1")
    assert checkpoint.root == checkpoint.here == here / "checkpoints" / "run-1"
    assert checkpoint.spark == here / "checkpoints" / "run-1" / "checkpoint"
    assert checkpoint.all_of_spark == (checkpoint.spark,)
    every = places(paths, LASTING + OF_THIS_MACHINE) | places(paths.first, LASTING_OF_A_CHECKPOINT)
    assert {
        name for name, each in every.items() if not each.is_relative_to(here) or isinstance(each, ObjectPath)
    } == set()


def test_the_last_checkpoint_that_was_switched_to_runs(home: Settings, in_store: ObjectPath) -> None:
    paths = PipelinePaths(home.pipeline("orders"), in_store / "orders")
    assert (paths.switched, paths.current, paths.made_checkpoints()) == ((), paths.first, [])
    paths.pointer.write_text("run-1\n")
    with pytest.raises(IncompatibleCheckpointError, match=r"run-1 runs, but s3://.*run-1/plan\.json is not there"):
        _ = paths.current

    paths.checkpoint_of("run-1").plan.write_bytes(b"{}")

    assert paths.current == paths.checkpoint_of("run-1")
    assert paths.made_checkpoints() == [paths.checkpoint_of("run-1")]
