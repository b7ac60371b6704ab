"""Tasks on another machine, which has nothing of the driver's but the rows of a batch; tables are in reach of both."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from deltaworks import DeadLetters, Pipeline, StreamsBuilder, TimeWindows
from deltaworks.control.intents import Intent
from deltaworks.errors import TableError
from deltaworks.files import local_side
from deltaworks.lakehouse import layout, page_index
from deltaworks.runtime import messages
from deltaworks.runtime.messages import Row
from deltaworks.runtime.shard import run_shard
from deltaworks.settings import Settings
from deltaworks.spark.source import KafkaRangesReader, SourceConfig, plan_rows, source_config
from deltaworks.testing.topics import RawRecord
from tests.hosts import in_process
from tests.hosts.in_process import InProcessStream
from tests.hosts.memory_kafka import MemoryKafka
from tests.support.task_state import TaskState

OWN = {"words_seen", "counts_changelog", "minutes"}
MINUTE_MS = 60_000


def topology(builder: StreamsBuilder) -> None:
    """Two stages; tables of all kinds."""

    def sized(word: str) -> int:
        if not word:
            raise ValueError("no word")
        return len(word)

    words = builder.stream("words", key=str, value=str)
    words.map_values(sized, value=int).to_delta("words_seen")
    by_word = words.group_by(lambda _, word: word, key=str)
    by_word.count(store="counts").to_delta("counts")
    minutes = TimeWindows(size=timedelta(minutes=1), grace=timedelta(minutes=3))
    by_word.windowed_by(minutes).count(store="minutes").to_delta("minutes")


def pipeline(**options: Any) -> Pipeline:
    return Pipeline(name="under-test", topology=topology, **options)


FULL = pipeline(archive=True, on_error="continue", dead_letters=DeadLetters(table="letters"))


class Elsewhere:
    """Runs the tasks of streams where control files are in a folder of their own; the tables are the same."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, *, told_first: bool) -> None:
        self._folder, self._told_first, self._there, self._number = folder, told_first, False, 0
        self.deaf = False
        """Nothing is said."""
        run = InProcessStream._run_shard

        def placed(table: Path) -> Path:
            return self.root / table.name if self._there else local_side(table)

        def shard(stream: InProcessStream, *arguments: Any) -> list[Row]:
            with self.there():
                return run(stream, *arguments)

        monkeypatch.setattr(page_index, "local_side", placed)
        monkeypatch.setattr(in_process, "source_config", partial(source_config, elsewhere=True))
        monkeypatch.setattr(in_process, "plan_rows", self.rows)
        monkeypatch.setattr(InProcessStream, "_run_shard", shard)

    @property
    def root(self) -> Path:
        return self._folder / f"machine-{self._number}"

    def move(self) -> None:
        """Another machine takes over."""
        self._number += 1

    @contextmanager
    def there(self) -> Iterator[None]:
        self._there = True
        try:
            yield
        finally:
            self._there = False

    def rows(self, config: SourceConfig, intent: Intent, known: int) -> Sequence[Row]:
        """What the planner plans for a batch."""
        told = [] if self.deaf else list(KafkaRangesReader(config)._told(intent, known))
        first, *others = plan_rows(config, intent, known)
        return [first, *told, *others] if self._told_first else [first, *others, *told]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return replace(Settings.from_environment({}), home=tmp_path / "home")


def kafka_with_words(rng: random.Random, count: int) -> MemoryKafka:
    kafka = MemoryKafka({"words": 3})
    for number in range(count):
        word = rng.choice(["", "a", "bb", "ccc", "dd"])
        kafka.write("words", RawRecord(b"%d" % rng.randrange(9), word.encode(), 1_000 + number * MINUTE_MS // 5))
    return kafka


def rows_of(root: Path) -> dict[str, list[str]]:
    """Every table, but for what depends on when it was written."""
    return {
        path.parent.name: sorted(map(str, DeltaTable(path.parent).to_pyarrow_table().to_pylist()))
        for path in root.glob("*/_delta_log")
    }


def driven(settings: Settings, kafka: MemoryKafka, elsewhere: Elsewhere | None) -> tuple[dict[str, list[str]], int]:
    """Some batches with faults; the rows of all tables, and how many tasks have run."""
    stream = InProcessStream(FULL, settings, kafka=kafka)
    ends, final = [stream.offsets], stream.end()
    for part in range(1, 8):
        ends.append({topic: {p: at * part // 7 for p, at in parts.items()} for topic, parts in final.items()})
    for number, end in enumerate(ends):
        stream.run(end, {2: ["driver.after_tasks"], 4: ["task.tables_written"], 5: ["driver.after_tables"]}.get(number))
        if number in (1, 4):
            stream.lose_worker()
        if number == 3:
            stream.restart()
        if elsewhere is not None and number in (3, 4):
            elsewhere.move()
    stream.run(stream.offsets)
    ran = len(stream.openings)
    stream.close()
    return rows_of(settings.tables), ran


@pytest.mark.parametrize(("seed", "told_first"), [(1, True), (2, False)])
def test_tables_are_the_same_wherever_tasks_run(
    settings: Settings, tmp_path: Path, seed: int, told_first: bool
) -> None:
    wanted, ran = driven(settings, kafka_with_words(random.Random(seed), 120), None)
    assert {*wanted} >= {*OWN, "letters", "words_archive"} and all(wanted[name] for name in OWN | {"letters"})

    with pytest.MonkeyPatch.context() as patch:
        elsewhere = Elsewhere(patch, tmp_path, told_first=told_first)
        there = replace(settings, home=tmp_path / "another")
        found, ran_there = driven(there, kafka_with_words(random.Random(seed), 120), elsewhere)

    assert found == wanted
    assert ran_there == ran, "a shard that is only told something does nothing"


def test_tasks_that_are_told_nothing_refuse_to_write(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the other tests would notice what nobody says."""
    elsewhere = Elsewhere(monkeypatch, tmp_path, told_first=True)
    stream = InProcessStream(FULL, settings, kafka=kafka_with_words(random.Random(1), 9))
    elsewhere.deaf = True

    with pytest.raises(TableError, match="was not opened by a driver"):
        stream.run(stream.end())
    stream.close()


@pytest.mark.parametrize(
    ("built", "others"),
    [
        (FULL, {"letters", "words_archive"}),
        (pipeline(archive=True), {"words_archive"}),
        (pipeline(on_error="continue", dead_letters=DeadLetters(table="letters")), {"letters"}),
        (pipeline(), set()),
    ],
)
def test_tasks_are_told_of_the_tables_that_they_write(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, built: Pipeline, others: set[str]
) -> None:
    Elsewhere(monkeypatch, tmp_path, told_first=True)
    stream = InProcessStream(built, settings, kafka=MemoryKafka({"words": 3}))

    config = stream._source

    told = [set(stage.tables) for stage in config.stages]
    assert told[0] == {"words_seen", *others}
    assert set().union(*told[1:]) == {"counts_changelog", "minutes", *others}
    assert all(others <= tables for tables in told), "each task may write them"
    opened = {path.parts[-3] for path in settings.tables.glob(f"*/{layout.CONTROL_FOLDER}/driver")}
    assert OWN | others <= opened
    stream.close()


def test_tasks_of_the_machine_of_the_driver_are_told_of_no_table(settings: Settings) -> None:
    stream = InProcessStream(FULL, settings, kafka=MemoryKafka({"words": 3}))

    assert [stage.tables for stage in stream._source.stages] == [()] * len(stream._source.stages)
    assert stream._source.tables_root == b""
    stream.close()


def test_each_task_is_told_once_in_each_batch(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = Elsewhere(monkeypatch, tmp_path, told_first=True)
    kafka = kafka_with_words(random.Random(1), 40)
    stream = InProcessStream(FULL, settings, kafka=kafka)
    intent = stream.intents.put(stream._intent(stream.end(), 1_000))

    planned = elsewhere.rows(stream._source, intent, 5)

    told = [row for row in planned if row.kind == messages.TOLD]
    assert sorted((row.stage, row.task) for row in told) == sorted(stream.routes)
    assert all(row.route == stream.routes[row.stage, row.task] for row in told)
    assert {row.batch for row in planned} == {planned[0].batch}
    for row in told:
        files = messages.unpacked(row.payload)
        assert files.keys() == set(stream._source.stages[row.stage].tables)
        for table, sent in files.items():
            assert sent == page_index.files_for(settings.tables / table, row.task)
            assert "driver" in sent
    stream.close()


def test_a_shard_that_is_only_told_something_does_nothing(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = Elsewhere(monkeypatch, tmp_path, told_first=True)
    stream = InProcessStream(FULL, settings, kafka=kafka_with_words(random.Random(1), 40))
    intent = stream.intents.put(stream._intent(stream.end(), 1_000))
    told = [row for row in elsewhere.rows(stream._source, intent, 0) if row.kind == messages.TOLD]

    def committed(task: tuple[int, int]) -> TaskState:
        raise AssertionError(f"{task} runs")

    monkeypatch.setattr(stream.worker, "open_globals", lambda position: pytest.fail("global tables are opened"))
    for operator in stream._routing.operators:
        for route in {row.route for row in told if row.stage in operator.stages}:
            rows = [row for row in told if row.route == route]
            assert list(run_shard(stream.worker, operator, 0, rows, committed)) == []
    assert not (settings.pipeline("under-test") / "local").exists() and not tmp_path.joinpath("machine-0").exists()
    stream.close()


def test_rows_without_what_is_told_are_passed_on_to_the_driver(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = Elsewhere(monkeypatch, tmp_path, told_first=False)
    stream = InProcessStream(FULL, settings, kafka=kafka_with_words(random.Random(1), 40))
    intent = stream.intents.put(stream._intent(stream.end(), 1_000))
    planned = elsewhere.rows(stream._source, intent, 0)
    shard = [row for row in planned if row.kind in (messages.TOLD, messages.BATCH) and row.route == planned[0].route]
    assert len(shard) > 1

    passed = list(run_shard(stream.worker, stream._routing.operators[0], 0, shard, lambda _: TaskState()))

    assert passed == [planned[0]]
    stream.close()


def test_a_task_hears_before_it_opens_its_store_and_forgets_what_it_has_heard(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = Elsewhere(monkeypatch, tmp_path, told_first=False)
    stream = InProcessStream(FULL, settings, kafka=kafka_with_words(random.Random(1), 40))
    opened = stream.worker.open
    heard: list[bool] = []

    def watched(task: tuple[int, int], committed: Any) -> Any:
        tables = stream._source.stages[task[0]].tables
        heard.append(all((elsewhere.root / table / layout.CONTROL_FOLDER / "driver").exists() for table in tables))
        assert task not in stream.worker.told
        return opened(task, committed)

    monkeypatch.setattr(stream.worker, "open", watched)
    stream.run(stream.end())

    assert heard and all(heard)
    stream.close()
