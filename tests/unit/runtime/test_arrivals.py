"""A few records stand for all of a batch."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from deltaworks.runtime.arrivals import Arrivals


@given(st.lists(st.integers(0, 2_000), max_size=200))
def test_they_are_few_and_stand_for_all(portions: list[int]) -> None:
    arrivals = Arrivals()
    for number in portions:
        arrivals.add(range(number), read_ms=number)

    assert sum(each.records for each in arrivals.found) == sum(portions)
    assert len(arrivals.found) <= 32
    assert all(each.records > 0 for each in arrivals.found)


def test_each_record_of_a_small_batch_is_there() -> None:
    arrivals = Arrivals()
    arrivals.add([5, 3, 9], read_ms=20)

    assert arrivals.found == [(5, 20, 1), (3, 20, 1), (9, 20, 1)]


def test_they_are_evenly_spread() -> None:
    arrivals = Arrivals()
    arrivals.add(range(10), read_ms=20)

    assert [(each.timestamp_ms, each.records) for each in arrivals.found] == [(0, 2), (2, 3), (5, 2), (7, 3)]
