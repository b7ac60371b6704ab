"""A record that its topic does not take does not stop the stream: the error policy decides, as for any other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from deltaworks import DeadLetters, Pipeline, Response, StreamsBuilder, StreamsError, Topic
from deltaworks.exits import DATA, code_of
from deltaworks.lakehouse.catalog import duckdb_connection
from deltaworks.settings import Settings
from deltaworks.testing import TopologyTestDriver
from deltaworks.testing.topics import RawRecord
from tests.hosts.in_process import InProcessStream
from tests.hosts.memory_kafka import MemoryBroker, MemoryKafka
from tests.hosts.replays import assert_same, replay_host, steps_of

LIMIT = 2_000


def topology(builder: StreamsBuilder) -> None:
    words = builder.stream("words", key=str, value=str)
    words.to("out", name="to-out")
    words.filter(lambda _, word: not word.startswith("x")).to_extracted(lambda key, word, _: word, name="to-computed")
    words.filter(lambda _, word: word == "there").to_extracted(
        lambda *_: "nowhere", name="to-partition", partitioner=lambda *_: 0
    )


def pipeline(**options: object) -> Pipeline:
    topics = tuple(map(Topic, ("words", "out", "letters")))
    return Pipeline(name="under-test", topology=topology, topics=topics, **options)  # type: ignore[arg-type]


CONTINUING = pipeline(on_error="continue", dead_letters=DeadLetters(topic="letters", table="dead_letters"))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return replace(Settings.from_environment({}), home=tmp_path)


@pytest.fixture
def kafka() -> MemoryKafka:
    return MemoryKafka(limits={"out": LIMIT, "letters": 1_500}, missing={"nowhere"})


def sent(kafka: MemoryKafka, topic: str) -> list[bytes | None]:
    return [record.value for _, _, record in kafka.read(topic)]


def test_what_a_topic_does_not_take_is_a_dead_letter_that_fits(settings: Settings, kafka: MemoryKafka) -> None:
    stream = InProcessStream(CONTINUING, settings, kafka=kafka)
    for word in (b"there", b"x" * 5_000, b"nowhere", b"x"):
        kafka.write("words", RawRecord(b"k", word, 1_000))
    stream.run(stream.end())

    assert sent(kafka, "out") == [b"there", b"nowhere", b"x"]
    assert sent(kafka, "there") == [b"there"]
    letters = {dict(record.headers)["__streams.errors.offset"]: record for _, _, record in kafka.read("letters")}
    assert len(kafka.read("letters")) == 3
    long = letters[b"1"]
    assert long.value is not None and 0 < len(long.value) < 1_500
    assert dict(long.headers)["__deltaworks.shortened.value"] == b"5000"
    with duckdb_connection(settings.tables) as tables:
        found = tables.execute('SELECT operator, "offset", message FROM dead_letters ORDER BY ALL').fetchall()
    assert [(operator, offset) for operator, offset, _ in found] == [
        ("to-computed", 2),
        ("to-out", 1),
        ("to-partition", 0),
    ]
    assert "no topic 'nowhere'" in found[0][2]
    assert "is too large for topic 'out', which takes 2,000" in found[1][2]


def test_an_attempt_that_skips_its_transaction_finds_the_same_dead_letters(
    settings: Settings, kafka: MemoryKafka
) -> None:
    stream = InProcessStream(CONTINUING, settings, kafka=kafka)
    for word in (b"there", b"x" * 5_000):
        kafka.write("words", RawRecord(b"k", word, 1_000))
    stream.run(stream.end(), fail_at=["task.end"])

    assert "task.end" in stream.failed_at
    assert sent(kafka, "out") == [b"there"]
    with duckdb_connection(settings.tables) as tables:
        assert tables.execute("SELECT count(*) FROM dead_letters").fetchall() == [(2,)]


@pytest.mark.parametrize("word", [b"x" * 5_000, b"nowhere"])
def test_a_stream_that_does_not_continue_stops_at_the_record(
    settings: Settings, kafka: MemoryKafka, word: bytes
) -> None:
    stream = InProcessStream(pipeline(), settings, kafka=kafka)
    for each in (b"x", word):
        kafka.write("words", RawRecord(b"k", each, 1_000))

    with pytest.raises(StreamsError, match="cannot be written") as stopped:
        stream.run(stream.end())

    assert code_of(stopped.value) == DATA
    assert stopped.value.position is not None and stopped.value.position.offset == 1


def test_the_dead_letters_of_a_handler_are_shortened_too(settings: Settings, kafka: MemoryKafka) -> None:
    setting_aside = pipeline(on_error=lambda context, record, error: Response.resume([context.dead_letter("letters")]))
    stream = InProcessStream(setting_aside, settings, kafka=kafka)
    kafka.write("words", RawRecord(b"k", b"x" * 5_000, 1_000))
    stream.run(stream.end())

    ((_, _, letter),) = kafka.read("letters")
    assert dict(letter.headers)["__deltaworks.shortened.value"] == b"5000"


def test_a_dead_letter_topic_that_is_not_there_stops_the_stream(settings: Settings, kafka: MemoryKafka) -> None:
    kafka.missing.add("letters")
    stream = InProcessStream(CONTINUING, settings, kafka=kafka)
    kafka.write("words", RawRecord(b"k", b"nowhere", 1_000))

    with pytest.raises(StreamsError, match="has a dead letter that cannot be written"):
        stream.run(stream.end())


def test_a_replay_finds_the_same_dead_letters(settings: Settings, kafka: MemoryKafka, tmp_path: Path) -> None:
    stream = InProcessStream(CONTINUING, settings, kafka=kafka)
    for word in (b"there", b"x" * 5_000, b"nowhere", b"x"):
        kafka.write("words", RawRecord(b"k", word, 1_000))
        stream.run(stream.end())

    limits = MemoryBroker(kafka).record_limits(["words", "out", "letters", "there", "nowhere"])
    replay_host(stream, tmp_path / "replay", max_records=3, sink_limits=limits).run(steps_of(stream))

    assert_same(stream, tmp_path / "replay")


def test_the_driver_has_no_limits_like_the_original() -> None:
    driver = TopologyTestDriver(CONTINUING)
    given = driver.create_input_topic("words")
    for word in (b"x" * 5_000, b"nowhere"):
        given.pipe_raw(b"k", word, timestamp_ms=1_000)

    assert driver.dead_letters == []
