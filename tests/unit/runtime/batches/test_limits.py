"""Where a micro-batch ends."""

from __future__ import annotations

from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltaworks.errors import KafkaReadError
from deltaworks.kafka.ranges import Offsets
from deltaworks.kernel.idling import Idling
from deltaworks.runtime.batches.limits import (
    Limit,
    count_records,
    cut_backlog,
    cut_by_time,
    limit_offsets,
    require_growing,
    wait_for_others,
)


def test_a_backlog_is_cut_in_proportion_and_every_partition_moves() -> None:
    start = {"a": {"0": 0, "1": 0}, "b": {"0": 10}}
    end = {"a": {"0": 900, "1": 1}, "b": {"0": 109}}
    cut = limit_offsets(start, end, Limit(records=100))
    assert cut["a"]["1"] == 1
    assert 85 <= cut["a"]["0"] <= 95 and 18 <= cut["b"]["0"] <= 22
    assert limit_offsets(start, end, Limit(records=1000)) == end


@pytest.mark.parametrize("hint_ms", [0, 1_000_050, 9_000_000])
def test_a_backlog_of_several_topics_is_cut_at_one_time(hint_ms: int) -> None:
    """A table of old rows beside a long stream: the table is read first, whatever the last cut was."""
    table, stream = [1_000 + i for i in range(50)], [1_000_000 + i // 10 for i in range(2_000)]
    times = {"table": {"0": table}, "stream": {"0": stream, "1": stream}}

    def offsets_at(time_ms: int) -> Offsets:
        return {t: {p: bisect_left(each, time_ms) for p, each in parts.items()} for t, parts in times.items()}

    start: Offsets = {"table": {"0": 0}, "stream": {"0": 0, "1": 0}}
    end: Offsets = {"table": {"0": 50}, "stream": {"0": 2_000, "1": 2_000}}
    cut, time_ms = cut_by_time(start, end, Limit(records=95), offsets_at, hint_ms)
    assert cut == {"table": {"0": 50}, "stream": {"0": 20, "1": 20}}
    cut, _ = cut_by_time(cut, end, Limit(records=95), offsets_at, time_ms)
    assert cut == {"table": {"0": 50}, "stream": {"0": 60, "1": 60}}
    cut, _ = cut_by_time(cut, end, Limit(records=7), offsets_at, time_ms)
    assert 0 < cut["stream"]["0"] - 60 < 7


def test_records_that_no_time_finds_are_cut_in_proportion() -> None:
    """Times in microseconds lie in the year 58000, beyond any that is searched for."""
    start: Offsets = {"a": {"0": 0}, "b": {"0": 0}}
    end: Offsets = {"a": {"0": 300_000}, "b": {"0": 300_000}}
    at_us = 1_790_000_000_000_000

    def offsets_at(time_ms: int) -> Offsets:
        return {topic: {"0": 0 if time_ms <= at_us else 1 << 62} for topic in ("a", "b")}

    cut, hint_ms = cut_by_time(start, end, Limit(records=400_000), offsets_at, 0)
    assert cut == {"a": {"0": 200_000}, "b": {"0": 200_000}}
    cut, _ = cut_by_time(cut, end, Limit(records=400_000), offsets_at, hint_ms)
    assert cut == end


def test_records_without_a_time_are_cut_in_proportion() -> None:
    """A broker finds no offset at or after a time among them."""
    start: Offsets = {"a": {"0": 0}, "b": {"0": 0}}
    end: Offsets = {"a": {"0": 1_000}, "b": {"0": 3_000}}

    cut, _ = cut_by_time(start, end, Limit(records=400), lambda time_ms: {t: {"0": 1 << 62} for t in end}, 1_000)

    assert cut == {"a": {"0": 100}, "b": {"0": 299}}


def test_a_batch_holds_no_more_bytes_than_it_may() -> None:
    start: Offsets = {"large": {"0": 0, "1": 0}, "small": {"0": 0}}
    end: Offsets = {"large": {"0": 1_000, "1": 1_000}, "small": {"0": 1_000}}
    limit = Limit(records=1_000_000, bytes=50_100_000, record_bytes={"large": 1_000_000, "small": 100})

    assert limit_offsets(start, end, limit) == {"large": {"0": 25, "1": 25}, "small": {"0": 25}}
    assert limit_offsets(start, {"small": {"0": 1_000}}, limit) == {"small": {"0": 1_000}}
    cut, _ = cut_backlog(start, end, limit, lambda time_ms: {t: dict.fromkeys(p, time_ms) for t, p in end.items()}, 0)
    assert cut == {"large": {"0": 25, "1": 25}, "small": {"0": 25}}


def test_of_a_topic_that_nobody_has_read_the_first_batch_is_small() -> None:
    limit = Limit(records=1_000_000, bytes=1_000_000, unknown_bytes=10_000)

    assert limit_offsets({"new": {"0": 5}}, {"new": {"0": 5_000}}, limit) == {"new": {"0": 105}}


def test_a_record_that_is_larger_than_a_batch_may_be_is_a_batch() -> None:
    start: Offsets = {"a": {"0": 7, "1": 0}}
    limit = Limit(records=100, bytes=10, record_bytes={"a": 1_000})

    cut = limit_offsets(start, {"a": {"0": 9, "1": 1}}, limit)

    assert cut == {"a": {"0": 8, "1": 0}}
    assert limit_offsets(cut, {"a": {"0": 8, "1": 1}}, limit) == {"a": {"0": 8, "1": 1}}


def test_with_more_partitions_than_records_the_largest_backlog_goes_first() -> None:
    start: Offsets = {"a": {str(p): 0 for p in range(5)}}
    end: Offsets = {"a": {str(p): p for p in range(5)}}

    assert limit_offsets(start, end, Limit(records=2)) == {"a": {"0": 0, "1": 0, "2": 0, "3": 1, "4": 1}}


def first_at(times: list[int], time_ms: int) -> int:
    return next((offset for offset, at in enumerate(times) if at >= time_ms), 1 << 62)


_TIMES = st.lists(st.integers(-1, 60) | st.integers(10**15, 10**15 + 3), max_size=30)


@given(
    times=st.dictionaries(
        st.sampled_from(["a", "b", "c"]), st.dictionaries(st.sampled_from(["0", "1"]), _TIMES, min_size=1), min_size=1
    ),
    read=st.integers(0, 5),
    records=st.integers(1, 20),
    size=st.none() | st.integers(1, 5_000),
    sizes=st.dictionaries(st.sampled_from(["a", "b"]), st.integers(1, 2_000).map(float)),
    hint_ms=st.integers(-10, 100) | st.just(10**15),
)
def test_a_batch_has_records_if_there_are_any_and_no_more_than_it_may(
    times: dict[str, dict[str, list[int]]],
    read: int,
    records: int,
    size: int | None,
    sizes: dict[str, float],
    hint_ms: int,
) -> None:
    limit = Limit(records=records, bytes=size, record_bytes=sizes, unknown_bytes=300.0)
    end: Offsets = {t: {p: len(each) for p, each in parts.items()} for t, parts in times.items()}
    start: Offsets = {t: {p: min(read, stop) for p, stop in parts.items()} for t, parts in end.items()}

    def offsets_at(time_ms: int) -> Offsets:
        """As a broker answers: the first record at or after a time, wherever it stands."""
        return {t: {p: first_at(each, time_ms) for p, each in parts.items()} for t, parts in times.items()}

    batches = 0
    while start != end:
        cut, hint_ms = cut_backlog(start, end, limit, offsets_at, hint_ms)
        assert all(start[t][p] <= cut[t][p] <= stop for t, parts in end.items() for p, stop in parts.items())
        assert count_records(start, cut) == 1 or (count_records(start, cut) > 0 and limit.fits(start, cut))
        start, batches = cut, batches + 1
        assert batches <= 200


def test_a_recreated_topic_is_an_error() -> None:
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
