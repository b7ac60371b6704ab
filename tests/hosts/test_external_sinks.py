"""Sinks for other systems on the streaming host: exact, whatever fails; what they refuse is a dead letter, once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deltaworks import DeadLetters, Pipeline, StreamsBuilder, StreamsError, Topic
from deltaworks.exits import DATA, code_of
from deltaworks.lakehouse.catalog import duckdb_connection
from deltaworks.runtime.sinks import AuthorSinks
from deltaworks.settings import Settings
from deltaworks.sinks.search import SearchWriter
from deltaworks.testing.topics import RawRecord
from tests.hosts.in_process import InProcessStream
from tests.hosts.memory_kafka import MemoryKafka
from tests.hosts.replays import replay_host, steps_of
from tests.support.fake_search import DROPPED, DROPPED_AFTER, FakeSearch, fake_search
from tests.support.fault_points import WORKER

RECORDS = 400
POINTS = (*WORKER, "sink.written", "sink.before_commit", "sink.after_commit")
BAD = {f"k{number}" for number in range(7, RECORDS, 50)}


@pytest.fixture
def server() -> Iterator[FakeSearch]:
    with fake_search() as server:
        server.types["raw", "number"] = int  # as a mapping says
        yield server


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return replace(Settings.from_environment({}), home=tmp_path / "home")


def pipeline_of(server: FakeSearch, **options: Any) -> Pipeline:
    def topology(builder: StreamsBuilder) -> None:
        words = builder.stream("words", key=str, value=str)
        documents = words.map(lambda key, word: (key, document(key, word)), key=str, value=dict[str, Any])
        documents.to_search("raw", url=server.url)
        counts = words.group_by(lambda _, word: word, key=str).count(store="counts")
        counts.to_search("counts", url=server.url, batch_documents=5)
        counts.filter(lambda _, count: count % 2 == 0).to_search("even", url=server.url)
        counts.to_stream().map_values(str, value=str).to("counted")

    topics = tuple(map(Topic, ("words", "counted", "letters")))
    letters = DeadLetters(topic="letters", table="letters")
    given: dict[str, Any] = {"on_error": "continue", "dead_letters": letters, "record_cache": False, **options}
    return Pipeline(name="searching", topology=topology, topics=topics, **given)


def document(key: str, word: str) -> dict[str, Any]:
    return {"number": f"no number, but {word}" if key in BAD else int(key[1:])}


def words() -> MemoryKafka:
    kafka = MemoryKafka({"words": 2, "counted": 2, "letters": 1})
    for number in range(RECORDS):
        kafka.write("words", RawRecord(f"k{number}".encode(), f"w{number % 13}".encode(), 1_000 + number))
    return kafka


def run(
    settings: Settings, pipeline: Pipeline, seed: int, server: FakeSearch, points: Sequence[str]
) -> InProcessStream:
    rng = random.Random(seed)
    stream = InProcessStream(pipeline, settings, kafka=words())

    def failures(batch_id: int) -> list[str]:
        server.misbehaviour.extend(rng.sample([0, 429, 503, DROPPED, DROPPED_AFTER], 2))
        while 0 in server.misbehaviour:
            server.misbehaviour.remove(0)
        server.busy.extend(rng.choices([0, 429], k=8))
        if batch_id % 4 == 1:
            stream.lose_worker()
        left = sorted({*points} - stream.failed_at)
        return rng.sample(left, min(2, len(left)))

    stream.run_to_the_end(rng, 12, failures)
    stream.close()
    return stream


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deltaworks.sinks.search._FIRST_PAUSE_S", 0.001)


def letters_of(stream: InProcessStream, settings: Settings) -> tuple[list[bytes], list[tuple[Any, ...]]]:
    """Keys in the topic; keys, operators and offsets in the table."""
    with duckdb_connection(settings.tables) as tables:
        rows = tables.execute("SELECT decode(key), operator, message FROM letters ORDER BY ALL").fetchall()
    assert stream.kafka is not None
    return sorted(record.key or b"" for _, _, record in stream.kafka.read("letters")), rows


@pytest.mark.parametrize("seed", range(2))
def test_documents_are_those_of_the_table_and_refused_ones_dead_letters_once(
    settings: Settings, server: FakeSearch, seed: int
) -> None:
    stream = run(settings, pipeline_of(server), seed, server, POINTS)

    assert {"sink.written", "sink.before_commit", "sink.after_commit"} <= stream.failed_at
    counts = Counter(f"w{number % 13}" for number in range(RECORDS))
    assert server.documents["counts"] == {word: {"value": count} for word, count in counts.items()}
    assert server.documents["even"] == {word: {"value": n} for word, n in counts.items() if n % 2 == 0}
    assert server.documents["raw"] == {
        f"k{number}": {"number": number} for number in range(RECORDS) if f"k{number}" not in BAD
    }
    in_topic, in_table = letters_of(stream, settings)
    assert in_topic == sorted(key.encode() for key in BAD)
    assert [(key, operator) for key, operator, _ in in_table] == [(key, "search-raw") for key in sorted(BAD)]
    assert all("refuses a document: document_parsing_exception" in message for *_, message in in_table)


def test_without_versions_an_older_document_may_win(
    settings: Settings, server: FakeSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the test before sees what they are for: a worker that hangs writes a batch when later ones are there."""
    held: list[Any] = []
    write = SearchWriter.write

    def slow(self: SearchWriter, batch: Any, records: Any) -> Any:
        if self._sink.index == "counts":
            held.append((self, batch, records))
        return write(self, batch, records)

    monkeypatch.setattr(SearchWriter, "write", slow)
    run(settings, pipeline_of(server), 0, server, ())
    there = {**server.documents["counts"]}

    write(*held[0])
    assert server.documents["counts"] == there
    monkeypatch.setattr("deltaworks.sinks.search.version", lambda task, batch: 1 << 62)
    write(*held[0])
    assert server.documents["counts"] != there


def test_a_refused_record_stops_a_stream_that_says_fail(settings: Settings, server: FakeSearch) -> None:
    with pytest.raises(StreamsError, match="is refused by its sink: index 'raw' refuses a document") as raised:
        run(settings, pipeline_of(server, on_error="fail"), 0, server, ())

    assert code_of(raised.value) == DATA
    assert raised.value.position is not None and raised.value.position.topic == "words"


def test_a_batch_whose_refusals_are_forgotten_has_no_dead_letters(
    settings: Settings, server: FakeSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the first test sees them."""
    prepare = AuthorSinks.prepare

    def forgetting(self: AuthorSinks) -> Any:
        writes = prepare(self)
        self.refused = []
        return writes

    monkeypatch.setattr(AuthorSinks, "prepare", forgetting)
    stream = run(settings, pipeline_of(server), 0, server, ())

    assert letters_of(stream, settings)[0] == []


def test_a_replay_does_not_touch_the_index(settings: Settings, server: FakeSearch, tmp_path: Path) -> None:
    stream = run(settings, pipeline_of(server), 0, server, ())
    writes = server.writes

    replay_host(stream, tmp_path / "replay", max_records=150).run(steps_of(stream))

    assert server.writes == writes
