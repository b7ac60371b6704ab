"""A batch that is too large is cut in two, or runs in slices, and the batches after it grow again."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import StreamingQueryException

from deltaworks.control.intents import Intent
from deltaworks.errors import BatchTooLongError, IntentError, QueryError
from deltaworks.kafka.ranges import Range
from deltaworks.runtime.batches import oversized
from deltaworks.runtime.batches.oversized import cut_in_two, grown
from deltaworks.spark import failures


def intent(ranges: list[Range]) -> Intent:
    end = {"quiet": {"0": 3}, "!clock": {"0": 7}, "!batch": {"0": 4}}
    for each in ranges:
        end.setdefault(each.topic, {})[str(each.partition)] = each.stop
    return Intent(
        batch=4, lineage="line", query="run", generation=1, code="", clock_ms=7, tick=True, ranges=ranges, end=end,
        previous="before",
    )  # fmt: skip


@given(st.lists(st.integers(1, 1_000), min_size=1, max_size=6))
def test_the_first_half_begins_where_the_batch_began_and_the_rest_is_left(sizes: list[int]) -> None:
    whole = intent([Range("in", number, 10 * number, 10 * number + size) for number, size in enumerate(sizes)])
    if sum(sizes) == 1:
        return
    half = cut_in_two(whole)

    assert sum(each.stop - each.start for each in half.ranges) == half.limit == sum(sizes) // 2
    begun = {each.partition: each for each in whole.ranges}
    for each in half.ranges:
        assert each.start == begun[each.partition].start < each.stop <= begun[each.partition].stop
    for partition, each in begun.items():
        taken = {half_range.partition: half_range.stop for half_range in half.ranges}.get(partition, each.start)
        assert half.end["in"][str(partition)] == taken
    assert {topic: half.end[topic] for topic in ("quiet", "!clock", "!batch")} == {
        topic: whole.end[topic] for topic in ("quiet", "!clock", "!batch")
    }
    assert (half.clock_ms, half.tick, half.previous) == (whole.clock_ms, whole.tick, whole.previous)
    assert half.digest != whole.digest


def test_a_single_record_that_is_too_large_is_told() -> None:
    with pytest.raises(IntentError, match="too large with nothing but in-0@5"):
        cut_in_two(intent([Range("in", 0, 5, 6)]))


def test_batches_grow_again() -> None:
    limits: list[int | None] = [10]
    while limits[-1] is not None:
        limits.append(grown(limits[-1], 100))
    assert limits == [10, 20, 40, 80, None]


@pytest.mark.parametrize(
    ("error", "too_large"),
    [
        (QueryError("Python worker exited unexpectedly (crashed)"), True),
        (QueryError("java.lang.OutOfMemoryError: Java heap space"), True),
        (BatchTooLongError("the transaction was ended after 600 s"), True),
        (MemoryError(), True),
        (QueryError("no broker"), False),
    ],
)
def test_what_is_known_of_a_batch_that_failed(tmp_path: Path, error: Exception, too_large: bool) -> None:
    path = tmp_path / "open.json"
    oversized.told(path, 4, error)
    assert oversized.begun(path, 4).is_too_large is too_large
    assert not oversized.begun(path, 5).is_too_large


def test_what_spark_has_made_of_a_worker_without_memory_is_told_by_the_cause(tmp_path: Path) -> None:
    path = tmp_path / "open.json"
    spark = StreamingQueryException("[STREAM_FAILED] Query\n  File 'worker.py'\nMemoryError\n\tat org.apache")
    try:
        raise failures.as_error(spark) from spark
    except QueryError as error:
        assert "MemoryError" not in str(error)
        oversized.told(path, 4, error)
    assert oversized.begun(path, 4).is_too_large


def test_a_batch_that_is_begun_again_and_again_is_taken_for_too_large(tmp_path: Path) -> None:
    path = tmp_path / "open.json"
    assert [oversized.begun(path, 4).is_too_large for _ in range(5)] == [False, False, False, False, True]


def test_a_batch_that_cannot_be_cut_runs_in_slices_and_begins_to_count_again(tmp_path: Path) -> None:
    path = tmp_path / "open.json"
    oversized.told(path, 4, MemoryError())
    oversized.slice_it(path, 4)
    known = oversized.begun(path, 4)
    assert known.in_slices and not known.is_too_large


@pytest.mark.parametrize("content", [b"", b"{", b'{"format": 1}'])
def test_a_file_that_cannot_be_read_is_as_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "open.json"
    path.write_bytes(content)
    assert oversized.begun(path, 4) == oversized.OpenBatch(batch=4)
