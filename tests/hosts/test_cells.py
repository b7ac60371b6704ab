"""A value that its Delta column cannot hold does not stop the stream: a dead letter, on every host the same."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from deltaworks import DeadLetters, Json, Pipeline, StreamsBuilder, StreamsError, TimeWindows, Topic
from deltaworks.kernel.errors import ErrorPolicy
from deltaworks.kernel.records import RecordBatch
from deltaworks.lakehouse.catalog import duckdb_connection
from deltaworks.settings import Settings
from deltaworks.testing import TopologyTestDriver
from deltaworks.testing.recorded import MicroBatch, run_recorded
from deltaworks.testing.topics import RawRecord
from tests.hosts.in_process import InProcessStream
from tests.hosts.memory_kafka import MemoryKafka

AMOUNTS = ("1.5", "1e30", "NaN", "0e40", "1." + "0" * 40, "Infinity", "-2", "0.0000000000000000001", "1e20")
HELD = [Decimal("1.5"), Decimal(0), Decimal(1), Decimal(-2)]


def topology(builder: StreamsBuilder) -> None:
    amounts = builder.stream("amounts", key=str, value=Decimal)
    amounts.to_delta("stream", name="stream-sink")
    amounts.to("copy")
    builder.table("rows", key=str, value=Decimal, store="rows").to_delta("rows", name="rows-sink")
    (
        amounts.group_by_key()
        .windowed_by(TimeWindows(size=timedelta(minutes=1), grace=timedelta(0)))
        .aggregate(lambda: Decimal(0), lambda _, amount, total: amount, value=Json(Decimal), store="last")
        .to_delta("windows", name="windows-sink")
    )


def pipeline(**options: Any) -> Pipeline:
    topics = tuple(map(Topic, ("amounts", "rows", "copy", "letters")))
    return Pipeline(name="under-test", topology=topology, topics=topics, **options)


CONTINUING = pipeline(on_error="continue", dead_letters=DeadLetters(topic="letters", table="dead_letters"))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return replace(Settings.from_environment({}), home=tmp_path)


def test_the_rest_of_the_batch_is_written_and_the_next_batches_too(settings: Settings) -> None:
    kafka = MemoryKafka()
    stream = InProcessStream(CONTINUING, settings, kafka=kafka)
    for text in AMOUNTS:
        for topic in ("amounts", "rows"):
            kafka.write(topic, RawRecord(text.encode(), f'"{text}"'.encode(), 1_000))
        stream.run(stream.end())
    stream.committer.refresh_snapshots(force=True)

    with duckdb_connection(settings.tables) as tables:
        for table in ("stream", "rows", "rows_changelog", "windows"):
            values = [value for (value,) in tables.execute(f'SELECT value FROM "{table}"').fetchall()]
            assert sorted(values) == sorted(HELD), table
        letters = tables.execute("SELECT operator, count(*) FROM dead_letters GROUP BY ALL").fetchall()
    assert dict(letters) == {"stream-sink": 5, "rows-sink": 5, "windows-sink": 5}
    assert len(kafka.read("copy")) == len(AMOUNTS)
    assert len(kafka.read("letters")) == 15


def test_the_three_hosts_write_the_same_dead_letters(settings: Settings) -> None:
    driver = TopologyTestDriver(CONTINUING)
    given = driver.create_input_topic("amounts")
    for text in AMOUNTS:
        given.pipe_raw(text.encode(), f'"{text}"'.encode(), timestamp_ms=1_000)

    count = len(AMOUNTS)
    keys: list[bytes | None] = [text.encode() for text in AMOUNTS]
    values: list[bytes | None] = [f'"{text}"'.encode() for text in AMOUNTS]
    batch = RecordBatch("amounts", 0, list(range(count)), [1_000] * count, keys, values)
    recorded = run_recorded(
        CONTINUING.plan(), {"amounts": 1, "rows": 1}, [MicroBatch(0, (batch,))], errors=ErrorPolicy.of("continue")
    )

    kafka = MemoryKafka()
    stream = InProcessStream(CONTINUING, settings, kafka=kafka)
    for key, value in zip(keys, values, strict=True):
        kafka.write("amounts", RawRecord(key, value, 1_000))
    stream.run(stream.end())

    expected = [(letter.operator, letter.source.offset, letter.message) for letter in driver.dead_letters]
    with duckdb_connection(settings.tables) as tables:
        found = tables.execute('SELECT operator, "offset", message FROM dead_letters').fetchall()
    assert len(expected) == 10
    assert sorted(found) == sorted(expected)
    assert sorted(
        (letter.operator, letter.source.offset, letter.message)
        for task in recorded.tasks.values()
        for letter in task.dead_letters
    ) == sorted(expected)


def test_a_stream_that_does_not_continue_stops_at_the_record(settings: Settings) -> None:
    kafka = MemoryKafka()
    stream = InProcessStream(pipeline(), settings, kafka=kafka)
    for text in ("1", "NaN"):
        kafka.write("amounts", RawRecord(b"a", f'"{text}"'.encode(), 1_000))

    with pytest.raises(StreamsError, match="cannot be written") as stopped:
        stream.run(stream.end())

    position = stopped.value.position
    assert position is not None
    assert (position.operator, position.topic, position.offset) == ("stream-sink", "amounts", 1)
