"""Sinks of an author's own on the streaming host and in a replay: exact, whatever fails."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from deltaworks import Pipeline, SinkBatch, SinkRecord, SinkTask, StreamsBuilder
from deltaworks.settings import Settings
from deltaworks.testing.topics import RawRecord
from tests.hosts.in_process import InProcessStream
from tests.hosts.memory_kafka import MemoryKafka
from tests.hosts.replays import replay_host, steps_of
from tests.support.fault_points import WORKER
from tests.support.own_sinks import FolderSink

RECORDS = 400
POINTS = (*WORKER, "sink.before_commit", "sink.after_commit")
_databases: dict[str, Database] = {}


class Database:
    """Rows and progress, in transactions; it outlives workers."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str]] = []
        self.progress: dict[str, SinkBatch] = {}


@dataclass(frozen=True)
class DatabaseSink:
    name: str

    def open(self, task: SinkTask) -> DatabaseWriter:
        return DatabaseWriter(_databases.setdefault(self.name, Database()), task.id)


class DatabaseWriter:
    def __init__(self, database: Database, task: str) -> None:
        self._database, self._task = database, task
        self._new: tuple[SinkBatch, list[tuple[str, str]]] | None = None

    def committed(self) -> SinkBatch | None:
        return self._database.progress.get(self._task)

    def write(self, batch: SinkBatch, records: Sequence[SinkRecord[str, str]]) -> None:
        self._new = batch, [(record.key, record.value) for record in records]

    def prepare(self) -> None:
        pass

    def commit(self) -> None:
        assert self._new is not None
        self._database.progress[self._task] = self._new[0]
        self._database.rows += self._new[1]

    def abort(self) -> None:
        self._new = None

    def close(self) -> None:
        pass


def pipeline_of(folder: Path, *, in_replay: bool = False) -> Pipeline:
    def topology(builder: StreamsBuilder) -> None:
        words = builder.stream("words", key=str, value=str)
        counts = words.group_by(lambda _, word: word, key=str).count(store="counts")
        updates = counts.to_stream().map_values(str, value=str)
        updates.sink(FolderSink(str(folder / "files")), name="files", in_replay=in_replay)
        updates.sink(DatabaseSink(str(folder)), name="database", in_replay=in_replay)
        updates.to("counted")
        updates.to_delta("counted")

    return Pipeline(name="sinking", topology=topology, record_cache=False)


def words() -> MemoryKafka:
    kafka = MemoryKafka({"words": 2, "counted": 2})
    for number in range(RECORDS):
        kafka.write("words", RawRecord(f"k{number}".encode(), f"w{number % 13}".encode(), 1_000 + number))
    return kafka


EXPECTED = Counter((f"w{word}", str(nth)) for word in range(13) for nth in range(1, len(range(word, RECORDS, 13)) + 1))


def run(settings: Settings, pipeline: Pipeline, seed: int, points: Sequence[str]) -> InProcessStream:
    rng = random.Random(seed)
    stream = InProcessStream(pipeline, settings, kafka=words())

    def failures(batch_id: int) -> list[str]:
        if batch_id % 4 == 1:
            stream.lose_worker()
        left = sorted({*points} - stream.failed_at)
        return rng.sample(left, min(2, len(left)))

    stream.run_to_the_end(rng, 12, failures)
    stream.close()
    return stream


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return replace(Settings.from_environment({}), home=tmp_path / "home")


@pytest.mark.parametrize("seed", range(4))
def test_every_record_comes_once_whatever_fails(settings: Settings, tmp_path: Path, seed: int) -> None:
    pipeline = pipeline_of(tmp_path)

    stream = run(settings, pipeline, seed, POINTS)

    assert {"sink.before_commit", "sink.after_commit"} <= stream.failed_at
    assert Counter(FolderSink(str(tmp_path / "files")).lines()) == EXPECTED
    assert Counter(_databases[str(tmp_path)].rows) == EXPECTED


def test_without_the_batch_that_is_committed_rows_come_twice(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the test before sees what it is for."""
    monkeypatch.setattr(DatabaseWriter, "committed", lambda self: None)

    run(settings, pipeline_of(tmp_path), 0, POINTS)

    assert Counter(_databases[str(tmp_path)].rows) > EXPECTED


@pytest.mark.parametrize("in_replay", [False, True])
def test_a_replay_calls_a_sink_only_if_its_author_allows_it(
    settings: Settings, tmp_path: Path, in_replay: bool
) -> None:
    pipeline = pipeline_of(tmp_path, in_replay=in_replay)
    stream = run(settings, pipeline, 0, ())

    replay_host(stream, tmp_path / "replay", max_records=150).run(steps_of(stream))

    rows: Any = Counter(_databases[str(tmp_path)].rows)
    assert rows == (EXPECTED + EXPECTED if in_replay else EXPECTED)
