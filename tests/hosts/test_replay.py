"""The replay host: cycles that die in the middle, later batches, readers that fail, what it counts and refuses."""

from __future__ import annotations

import os
import pickle
import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deltaworks import DeadLetters, Pipeline, StreamsBuilder, StreamsError, faults
from deltaworks.errors import KafkaReadError, StateError
from deltaworks.kafka.ranges import Range
from deltaworks.kernel.records import RecordBatch
from deltaworks.settings import Settings
from deltaworks.testing.topics import RawRecord
from tests.hosts.in_process import InProcessStream
from tests.hosts.memory_kafka import MemoryKafka, MemoryReader
from tests.hosts.replays import assert_same, replay_host, steps_of, tables_of
from tests.support.fault_hooks import InjectedFault

ROOT = Path(__file__).parents[2]


def words(builder: StreamsBuilder) -> None:
    words = builder.stream("words", key=str, value=str).filter(lambda _, word: word != "no")
    words.map_values(lambda word: str(int(word, 36)), value=str).to("numbers")
    words.group_by(lambda _, word: word, key=str, name="by-word").count(store="counts").to_delta("counts")
    words.to_delta("said")


def in_cycles(builder: StreamsBuilder) -> None:
    """Counts in each stage of the cycle: whatever is done twice is seen."""
    orders = builder.stream("words", key=str, value=str).group_by_key().count(store="orders")
    users = builder.stream("users", key=str, value=str).group_by_key().count(store="users")
    joined = orders.left_join(
        users, lambda count, seen: f"{count} {seen}", foreign_key=lambda _, count: str(count % 5), value=str,
        store="joined", name="by-user",
    )  # fmt: skip
    joined.to_stream().group_by_key().count(store="updates").to_delta("updates")


def streamed(build: Any, home: Path, **options: Any) -> InProcessStream:
    rng = random.Random(5)
    kafka = MemoryKafka({"words": 3, "users": 3, "numbers": 2})
    for number in range(600):
        word = rng.choice(["no", "yes", "well", "!"])
        kafka.write("words", RawRecord(b"k%d" % rng.randrange(9), word.encode(), 1_000 * number))
        kafka.write("users", RawRecord(b"%d" % rng.randrange(6), b"u", 1_000 * number))
    settings = replace(Settings.from_environment({}), home=home)
    pipeline = Pipeline(name="under-test", topology=build, record_cache=False, **options)
    stream = InProcessStream(pipeline, settings, kafka=kafka)
    stream.run_to_the_end(rng, 30, elsewhere=None)
    return stream


@pytest.fixture
def stream(tmp_path: Path) -> InProcessStream:
    return streamed(words, tmp_path, on_error="continue", dead_letters=DeadLetters(topic="dead", table="letters"))


@pytest.mark.parametrize("committed", range(1, 10))
def test_a_cycle_that_dies_between_its_stores_begins_the_chunk_again(committed: int, tmp_path: Path) -> None:
    stream = streamed(in_cycles, tmp_path)
    steps, root, reached = steps_of(stream), tmp_path / "replay", 0

    def hook(point: str) -> None:
        nonlocal reached
        reached += point == "replay.local_committed"
        if reached == 12 + committed:
            raise InjectedFault

    faults.arm(hook)
    try:
        with pytest.raises(InjectedFault):
            replay_host(stream, root, max_records=400).run(steps)
    finally:
        faults.arm(None)
    replay_host(stream, root, max_records=400).run(steps)

    assert_same(stream, root)


def test_later_batches_go_on_from_the_state(stream: InProcessStream, tmp_path: Path) -> None:
    steps, root = steps_of(stream), tmp_path / "replay"
    half = len(steps) // 2
    first = replay_host(stream, root, max_records=300).run(steps[:half])
    assert (first.last_batch, first.begun) == (steps[half - 1].batch, None)

    host = replay_host(stream, root, max_records=300)
    reported: list[int] = []
    done = host.run(steps, lambda progress: reported.append(progress.last_batch))

    assert reported == sorted(reported) and reported[0] > first.last_batch and reported[-1] == steps[-1].batch
    assert_same(stream, root)
    again = replay_host(stream, root, max_records=300).run(steps)
    assert again == done == host.progress
    assert list((root / "exchanges").iterdir()) == list((root / "results").iterdir()) == []


def test_it_counts_what_the_stream_has_written(stream: InProcessStream, tmp_path: Path) -> None:
    progress = replay_host(stream, tmp_path / "replay", max_records=500).run(steps_of(stream))

    kafka, tables = stream.kafka, tables_of(stream.settings.tables, stream.pipeline)
    assert kafka is not None
    assert progress.sent == {topic: len(records) for topic, records in kafka.sent.items()}
    assert progress.rows == {table: len(tables[table]) for table in ("said", "counts_changelog", "letters")}
    assert progress.dead_letters == len(tables["letters"]) > 0
    assert progress.dropped == progress.dead_letters
    assert progress.records == 600
    assert progress.seconds > 0


class Sequential(MemoryReader):
    """Notes what it was asked for; fails at first."""

    asked: list[Sequence[Sequence[Range]]]
    failures: list[Exception]

    def sequential(self, ranges_per_step: Sequence[Sequence[Range]]) -> Iterator[list[RecordBatch]]:
        self.asked.append(ranges_per_step)
        for number, ranges in enumerate(ranges_per_step):
            if number == 3 and self.failures:
                raise self.failures.pop()
            yield [batch for each in ranges for portion in super(Sequential, self).read([each]) for batch in portion]

    def read(self, ranges: Sequence[Range]) -> Iterator[list[RecordBatch]]:
        raise AssertionError("many small ranges are read as one")


def test_a_task_reads_its_steps_in_one_go_once_more_if_that_fails(stream: InProcessStream, tmp_path: Path) -> None:
    kafka = stream.kafka
    assert kafka is not None
    Sequential.asked, Sequential.failures = [], [KafkaReadError("no answer")]

    replay_host(stream, tmp_path / "replay", max_records=100_000, clients=lambda: Sequential(kafka)).run(
        steps_of(stream)
    )

    assert_same(stream, tmp_path / "replay")
    assert len(Sequential.asked) == 1 + 3
    assert sum(each.stop - each.start for step in Sequential.asked[1:] for ranges in step for each in ranges) == 600
    Sequential.failures = [KafkaReadError("gone")] * 2
    with pytest.raises(KafkaReadError, match="gone"):
        replay_host(stream, tmp_path / "other", max_records=100_000, clients=lambda: Sequential(kafka)).run(
            steps_of(stream)
        )


def test_a_record_that_fails_ends_the_replay_and_nothing_of_its_chunk_is_left(
    stream: InProcessStream, tmp_path: Path
) -> None:
    steps, root = steps_of(stream), tmp_path / "replay"
    failing = replace(stream.pipeline, on_error="fail")
    with pytest.raises(StreamsError, match="words-"):
        replay_host(stream, root, max_records=1, pipeline=failing).run(steps)

    replay_host(stream, root, max_records=1).run(steps)

    assert_same(stream, root)


def test_a_chunk_that_was_begun_is_ended_and_other_batches_are_refused(stream: InProcessStream, tmp_path: Path) -> None:
    steps, root = steps_of(stream), tmp_path / "replay"
    faults.arm(lambda point: _raise() if point == "replay.before_commit" else None)
    with pytest.raises(InjectedFault):
        replay_host(stream, root, max_records=100_000).run(steps[:6])
    faults.arm(None)
    host = replay_host(stream, root, max_records=1)
    assert host.progress.begun == steps[5].batch

    with pytest.raises(ValueError, match="is not among the batches"):
        host.run(steps[:4])
    (root / "progress.json").unlink()
    with pytest.raises(StateError, match="ahead of batch"):
        host.run(steps[:4])


def _raise() -> None:
    raise InjectedFault


def test_a_process_that_is_killed_leaves_what_the_next_one_needs(stream: InProcessStream, tmp_path: Path) -> None:
    kafka, steps, file = stream.kafka, steps_of(stream), tmp_path / "work"
    assert kafka is not None
    options: dict[str, Any] = {
        "pipeline": stream.pipeline, "tasks": stream.tasks, "exchange_partitions":
        stream.worker.config.exchange_partitions, "sink_partitions": kafka.partitions, "root": tmp_path / "replay",
        "run_id": "replay", "clients": kafka.reader, "max_records": 150,
    }  # fmt: skip
    file.write_bytes(pickle.dumps((options, steps)))
    command = [sys.executable, "-m", "tests.hosts.killed_replay", str(file)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(["lib", "."])}
    for point in (["replay.step", "9"], ["replay.local_committed", "4"], ["delta.after_commit", "2"], []):
        done = subprocess.run(
            [*command, *point], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == (-signal.SIGKILL if point else 0), done.stderr

    assert_same(stream, tmp_path / "replay")


def with_names(builder: StreamsBuilder) -> None:
    names = builder.global_table("names", key=str, value=str, store="names")
    said = builder.stream("words", key=str, value=str)
    said.join(names, lambda word, name: f"{name}: {word}", selector=lambda key, _: key, value=str).to_delta("said")


def test_all_tasks_share_a_global_table_and_read_only_what_is_new_in_a_chunk(tmp_path: Path) -> None:
    rng, kafka = random.Random(3), MemoryKafka({"words": 4, "names": 2})
    for number in range(300):
        kafka.write("names", RawRecord(b"k%d" % rng.randrange(9), b"name %d" % number, 0))
        kafka.write("words", RawRecord(b"k%d" % rng.randrange(9), b"word %d" % number, 1_000 * number))
    settings = replace(Settings.from_environment({}), home=tmp_path)
    stream = InProcessStream(Pipeline(name="under-test", topology=with_names), settings, kafka=kafka)
    first = stream.end()
    first["words"] = {p: stop // 4 for p, stop in first["words"].items()}
    first["names"] = {p: stop - 10 for p, stop in first["names"].items()}
    stream.run(first)
    stream.run_to_the_end(rng, 20, elsewhere=None)
    read = 0

    class Counting(MemoryReader):
        def read(self, ranges: Sequence[Range]) -> Iterator[list[RecordBatch]]:
            nonlocal read
            read += sum(each.stop - each.start for each in ranges if each.topic == "names")
            return super().read(ranges)

    replay_host(stream, tmp_path / "replay", max_records=100_000, clients=lambda: Counting(kafka)).run(steps_of(stream))

    assert_same(stream, tmp_path / "replay")
    assert 280 < read <= 280 + 4 * 20
