"""Archives: what tasks write and the driver commits, and what a reader gets back by offset."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from deltaworks import StreamsBuilder
from deltaworks.dsl.pipeline import DeadLetters, Pipeline
from deltaworks.errors import TableError, TopologyError
from deltaworks.kernel.records import Headers, RecordBatch
from deltaworks.lakehouse import archive_reader, checkpoints
from deltaworks.lakehouse.archive import ArchiveWriter
from deltaworks.lakehouse.archive_reader import ArchiveReader
from deltaworks.lakehouse.catalog import duckdb_connection
from deltaworks.lakehouse.committer import TableCommitter, TableOptions
from deltaworks.lakehouse.retention import Retention
from deltaworks.lakehouse.writes import Span
from deltaworks.topology.archives import Archives, archive_name
from deltaworks.topology.columns import LAST_MS

DAY_MS = 86_400_000
NOON_MS = 1_790_000_000_000
WORDS = Archives({"words": "words_archive"}, {"sensor-.*": "sensors_archive"})

Record = tuple[int, int, bytes | None, bytes | None, Headers]
"""Offset, timestamp, key, value, headers."""


class Lake:
    """A driver and its tasks, one per partition, which keep what the test says they have read."""

    def __init__(self, root: Path, query: str = "query", *, keep_ms: int = 900_000, file_bytes: int = 1 << 26):
        self.root = root
        options = TableOptions(retention=Retention.only(timedelta(milliseconds=keep_ms)))
        self.committer = TableCommitter(root, "shop", query, [], archives=WORDS.tables, options=options)
        self.committer.open(1)
        self._file_bytes = file_bytes
        self._writers: dict[int, ArchiveWriter] = {}

    def commit(self, batch_id: int, *reads: tuple[Span, Sequence[Record]]) -> None:
        """One batch."""
        writes = []
        for partition in sorted({span.partition for span, _ in reads}):
            writer = self._writers.setdefault(
                partition, ArchiveWriter(self.root, WORDS.table, task=partition, file_bytes=self._file_bytes)
            )
            writer.begin(batch_id)
            for span, records in reads:
                if span.partition == partition:
                    writer.has_read(span)
                    for portion in (records[:3], records[3:]):
                        writer.add(as_batch(span.topic, partition, portion))
            writes += writer.finish()
        self.committer.commit(batch_id, writes)


def as_batch(topic: str, partition: int, records: Sequence[Record]) -> RecordBatch:
    offsets, times, keys, values, headers = ([list(column) for column in zip(*records, strict=True)] or [[]] * 5)[:5]
    return RecordBatch(topic, partition, offsets, times, keys, values, headers if any(headers) else None)


def plain(offset: int, timestamp_ms: int = NOON_MS) -> Record:
    return offset, timestamp_ms, b"k%d" % offset, b"v%d" % offset, ()


def read(root: Path, topic: str, partition: int, start: int, stop: int) -> list[Record]:
    return records_of(list(ArchiveReader(root, WORDS).read(topic, partition, start, stop)))


def records_of(batches: Sequence[RecordBatch]) -> list[Record]:
    found: list[Record] = []
    for batch in batches:
        headers = batch.headers_of_each
        assert batch.headers is None or any(headers)
        found += zip(batch.offsets, batch.timestamps_ms, batch.keys, batch.values, headers, strict=True)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_any_range_comes_back_as_it_was_read(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    lake = Lake(tmp_path, keep_ms=0, file_bytes=rng.choice([2_000, 1 << 26]))
    there: dict[tuple[str, int], list[Record]] = {}
    ends = {(topic, partition): 0 for topic in ("words", "sensor-1", "sensor-2") for partition in range(2)}
    for batch_id in range(70):
        reads = []
        for topic, partition in rng.sample(sorted(ends), 3):
            start = ends[topic, partition]
            stop = ends[topic, partition] = start + rng.randrange(30)
            records: list[Record] = [
                (
                    offset,
                    rng.choice([NOON_MS, NOON_MS - rng.randrange(4 * DAY_MS), -1, NOON_MS * 1_000, (1 << 63) - 1]),
                    rng.choice([None, b"", rng.randbytes(5)]),
                    rng.choice([None, b"", rng.randbytes(50)]),
                    rng.choice([(), (), (("a", b"\xff"), ("a", None), ("é", b""))]),
                )
                for offset in range(start, stop)
                if rng.random() < 0.8  # the others are markers of transactions
            ]
            there.setdefault((topic, partition), []).extend(records)
            reads.append((Span(topic, partition, start, stop), records))
        lake.commit(batch_id, *reads)
    lake.committer.settle()
    for (topic, partition), records in there.items():
        assert ArchiveReader(tmp_path, WORDS).spans(topic, partition) == [(0, ends[topic, partition])]
        assert read(tmp_path, topic, partition, 0, ends[topic, partition]) == records
        for _ in range(4):
            start, stop = sorted(rng.randrange(ends[topic, partition] + 1) for _ in range(2))
            wanted = [each for each in records if start <= each[0] < stop]
            assert read(tmp_path, topic, partition, start, stop) == wanted
    merged = [path for table in lake.committer.tables.values() for path in table.log.files if "merged-" in path]
    assert merged


def test_what_was_not_read_is_not_held(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.commit(0, (Span("words", 0, 5, 8), [plain(5), plain(7)]))
    lake.commit(1, (Span("words", 0, 8, 9), []))  # a marker only
    lake.commit(2, (Span("words", 0, 9, 10), [plain(9)]), (Span("words", 1, 3, 4), [plain(3)]))
    lake.commit(7, (Span("words", 0, 20, 22), [plain(20), plain(21)]))  # it ran without an archive
    lake.commit(8, (Span("words", 0, 22, 23), [plain(22)]))
    reader = ArchiveReader(tmp_path, WORDS)
    assert reader.spans("words", 0) == [(5, 10), (20, 23)]
    assert reader.spans("words", 1) == [(3, 4)]
    assert reader.spans("words", 2) == reader.spans("sensor-1", 0) == reader.spans("others", 0) == []
    assert [each[0] for each in read(tmp_path, "words", 0, 0, 100)] == [5, 7, 9, 20, 21, 22]


def test_what_is_held_is_known_after_a_restart_and_from_a_checkpoint(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.commit(0, (Span("words", 0, 0, 2), [plain(0)]))
    log = lake.committer.tables["words_archive"].log
    checkpoints.write(log.path, log.state())
    again = Lake(tmp_path)
    again.commit(0, (Span("words", 0, 0, 2), [plain(0)]))  # the batch that was committed before the crash
    again.commit(1, (Span("words", 0, 2, 4), [plain(3)]))
    assert ArchiveReader(tmp_path, WORDS).spans("words", 0) == [(0, 4)]
    assert [each[0] for each in read(tmp_path, "words", 0, 0, 4)] == [0, 3]


def test_batches_that_follow_each_other_are_one_entry_of_the_log(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    for batch_id in range(5):
        lake.commit(batch_id, *((Span("words", p, batch_id, batch_id + 1), [plain(batch_id)]) for p in range(2)))
    assert sum("/span-" in app for app in lake.committer.tables["words_archive"].log.transactions) == 2


@pytest.mark.parametrize("file_bytes", [100, 1 << 26])
def test_an_attempt_that_failed_leaves_nothing(tmp_path: Path, file_bytes: int) -> None:
    Lake(tmp_path)
    writer = ArchiveWriter(tmp_path, WORDS.table, task=0, file_bytes=file_bytes)
    for _ in range(2):
        writer.begin(0)
        writer.has_read(Span("words", 0, 0, 30))
        for offset in range(0, 30, 10):
            writer.add(as_batch("words", 0, [plain(offset + n) for n in range(10)]))
    (write,) = writer.finish()
    assert (write.changed_rows, write.spans) == (30, (Span("words", 0, 0, 30),))


def test_the_files_of_a_batch_are_merged_in_its_order(tmp_path: Path) -> None:
    lake = Lake(tmp_path, file_bytes=1)
    for batch_id in range(20):
        start = batch_id * 5
        lake.commit(batch_id, (Span("words", 0, start, start + 5), [plain(start + n) for n in range(5)]))
        lake.committer.settle()
    merged = {path for path in lake.committer.tables["words_archive"].log.files if "merged-" in path}
    assert merged
    for path in merged:
        offsets = pq.read_table(tmp_path / "words_archive" / path, columns=["offset"])["offset"].to_pylist()
        assert offsets == sorted(offsets)


def test_a_record_that_two_lines_of_the_stream_have_read_comes_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_reader, "CHUNK_ROWS", 10)
    lake = Lake(tmp_path)
    for batch_id in range(40):  # enough that files are merged in which offsets go back
        start = batch_id % 20 * 2
        lake.commit(batch_id, (Span("words", 0, start, start + 3), [plain(start + n) for n in range(3)]))
    lake.committer.settle()
    lake.commit(40, (Span("words", 0, 40, 42), [plain(40), plain(41)]))
    assert any("merged-" in path for path in lake.committer.tables["words_archive"].log.files)
    assert [each[0] for each in read(tmp_path, "words", 0, 0, 100)] == list(range(42))
    assert ArchiveReader(tmp_path, WORDS).spans("words", 0) == [(0, 42)]


def test_reading_goes_on_when_the_stream_has_merged_and_removed_the_files(tmp_path: Path) -> None:
    lake = Lake(tmp_path, keep_ms=0)
    for batch_id in range(31):
        lake.commit(batch_id, (Span("words", 0, batch_id * 5, batch_id * 5 + 5), [plain(batch_id * 5)]))
    reading = ArchiveReader(tmp_path, WORDS).read("words", 0, 0, 1_000)
    first = [next(reading) for _ in range(3)]
    for batch_id in range(31, 40):
        lake.commit(batch_id, (Span("words", 0, batch_id * 5, batch_id * 5 + 5), [plain(batch_id * 5)]))
        lake.committer.settle()
    assert not list(tmp_path.rglob("part-0000-b0000000009-*.parquet"))
    offsets = [each[0] for each in records_of([*first, *reading])]
    assert offsets[:31] == list(range(0, 155, 5))
    assert offsets == sorted(set(offsets))


def test_nobody_is_told_to_remove_an_archive(tmp_path: Path) -> None:
    Lake(tmp_path, "query")
    with pytest.raises(TableError, match="move the table's folder away: it may hold what Kafka has not"):
        Lake(tmp_path, "another")


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.commit(0, (Span("words", 0, 0, 2), [plain(0)]))
    (file,) = tmp_path.rglob("part-*.parquet")
    file.unlink()
    with pytest.raises(TableError, match=f"names a file that is missing: .*{file.name}"):
        read(tmp_path, "words", 0, 0, 2)


def test_a_long_range_is_read_with_little_memory(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    count, value = 40_000, b"x" * 1_000
    records = [(offset, NOON_MS, None, value, ()) for offset in range(count)]
    lake.commit(0, (Span("words", 0, 0, count), records))
    del records
    tracemalloc.start()
    found = sum(len(batch.offsets) for batch in ArchiveReader(tmp_path, WORDS).read("words", 0, 0, count))
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == count
    assert peak_bytes < 10_000_000, "of 40 MB"


def test_a_table_that_is_no_archive_holds_nothing(tmp_path: Path) -> None:
    archives = Archives({"words": "letters"})
    TableCommitter(tmp_path, "shop", "query", [], "letters").open(1)
    reader = ArchiveReader(tmp_path, archives)
    assert reader.spans("words", 0) == []
    assert list(reader.read("words", 0, 0, 10)) == []


def test_an_analyst_reads_it_as_any_table(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    far = (8, NOON_MS * 1_000, None, b"v", (("h", b"1"),))
    lake.commit(0, (Span("words", 3, 7, 9), [plain(7), far]))
    with duckdb_connection(tmp_path) as connection:
        rows: list[Any] = connection.execute(
            """SELECT topic, partition, "offset", date::text, epoch_ms(timestamp), timestamp_ms, key, headers
               FROM words_archive WHERE partition = 3 AND date > DATE '2026-01-01' ORDER BY "offset" """
        ).fetchall()
    last_ms = 253_402_300_799_999
    assert rows == [
        ("words", 3, 7, "2026-09-21", NOON_MS, None, b"k7", []),
        ("words", 3, 8, "9999-12-31", last_ms, NOON_MS * 1_000, None, [{"name": "h", "value": b"1"}]),
    ]


@pytest.mark.parametrize(
    ("topic", "table"),
    [
        ("words", "words_archive"),
        ("raw.orders-1", "raw_orders_1_archive"),
        ("sensor-.*", "sensor_archive"),
        ("__x..y", "x_y_archive"),
        ("2026.sales", "_2026_sales_archive"),
        (".*", "archive"),
    ],
)
def test_a_topic_names_its_archive(topic: str, table: str) -> None:
    assert archive_name(topic) == table


def copied(*topics: str, sink: str = "out") -> Pipeline:
    def topology(builder: StreamsBuilder) -> None:
        for topic in topics:
            builder.stream(topic, key=str, value=str).to_delta(f"{sink}_{topics.index(topic)}")

    return Pipeline(name="copied", topology=topology, archive=True, dead_letters=DeadLetters(table="letters_archive"))


@pytest.mark.parametrize(
    ("pipeline", "message"),
    [
        (
            copied("a.b", "a-b"),
            "the archive of 'a.b' would be the Delta table 'a_b_archive', which the archive of 'a-",
        ),
        (copied("LETTERS"), "'LETTERS_archive', which dead_letters= writes too"),
        (copied("x", sink="x_archive"), None),
        (copied("x" * 121), "would be a Delta table whose name has 129 characters"),
    ],
)
def test_a_name_that_clashes_is_a_problem_of_the_pipeline(pipeline: Pipeline, message: str | None) -> None:
    if message is None:
        assert pipeline.archives(pipeline.plan()).tables == ("x_archive",)
        return
    with pytest.raises(TopologyError) as caught:
        pipeline.plan()
    assert message in str(caught.value)


def test_the_first_offset_at_a_time_is_found_whatever_the_order(tmp_path: Path) -> None:
    rng = random.Random(4)
    lake = Lake(tmp_path)
    records = [plain(at, NOON_MS + rng.randrange(4 * DAY_MS)) for at in range(200)] + [plain(200, 10**16)]
    for batch_id, start in enumerate(range(0, 201, 20)):
        part = records[start : start + 20]
        lake.commit(batch_id, (Span("words", 0, start, start + len(part)), part))
    reader = ArchiveReader(tmp_path, WORDS)

    for at_ms in [
        NOON_MS,
        NOON_MS + 4 * DAY_MS,
        10**17,
        -(10**17),
        *(record[1] + rng.choice([0, 1]) for record in records[::7]),
    ]:
        expected = next((offset for offset, time_ms, *_ in records if time_ms >= min(at_ms, LAST_MS)), None)
        assert reader.first_at("words", 0, at_ms) == expected
    assert reader.first_at("words", 1, 0) is None
    assert reader.first_at("another", 0, 0) is None


def test_an_archive_that_somebody_else_has_compacted_is_refused(tmp_path: Path) -> None:
    """Its rows are found by their offsets, in the order of a file."""
    lake = Lake(tmp_path)
    for batch_id in range(3):
        lake.commit(batch_id, (Span("words", 0, batch_id, batch_id + 1), [plain(batch_id)]))
    DeltaTable(tmp_path / (WORDS.table("words") or "")).optimize.compact()

    with pytest.raises(TableError, match="rewrites files whose order the stream relies on"):
        lake.commit(3, (Span("words", 0, 3, 4), [plain(3)]))
