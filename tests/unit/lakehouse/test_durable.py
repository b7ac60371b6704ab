"""What a commit names is on the disk before the commit, and the commit before anybody relies on it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from deltaworks import faults
from deltaworks.lakehouse import checkpoints, layout
from deltaworks.lakehouse.log import Commit
from deltaworks.lakehouse.retained import RetainedFiles
from deltaworks.lakehouse.trash import Trash
from tests.unit.lakehouse.lake import Expected, open_tables, run, task_tables, write_batch


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[int]]:
    """Inodes of what was synced."""
    inodes: set[int] = set()
    fsync = os.fsync

    def noted(fd: int) -> None:
        fsync(fd)
        inodes.add(os.fstat(fd).st_ino)

    monkeypatch.setattr(os, "fsync", noted)
    yield inodes
    faults.arm(None)


def inode(path: Path) -> int:
    return path.stat().st_ino


def test_the_files_of_a_batch_are_synced_before_its_first_commit_and_each_commit_before_the_next(
    tmp_path: Path, synced: set[int]
) -> None:
    committer = open_tables(tmp_path)
    writes = write_batch(task_tables(tmp_path), 0, Expected())
    files = [tmp_path / write.table / new.path for write in writes for new in write.added]
    assert {write.table for write in writes} >= {"orders", "counts", "users_changelog"}
    synced.clear()
    missed: list[Path] = []

    def look(point: str) -> None:
        if point.startswith("delta.before_commit"):
            missed.extend(path for file in files for path in (file, file.parent) if inode(path) not in synced)
        if point.startswith("delta.after_commit"):
            folder = tmp_path / point.partition(":")[2] / layout.LOG_FOLDER
            missed.extend(path for path in (max(folder.glob("*.json")), folder) if inode(path) not in synced)

    faults.arm(look)
    committer.commit(0, writes)

    assert files
    assert missed == []


def test_a_table_that_was_made_is_there_for_good(tmp_path: Path, synced: set[int]) -> None:
    open_tables(tmp_path / "root")

    folder = tmp_path / "root" / "orders"
    first = folder / layout.LOG_FOLDER / f"{0:020d}.json"
    assert {inode(path) for path in (first, first.parent, folder, folder.parent, tmp_path)} <= synced


def test_snapshots_are_synced_before_their_commit(tmp_path: Path, synced: set[int]) -> None:
    committer, _ = run(tmp_path, 2)
    committer.refresh_snapshots(force=True)
    log = committer.tables["users"].log

    assert log.files
    assert {inode(log.path / path) for path in log.files} <= synced


def test_a_checkpoint_is_synced(tmp_path: Path, synced: set[int]) -> None:
    committer, _ = run(tmp_path, 2)
    log = committer.tables["orders"].log
    checkpoints.write(log.path, log.state())

    folder = tmp_path / "orders" / layout.LOG_FOLDER
    assert {inode(path) for path in (*folder.glob("*.parquet"), folder / "_last_checkpoint", folder)} <= synced


def test_what_a_publication_keeps_and_brings_back_is_synced(tmp_path: Path, synced: set[int]) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "a.parquet").write_bytes(b"x")
    kept = RetainedFiles(tmp_path / "t", keep_ms=1)
    name = kept.keep("run", 1, 0, ["a.parquet"])
    assert inode(tmp_path / "t" / layout.RETAINED_FOLDER / name) in synced

    (tmp_path / "t" / "a.parquet").unlink()
    synced.clear()
    kept.restore(name, ["a.parquet"])

    assert {inode(tmp_path / "t"), inode(tmp_path / "t" / "a.parquet")} <= synced


def test_the_trash_empties_after_its_time_and_not_before(tmp_path: Path) -> None:
    committer, _ = run(tmp_path, 1)
    table = committer.tables["orders"]
    for name in ("a.parquet", "b.parquet"):
        (table.log.path / name).write_bytes(name.encode())
    trash = Trash(table.log.path)
    trash.put(["a.parquet"], 1_000)
    trash.put(["b.parquet"], 2_000)

    trash.expire(2_000)

    assert trash.find("a.parquet") is None
    found = trash.find("b.parquet")
    assert found is not None
    assert found.read_bytes() == b"b.parquet"
    table.housekeeping._surveying = None
    table.housekeeping._surveys_at_ms = 0
    table.housekeeping.after_commit([])
    assert trash.find("b.parquet") is None, "housekeeping empties the trash when it looks around"


def test_a_commit_that_changes_no_file_leaves_the_table_as_it_was(tmp_path: Path) -> None:
    committer, _ = run(tmp_path, 3)
    log = committer.tables["counts"].log
    log.commit(Commit(transactions={"app": 1}))

    assert log.is_as_left
    log.load()
    assert log.is_as_left
