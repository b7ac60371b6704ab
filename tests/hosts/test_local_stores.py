"""Local stores of a stream hold committed batches only, also when no other batch comes, and are never just believed."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from deltaworks import Pipeline, StreamsBuilder, processes
from deltaworks.errors import StateError
from deltaworks.runtime import shard
from deltaworks.runtime.state import applier
from deltaworks.runtime.state.local_files import DATA
from deltaworks.runtime.state.local_store import EMPTY, LocalReader, LocalStore, StateVersion
from deltaworks.runtime.state.recovery import local_path
from deltaworks.runtime.task_loop import process
from deltaworks.settings import Settings
from deltaworks.testing.topics import RawRecord
from tests.hosts import in_process
from tests.hosts.in_process import InProcessStream
from tests.hosts.memory_kafka import MemoryKafka

KEYS = 4


def counting(builder: StreamsBuilder) -> None:
    builder.stream("in", key=str, value=str).group_by_key().count(store="counts").to_stream().to("out")


pipeline = Pipeline(name="counting", topology=counting, record_cache=False)


class Counting(InProcessStream):
    """Each batch has one more record per key."""

    def __init__(self, home: Path, commits: Path | None = None) -> None:
        self.topics = MemoryKafka({"in": 1})
        settings = replace(Settings.from_environment({}), home=home)
        super().__init__(pipeline, settings, kafka=self.topics, shards=1, commits=commits)
        self.written = 0

    def batch(self, fail_at: list[str] | None = None) -> None:
        for key in range(KEYS):
            self.topics.write("in", RawRecord(b"k%d" % key, b"x", 1000))
        self.written += 1
        self.run(self.end(), fail_at)

    @property
    def local(self) -> LocalStore:
        return self.worker.task(0, 0).local

    def on_disk(self) -> set[int]:
        """The counts in the local store."""
        return {int.from_bytes(value[-8:], "big") for _, value in self.local.reader("counts").scan(b"", None)}

    def assert_exact(self) -> None:
        """Every record was counted once, in the topic and on the disk."""
        state = self.states[0, 0]
        self.worker.open((0, 0), self.committed((0, 0), state))
        assert self.on_disk() == {self.written}
        values = [int.from_bytes(record.value or b"", "big") for _, _, record in self.topics.read("out")]
        assert sorted(values) == sorted([*range(1, self.written + 1)] * KEYS)


@pytest.fixture
def stream(tmp_path: Path) -> Any:
    made = Counting(tmp_path)
    yield made
    made.close()


def test_a_batch_is_on_the_disk_when_the_next_one_begins_and_not_before(stream: Counting) -> None:
    stream.batch()
    assert (stream.local.version(), stream.on_disk()) == (EMPTY, set())
    stream.batch()
    assert stream.on_disk() == {1}
    assert stream.openings == ["new", "applied"]
    stream.assert_exact()


@pytest.mark.parametrize("point", ["driver.after_tasks", "driver.after_tables", "task.end", "store.after_version"])
def test_an_attempt_that_fails_has_never_been_on_the_disk(stream: Counting, point: str) -> None:
    stream.batch()
    stream.batch([point])
    assert stream.on_disk() == {1}
    stream.assert_exact()


def test_a_worker_that_dies_between_sparks_commit_and_the_disk_is_made_up_for(stream: Counting) -> None:
    for _ in range(3):
        stream.batch()
    stream.lose_worker()
    assert stream.on_disk() == {2}
    stream.batch()
    assert stream.openings[-1] == "caught up"
    stream.assert_exact()


class Quiet:
    """A stream whose worker looks for Spark's commits; a test lets no time pass."""

    def __init__(self, tmp_path: Path, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(applier, "_POLL_S", 0.001)
        patch.setattr(applier, "_QUIET_S", 0.0)
        self.commits = tmp_path / "commits"
        self.commits.mkdir()
        self.stream = Counting(tmp_path, self.commits)

    def commit(self) -> None:
        """Spark notes the last batch."""
        (self.commits / str(self.stream.batch_id - 1)).touch()

    def await_on_disk(self, counts: set[int]) -> None:
        deadline = time.monotonic() + 20
        while self.stream.on_disk() != counts:
            assert time.monotonic() < deadline
            time.sleep(0.001)


@pytest.fixture
def quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    made = Quiet(tmp_path, monkeypatch)
    yield made
    made.stream.close()


def test_without_a_further_batch_the_worker_brings_the_changes_to_the_disk(quiet: Quiet) -> None:
    quiet.stream.batch()
    quiet.commit()
    quiet.await_on_disk({1})
    quiet.stream.batch()
    quiet.commit()
    quiet.await_on_disk({2})
    quiet.stream.batch()
    assert quiet.stream.openings == ["new", "same", "same"]
    quiet.stream.assert_exact()


def test_the_worker_waits_until_spark_has_committed(quiet: Quiet) -> None:
    quiet.stream.batch()
    hosted = quiet.stream.worker.task(0, 0)
    looking = quiet.stream.worker._applier
    assert looking is not None
    assert looking.apply()
    assert (hosted.pending is not None, quiet.stream.on_disk()) == (True, set())
    quiet.commit()
    quiet.await_on_disk({1})


def test_a_batch_that_begins_while_the_worker_writes_waits_for_it(
    quiet: Quiet, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    commit = LocalStore.commit

    def slow(self: LocalStore, *args: Any) -> None:
        begun.set()
        go_on.wait(20)
        commit(self, *args)

    monkeypatch.setattr(LocalStore, "commit", slow)
    quiet.stream.batch()
    quiet.commit()
    assert begun.wait(20)
    batch = threading.Thread(target=quiet.stream.batch)
    batch.start()
    go_on.set()
    batch.join()
    quiet.stream.assert_exact()
    assert quiet.stream.openings == ["new", "same"]


def test_a_worker_that_is_late_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It has changes of a batch in memory and sees that Spark has committed it, but the store has gone on."""
    quiet = Quiet(tmp_path, monkeypatch)
    stream = quiet.stream
    stream.batch()
    hosted = stream.worker.task(0, 0)
    late, version = hosted.pending, hosted.local.version()
    assert late is not None and version == late.base
    stream.batch()
    stream.batch()
    with pytest.raises(StateError, match="another process has written it meanwhile"):
        stream.local.commit(late.changes, late.version, late.base)
    with hosted.lock:
        kept, hosted.pending = hosted.pending, replace(late, batch=stream.batch_id - 1)
    quiet.commit()
    assert stream.worker._applier is not None
    stream.worker._applier.apply()
    assert stream.worker.task(0, 0).pending is None
    assert stream.on_disk() == {2}
    assert "left to the next batch" not in caplog.text  # it is nothing that an operator should read
    hosted.pending = kept
    stream.assert_exact()
    stream.close()


def test_a_store_that_somebody_rebuilt_meanwhile_ends_the_attempt_before_anything_is_durable(
    stream: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.batch()
    late = [StateVersion(2, b"late")]

    def process_and_be_disturbed(*args: Any, **options: Any) -> None:
        process(*args, **options)
        if late:
            stream.local.rebuild(iter(()), late.pop(), stream.local.version())

    monkeypatch.setattr(shard, "process", process_and_be_disturbed)
    with pytest.raises(StateError, match="another process has written it meanwhile"):
        stream.batch()
    assert len(stream.topics.read("out")) == KEYS
    stream.run(stream.end())
    assert "rebuild" in stream.openings
    stream.assert_exact()


def test_an_entry_that_is_wrong_ends_the_attempt_and_the_next_one_fills_the_store_again(
    stream: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.batch()
    stream.batch()
    stream.lose_worker()
    with monkeypatch.context() as patch:
        patch.setattr(LocalReader, "get", lambda self, key: self._whole(b"." + key, b"not as it was")[1])
        with pytest.raises(StateError, match="an entry differs from what was written"):
            stream.batch()
    stream.run(stream.end())
    assert "rebuild" in stream.openings
    stream.assert_exact()


def test_a_store_that_was_thrown_away_meanwhile_is_opened_again(stream: Counting) -> None:
    stream.batch()
    stream.batch()
    path = local_path(stream.paths.current.local, 0, 0)
    path.rename(path.with_name("gone"))
    stream.batch()
    assert path.exists()
    assert stream.openings[-1] == "rebuild"
    stream.assert_exact()


def test_after_a_start_of_the_machine_every_store_is_filled_again(
    stream: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        stream.batch()
    monkeypatch.setattr(processes, "boot_id", lambda: "another boot")
    stream.restart()
    stream.batch()
    assert stream.openings[-1] == "rebuild"
    stream.assert_exact()


@pytest.mark.parametrize("size", [0, 1, 4096, 5000])
def test_a_store_that_is_cut_off_while_the_stream_is_down_is_filled_again(stream: Counting, size: int) -> None:
    for _ in range(3):
        stream.batch()
    stream.worker.close()
    with (local_path(stream.paths.current.local, 0, 0) / DATA).open("r+b") as file:
        file.truncate(size)
    stream.restart()
    stream.batch()
    assert stream.openings[-1] == "rebuild"
    stream.assert_exact()


@pytest.mark.parametrize(("attempt", "opened"), [(0, "applied"), (1, "applied"), (2, "rebuild")])
def test_the_third_attempt_of_spark_begins_without_the_stores(
    stream: Counting, monkeypatch: pytest.MonkeyPatch, attempt: int, opened: str
) -> None:
    """Two workers have died, perhaps of what is in them, which no process can say afterwards."""
    stream.batch()
    monkeypatch.setattr(in_process, "run_shard", partial(shard.run_shard, attempt=attempt))
    stream.batch()
    assert stream.openings[-1] == opened
    stream.assert_exact()
