"""A disk without room, wherever it shows."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import pytest
from confluent_kafka import KafkaError, KafkaException

from deltaworks import disk, exits
from deltaworks.control import batches, commands, fence, heartbeat, next_tick, outcome
from deltaworks.control.batches import BatchRecord
from deltaworks.control.checkpoint import CheckpointPlan, write_plan
from deltaworks.control.heartbeat import Heartbeat
from deltaworks.control.lease import Lease
from deltaworks.errors import DeltaworksError, DiskFullError, KafkaWriteError, StreamsError
from deltaworks.files import LocalFiles, replace_file

BEAT = Heartbeat(pipeline="p", generation=1, query_id="q", state="running", pid=1, at=1.0)
PLAN = CheckpointPlan(lineage="line", query_id="q", fingerprint={}, partitions={}, tasks=(), shards=1)
COMMAND = commands.Command(id="c", kind="publish", arguments={}, requested_by="me", at_ms=1)


def chained(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def full(path: str | None = None, number: int = errno.ENOSPC) -> OSError:
    return OSError(number, os.strerror(number), path) if path else OSError(number, os.strerror(number))


class FromDeltalake(Exception):
    __module__ = "deltalake._internal"


ERRORS = {
    "ours": full("/data/checkpoint/1"),
    "a quota": full("/data/checkpoint/1", errno.EDQUOT),
    "without a name": full(),
    "pyarrow": OSError("[Errno 28] Error writing bytes to file. Detail: [errno 28] No space left on device"),
    "deltalake": FromDeltalake("Generic LocalFileSystem error: Unable to write: No space left on device (os error 28)"),
    "lmdb": lmdb.DiskError("mdb_txn_commit: No space left on device"),
    "a full store": lmdb.MapFullError("mdb_put: MDB_MAP_FULL: Environment mapsize limit reached"),
    "the broker": KafkaException(KafkaError(KafkaError.KAFKA_STORAGE_ERROR)),
    "below others": chained(KafkaWriteError("aborted"), chained(ValueError("?"), full())),
}


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS.keys())
def test_whoever_finds_no_room_says_so_in_one_way(error: Exception, tmp_path: Path) -> None:
    with pytest.raises(DiskFullError) as raised, disk.told(tmp_path):
        raise error

    assert raised.value.__cause__ is error
    assert exits.code_of(raised.value) == exits.DISK_FULL and exits.DISK_FULL not in exits.NO_RESTART
    assert "free some space" in str(raised.value)
    if error is not ERRORS["the broker"]:
        where = "/data/checkpoint/1" if getattr(error, "filename", None) else str(tmp_path)
        assert where in str(raised.value) and "MB are free" in str(raised.value)


@pytest.mark.parametrize(
    "error",
    [
        full(number=errno.EACCES),
        ValueError("the line 'No space left on device' does not decode"),
        chained(StreamsError("a function raised"), ValueError("No space left on device")),
        KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN)),
        lmdb.CorruptedError("No space left on device"),
    ],
)
def test_any_other_error_stays_what_it_is(error: Exception, tmp_path: Path) -> None:
    """A record may hold any text, and an error quotes it."""
    with pytest.raises(type(error)) as raised, disk.told(tmp_path):
        raise error

    assert raised.value is error


def test_what_is_told_already_is_not_told_again(tmp_path: Path) -> None:
    said = DiskFullError("x")
    with pytest.raises(DiskFullError) as raised, disk.told(tmp_path), disk.told(Path("/")):
        raise said

    assert raised.value is said


def test_a_function_can_be_told_about_each_time_it_is_called(tmp_path: Path) -> None:
    def write() -> None:
        raise full()

    for _ in range(2):
        with pytest.raises(DiskFullError):
            disk.told(tmp_path)(write)()


def lease(folder: Path) -> None:
    with Lease(folder / "lease.json", "p", 1):
        pass


WRITES: dict[str, Callable[[Path], object]] = {
    "a file that is replaced": lambda folder: replace_file(folder / "a", b"x" * 9),
    "durably": lambda folder: replace_file(folder / "a", b"x" * 9, durable=True),
    "an intent": lambda folder: LocalFiles(folder).put_if_absent("intents/1.json", b"{}"),
    "the heartbeat": lambda folder: heartbeat.write(folder / "heartbeat.json", BEAT),
    "the outcome": lambda folder: outcome.write(folder / "outcomes" / "1.json", 1, 0, None),
    "the plan": lambda folder: write_plan(folder / "plan.json", PLAN),
    "the generation": lambda folder: fence.advance(folder / "generation", 1, "p"),
    "the next tick": lambda folder: next_tick.write(folder / "next-tick", 1),
    "a command": lambda folder: commands.put(folder, COMMAND),
    "the record of batches": lambda folder: batches.append(folder, BatchRecord(1, 1, {})),
    "the lease": lease,
}


@pytest.mark.parametrize("call", ["write", "fsync"])
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_a_write_without_room_leaves_nothing_behind_and_succeeds_later(
    write: Callable[[Path], object], call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        failed = refuse(patch, call)
        try:
            with disk.told(tmp_path):
                write(tmp_path)
        except DiskFullError:
            pass
        else:
            assert not failed, "a write that found no room must say so"
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in left if path.name.startswith(".")] == []

    write(tmp_path)


def refuse(patch: pytest.MonkeyPatch, call: str) -> list[str]:
    """No file takes a byte (as far as Python writes it), or is brought to the disk, and what was refused."""
    failed: list[str] = []

    def refusing(*arguments: Any) -> Any:
        failed.append(call)
        raise full()

    if call == "fsync":
        patch.setattr(os, "fsync", refusing)
        return failed
    opened, fdopened = Path.open, os.fdopen
    patch.setattr(Path, "open", lambda *a, **k: Full(opened(*a, **k), refusing))
    patch.setattr(os, "fdopen", lambda *a, **k: Full(fdopened(*a, **k), refusing))
    patch.setattr(os, "pwrite", refusing)
    return failed


class Full:
    """A file on a disk without room."""

    def __init__(self, file: Any, write: Callable[..., Any]) -> None:
        self._file, self.write = file, write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> Full:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()


def test_a_batch_that_was_recorded_by_half_is_recorded_again(tmp_path: Path) -> None:
    batches.append(tmp_path, BatchRecord(1, 1, {}))
    (file,) = tmp_path.glob("*.jsonl")
    whole = file.read_bytes()
    file.write_bytes(whole + whole[:9])  # the disk took that much

    batches.append(tmp_path, BatchRecord(2, 2, {}))

    assert [record.batch for record in batches.read(tmp_path)] == [1, 2]


def test_a_disk_with_room_is_not_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = os.statvfs(tmp_path)
    assert not disk.is_full(tmp_path / "not" / "there")

    class Small:
        f_bavail, f_frsize, f_files, f_favail = 10, 4096, found.f_files, found.f_favail

    monkeypatch.setattr(os, "statvfs", lambda path: Small)
    assert disk.is_full(tmp_path)


def test_the_error_says_how_much_is_free_even_if_the_disk_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(path: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "statvfs", gone)

    assert "free space unknown" in disk.free(tmp_path)
    assert issubclass(DiskFullError, DeltaworksError)
