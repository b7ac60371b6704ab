"""The stores that a checkpoint begins with, in an object store: read in parts, and refused as on a disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deltaworks import StreamsBuilder
from deltaworks.control.checkpoint import CheckpointPlan, stored_plan
from deltaworks.control.paths import CheckpointPaths
from deltaworks.errors import IncompatibleCheckpointError
from deltaworks.kernel.stores.state import StoreChanges
from deltaworks.object_path import ObjectPath, connect
from deltaworks.runtime.state import changelog, initial_state
from deltaworks.runtime.state.initial_state import InitialState, path_of
from deltaworks.runtime.state.local_store import LocalStore, StateVersion
from deltaworks.runtime.state.recovery import open_store
from deltaworks.spark import handover
from deltaworks.topology.plan import Plan
from tests.support import object_stores
from tests.support.task_state import TaskState
from tests.unit.spark.memory_bucket import MemoryBucket

STORES = {"counts": False}


def filled(path: Path, entries: int) -> LocalStore:
    local = LocalStore(path, STORES)
    changes = {"counts": StoreChanges([(b"k%d" % n, b"value %d" % n * 5) for n in range(entries)])}
    local.commit(changes, StateVersion(7, b"replay"), None)
    return local


@pytest.fixture
def bucket() -> MemoryBucket:
    return MemoryBucket()


@pytest.fixture
def root(bucket: MemoryBucket, tmp_path: Path) -> ObjectPath:
    """An empty place in the store."""
    return bucket.root("home/orders", tmp_path / "here")


@pytest.fixture
def on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a task with several segments of many chunks."""
    monkeypatch.setattr(initial_state, "_MIN_ENTRIES", 100)
    monkeypatch.setattr(changelog, "_CHUNK_BYTES", 256)
    path = path_of(tmp_path / "disk", 0, 0)
    local = filled(tmp_path / "replay", 400)
    initial_state.write(path, local, STORES, batches=70)
    local.close()
    return path


@pytest.fixture
def stored(on_disk: Path, root: ObjectPath) -> ObjectPath:
    """The same file in the store."""
    path = root / on_disk.name
    path.write_bytes(on_disk.read_bytes())
    return path


def test_it_reads_the_same_chunk_by_chunk(on_disk: Path, stored: ObjectPath) -> None:
    there, here = InitialState(stored), InitialState(on_disk)
    assert there.header() == here.header() and here.header().next_segment > 20
    for segment in range(here.header().next_segment):
        assert there.segment(segment) == here.segment(segment)


def test_it_is_read_in_parts_and_each_once(bucket: MemoryBucket, on_disk: Path, stored: ObjectPath) -> None:
    read = InitialState(stored)
    assert len(bucket.reads) == 2  # the end and the index
    chunks = [read.segment(number) for number in range(read.header().next_segment)]
    sizes = [size for _, size in bucket.reads]
    assert sizes[2:] == [len(chunk) for chunk in chunks]
    assert sum(size or 0 for size in sizes) == on_disk.stat().st_size and None not in sizes


def test_a_task_takes_its_stores_from_the_store(tmp_path: Path, stored: ObjectPath) -> None:
    local = LocalStore(tmp_path / "local", STORES)
    open_store(local, initial_state.with_initial_state(TaskState(), stored.parent, 0, 0))
    assert dict(local.reader("counts").scan(b"", None)) == {b"k%d" % n: b"value %d" % n * 5 for n in range(400)}


def refusal(path: Path) -> str:
    """Why a file is refused, without its place."""
    with pytest.raises(IncompatibleCheckpointError) as refused:
        read = InitialState(path)
        for number in range(read.header().next_segment):
            read.segment(number)
    return str(refused.value).replace(str(path), "")


def test_one_that_is_cut_off_is_refused_as_on_a_disk(on_disk: Path, stored: ObjectPath) -> None:
    whole = on_disk.read_bytes()
    for size in {0, 1, *range(0, len(whole), 1_009), *range(len(whole) - 25, len(whole))}:
        on_disk.write_bytes(whole[:size])
        stored.write_bytes(whole[:size])
        assert refusal(stored) == refusal(on_disk)


def test_one_in_which_a_byte_is_another_one_is_refused_as_on_a_disk(on_disk: Path, stored: ObjectPath) -> None:
    whole = on_disk.read_bytes()
    for at in {*range(0, len(whole), 1_009), *range(len(whole) - 25, len(whole))}:
        other = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        on_disk.write_bytes(other)
        stored.write_bytes(other)
        assert refusal(stored) == refusal(on_disk)


def test_one_that_is_missing_is_refused(root: ObjectPath) -> None:
    with pytest.raises(IncompatibleCheckpointError, match=r"1-0\.state is missing"):
        InitialState(path_of(root, 1, 0))


def test_a_part_that_is_gone_since_is_refused_as_on_a_disk(tmp_path: Path, on_disk: Path) -> None:
    """S3 itself refuses a range that begins after the end."""
    whole = on_disk.read_bytes()
    with object_stores.moto():
        address = f"s3://{object_stores.BUCKET}/{tmp_path.name}"
        there = connect(address, object_stores.access(), tmp_path / "here") / on_disk.name
        for path in (on_disk, there):
            path.write_bytes(whole)
            read = InitialState(path)
            last = read.header().next_segment - 1
            assert read.segment(last)
            path.write_bytes(whole[:100])
            with pytest.raises(IncompatibleCheckpointError, match="a part of it differs"):
                read.segment(last)


def counting() -> Plan:
    builder = StreamsBuilder()
    builder.stream("t", key=str, value=str).group_by_key().count(store="counts")
    return builder.build()


class Made:
    """A checkpoint that is made of the stores of two tasks; the second one has none."""

    def __init__(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "stores"
        self.calls = 0

    @contextmanager
    def open_store(self, stage: int, task: int, stores: dict[str, bool]) -> Iterator[LocalStore | None]:
        if task == 1:
            yield None
            return
        self.calls += 1
        local = LocalStore(self.folder / str(self.calls), stores)
        changes = {"counts": StoreChanges([(b"k%d" % n, b"v") for n in range(10)])}
        local.commit(changes, StateVersion(3, b"replay"), None)
        yield local
        local.close()

    def write(self, at: CheckpointPaths, first_batch: int = 3) -> CheckpointPlan:
        plan = counting()
        described = CheckpointPlan(
            lineage="line", query_id="run", fingerprint=plan.fingerprint(), partitions={"t": 2}, tasks=(2,), shards=2,
            first_batch=first_batch,
        )  # fmt: skip
        return handover.write_checkpoint(at, plan, described, self.open_store)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    monkeypatch.setattr(initial_state, "next_version", lambda header: StateVersion(header.version.number + 1, b"same"))
    return Made(tmp_path)


@pytest.fixture
def paths(root: ObjectPath, tmp_path: Path) -> CheckpointPaths:
    """Of a checkpoint in the store."""
    return CheckpointPaths(root / "checkpoints/run", tmp_path / "pipeline/checkpoints/run")


def files_below(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_checkpoint_in_the_store_is_the_one_on_a_disk(tmp_path: Path, made: Made, paths: CheckpointPaths) -> None:
    disk = CheckpointPaths.at(tmp_path / "disk/run")
    disk.root.parent.mkdir()
    assert made.write(disk) == made.write(paths) == stored_plan(paths.plan)
    assert files_below(paths.root) == files_below(disk.root)
    assert files_below(paths.root).keys() == {"plan.json", "initial-state/0-0.state", "initial-state/0-1.state"}
    assert list(paths.here.parent.iterdir()) == []


def test_a_checkpoint_is_there_when_its_plan_is_which_comes_last(
    bucket: MemoryBucket, made: Made, paths: CheckpointPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = made.write(paths)
    whole = files_below(paths.root)
    real, left = MemoryBucket.put, 0

    def dying(self: MemoryBucket, key: str, data: bytes) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        real(self, key, data)

    for count in range(len(whole)):
        left = count
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(MemoryBucket, "put", dying)
            made.write(paths)
        assert stored_plan(paths.plan) is None
    assert made.write(paths) == expected
    assert files_below(paths.root) == whole


def test_a_second_call_replaces_the_first_checkpoint(made: Made, paths: CheckpointPaths) -> None:
    made.write(paths)
    (paths.root / "initial-state/0-7.state").write_bytes(b"of more tasks")
    (paths.root / "spark-ready/000000000001-01").write_bytes(b"")
    assert made.write(paths, first_batch=9).first_batch == 9
    assert stored_plan(paths.plan) == made.write(paths, first_batch=9)
    assert files_below(paths.root).keys() == {"plan.json", "initial-state/0-0.state", "initial-state/0-1.state"}
