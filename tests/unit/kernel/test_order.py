"""Records of a chunk that does not decode as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import pytest

from deltaworks import ErrorPolicy, Pipeline, StreamsBuilder
from deltaworks.kernel.records import RecordBatch
from deltaworks.testing.recorded import MicroBatch, run_recorded

_RECORDS = 1_000


class Numbers:
    """A serde that counts how often it was asked to read the same bytes."""

    name, type = "numbers", int

    def __init__(self) -> None:
        self.reads: Counter[bytes] = Counter()

    def serialize(self, value: int) -> bytes:
        return str(value).encode()

    def deserialize(self, data: bytes) -> int:
        self.reads[data] += 1
        return int(data)


@pytest.mark.parametrize("bad", [(), (0,), (255, 256), (300, 301, 999), range(_RECORDS)], ids=str)
def test_a_record_is_decoded_once_more_when_one_of_its_chunk_is_bad_and_no_more(bad: Collection[int]) -> None:
    numbers = Numbers()

    def topology(builder: StreamsBuilder) -> None:
        builder.stream("in", key=str, value=numbers).to("out")

    values: list[bytes | None] = [b"bad %d" % n if n in bad else b"%d" % n for n in range(_RECORDS)]
    batch = RecordBatch("in", 0, list(range(_RECORDS)), [0] * _RECORDS, [b"k"] * _RECORDS, values)
    plan = Pipeline(name="p", topology=topology, on_error="continue").plan()
    found = run_recorded(plan, {"in": 1}, [MicroBatch(0, (batch,))], errors=ErrorPolicy("continue"))

    assert [record.value for record in found.topic("out")] == [b"%d" % n for n in range(_RECORDS) if n not in bad]
    letters = [letter.source.offset for task in found.tasks.values() for letter in task.dead_letters]
    assert letters == list(bad)
    assert max(numbers.reads.values()) == (2 if bad else 1)
