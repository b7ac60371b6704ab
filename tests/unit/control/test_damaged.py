"""Every file that drivers and their callers read, missing, empty and torn."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deltaworks import processes
from deltaworks.control import commands, fence, heartbeat, next_tick, outcome
from deltaworks.control.checkpoint import CheckpointPlan, fitting_plan, stored_plan, write_plan
from deltaworks.control.commands import Answer, Command
from deltaworks.control.heartbeat import Heartbeat
from deltaworks.control.lease import Holder, Lease, ProcessId, read_holder
from deltaworks.control.observation import observe
from deltaworks.control.paths import PipelinePaths
from deltaworks.errors import DeltaworksError, IncompatibleCheckpointError, TableError, TransientError
from deltaworks.lakehouse.publish import ownership, publication
from deltaworks.replay.model import ReplayPaths
from deltaworks.settings import Settings

GARBAGE = bytes(range(256))
BEAT = Heartbeat(pipeline="p", generation=1, query_id="q", state="running", pid=1, at=1.0)
PLAN = CheckpointPlan(lineage="line", query_id="q", fingerprint={}, partitions={"in": 1}, tasks=(1,), shards=1)
COMMAND = Command(id="publish-1", kind="publish", arguments={}, requested_by="me", at_ms=1)


def torn(path: Path) -> list[bytes]:
    """What a file may hold that was not written whole: nothing, zeros, half of it, anything."""
    whole = path.read_bytes()
    return [b"", bytes(len(whole)), whole[: len(whole) // 2], GARBAGE]


def each_torn(path: Path, check: Callable[[], object]) -> None:
    for content in torn(path):
        path.write_bytes(content)
        check()


def refused(kind: type[DeltaworksError], read: Callable[[], object]) -> None:
    with pytest.raises(kind) as raised:
        read()
    assert raised.value.hint


def is_none(read: Callable[[], object]) -> None:
    assert read() is None


def test_a_heartbeat_is_followed_by_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "heartbeat.json"
    is_none(lambda: heartbeat.read(path))
    heartbeat.write(path, BEAT)
    each_torn(path, lambda: is_none(lambda: heartbeat.read(path)))
    heartbeat.write(path, BEAT)
    assert heartbeat.read(path) == BEAT


def test_an_outcome_that_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "1.json"
    is_none(lambda: outcome.read(path))
    outcome.write(path, 1, 70, "it broke")
    each_torn(path, lambda: is_none(lambda: outcome.read(path)))


def test_a_tick_is_due_if_nobody_can_read_when(tmp_path: Path) -> None:
    path = tmp_path / "next-tick"
    assert next_tick.read(path) == 0
    next_tick.write(path, 1_700_000_000_000)
    assert next_tick.read(path) == 1_700_000_000_000
    each_torn(path, lambda: pytest.fail("late") if next_tick.read(path) != 0 else None)
    next_tick.write(path, None)
    is_none(lambda: next_tick.read(path))
    each_torn(path, lambda: pytest.fail("never") if next_tick.read(path) != 0 else None)


def test_a_plan_that_cannot_be_read_is_refused_and_not_recreated(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    is_none(lambda: stored_plan(path))
    write_plan(path, PLAN)
    each_torn(path, lambda: refused(IncompatibleCheckpointError, lambda: fitting_plan(path, "p", {}, {"in": 1}, (1,))))


def test_a_generation_that_cannot_be_read_does_not_let_an_old_one_in(tmp_path: Path) -> None:
    path = tmp_path / "p" / "generation"
    assert fence.read(path) == 0
    fence.advance(path, 12, "p")
    assert fence.read(path) == 12
    path.write_bytes(b"12")  # written by a hand
    assert fence.read(path) == 12
    for content in (b"", bytes(3), b"\n", GARBAGE, b"-1\n", b"1 2\n"):
        path.write_bytes(content)
        refused(IncompatibleCheckpointError, lambda: fence.read(path))
        refused(IncompatibleCheckpointError, lambda: fence.check(path, 1, "p"))
        refused(IncompatibleCheckpointError, lambda: fence.advance(path, 13, "p"))
        with pytest.raises(IncompatibleCheckpointError), fence.held(path, 12, "p"):
            pytest.fail("nobody writes behind a fence that nobody can read")
        assert path.read_bytes() == content


def test_a_pipeline_whose_generation_cannot_be_read_is_shown(tmp_path: Path) -> None:
    settings = replace(Settings.from_environment({}), home=tmp_path)
    path = PipelinePaths.of(settings, "p").fence
    path.parent.mkdir(parents=True)
    path.write_bytes(b"")

    seen = observe(settings, "p", 3)

    assert seen.state == "unknown" and str(path) in str(seen.reason)


def test_the_generation_is_on_the_disk_before_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, synced = tmp_path / "p" / "generation", list[str]()
    fsync = os.fsync

    def noting(fd: int) -> None:
        synced.append(Path(f"/proc/self/fd/{fd}").readlink().name)
        fsync(fd)

    monkeypatch.setattr(os, "fsync", noting)
    fence.advance(path, 1, "p")

    assert synced[0] == tmp_path.name, "the folder that holds the new folder"
    assert synced[1].startswith(".generation.") and synced[2] == "p"


def test_a_pointer_that_cannot_be_read_does_not_start_the_first_line(tmp_path: Path) -> None:
    paths = PipelinePaths.at(tmp_path)
    paths.pointer.write_text("first\nsecond\n")
    assert list(paths.switched) == ["first", "second"]
    each_torn(paths.pointer, lambda: refused(IncompatibleCheckpointError, lambda: paths.current))


def test_a_hand_over_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    record = tmp_path / "run.json"
    is_none(lambda: ownership.read(record))
    record.write_text('{"format": 1, "request": {"run_id": "run"}}')
    each_torn(record, lambda: refused(TableError, lambda: ownership.read(record)))


RECORDS: dict[str, Callable[[Path], object]] = {
    "handover.json": ownership.read,
    "publication.json": lambda path: publication.read(path.parent, path.stem),
    "plan.json": lambda path: ReplayPaths(path.parent, path).read_plan(),
}


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize(("content", "written"), [(b'{"format": 99}', "99"), (b"{}", "None")])
def test_what_another_version_has_written_down_of_a_replay_is_refused(
    tmp_path: Path, name: str, content: bytes, written: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(IncompatibleCheckpointError, match=f"has format {written}; this deltaworks reads format [12]"):
        RECORDS[name](tmp_path / name)


@pytest.mark.parametrize("content", [b"", bytes(20), b'{"id":"publish-1","ki', GARBAGE])
def test_a_command_that_cannot_be_read_is_answered_and_keeps_nobody(tmp_path: Path, content: bytes) -> None:
    commands.put(tmp_path, COMMAND)
    path = tmp_path / "publish-1.command.json"
    path.write_bytes(content)
    good = Command(id="publish-2", kind="publish", arguments={}, requested_by="me", at_ms=2)
    commands.put(tmp_path, good)

    assert [*commands.pending(tmp_path)] == [good]
    assert [*commands.pending(tmp_path)] == [good]
    assert (tmp_path / "publish-1.command.json.unreadable").read_bytes() == content

    said = commands.wait(tmp_path, COMMAND, act=lambda: pytest.fail("it is answered"), timeout_s=0)
    assert said.error is not None and "cannot be read" in said.error and said.hint


def test_a_command_that_is_withdrawn_while_others_are_read_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands.put(tmp_path, COMMAND)
    read_bytes = Path.read_bytes

    def withdrawn(path: Path) -> bytes:
        path.unlink()
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", withdrawn)

    assert [*commands.pending(tmp_path)] == []


@pytest.mark.parametrize("content", [b"", bytes(20), b'{"seconds":1.0,"b', GARBAGE])
def test_an_answer_that_cannot_be_read_is_said(tmp_path: Path, content: bytes) -> None:
    commands.put(tmp_path, COMMAND)
    (tmp_path / "publish-1.answer.json").write_bytes(content)

    refused(TransientError, lambda: commands.wait(tmp_path, COMMAND, act=lambda: None, timeout_s=0))

    commands.answer(tmp_path, COMMAND, Answer(seconds=0.0, by="me"))
    assert commands.wait(tmp_path, COMMAND, act=lambda: None, timeout_s=0).by == "me"


def test_a_lease_that_cannot_be_read_is_nobodys(tmp_path: Path) -> None:
    path = tmp_path / "lease.json"
    is_none(lambda: read_holder(path))
    with Lease(path, "p", 1):
        content = path.read_bytes()
    is_none(lambda: read_holder(path))
    path.write_bytes(content)
    for damaged in [b"", bytes(len(content)), content[:60], GARBAGE]:
        path.write_bytes(damaged)
        is_none(lambda: read_holder(path))
        with Lease(path, "p", 2):
            holder = read_holder(path)
            assert holder is not None and holder.generation == 2


def test_no_moment_shows_half_a_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its holder may be killed between any two calls of the system; the JVM that it noted must be found."""
    path, seen = tmp_path / "lease.json", list[Holder | None]()
    for name in ("pwrite", "ftruncate"):
        call: Any = getattr(os, name)

        def noting(fd: int, *arguments: Any, call: Any = call) -> Any:
            result = call(fd, *arguments)
            seen.append(read_holder(path))
            return result

        monkeypatch.setattr(os, name, noting)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        with Lease(path, "p" * 40, 1) as lease:
            lease.owns(jvm=other.pid)
            noted = len(seen)
            lease.owns(jvm=os.getpid())
        assert other.stdin is not None
        other.stdin.close()

    assert noted and all(holder is not None for holder in seen[:-1]), "but at its end it is given back"
    assert all(holder is not None and holder.jvm is not None for holder in seen[2:-1])


def test_a_process_is_the_same_after_a_step_of_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system tells starts as times of day, counted from a boot that moves with the clock."""
    me = ProcessId.of(os.getpid())
    monkeypatch.setattr("psutil.Process.create_time", lambda process: 1.0)

    assert me.alive() is not None
    assert ProcessId(me.pid, me.started + "0").alive() is None
    assert ProcessId(me.pid, "another boot/" + me.started.partition("/")[2]).alive() is None


def test_a_registration_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    entry = processes.register(
        tmp_path, name="p", kind="pipeline", pid=os.getpid(), command=["a"], log=tmp_path / "log", ports=[1]
    )
    assert processes.find(tmp_path, "p") == entry
    path = tmp_path / "p.json"
    each_torn(path, lambda: is_none(lambda: processes.find(tmp_path, "p")))
    path.write_text("[]")
    assert processes.registered(tmp_path) == []
