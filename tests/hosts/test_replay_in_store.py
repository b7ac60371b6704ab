"""A replay whose task chunks run on machines that share only an object store; some run twice, some are given up."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from deltalake import DeltaTable

from deltaworks import DeadLetters, Pipeline, StreamsBuilder, TimeWindows, faults, files, object_path
from deltaworks.lakehouse import log
from deltaworks.object_path import ObjectPath, is_address
from deltaworks.runtime.replay.executors import Executor, InProcess
from deltaworks.runtime.replay.host import ReplayHost, read_progress
from deltaworks.runtime.replay.keeping import Kept, KeptState, bring
from deltaworks.runtime.replay.runner import ChunkRunner
from deltaworks.runtime.replay.task_chunks import ChunkResult, RunPaths, TaskChunk, Work
from deltaworks.runtime.state.changelog import FANOUT
from deltaworks.settings import Settings
from deltaworks.testing.topics import RawRecord
from tests.hosts.in_process import InProcessStream
from tests.hosts.memory_kafka import MemoryKafka
from tests.hosts.replays import POINTS, Rows, replay_host, replayed_stores, steps_of, streamed_stores, tables_of
from tests.hosts.test_replay import in_cycles
from tests.spark.pipelines import SECOND
from tests.support.fault_hooks import InjectedFault
from tests.unit.spark.memory_bucket import MemoryBucket

SEED = 3


def all_kinds(builder: StreamsBuilder) -> None:
    """Two stages, tables of all kinds, and a global table."""
    words = builder.stream("words", key=str, value=str)
    names = builder.global_table("names", key=str, value=str, store="names")
    by_word = words.group_by(lambda _, word: word, key=str, name="by-word")
    by_word.windowed_by(TimeWindows(size=10 * SECOND, grace=5 * SECOND)).count(store="minutes").to_delta("minutes")
    by_word.count(store="counts").to_delta("counts")
    said = words.join(names, lambda word, name: f"{name}: {word}", selector=lambda key, _: key, value=str)
    said.map_values(lambda text: str(1 // ("no" not in text)), value=str).to_delta("said")


JOBS = {"all kinds": all_kinds, "a cycle": in_cycles}


class Machines:
    """Runs each task chunk on one of three machines; some begin on another one before they have ended.

    Args:
        folder: of the machines.
        twice: how many are.
    """

    def __init__(self, folder: Path, *, twice: float = 0.0) -> None:
        self._folders = [folder / f"machine-{number}" for number in range(3)]
        self._rng, self._twice = random.Random(SEED), twice
        self.overtaken = 0

    def run(self, work: Work, chunks: Sequence[TaskChunk]) -> list[ChunkResult]:
        return [self._run(work, chunk) for chunk in chunks]

    def _run(self, work: Work, chunk: TaskChunk) -> ChunkResult:
        here, there = self._rng.sample(self._folders, 2)
        if self._rng.random() >= self._twice:
            return self._on(here, work, chunk)
        first: list[ChunkResult] = []

        def overtaken(point: str) -> None:
            if point == "replay.step":
                faults.arm(None)
                first.append(self._on(there, work, chunk))

        faults.arm(overtaken)
        late = self._on(here, work, chunk)
        faults.arm(None)
        self.overtaken += len(first)
        assert all(late == each for each in first), "the attempt that ends first counts"
        return late

    def _on(self, folder: Path, work: Work, chunk: TaskChunk) -> ChunkResult:
        with elsewhere():
            return ChunkRunner(work.at(folder)).run(chunk)


@contextmanager
def elsewhere() -> Iterator[None]:
    """What the block says of stores is forgotten at its end."""
    before = dict(object_path._known)
    try:
        yield
    finally:
        object_path._known.clear()
        object_path._known.update(before)


class Bucket(MemoryBucket):
    """One in which tables can be made."""

    def options(self) -> dict[str, str]:
        return {}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunPaths]:
    """A run of which nothing is there yet."""

    def create(path: str, **options: Any) -> None:
        if not is_address(path):
            DeltaTable.create(path, **options)
            return
        here = tmp_path / "made" / Path(path).name
        here.mkdir(parents=True)
        DeltaTable.create(str(here), **options)
        for file, _ in files.walk(here):
            files.link(file, ObjectPath(path) / file.relative_to(here))

    monkeypatch.setattr(log, "DeltaTable", SimpleNamespace(create=create))
    with elsewhere():
        yield RunPaths(Bucket().root("replay", tmp_path / "beside"), tmp_path / "replay")


@pytest.fixture(params=JOBS)
def stream(request: pytest.FixtureRequest, tmp_path: Path) -> InProcessStream:
    return streamed(JOBS[request.param], tmp_path / "home")


def streamed(build: Any, home: Path) -> InProcessStream:
    rng = random.Random(SEED)
    kafka = MemoryKafka({"words": 3, "users": 3, "names": 2})
    for number in range(600):
        word = rng.choice(["no", "yes", "well", "!"])
        kafka.write("words", RawRecord(b"k%d" % rng.randrange(9), word.encode(), 1_000_000 + 300 * number))
        kafka.write("users", RawRecord(b"%d" % rng.randrange(6), b"u", 1_000 * number))
        if number % 50 == 0:
            kafka.write("names", RawRecord(b"k%d" % rng.randrange(9), b"name %d" % number, 0))
    pipeline = Pipeline(
        name="under-test",
        topology=build,
        record_cache=False,
        on_error="continue",
        dead_letters=DeadLetters(table="dead"),
    )
    settings = replace(Settings.from_environment({}), home=home)
    stream = InProcessStream(pipeline, settings, kafka=kafka)
    stream.run_to_the_end(rng, 30, elsewhere=None)
    return stream


def host(stream: InProcessStream, run: RunPaths, executor: Executor, max_records: int = 200) -> ReplayHost:
    return replay_host(stream, run.root, max_records=max_records, executor=executor, local=run.local)


def assert_same(stream: InProcessStream, run: RunPaths) -> None:
    expected = tables_of(stream.settings.tables, stream.pipeline)
    assert tables_in_store(run, stream.pipeline) == expected
    assert all(expected[name] for name in expected if name != "dead")
    bring(run, stream.plan, dict(read_progress(run).states))
    assert replayed_stores(run.local, stream.plan, stream.tasks) == streamed_stores(stream)


def tables_in_store(run: RunPaths, pipeline: Pipeline) -> dict[str, Rows]:
    copy = run.local.parent / "copy"
    for file in files_below(run.tables):
        files.link(file, copy / file.relative_to(run.tables))
    return tables_of(copy, pipeline)


def files_below(folder: Path) -> set[Path]:
    assert isinstance(folder, ObjectPath)
    return {path for path, _ in folder.files()}


def test_machines_that_share_nothing_else_make_what_the_stream_has_made(stream: InProcessStream, run: RunPaths) -> None:
    machines = Machines(run.local.parent)
    progress = host(stream, run, machines, max_records=1).run(steps_of(stream))

    assert progress.chunks > 10, "segments are merged"
    assert_same(stream, run)
    kept = {
        run.kept(task) / name
        for task, data in progress.states
        for name in msgspec.msgpack.decode(data, type=Kept).files.values()
    }
    assert files_below(run.root / "state") == kept, "nothing that was merged stays"
    assert files_below(run.root / "results") == files_below(run.root / "exchanges") == set()


def test_of_two_attempts_at_once_the_first_counts(stream: InProcessStream, run: RunPaths) -> None:
    machines = Machines(run.local.parent, twice=0.5)
    host(stream, run, machines).run(steps_of(stream))

    assert machines.overtaken > 3
    assert_same(stream, run)


@pytest.mark.parametrize("point", POINTS)
def test_a_replay_that_dies_anywhere_goes_on_elsewhere(stream: InProcessStream, run: RunPaths, point: str) -> None:
    steps, rng, deaths = steps_of(stream), random.Random(point), 0
    for number in range(3):
        left = rng.randint(1, 3)

        def hook(reached: str) -> None:
            nonlocal left
            left -= reached.startswith(point)
            if left == 0:
                raise InjectedFault(reached)

        faults.arm(hook)
        try:
            host(stream, run, Machines(run.local.parent / str(number))).run(steps)
        except InjectedFault:
            deaths += 1
        finally:
            faults.arm(None)
    host(stream, run, Machines(run.local.parent)).run(steps)

    assert deaths or point == "delta.before_pages", "a table without windows has no pages"
    assert_same(stream, run)


def test_a_chunk_that_begins_again_finds_what_it_has_merged(tmp_path: Path, run: RunPaths) -> None:
    stream = streamed(all_kinds, tmp_path / "home")
    steps, merged = steps_of(stream), 0
    original = KeptState.remove_segment

    def dying(self: KeptState, segment_id: int) -> None:
        nonlocal merged
        original(self, segment_id)
        merged += 1
        if merged == FANOUT:
            faults.arm(_raise)

    def _raise(point: str) -> None:
        raise InjectedFault(point)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(InjectedFault):
        patch.setattr(KeptState, "remove_segment", dying)
        host(stream, run, Machines(run.local.parent), max_records=1).run(steps)
    faults.arm(None)
    host(stream, run, Machines(run.local.parent / "others"), max_records=1).run(steps)

    assert_same(stream, run)


def test_the_host_itself_goes_on_where_machines_have_stopped(stream: InProcessStream, run: RunPaths) -> None:
    steps = steps_of(stream)
    host(stream, run, Machines(run.local.parent)).run(steps[: len(steps) // 2])
    host(stream, run, InProcess()).run(steps)

    assert_same(stream, run)


def test_what_attempts_that_were_given_up_do_later_changes_nothing(stream: InProcessStream, run: RunPaths) -> None:
    machines, late = Machines(run.local.parent), list[tuple[Work, TaskChunk]]()

    class Noting:
        def run(self, work: Work, chunks: Sequence[TaskChunk]) -> list[ChunkResult]:
            late.extend((work, chunk) for chunk in chunks)
            return machines.run(work, chunks)

    steps = steps_of(stream)
    host(stream, run, Noting()).run(steps[: len(steps) // 2])
    ghost = Machines(run.local.parent / "ghost")
    for work, chunk in late[-4:]:
        try:
            ghost.run(work, [chunk])
        except (FileNotFoundError, KeyError):
            continue  # what it would need has gone
    host(stream, run, machines).run(steps)

    assert_same(stream, run)
