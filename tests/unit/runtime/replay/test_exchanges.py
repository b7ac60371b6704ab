"""What a task chunk sends comes out step by step, whoever reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from deltaworks.kernel.records import Headers, RecordBatch
from deltaworks.runtime.replay.exchanges import ExchangeReader, ExchangeWriter
from tests.support.fault_hooks import InjectedFault
from tests.unit.spark.memory_bucket import MemoryBucket


def records(task: int, batch: int, *keys: bytes) -> RecordBatch:
    offsets = [(batch << 32) + number for number in range(len(keys))]
    headers: list[Headers] | None = [(("h", b"1"),) for _ in keys] if batch % 2 else None
    return RecordBatch("exchange", task, offsets, [7] * len(keys), [*keys], [None for _ in keys], headers)


def test_a_task_gets_what_each_sender_has_sent_to_it_in_a_batch(tmp_path: Path) -> None:
    first, second = records(0, 1, b"a", b"b"), records(0, 4, b"c")
    other, apart = records(1, 4, b"d"), records(1, 5, b"e")
    with ExchangeWriter(tmp_path / "exchanges", "0-0") as writer:
        writer.add(1, (1, 0), first)
        writer.add(1, (1, 1), apart)
        writer.add(4, (1, 0), second)
    with ExchangeWriter(tmp_path / "exchanges", "0-1") as another:
        another.add(4, (1, 0), other)
        another.add(5, (1, 0), apart)
    files = [file for each in (writer, another) for to, file in each.files if to == (1, 0)]

    reader = ExchangeReader(files)

    assert len(files) == 2
    assert [reader.take(batch) for batch in (0, 1, 2, 4, 5, 6)] == [[], [first], [], [second, other], [apart], []]


def test_in_a_store_each_attempt_has_files_of_its_own_that_are_there_when_it_has_ended(tmp_path: Path) -> None:
    bucket = MemoryBucket()
    place = bucket.root("exchanges", tmp_path / "local")
    with ExchangeWriter(place, "0-0") as first, ExchangeWriter(place, "0-0") as second:
        first.add(1, (1, 0), records(0, 1, b"a"))
        second.add(2, (1, 0), records(0, 2, b"b"))
        assert bucket.objects == {}
    with pytest.raises(InjectedFault), ExchangeWriter(place, "0-0") as failing:
        failing.add(1, (1, 0), records(0, 1, b"a"))
        raise InjectedFault

    readers = [ExchangeReader(file for _, file in each.files) for each in (first, second)]

    assert [[len(reader.take(batch)) for batch in (1, 2)] for reader in readers] == [[1, 0], [0, 1]]
    assert len(bucket.objects) == 2
    assert not [each for each in (tmp_path / "local").rglob("*") if each.is_file()]


def test_an_attempt_replaces_what_one_before_has_left(tmp_path: Path) -> None:
    for batch in (1, 2):
        with ExchangeWriter(tmp_path, "0-0") as writer:
            writer.add(batch, (1, 0), records(0, batch, b"a"))

    reader = ExchangeReader(file for _, file in writer.files)

    assert [len(reader.take(batch)) for batch in (1, 2)] == [0, 1]
