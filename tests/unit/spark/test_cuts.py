"""Where a micro-batch ends."""

from __future__ import annotations

from bisect import bisect_left

import pytest

from deltaworks.errors import KafkaReadError
from deltaworks.kafka.ranges import Offsets
from deltaworks.kernel.idling import Idling
from deltaworks.spark.cuts import cut_by_time, limit_offsets, require_growing, wait_for_others


def test_a_backlog_is_cut_in_proportion_and_every_partition_moves() -> None:
    start = {"a": {"0": 0, "1": 0}, "b": {"0": 10}}
    end = {"a": {"0": 900, "1": 1}, "b": {"0": 109}}
    cut = limit_offsets(start, end, 100)
    assert cut["a"]["1"] == 1
    assert 85 <= cut["a"]["0"] <= 95 and 18 <= cut["b"]["0"] <= 22
    assert limit_offsets(start, end, 1000) == end


@pytest.mark.parametrize("hint_ms", [0, 1_000_050, 9_000_000])
def test_a_backlog_of_several_topics_is_cut_at_one_time(hint_ms: int) -> None:
    """A table of old rows beside a long stream: the table is read first, whatever the last cut was."""
    table, stream = [1_000 + i for i in range(50)], [1_000_000 + i // 10 for i in range(2_000)]
    times = {"table": {"0": table}, "stream": {"0": stream, "1": stream}}

    def offsets_at(time_ms: int) -> Offsets:
        return {t: {p: bisect_left(each, time_ms) for p, each in parts.items()} for t, parts in times.items()}

    start: Offsets = {"table": {"0": 0}, "stream": {"0": 0, "1": 0}}
    end: Offsets = {"table": {"0": 50}, "stream": {"0": 2_000, "1": 2_000}}
    cut, time_ms = cut_by_time(start, end, 95, offsets_at, hint_ms)
    assert cut == {"table": {"0": 50}, "stream": {"0": 20, "1": 20}}
    cut, _ = cut_by_time(cut, end, 95, offsets_at, time_ms)
    assert cut == {"table": {"0": 50}, "stream": {"0": 60, "1": 60}}
    cut, _ = cut_by_time(cut, end, 7, offsets_at, time_ms)
    assert 0 < cut["stream"]["0"] - 60 < 7


def test_a_topic_that_was_made_anew_is_an_error() -> None:
    require_growing({"a": {"0": 5}}, {"a": {"0": 5}})
    with pytest.raises(KafkaReadError, match="a-0 ends at 3, read up to 5"):
        require_growing({"a": {"0": 5, "1": 0}}, {"a": {"0": 3, "1": 2}})


def waiting(idling: Idling, end: Offsets, wall_clock_ms: int) -> Offsets:
    """Task 0 reads partition 0 of both topics: records of 1, 2, 3, ... ms in each."""
    return wait_for_others(
        {(0, 0): [("a", "0"), ("b", "0")]},
        {"a": {"0": 0}, "b": {"0": 0}},
        end,
        {(0, 0): idling},
        lambda: {("a", "0"): end["a"]["0"], ("b", "0"): end["b"]["0"]},
        lambda time_ms: {topic: {"0": time_ms - 1} for topic in end},
        wall_clock_ms,
    )


def test_records_wait_for_a_partition_that_has_none_until_the_task_has_idled_long_enough() -> None:
    idling, end = Idling(100), {"a": {"0": 7}, "b": {"0": 0}}
    assert waiting(idling, end, 1_000) == {"a": {"0": 0}, "b": {"0": 0}}
    assert waiting(idling, end, 1_099) == {"a": {"0": 0}, "b": {"0": 0}}
    assert waiting(idling, end, 1_100) == end


def test_while_all_partitions_have_records_they_go_as_far_as_the_one_that_is_behind() -> None:
    assert waiting(Idling(100), {"a": {"0": 7}, "b": {"0": 3}}, 1_000) == {"a": {"0": 3}, "b": {"0": 3}}
