"""A stream goes on with more shards: whatever interrupts that, it gives the results of one that kept its own.

Spark's checkpoint is what it would have left; `tests/spark/test_widening.py` reads a real one.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deltaworks import Pipeline, faults
from deltaworks.control import fence
from deltaworks.control.checkpoint import stored_plan
from deltaworks.control.children import ToldToStopError
from deltaworks.control.paths import PipelinePaths
from deltaworks.erase import state
from deltaworks.errors import ConfigurationError, ConflictError, FencedError, QueryError
from deltaworks.lakehouse import moved_pages
from deltaworks.lakehouse.moved_pages import MovedPages
from deltaworks.replay import quiet, same_tasks
from deltaworks.replay.model import ReplayRequest
from deltaworks.replay.plan import make_plan
from deltaworks.rescale import rescaling
from deltaworks.settings import Settings
from deltaworks.spark import handover, widening
from deltaworks.spark.stopped import StoppedStream
from deltaworks.topology.persons import Person
from tests.hosts.memory_kafka import MemoryBroker
from tests.hosts.replays import assert_same, replay_host, steps_of
from tests.hosts.test_erase import reached
from tests.hosts.test_rescale import KEYS, TOPOLOGIES, Rescaling, flush, history
from tests.support import object_stores
from tests.support.fault_hooks import InjectedFault

PARTITIONS, WIDE = 4, 4
POINTS = ("widening.read", "store.after_rebuild", "widening.made", "widening.switched")


class Widening(Rescaling):
    """A stream with four tasks per stage in two shards."""

    @classmethod
    def begun(cls, home: Path, monkeypatch: pytest.MonkeyPatch, name: str = "joined", batches: int = 4) -> Widening:
        made = cls(home, Pipeline(name=name, topology=TOPOLOGIES[name]), PARTITIONS, monkeypatch)
        made.stream.settings = replace(made.stream.settings, cores=WIDE)
        for batch in history(made.sources, batches):
            made.batch(batch)
        return made

    @property
    def paths(self) -> PipelinePaths:
        return self.stream.paths

    @property
    def switched(self) -> tuple[str, ...]:
        return self.paths.switched

    @property
    def stopped(self) -> StoppedStream:
        found = StoppedStream.of(self.stream.settings, self.stream.plan, self.paths, self.read)
        assert found is not None
        return found

    def widen(self, generation: int = 2, shards: int = WIDE) -> str:
        """As a driver of that generation does."""
        self.stop()
        fence.advance(self.paths.fence, generation, self.stream.pipeline.name)
        name = widening.widen(self.stopped, shards, generation)
        self.go_on()
        return name

    def admit(self, generation: int) -> None:
        """A driver of that generation goes on."""
        self.stream._generation = generation
        self.stream.restart()

    def at_start(self, *, is_told: Callable[[], bool] = lambda: False, read: Any = None) -> None:
        self.stop()
        settings = self.stream.settings
        widening.at_start(
            settings, self.stream.plan, self.paths, fence.read(self.paths.fence),
            is_told=is_told, begun=lambda _: None, read=read or self.read,
        )  # fmt: skip

    def finish(self, begin: int) -> None:
        """All batches from there on."""
        for batch in (*history(self.sources, 8 - begin, begin=begin), flush(self.sources, PARTITIONS)):
            self.batch(batch)

    def require_equal(self, kept: Widening) -> None:
        assert self.sent() == kept.sent()
        for sink in self.stream.plan.tables:
            assert self.rows(sink.table) == kept.rows(sink.table) and kept.rows(sink.table)
        assert self.sent() or self.stream.plan.tables
        self.stream.close()
        kept.stream.close()


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_results_are_those_of_a_stream_that_kept_its_shards(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Widening.begun(tmp_path / "kept", monkeypatch, name)
    kept.finish(4)
    wide = Widening.begun(tmp_path / "wide", monkeypatch, name)
    assert wide.widen() == "widened-2-0"
    plan = wide.stream.checkpoint
    assert (plan.shards, plan.first_batch, plan.query_id) == (WIDE, 4, kept.stream.query_id)
    for batch in history(wide.sources, 2, begin=4):
        wide.batch(batch)
    assert wide.widen(generation=3, shards=8) == "widened-3-1"
    wide.finish(6)
    wide.require_equal(kept)


@contextmanager
def at(point: str, act: Callable[[], None]) -> Iterator[None]:
    faults.arm(lambda reached: act() if reached == point else None)
    try:
        yield
    finally:
        faults.arm(None)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def killed_at(point: str, act: Callable[[], object]) -> None:
    """By SIGKILL, in a process that does nothing else."""
    if (pid := os.fork()) == 0:
        try:
            with at(point, die):
                act()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL, f"{point} is reached"


def broken_off_at(point: str, act: Callable[[], object]) -> None:
    """Without what is done about an error: threads that talk to an object store do not survive `fork`."""
    with pytest.MonkeyPatch.context() as patch, at(point, fail), pytest.raises(InjectedFault):
        patch.setattr(handover, "discard_unfinished", lambda _: None)
        act()


def fail() -> None:
    raise InjectedFault


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """A server of S3."""
    with object_stores.moto() as endpoint:
        yield endpoint


@pytest.fixture(params=["home", "store"])
def kill(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, Callable[[], object]], None]:
    """Kills at a point; what the streams need to go on is in their homes, or in an object store."""
    if request.param == "home":
        return killed_at
    usual = Settings.from_environment({})
    values = replace(usual.values, tables={("s3", ""): reached(request.getfixturevalue("store"))})

    def in_store(home: Path) -> Settings:
        place = f"s3://{object_stores.BUCKET}/{tmp_path.name}/{home.name}"
        return replace(usual, home=home, values=values, storage_address=place)

    monkeypatch.setattr(Rescaling, "settings_in", staticmethod(in_store))
    return broken_off_at


@pytest.mark.parametrize("point", POINTS)
def test_who_is_killed_leaves_the_stream_as_it_was_or_widened(
    point: str, kill: Callable[[str, Callable[[], object]], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Widening.begun(tmp_path / "kept", monkeypatch, "windowed")
    kept.finish(4)
    wide = Widening.begun(tmp_path / "wide", monkeypatch, "windowed")
    wide.stop()
    fence.advance(wide.paths.fence, 2, "windowed")
    kill(point, lambda: widening.widen(wide.stopped, WIDE, 2))

    is_wide = point == "widening.switched"
    assert wide.switched == (("widened-2-0",) if is_wide else ())
    handover.settle(wide.paths)
    handover.expire(wide.paths, 0.0)  # as the next driver does
    assert [made.root.name for made in wide.paths.made_checkpoints()] == (["widened-2-0"] if is_wide else [])
    assert list((wide.paths.root / "checkpoints").glob(".*")) == []
    if is_wide:
        wide.go_on()
        assert wide.stream.checkpoint.shards == WIDE
    wide.admit(2)
    for batch in history(wide.sources, 1, begin=4):  # without cores for it, it goes on as it was
        wide.batch(batch)
    assert wide.widen(generation=3, shards=8) == ("widened-3-1" if is_wide else "widened-3-0")
    wide.finish(5)
    wide.require_equal(kept)


def test_a_start_does_so_once_for_the_same_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = Widening.begun(tmp_path, monkeypatch)
    plan = wide.stream.plan
    assert not widening.is_needed(plan, wide.stream.checkpoint, 2)
    assert widening.is_needed(plan, wide.stream.checkpoint, 3)
    wide.widen(shards=3)
    assert [widening.is_needed(plan, wide.stream.checkpoint, cores) for cores in (1, 2, 3, 4)] == [False] * 3 + [True]
    wide.widen(generation=3, shards=9)
    assert not widening.is_needed(plan, wide.stream.checkpoint, 100), "there are four tasks"
    wide.stream.close()


@pytest.fixture
def wide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Widening]:
    """About to use four cores."""
    made = Widening.begun(tmp_path, monkeypatch)
    yield made
    made.stream.close()


def test_a_start_says_what_it_does(wide: Widening, capfd: pytest.CaptureFixture[str]) -> None:
    wide.at_start()
    said = capfd.readouterr().out
    assert "spreading the state over 4 cores; 2 until now\n" in said and "the state is spread over 4 cores, in" in said
    assert wide.switched == ("widened-0-0",)
    wide.go_on()


def test_a_failure_is_no_reason_not_to_start(wide: Widening, caplog: pytest.LogCaptureFixture) -> None:
    def read(*_: object) -> None:
        raise QueryError("it is broken")

    before = stored_plan(wide.paths.current.plan)
    with caplog.at_level(logging.WARNING):
        wide.at_start(read=read)
    assert "the state is not spread over 4 cores, and 2 are used: it is broken" in caplog.text
    assert wide.switched == () and stored_plan(wide.paths.current.plan) == before
    for batch in history(wide.sources, 1, begin=4):
        wide.batch(batch)


def test_who_is_told_to_stop_stops(wide: Widening) -> None:
    told: list[bool] = []
    with at("store.after_rebuild", lambda: told.append(True)), pytest.raises(ToldToStopError):
        wide.at_start(is_told=lambda: bool(told))
    assert told == [True] and wide.switched == ()
    assert list((wide.paths.root / "checkpoints").glob(".*")) == [], "nothing is left of it"


def test_a_newer_generation_ends_it(wide: Widening) -> None:
    with (
        at("widening.made", lambda: fence.advance(wide.paths.fence, 7, "joined")),
        pytest.raises(FencedError),
    ):
        wide.at_start()
    assert wide.switched == ()


def test_a_full_disk_leaves_nothing(wide: Widening, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(handover, "write_plan", full)
        wide.at_start()
    assert wide.switched == () and list((wide.paths.root / "checkpoints").iterdir()) == []


def test_what_is_open_is_finished_before(wide: Widening) -> None:
    stream = wide.stream
    wide.kafka.write("visits", wide.kafka.records["visits"][0][0])
    stream.intents.put(stream._intent(stream.end(), 1_900_000_000_000))
    wide.stop()
    with pytest.raises(ConflictError, match="has begun batch 4 and not finished it"):
        widening.widen(wide.stopped, WIDE, 0)
    stream.run(stream.end())
    moved_pages.note(wide.paths.current.moved_pages, MovedPages(name="rescaled-1", tables={}))
    wide.stop()
    with pytest.raises(ConflictError, match="A rescale of 'joined' was interrupted"):
        widening.widen(wide.stopped, WIDE, 0)
    assert wide.switched == ()


def test_a_replay_has_batches_from_before_and_after_it(wide: Widening, tmp_path: Path) -> None:
    wide.widen()
    for batch in history(wide.sources, 2, begin=4):
        wide.batch(batch)
    broker: Any = MemoryBroker(wide.kafka)
    request = ReplayRequest(pipeline="joined", requested_by="ada", tables=("users", "pages"))
    plan = make_plan(wide.stream.settings, wide.stream.pipeline, request, broker)
    assert (plan.first_batch, plan.last_batch, plan.rescaled) == (0, 5, ())
    same_tasks.require(plan)
    replay_host(wide.stream, tmp_path / "replay", max_records=100).run(steps_of(wide.stream))
    wide.stream.committer.refresh_snapshots(force=True)
    assert_same(wide.stream, tmp_path / "replay")


def test_a_replay_that_is_not_finished_goes_on_after_it(wide: Widening, tmp_path: Path) -> None:
    half = steps_of(wide.stream)
    replay_host(wide.stream, tmp_path / "replay", max_records=100).run(half)
    wide.widen()
    for batch in history(wide.sources, 2, begin=4):
        wide.batch(batch)
    replay_host(wide.stream, tmp_path / "replay", max_records=100).run(steps_of(wide.stream))
    wide.stream.committer.refresh_snapshots(force=True)
    assert_same(wide.stream, tmp_path / "replay")


def test_an_erasure_may_follow_it_and_precede_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = Widening.begun(tmp_path, monkeypatch, "windowed")
    person, settings, pipeline = Person.of(KEYS[1]), wide.stream.settings, wide.stream.pipeline

    wide.widen()
    for batch in history(wide.sources, 1, begin=4):
        wide.batch(batch)
    wide.stop()
    assert state.erase(settings, pipeline, wide.paths, person, "one", read=wide.read).entries["tumbling"]
    wide.go_on()
    assert wide.stream.checkpoint.shards == WIDE
    for batch in history(wide.sources, 1, begin=5):
        wide.batch(batch)
    wide.widen(generation=3, shards=5)
    for batch in history(wide.sources, 1, begin=6):
        wide.batch(batch)
    assert wide.switched == ("widened-2-0", "erased-one", "widened-3-2")
    for name in (None, "erased-one", "widened-3-2"):
        with pytest.raises(ConflictError, match="Data was erased"):
            handover.undo(wide.paths, name)
    wide.stop()
    assert state.erase(settings, pipeline, wide.paths, person, "one", read=wide.read).entries["tumbling"], "before"
    assert state.erase(settings, pipeline, wide.paths, Person.of(KEYS[2]), "two", read=wide.read).entries["tumbling"]
    wide.go_on()
    wide.stream.close()
    assert [each.parent.name for each in wide.paths.checkpoints.glob("*/initial-state")] == ["erased-two"]


def test_a_rescale_that_changes_only_cores_is_one(wide: Widening, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet, "require", lambda *_, **__: pytest.fail("replays do not depend on it"))
    done = wide.rescale()
    assert done.checkpoint == "widened-1-0" and done.change.shards == (2, 4) and not done.change.is_of_tasks
    assert not rescaling.look(wide.stream.settings, "joined").is_needed
    with pytest.raises(ConfigurationError, match="nothing to undo"):
        handover.undo(wide.paths)
