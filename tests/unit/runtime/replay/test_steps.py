"""Recorded batches become steps, steps become chunks."""

from __future__ import annotations

import random

import pytest

from deltaworks.control.batches import BatchRecord
from deltaworks.kafka.ranges import Range
from deltaworks.runtime.replay.steps import Step, begun_later, chunks, globals_start, recorded_steps

RECORDS = [
    BatchRecord(0, 100, {"orders": {"0": (5, 7)}, "names": {"1": (3, 4)}}),
    BatchRecord(1, 200, {}, tick=True),
    BatchRecord(2, 300, {"orders": {"1": (0, 2), "0": (7, 8)}, "names": {"0": (10, 12), "1": (4, 9)}}),
]


def step(batch: int, records: int) -> Step:
    return Step(batch=batch, wall_ms=0, ranges=(Range("t", 0, 0, records),))


def test_a_step_has_the_ranges_of_tasks_and_the_position_of_global_tables() -> None:
    start = globals_start(RECORDS, {"names": 3, "empty": 1})
    assert start == {"names": {"0": 10, "1": 3, "2": 0}, "empty": {"0": 0}}

    steps = list(recorded_steps(RECORDS, start))

    assert [(each.batch, each.wall_ms, each.tick, each.records) for each in steps] == [
        (0, 100, False, 2), (1, 200, True, 0), (2, 300, False, 3),
    ]  # fmt: skip
    assert steps[2].ranges == (Range("orders", 1, 0, 2), Range("orders", 0, 7, 8))
    assert [each.globals["names"] for each in steps] == [
        {"0": 10, "1": 4, "2": 0}, {"0": 10, "1": 4, "2": 0}, {"0": 12, "1": 9, "2": 0},
    ]  # fmt: skip
    assert all(each.globals["empty"] == {"0": 0} for each in steps)


def test_before_a_batch_only_some_topics_are_read() -> None:
    steps = [
        Step(batch=0, wall_ms=1, ranges=(Range("orders", 0, 0, 3), Range("users", 0, 0, 2)), tick=True),
        Step(batch=1, wall_ms=2, ranges=(Range("orders", 0, 3, 4),), tick=True),
        Step(batch=2, wall_ms=3, ranges=(), tick=True),
        Step(batch=3, wall_ms=4, ranges=(Range("orders", 0, 4, 9),)),
    ]

    assert list(begun_later(steps, 2, {"users"})) == [
        Step(batch=0, wall_ms=1, ranges=(Range("users", 0, 0, 2),)),
        *steps[2:],
    ]


@pytest.mark.parametrize("max_records", [1, 100, 1_000, 1_000_000])
def test_chunks_are_consecutive_and_bounded(max_records: int) -> None:
    rng = random.Random(max_records)
    steps = [step(batch, rng.choice([0, 1, 10, 300, 2_000])) for batch in range(0, 200, 2)]

    cut = list(chunks(steps, max_records))

    assert [each for chunk in cut for each in chunk] == steps
    for chunk in cut:
        assert len(chunk) == 1 or sum(each.records for each in chunk) <= max_records
    if max_records == 1_000_000:
        assert len(cut) == 1


def test_steps_without_records_do_not_make_an_endless_chunk() -> None:
    assert len(list(chunks((step(batch, 0) for batch in range(1_000)), 1_000))) > 10


def test_records_of_global_tables_count_too() -> None:
    steps = [Step(batch=n, wall_ms=0, ranges=(), globals={"names": {"0": 400 * n}}) for n in range(7)]
    assert [len(chunk) for chunk in chunks(steps, 1_000)] == [3, 3, 1]


def test_the_first_chunk_can_be_the_one_that_was_begun() -> None:
    steps = [step(batch, 10) for batch in range(6)]
    cut = list(chunks(steps, 1, first_ends=3))
    assert [[each.batch for each in chunk] for chunk in cut] == [[0, 1, 2, 3], [4], [5]]
    with pytest.raises(ValueError, match="batch 7, up to which"):
        list(chunks(steps, 1, first_ends=7))


def test_batches_out_of_order_are_refused() -> None:
    with pytest.raises(ValueError, match="batch 1 comes after batch 1"):
        list(chunks([step(1, 1), step(1, 1)], 100))
