"""What the mark names is on the disk; nothing stops the stream."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from deltaworks import files as files_module
from deltaworks.control import fence
from deltaworks.errors import FencedError
from deltaworks.spark import checkpoint_sync
from deltaworks.spark.checkpoint_sync import CheckpointSync, Mark, read_mark, write_mark
from tests.unit.spark import checkpoints

WAIT_S = 30.0


class Disk:
    """Remembers what was synced, by name, in the order in which it was."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.synced: list[str] = []
        self.error: OSError | None = None
        fsync = os.fsync

        def recorded(fd: int) -> None:
            if self.error is not None:
                raise self.error
            self.synced.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
            fsync(fd)

        monkeypatch.setattr(os, "fsync", recorded)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def unexpected(error: Exception) -> None:
    raise AssertionError(error)


def sync_of(root: Path, *, failed: Callable[[Exception], None] = unexpected, every_s: float = 60.0) -> CheckpointSync:
    return CheckpointSync(root / "checkpoint", root / "synced.json", "boot-1", failed=failed, every_s=every_s)


def test_a_mark_names_all_that_was_synced_and_nothing_that_is_later(tmp_path: Path, disk: Disk) -> None:
    checkpoint = checkpoints.make(tmp_path / "checkpoint", committed=4, begun=5)
    (checkpoint / "state/0/0/.7.changelog.ab.TID1.tmp").touch()
    sync = sync_of(tmp_path)
    sync.close()
    mark = read_mark(tmp_path / "synced.json")
    assert mark is not None and (mark.batch, mark.boot_id, sync.synced) == (4, "boot-1", 4)
    named = {str(checkpoint / name) for name in mark.files}
    assert {"offsets/4", "commits/4", "metadata", "state/1/1/5.changelog", "state/0/0/4.zip"} <= set(mark.files)
    assert {"state/1/1/SSTs/000004-e0ca.sst", "state/0/_metadata/v2/0", "state/0/_stateSchema/default/0_b8f0"} <= set(
        mark.files
    )
    assert {"offsets/5", "state/0/0/6.changelog"}.isdisjoint(mark.files)
    assert not any(Path(name).name.startswith(".") for name in mark.files)
    before_the_mark = disk.synced[: next(i for i, name in enumerate(disk.synced) if "synced.json" in name)]
    folders = {str(folder) for name in named for folder in Path(name).parents if folder.is_relative_to(tmp_path)}
    assert named | folders <= set(before_the_mark)


def test_only_what_is_new_is_synced_again(tmp_path: Path, disk: Disk) -> None:
    checkpoint = checkpoints.make(tmp_path / "checkpoint", committed=4)
    sync = sync_of(tmp_path)
    sync.sync_now()
    disk.synced.clear()
    checkpoints.add_batch(checkpoint, 5)
    checkpoints.add_commit(checkpoint, 5)
    sync.sync_now()
    files = {Path(name).name for name in disk.synced if Path(name).is_file()}
    assert files - {Path(name).name for name in disk.synced if "synced.json" in name} == {"5", "6.changelog"}
    sync.close()


def test_a_file_that_was_written_again_is_synced_again(tmp_path: Path, disk: Disk) -> None:
    checkpoint = checkpoints.make(tmp_path / "checkpoint", committed=4)
    sync = sync_of(tmp_path)
    sync.sync_now()
    again = checkpoint / "state/0/0/4.zip"
    checkpoints.write(checkpoint / "new", again.read_bytes())
    (checkpoint / "new").rename(again)
    sst = checkpoint / "state/0/1/SSTs/000004-e0ca.sst"
    with sst.open("ab") as file:
        file.write(b"more")
    checkpoints.add_batch(checkpoint, 5)
    checkpoints.add_commit(checkpoint, 5)
    disk.synced.clear()
    sync.sync_now()
    assert {str(again), str(sst)} <= set(disk.synced)
    sync.close()


def test_what_spark_purges_meanwhile_is_no_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = checkpoints.make(tmp_path / "checkpoint", committed=4)
    sync = sync_of(tmp_path)

    def purging(files: list[Path]) -> None:
        (checkpoint / "offsets/0").unlink(missing_ok=True)
        (checkpoint / "state/0/0/1.changelog").unlink(missing_ok=True)
        files_module.sync(files)

    monkeypatch.setattr(checkpoint_sync, "sync", purging)
    sync.sync_now()
    assert sync.synced == 4
    sync.close()


def test_the_thread_syncs_what_is_committed_without_being_waited_for(tmp_path: Path) -> None:
    checkpoint = checkpoints.make(tmp_path / "checkpoint", committed=0)
    sync = sync_of(tmp_path, every_s=0.001)
    for batch in range(1, 4):
        checkpoints.add_batch(checkpoint, batch)
        sync.committed(batch)  # before Spark's own entry, as the sink does
        checkpoints.add_commit(checkpoint, batch)
        deadline = threading.Event()
        for _ in range(int(WAIT_S * 1000)):
            if sync.synced == batch:
                break
            deadline.wait(0.001)
        assert sync.synced == batch
    sync.close()


def test_a_full_disk_is_told_and_the_next_sync_goes_on(tmp_path: Path, disk: Disk) -> None:
    checkpoints.make(tmp_path / "checkpoint", committed=2)
    told: list[Exception] = []
    happened = threading.Event()

    def failed(error: Exception) -> None:
        told.append(error)
        happened.set()

    sync = sync_of(tmp_path, failed=failed, every_s=0.001)
    disk.error = OSError(errno.ENOSPC, "No space left on device")
    sync.committed(2)
    assert happened.wait(WAIT_S)
    assert told[0] is disk.error and read_mark(tmp_path / "synced.json") is None
    disk.error = None
    sync.close()
    assert sync.synced == 2


def test_after_an_io_error_the_mark_stays_where_it_is(tmp_path: Path, disk: Disk) -> None:
    """The system calls lost pages clean, so a later sync would claim what is not true."""
    checkpoint = checkpoints.make(tmp_path / "checkpoint", committed=2)
    told: list[Exception] = []
    sync = sync_of(tmp_path, failed=told.append)
    sync.sync_now()
    checkpoints.add_batch(checkpoint, 3)
    checkpoints.add_commit(checkpoint, 3)
    disk.error = OSError(errno.EIO, "Input/output error")
    sync.close()
    disk.error = None
    assert told == [OSError(errno.EIO, "Input/output error")] or len(told) == 1
    sync.sync_now()
    mark = read_mark(tmp_path / "synced.json")
    assert mark is not None and mark.batch == 2


def test_a_stream_that_fails_does_not_wait_for_what_is_being_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints.make(tmp_path / "checkpoint", committed=2)
    begun, goes_on = threading.Event(), threading.Event()

    def slow(fd: int) -> None:
        begun.set()
        goes_on.wait(WAIT_S)

    monkeypatch.setattr(os, "fsync", slow)
    sync = sync_of(tmp_path)
    sync.committed(2)
    assert begun.wait(WAIT_S)

    sync.abandon()

    assert read_mark(tmp_path / "synced.json") is None
    goes_on.set()
    sync.close()  # whoever ends in an orderly way afterwards
    assert sync.synced == 2


def test_a_driver_that_was_replaced_meanwhile_leaves_the_mark_of_its_successor(tmp_path: Path) -> None:
    checkpoints.make(tmp_path / "checkpoint", committed=4)
    newer = Mark(batch=6, boot_id="boot-1", files=["metadata"])
    write_mark(tmp_path / "synced.json", newer)
    fence.advance(tmp_path / "generation", 2, "orders")
    said = list[Exception]()
    CheckpointSync(
        tmp_path / "checkpoint", tmp_path / "synced.json", "boot-1", failed=said.append,
        admitted=lambda: fence.held(tmp_path / "generation", 1, "orders"),
    ).close()  # fmt: skip

    assert read_mark(tmp_path / "synced.json") == newer
    assert [type(error) for error in said] == [FencedError]


def test_a_mark_survives_being_written_and_read(tmp_path: Path) -> None:
    mark = Mark(batch=3, boot_id="b", files=["offsets/3"])
    checkpoint_sync.write_mark(tmp_path / "line" / "synced.json", mark)
    assert read_mark(tmp_path / "line" / "synced.json") == mark
