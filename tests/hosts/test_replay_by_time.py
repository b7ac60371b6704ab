"""A replay by time gives what a stream gives whose topics hold their records in the order of time."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from deltaworks import Pipeline, StreamsBuilder, TimeWindows
from deltaworks.kafka.ranges import Offsets, Range
from deltaworks.runtime.global_tables import Reader
from deltaworks.runtime.replay import sorted_files
from deltaworks.runtime.replay.sorted_files import read_rows, write_sorted
from deltaworks.runtime.replay.steps import Step
from deltaworks.settings import Settings
from deltaworks.spark.replay.by_time import ByTime, joined, steps
from deltaworks.testing.topics import RawRecord
from tests.hosts.in_process import InProcessStream
from tests.hosts.memory_kafka import MemoryKafka
from tests.hosts.replays import replay_host, steps_of

LAST_WALL_MS = 1_900_000_000_000
_ORDER = [(name, "ascending") for name in ("topic", "partition", "timestamp_ms", "offset")]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return replace(Settings.from_environment({}), home=tmp_path)


def pipeline(topology: Callable[[StreamsBuilder], None], **options: Any) -> Pipeline:
    return Pipeline(name="under-test", topology=topology, **options)


def prices(builder: StreamsBuilder) -> None:
    """A table, a stream that looks it up, windows, and an exchange."""
    names = builder.table("names", key=str, value=str, store="names")
    words = builder.stream("words", key=str, value=str)
    words.join(names, lambda word, name: f"{name}:{word}", value=str).group_by(
        lambda _, text: text, key=str, name="by-text"
    ).count(store="counts").to_delta("counts")
    windows = TimeWindows(size=timedelta(seconds=10), grace=timedelta(0))
    words.group_by_key().windowed_by(windows).count(store="windows").to_delta("windows")


def sort_here(history: Callable[[], Reader], ranges: Sequence[Range], folder: Path) -> None:
    """As `by_time.sort`, without Spark."""
    rows = pa.Table.from_batches(rows for each in ranges for rows in read_rows(history(), each))
    assert sum(write_sorted(folder, rows.sort_by(_ORDER).to_batches(max_chunksize=7))) == rows.num_rows


def late_and_early(rng: random.Random, count: int = 300) -> MemoryKafka:
    """Records that are up to a minute late; times repeat."""
    kafka = MemoryKafka({"words": 2, "names": 2})
    for number in range(count):
        for topic in ("words", "names"):
            time_ms = 1_790_000_000_000 + (number - rng.randrange(60)) * 1_000
            key = None if rng.random() < 0.05 else b"k%d" % rng.randrange(6)
            headers = (("h", None), ("n", b"%d" % number)) if rng.random() < 0.1 else ()
            kafka.write(topic, RawRecord(key, b"%s%d" % (topic.encode(), number % 4), time_ms, headers), number % 2)
    return kafka


def in_time_order(kafka: MemoryKafka) -> MemoryKafka:
    """The same records in topics that were written in the order of time."""
    ordered = MemoryKafka(dict(kafka.partitions))
    for topic, parts in kafka.records.items():
        for partition, records in parts.items():
            for record in sorted(records, key=lambda record: record.timestamp_ms):
                ordered.write(topic, record, partition)
    return ordered


def stream_of(steps: Sequence[Step], pipeline: Pipeline, settings: Settings, kafka: MemoryKafka) -> InProcessStream:
    """A stream whose batches are these steps, though they say positions and not offsets."""
    stream = InProcessStream(pipeline, settings, kafka=kafka)
    for step in steps:
        end: Offsets = {topic: dict(parts) for topic, parts in stream.offsets.items()}
        for each in step.ranges:
            end[each.topic][str(each.partition)] = each.stop
        stream.batch_id = step.batch
        stream.run({**end, **step.globals}, wall_ms=step.wall_ms)
    stream.committer.refresh_snapshots(force=True)
    return stream


def rows_of(root: Path, table: str) -> list[dict[str, Any]]:
    """Without the offsets, which are not the same."""
    rows = DeltaTable(root / table).to_pyarrow_table().drop_columns(["source_offset"] * (table != "windows"))
    return sorted(rows.to_pylist(), key=repr)


@pytest.mark.parametrize("step_records", [1, 150, 1_000_000])
@pytest.mark.parametrize("seed", range(2))
def test_it_equals_a_stream_whose_topics_are_in_order(settings: Settings, seed: int, step_records: int) -> None:
    rng = random.Random(seed)
    kafka = late_and_early(rng)
    lived = InProcessStream(pipeline(prices), settings, kafka=kafka)
    lived.run_to_the_end(rng, 20, elsewhere=None)
    recorded = steps_of(lived)
    sort_here(kafka.reader, joined(recorded), settings.home / "sorted")
    last = recorded[-1].batch
    found = steps(
        settings.home / "sorted",
        batches=(0, last),
        last_wall_ms=LAST_WALL_MS,
        tick=False,
        global_offsets={},
        step_records=step_records,
    )
    assert found[-1].batch == last
    assert [step.batch for step in found] == list(range(last + 1 - len(found), last + 1))
    assert (len(found) == 1) == (step_records > 1_000)
    assert joined(found) == [Range(topic, p, 0, 150) for topic in ("names", "words") for p in range(2)]

    root = settings.home / "run"
    host = replay_host(lived, root, max_records=200, clients=ByTime(settings.home / "sorted", kafka.reader))
    progress = host.run(found)
    ordered = replace(settings, home=settings.home / "ordered")
    expected = stream_of(found, pipeline(prices), ordered, in_time_order(kafka))
    for table in ("counts", "counts_changelog", "windows"):
        assert rows_of(root / "tables", table) == rows_of(ordered.tables, table)
    assert progress.late == 0
    assert rows_of(ordered.tables, "windows") != rows_of(settings.tables, "windows")
    lived.close()
    expected.close()


def test_global_tables_are_seen_as_of_the_end(settings: Settings) -> None:
    def topology(builder: StreamsBuilder) -> None:
        names = builder.global_table("names", key=str, value=str, store="names")
        words = builder.stream("words", key=str, value=str)
        words.join(names, lambda word, name: name, selector=lambda _, word: word, value=str).to_delta("named")

    kafka = MemoryKafka({"words": 1, "names": 1})
    kafka.write("names", RawRecord(b"w", b"old", 9_000))
    kafka.write("words", RawRecord(b"a", b"w", 2_000))
    stream = InProcessStream(pipeline(topology), settings, kafka=kafka)
    stream.run(stream.end())
    kafka.write("names", RawRecord(b"w", b"new", 9_500))
    kafka.write("words", RawRecord(b"b", b"w", 1_000))
    stream.run(stream.end())
    recorded = steps_of(stream)
    sort_here(kafka.reader, joined(recorded), settings.home / "sorted")
    found = steps(
        settings.home / "sorted", batches=(0, 1), last_wall_ms=5, tick=True, global_offsets=recorded[-1].globals
    )
    assert [(step.wall_ms, step.tick) for step in found] == [(5, True)]
    root = settings.home / "run"
    replay_host(stream, root, max_records=10, clients=ByTime(settings.home / "sorted", kafka.reader)).run(found)
    rows = DeltaTable(root / "tables" / "named").to_pyarrow_table().select(["key", "value", "source_offset"])
    assert rows.to_pylist() == [
        {"key": "b", "value": "new", "source_offset": 1},
        {"key": "a", "value": "new", "source_offset": 0},
    ]
    stream.close()


def test_slices_end_at_the_same_time_everywhere_and_are_not_more_than_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sorted_files, "GROUP_ROWS", 64)
    kafka = late_and_early(random.Random(3), count=2_000)
    ranges = [Range(topic, p, 0, 1_000) for topic in ("names", "words") for p in range(2)]
    sort_here(kafka.reader, ranges, tmp_path)
    reader = ByTime(tmp_path, kafka.reader)()
    for batches, most in [((0, 9), 10), ((5, 7), 3), ((100, 5_000), 40)]:
        found = steps(
            tmp_path, batches=batches, last_wall_ms=LAST_WALL_MS, tick=False, global_offsets={}, step_records=100
        )
        assert most / 2 <= len(found) <= most
        newest_ms = -1
        for step in found:
            times = [t for each in step.ranges for (batch,) in reader.read([each]) for t in batch.timestamps_ms]
            assert min(times) > newest_ms
            newest_ms = max(times)
            assert step.wall_ms >= newest_ms
        assert joined(found) == ranges
    reader.close()


def test_records_come_back_by_time_with_their_own_offsets(tmp_path: Path) -> None:
    kafka = late_and_early(random.Random(4), count=12_000)
    sort_here(kafka.reader, [Range("words", 0, 500, 6_000)], tmp_path)
    reader = ByTime(tmp_path, kafka.reader)()
    records = kafka.records["words"][0]
    expected = sorted(range(500, 6_000), key=lambda offset: (records[offset].timestamp_ms, offset))
    for start, stop in [(0, 5_500), (4_990, 5_010), (17, 17), (5_499, 5_500)]:
        batches = [batch for portion in reader.read([Range("words", 0, start, stop)]) for batch in portion]
        offsets = [offset for batch in batches for offset in batch.offsets]
        assert offsets == expected[start:stop]
        for batch in batches:
            for n, offset in enumerate(batch.offsets):
                headers = () if batch.headers is None else batch.headers[n]
                found = RawRecord(batch.keys[n], batch.values[n], batch.timestamps_ms[n], headers)
                assert found == records[offset]
    reader.close()


def test_without_any_record_there_is_one_slice(tmp_path: Path) -> None:
    (step,) = steps(tmp_path, batches=(3, 8), last_wall_ms=70, tick=True, global_offsets={"names": {"0": 4}})
    assert step == Step(batch=8, wall_ms=0, ranges=(), tick=True, globals={"names": {"0": 4}})
