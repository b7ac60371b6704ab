"""Records by time are the same in a folder and in an object store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from deltaworks.kafka.ranges import Range
from deltaworks.kernel.records import RecordBatch
from deltaworks.runtime.replay import sorted_files
from deltaworks.runtime.replay.sorted_files import SCHEMA, ByTimeReader, SortedFile, write_sorted
from tests.unit.spark.memory_bucket import MemoryBucket

COUNT = 70


@pytest.fixture(params=["folder", "store"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / "sorted" if request.param == "folder" else MemoryBucket().root("sorted", tmp_path / "local")


def rows(partition: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, COUNT, 9):
        numbers = range(start, min(start + 9, COUNT))
        yield pa.record_batch(
            [
                ["words"] * len(numbers),
                pa.array([partition] * len(numbers), pa.int32()),
                [10 * number for number in numbers],
                [COUNT - number for number in numbers],
                [b"k%d" % number for number in numbers],
                [None for _ in numbers],
                [[] for _ in numbers],
            ],
            schema=SCHEMA,
        )


def test_what_is_written_in_order_is_read_by_position(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_files, "GROUP_ROWS", 16)
    assert list(write_sorted(place, [*rows(0), *rows(1)])) == [COUNT, COUNT]

    reader = ByTimeReader(place, lambda: pytest.fail("every topic is sorted"))
    found = [batch for portion in reader.read([Range("words", 1, 20, 60)]) for batch in portion]
    reader.close()
    file = SortedFile(sorted_files.sorted_files(place)["words", 0])

    assert (file.count, file.newest_ms, file.positions([0, 205, 10_000])) == (COUNT, 690, [0, 21, COUNT])
    file.close()
    assert all(isinstance(batch, RecordBatch) for batch in found)
    assert [offset for batch in found for offset in batch.offsets] == [COUNT - number for number in range(20, 60)]
    assert [key for batch in found for key in batch.keys] == [b"k%d" % number for number in range(20, 60)]


def test_nothing_of_it_stays_beside_the_store(tmp_path: Path) -> None:
    bucket = MemoryBucket()
    list(write_sorted(bucket.root("sorted", tmp_path), rows(0)))

    assert [*bucket.objects] == ["sorted/words/0.parquet"]
    assert not [each for each in tmp_path.rglob("*") if each.is_file()]
