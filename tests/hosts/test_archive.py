"""The stream keeps what it reads: every offset once, whatever fails, and as it was in Kafka."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deltaworks import DeadLetters, Pipeline, StreamsBuilder, Topic
from deltaworks.errors import StreamsError
from deltaworks.kernel.records import Headers
from deltaworks.lakehouse.archive_reader import ArchiveReader
from deltaworks.lakehouse.catalog import duckdb_connection, table_names
from deltaworks.runtime.history import HistoryReader
from deltaworks.settings import Settings
from deltaworks.testing.topics import RawRecord
from deltaworks.topology.archives import Archives
from tests.hosts.in_process import InProcessStream
from tests.hosts.memory_kafka import MemoryKafka
from tests.hosts.replays import assert_same, replay_host, steps_of

DAY_MS = 86_400_000
POINTS = [
    "task.processed", "task.flushed", "task.tables_written", "store.after_apply", "store.after_append",
    "driver.after_tasks", "driver.after_tables",
    "delta.before_commit:words_archive", "delta.after_commit:words_archive",
]  # fmt: skip

Row = tuple[str, int, int, int, bytes | None, bytes | None, Headers]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return replace(Settings.from_environment({}), home=tmp_path)


def pipeline(topology: Callable[[StreamsBuilder], None], **options: Any) -> Pipeline:
    return Pipeline(name="under-test", topology=topology, archive=True, **options)


def lengths(builder: StreamsBuilder) -> None:
    words = builder.stream("words", key=str, value=str)
    words.filter(lambda _, word: len(word) > 3).group_by_key().count(store="counts").to_delta("counts")


def archived(root: Path, table: str) -> list[Row]:
    """What an analyst sees, in order."""
    with duckdb_connection(root) as connection:
        rows = connection.execute(
            f"""SELECT topic, partition, "offset", coalesce(timestamp_ms, epoch_ms(timestamp)), key, value, headers
                FROM "{table}" ORDER BY ALL"""
        ).fetchall()
    return [(*row[:6], tuple((each["name"], each["value"]) for each in row[6])) for row in rows]


def in_kafka(kafka: MemoryKafka, *topics: str) -> list[Row]:
    return [
        (topic, partition, offset, record.timestamp_ms, record.key, record.value, record.headers)
        for topic in sorted(topics)
        for partition, offset, record in kafka.read(topic)
    ]


def any_record(rng: random.Random, newest_ms: int) -> RawRecord:
    """Anything that Kafka can hold, also what no serde of the pipeline reads."""
    timestamp_ms = rng.choice([newest_ms, newest_ms - rng.randrange(3 * DAY_MS), newest_ms * 1_000])
    key = rng.choice([None, b"", b"\x00\xff", b"key-%d" % rng.randrange(9)])
    value = rng.choice([None, b"", b"\xff\xfe", b"word", b"x" * rng.randrange(300)])
    headers = rng.choice([(), (), (("trace", b"\x00\x01"), ("trace", b""), ("nothing", None))])
    return RawRecord(key, value, timestamp_ms, headers)


@pytest.mark.parametrize("seed", range(6))
def test_every_offset_is_kept_once_whatever_fails(settings: Settings, seed: int) -> None:
    rng = random.Random(seed)
    kafka = MemoryKafka({"words": 3})
    for number in range(400):
        record = any_record(rng, 1_790_000_000_000 + number * 20 * 60_000)
        kafka.write("words", record, partition=rng.randrange(3))
    stream = InProcessStream(
        pipeline(lengths, on_error="continue", dead_letters=DeadLetters(table="letters")), settings, kafka=kafka
    )
    stream.run_to_the_end(rng, 30, lambda _: rng.sample(POINTS, 3))
    stream.close()

    assert archived(settings.tables, "words_archive") == in_kafka(kafka, "words")
    assert {"delta.after_commit:words_archive", "task.tables_written"} <= stream.failed_at


def test_a_record_that_stops_the_stream_is_kept_when_it_has_been_processed(settings: Settings) -> None:
    kafka = MemoryKafka({"words": 1})
    kafka.write("words", RawRecord(b"a", b"good", 1_000))
    stream = InProcessStream(pipeline(lengths), settings, kafka=kafka)
    stream.run(stream.end())
    kafka.write("words", RawRecord(b"b", b"\xff", 2_000))
    with pytest.raises(StreamsError):
        stream.run(stream.end())
    assert archived(settings.tables, "words_archive") == in_kafka(kafka, "words")[:1]
    stream.close()

    corrected = InProcessStream(pipeline(lengths, on_error="continue"), settings, kafka=kafka)
    corrected.states, corrected.offsets, corrected.batch_id = stream.states, stream.offsets, stream.batch_id
    corrected.run(corrected.end())
    corrected.close()
    assert archived(settings.tables, "words_archive") == in_kafka(kafka, "words")


def test_each_topic_has_an_archive_and_those_of_a_pattern_share_one(settings: Settings) -> None:
    def topology(builder: StreamsBuilder) -> None:
        names = builder.global_table("names", key=str, value=str, store="names")
        orders = builder.stream("raw.orders-1", key=str, value=str)
        orders.join(names, lambda value, name: value, selector=lambda _, value: value, value=str).to("a")
        orders.group_by_key().count(store="counts").to_stream().to("b")  # another reader of the same topic
        builder.stream(pattern="sensor-.*", key=str, value=str).to("c")

    kafka = MemoryKafka({"raw.orders-1": 2, "sensor-1": 2, "sensor-2": 1})
    for topic in ("raw.orders-1", "sensor-1", "sensor-2", "names"):
        for number in range(6):
            kafka.write(topic, RawRecord(b"k%d" % number, b"v", 1_000 + number))
    stream = InProcessStream(pipeline(topology, topics=(Topic("raw.orders-1"),)), settings, kafka=kafka)
    stream.run(stream.end())
    stream.close()

    assert table_names(settings.tables) == ["raw_orders_1_archive", "sensor_archive"]
    assert archived(settings.tables, "raw_orders_1_archive") == in_kafka(kafka, "raw.orders-1")
    assert archived(settings.tables, "sensor_archive") == in_kafka(kafka, "sensor-1", "sensor-2")


@pytest.mark.parametrize("seed", range(2))
def test_what_kafka_has_removed_is_replayed(settings: Settings, seed: int) -> None:
    def topology(builder: StreamsBuilder) -> None:
        names = builder.table("names", key=str, value=str, store="names")
        words = builder.stream("words", key=str, value=str)
        words.join(names, lambda word, name: f"{name} says {word}", value=str).to_delta("said")
        words.group_by(lambda _, word: word, key=str, name="by-word").count(store="counts").to_delta("counts")

    rng = random.Random(seed)
    kafka = MemoryKafka({"words": 3, "names": 3})
    for number in range(200):
        for topic in ("words", "names"):
            record = RawRecord(b"k%d" % rng.randrange(9), b"%s-%d" % (topic.encode(), number % 20), 1_000 + number)
            kafka.write(topic, record)
    stream = InProcessStream(pipeline(topology), settings, kafka=kafka)
    stream.run_to_the_end(rng, 9)
    for topic in ("words", "names"):
        for partition in range(3):
            kafka.removed[topic, partition] = rng.randrange(kafka.end(topic, partition) + 1)

    def history() -> HistoryReader:
        return HistoryReader(kafka.reader, ArchiveReader(settings.tables, Archives.of(stream.plan)))

    root = settings.home / "run"
    replay_host(stream, root, max_records=60, clients=history).run(steps_of(stream))
    assert_same(stream, root)
    assert "words_archive" not in table_names(root / "tables")
    stream.close()


def test_records_that_go_in_a_cycle_are_kept_once(settings: Settings) -> None:
    def topology(builder: StreamsBuilder) -> None:
        orders = builder.table("orders", key=str, value=str, store="orders")
        users = builder.table("users", key=str, value=str, store="users")
        joined = orders.join(
            users, lambda user, name: name, foreign_key=lambda _, user: user, value=str, store="joined", name="by-user"
        )
        joined.to_delta("joined")

    kafka = MemoryKafka({"orders": 2, "users": 2})
    for number in range(20):
        kafka.write("orders", RawRecord(b"o%d" % number, b"u%d" % (number % 3), 1_000))
        kafka.write("users", RawRecord(b"u%d" % (number % 3), b"n", 1_000))
    stream = InProcessStream(pipeline(topology), settings, kafka=kafka)
    stream.run_to_the_end(random.Random(1), 4, lambda _: ["task.processed", "task.flushed"])
    stream.close()

    assert archived(settings.tables, "orders_archive") == in_kafka(kafka, "orders")
    assert archived(settings.tables, "users_archive") == in_kafka(kafka, "users")


def test_without_the_option_nothing_is_kept(settings: Settings) -> None:
    kafka = MemoryKafka({"words": 1})
    kafka.write("words", RawRecord(b"a", b"good", 1_000))
    stream = InProcessStream(replace(pipeline(lengths), archive=False), settings, kafka=kafka)
    stream.run(stream.end())
    stream.close()
    assert table_names(settings.tables) == ["counts", "counts_changelog"]
