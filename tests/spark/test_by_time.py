"""On real Spark: history is sorted by time, in tasks that read it from an archive."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deltaworks import Pipeline, StreamsBuilder
from deltaworks.errors import KafkaReadError
from deltaworks.kafka.ranges import Range
from deltaworks.runtime.history import History
from deltaworks.settings import Settings
from deltaworks.spark import session
from deltaworks.spark.replay import by_time
from deltaworks.testing.topics import RawRecord
from tests.hosts.in_process import InProcessStream
from tests.hosts.memory_kafka import MemoryKafka

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return replace(Settings.from_environment({}), home=tmp_path)


@pytest.fixture
def spark(settings: Settings) -> Iterator[SparkSession]:
    path = os.pathsep.join(map(str, [*settings.python_path, Path(__file__).parents[2]]))
    scratch = settings.home / "scratch"
    spark = session.build("by-time", cores=2, partitions=2, driver_memory="512m", scratch=scratch, python_path=path)
    yield spark
    spark.stop()


class Gone:
    """A reader that finds nothing."""

    def read(self, ranges: object) -> Iterator[list[object]]:
        raise KafkaReadError("words-0: offsets 0 to 9 are gone", hint="none")

    def close(self) -> None: ...


def topology(builder: StreamsBuilder) -> None:
    builder.stream("words", key=bytes, value=bytes).to_delta("words")


def test_records_are_sorted_by_time(settings: Settings, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_time, "_PIECE_OFFSETS", 700)
    rng = random.Random(1)
    kafka = MemoryKafka({"words": 3})
    for number in range(6_000):
        headers = (("n", b"%d" % number), ("nothing", None)) if number % 7 == 0 else ()
        record = RawRecord(
            rng.choice([None, b"", b"\x00k"]), rng.choice([None, b"", rng.randbytes(20)]),
            1_790_000_000_000 + number - rng.randrange(3_000), headers,
        )  # fmt: skip
        kafka.write("words", record, number % 3)
    stream = InProcessStream(Pipeline(name="words", topology=topology, archive=True), settings, kafka=kafka)
    stream.run(stream.end())
    stream.close()

    # Of a compacted topic the archive comes first, so no broker is asked.
    archives = stream.pipeline.archives(stream.plan)
    history = History("localhost:1", settings.tables, archives, frozenset({"words"}), topics=kafka.ids(["words"]))
    ranges = [Range("words", partition, 10, 2_000) for partition in range(3)]
    folder = settings.home / "sorted"
    by_time.sort(spark, history, ranges, folder)
    assert spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == "64"

    reader = by_time.ByTime(folder, history)()
    for each in ranges:
        found = [
            (batch.offsets[n], RawRecord(batch.keys[n], batch.values[n], batch.timestamps_ms[n], batch.headers[n]))
            for portion in reader.read([Range("words", each.partition, 0, 1_990)])
            for batch in portion
            for n in range(len(batch.offsets))
            if batch.headers is not None
        ]
        records = list(enumerate(kafka.records["words"][each.partition]))[10:]
        assert found == sorted(records, key=lambda one: (one[1].timestamp_ms, one[0]))
    reader.close()
    by_time.sort(None, history, ranges, folder)  # type: ignore[arg-type]  # it has been done

    with pytest.raises(KafkaReadError, match="offsets 0 to 9 are gone"):
        by_time.sort(spark, Gone, [Range("words", 0, 0, 10)], settings.home / "gone")  # type: ignore[arg-type]
    assert not (settings.home / "gone" / "done").exists()
