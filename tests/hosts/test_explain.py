"""Random rows of every job, and of a pipeline with what the jobs lack: each is made again from few records."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from deltaworks import (
    BufferConfig,
    EmitStrategy,
    JoinWindows,
    Materialized,
    Pipeline,
    Processor,
    PunctuationType,
    Record,
    SessionWindows,
    SlidingWindows,
    Stores,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
)
from deltaworks.explain import explaining
from deltaworks.explain.candidates import EVERY, EVERY_OF_ITS_TASKS, Candidates
from deltaworks.explain.question import Question
from deltaworks.explain.reduction import Attempts, Reduced, reduced
from deltaworks.settings import Settings
from deltaworks.testing.topics import RawRecord
from tests.hosts import test_replay_of_jobs as jobs
from tests.hosts.explaining import Explained
from tests.hosts.in_process import InProcessStream
from tests.hosts.memory_kafka import MemoryKafka

ROWS = 14
"""Rows per job; with those of the other pipeline more than a hundred."""
RECORDS = 300
WIDE_SEARCHES = 1
"""Rows of a pipeline for which all records of the tasks may have to be searched."""
WIDE_SEARCHES_OF = {"ads": 5}
"""More of a job."""
MINUTE = timedelta(minutes=1)


def of_all_kinds(builder: StreamsBuilder) -> None:
    """Final results, results of joins and sessions, each in a table."""
    words = builder.stream("words", key=str, value=str)
    minutes = TimeWindows(size=MINUTE, grace=timedelta(0))
    by_word = words.group_by(lambda _, word: word, key=str, name="by-word")
    counts = by_word.windowed_by(minutes).count(store="minutes")
    counts.suppress(Suppressed.until_window_closes(BufferConfig.unbounded()), store="held").to_delta("held")
    sessions = by_word.windowed_by(SessionWindows(gap=MINUTE, grace=timedelta(0)))
    sessions.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count(store="sessions").to_delta("sessions_over")
    by_word.reduce(max, store=Materialized("highest", caching=False)).to_stream().to_delta("updates")

    names = builder.table("names", key=str, value=str, store="names")
    colours = builder.table("colours", key=str, value=str, store="colours")
    named = names.outer_join(colours, lambda name, colour: f"{name} {colour}", value=str, store="named")
    named.to_delta("named")
    named.group_by(lambda key, both: (both[-1:], both), key=str, value=str, name="by-letter").count(
        store="letters"
    ).to_delta("letters")
    near = JoinWindows(before=MINUTE, after=MINUTE, grace=timedelta(0))
    other = builder.stream("other", key=str, value=str)
    words.left_join(other, lambda one, two: f"{one} {two}", near, value=str, store="near").to_delta("pairs")


class Latest(Processor[str, str, str, str]):
    """Keeps the last value of each key, and tells all of them once in a minute of stream time."""

    stores = (Stores.key_value("latest", key=str, value=str),)

    def init(self, context: Any) -> None:
        super().init(context)
        self._latest = context.state_store("latest")
        context.schedule(MINUTE, PunctuationType.STREAM_TIME, self._tell)

    def process(self, record: Record[str, str]) -> None:
        self._latest.put(record.key, record.value)

    def _tell(self, now_ms: int) -> None:
        for key, value in self._latest.all():
            self.context.forward(Record(key, value, now_ms))


def of_stream_time(builder: StreamsBuilder) -> None:
    """Results that the passing of stream time lets out, behind filters, caches and exchanges."""
    words = builder.stream("words", key=str, value=str)
    other = builder.stream("other", key=str, value=str).filter(lambda _, word: word != "v1")
    near = JoinWindows(before=MINUTE, after=MINUTE, grace=MINUTE / 2)
    pairs = words.outer_join(other, lambda one, two: f"{one} {two}", near, value=str, store="near")
    pairs.to_delta("pairs")
    pairs.group_by(lambda _, pair: pair[:2], key=str, name="by-left").count(store="lefts").to_delta("lefts")
    words.process(Latest, key=str, value=str, name="told").to_delta("told")

    by_key = other.group_by_key()
    limit = Suppressed.until_time_limit(MINUTE, BufferConfig.unbounded())
    by_key.reduce(max, store="longest").suppress(limit, store="waiting").to_stream().to_delta("limited")
    hops = TimeWindows(size=2 * MINUTE, advance=MINUTE, grace=MINUTE / 2)
    by_key.windowed_by(hops).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count(store="hops").to_delta("hops")
    closed = Suppressed.until_window_closes(BufferConfig.unbounded())
    sliding = by_key.windowed_by(SlidingWindows(difference=MINUTE, grace=MINUTE / 4)).count(store="sliding")
    final = sliding.suppress(closed, store="slid").to_stream()
    final.map(lambda key, count: (key.key, f"{key.start_ms} {count}"), key=str, value=str).to_delta("slid")
    sessions = by_key.windowed_by(SessionWindows(gap=MINUTE, grace=MINUTE / 2)).reduce(max, store="sessions")
    sessions.suppress(closed, store="over").to_delta("over")

    names = builder.table("names", key=str, value=str, store="names")
    colours = builder.table("colours", key=str, value=str, store=Materialized("colours", history=5 * MINUTE))
    names.left_join(
        words.map(lambda _, word: (word, word), key=str, value=str).to_table(store="known"),
        lambda name, word: f"{name} {word}", foreign_key=lambda _, name: name, value=str, store="refers", name="refer",
    ).to_delta("refers")  # fmt: skip
    words.join(colours, lambda word, colour: f"{word} {colour}", value=str, grace=MINUTE / 2, name="later").to_delta(
        "coloured"
    )


def streamed(home: Path, seed: int, topology: Callable[[StreamsBuilder], None] = of_all_kinds) -> InProcessStream:
    rng = random.Random(seed)
    topics = ("words", "names", "colours", "other")
    kafka = MemoryKafka(dict.fromkeys(topics, 3))
    for number in range(RECORDS):
        topic, key = rng.choice(topics), b"k%d" % rng.randrange(6)
        value = None if topic in ("names", "colours") and rng.random() < 0.2 else b"v%d" % rng.randrange(9)
        kafka.write(topic, RawRecord(key, value, 1_790_000_000_000 + number * 4_000 - rng.randrange(20_000)))
    pipeline = Pipeline(name=topology.__name__.replace("_", "-"), topology=topology, archive=True)
    stream = InProcessStream(pipeline, replace(Settings.from_environment({}), home=home), kafka=kafka)
    stream.run_to_the_end(rng, 9, elsewhere=None)
    stream.close()
    return stream


@contextmanager
def noted_searches() -> Iterator[list[Reduced]]:
    """What the search for the smallest set of records ended with, for each row."""
    searches: list[Reduced] = []

    def noting(candidates: Candidates, attempts: Attempts) -> Reduced:
        searches.append(reduced(candidates, attempts))
        return searches[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(explaining, "reduced", noting)
        yield searches


def outcomes(explained: Explained, count: int, rng: random.Random) -> dict[str, Counter[str]]:
    """Table -> how many of its rows are reproduced, by how many records, and after which search."""
    with noted_searches() as searches:
        return _outcomes(explained, count, rng, searches)


def _outcomes(explained: Explained, count: int, rng: random.Random, searches: list[Reduced]) -> dict[str, Counter[str]]:
    tables = explained.tables()
    found: dict[str, Counter[str]] = {}
    for number, schema in enumerate(tables):
        share = count // len(tables) + (number < count % len(tables))
        tally = found[schema.name] = Counter()
        for question in explained.questions(schema, share, rng):
            each = explained(question)
            tally["rows"] += 1
            tally["reproduced"] += each.reproduced and each.found == each.case.row
            tally["minimal"] += each.is_minimal
            tally["inputs"] += len(each.inputs)
            tally["of"] += each.records_read
            tally["narrow"] += searches[-1].level not in (EVERY_OF_ITS_TASKS, EVERY)
            assert any(record.role == "wrote" for record in each.inputs), question
    return found


def assert_explained(found: dict[str, Counter[str]], at_least: int, wide: int = WIDE_SEARCHES) -> None:
    assert {table: tally["rows"] - tally["reproduced"] for table, tally in found.items() if tally} == dict.fromkeys(
        (table for table, tally in found.items() if tally), 0
    )
    assert sum(tally["rows"] for tally in found.values()) >= at_least
    assert all(tally["minimal"] == tally["rows"] for tally in found.values())
    assert sum(tally["rows"] - tally["narrow"] for tally in found.values()) <= wide
    assert sum(tally["inputs"] for tally in found.values()) < sum(tally["of"] for tally in found.values()) / 2


@pytest.mark.parametrize("job", jobs.JOBS)
def test_random_rows_of_a_job_are_reproduced(job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(jobs.JOBS, job, RECORDS)
    stream = jobs.streamed(job, tmp_path, 3)
    stream.close()

    wide = WIDE_SEARCHES_OF.get(job, WIDE_SEARCHES)
    assert_explained(outcomes(Explained(stream), ROWS, random.Random(job)), 5, wide)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
@pytest.mark.parametrize("topology", [of_all_kinds, of_stream_time])
def test_random_rows_of_joins_sessions_and_final_results_are_reproduced(
    tmp_path: Path, seed: int, topology: Callable[[StreamsBuilder], None]
) -> None:
    stream = streamed(tmp_path, seed, topology)

    assert_explained(outcomes(Explained(stream), 27, random.Random(seed)), 20)


def test_the_record_that_touched_a_row_last_is_its_source_even_if_it_changed_nothing(tmp_path: Path) -> None:
    def topology(builder: StreamsBuilder) -> None:
        names, colours = (builder.table(name, key=str, value=str, store=name) for name in ("names", "colours"))
        named = names.outer_join(colours, lambda name, colour: f"{name} {colour}", value=str, store="named")
        named.to_delta("named")

    kafka = MemoryKafka()
    pipeline = Pipeline(name="named", topology=topology)
    stream = InProcessStream(pipeline, replace(Settings.from_environment({}), home=tmp_path), kafka=kafka)
    for batch in ([("names", b"ann"), ("colours", b"red")], [("colours", None), ("colours", None), ("colours", None)]):
        for number, (topic, value) in enumerate(batch):
            kafka.write(topic, RawRecord(b"k", value, stream.batch_id * 1_000 + number))
        stream.run(stream.end())
    stream.committer.refresh_snapshots(force=True)
    stream.close()
    found = Explained(stream)(Question("named", ("k",)))

    assert found.reproduced and found.case.host == "driver"
    assert (found.row["source_topic"], found.row["source_offset"]) == ("colours", 3)
    assert [(each.record.topic, each.record.offset, each.role) for each in found.inputs] == [
        ("names", 0, "needed"), ("colours", 0, "needed"), ("colours", 3, "wrote"),
    ]  # fmt: skip


@pytest.mark.parametrize("table", ["held", "named"])
def test_what_kafka_has_removed_is_read_from_the_archive(table: str, tmp_path: Path) -> None:
    stream = streamed(tmp_path, 5)
    kafka = stream.kafka
    assert kafka is not None
    explained = Explained(stream)
    schema = next(each for each in explained.tables() if each.name == table)
    (question,) = explained.questions(schema, 1, random.Random(1))
    before = explained(question)
    for topic, parts in kafka.records.items():
        for partition, records in parts.items():
            kafka.removed[topic, partition] = len(records)

    assert explained(question) == before
