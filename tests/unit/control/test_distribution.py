"""Counts of durations per range, and what follows from them."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltaworks.control.distribution import BOUNDS_S, Distribution, extended


def test_durations_are_counted_in_their_range() -> None:
    found = Distribution().with_batch([(0.005, 1), (0.0051, 2), (3.0, 1), (9_999.0, 1)])

    assert (found.counts[0], found.counts[1], found.counts[BOUNDS_S.index(5.0)], found.counts[-1]) == (1, 2, 1, 1)
    assert found.count == 5
    assert found.sum_s == pytest.approx(0.005 + 2 * 0.0051 + 3.0 + 9_999.0)


def test_the_highest_is_that_of_the_last_batch_that_had_any() -> None:
    found = Distribution().with_batch([(9.0, 1)]).with_batch([(0.5, 3), (0.25, 1)])

    assert found.highest_s == 0.5
    assert found.with_batch([]) == found


def test_a_clock_that_is_behind_makes_no_negative_durations() -> None:
    found = Distribution().with_batch([(-7.0, 2)])

    assert (found.counts[0], found.sum_s, found.highest_s) == (2, 0.0, 0.0)


def test_a_quantile_is_the_end_of_its_range() -> None:
    found = Distribution().with_batch([(0.004, 98), (0.2, 1), (7_200.0, 1)])

    assert found.quantile_s(0.5) == 0.005
    assert found.quantile_s(0.99) == 0.25
    assert found.quantile_s(1.0) is None, "longer than the last range"
    assert Distribution().quantile_s(0.5) is None


@given(st.lists(st.lists(st.floats(0, 4_000), max_size=5), max_size=6))
def test_batches_add_up(batches: list[list[float]]) -> None:
    one = Distribution()
    for batch in batches:
        one = extended({"a": one}, {"a": [(each, 1) for each in batch]})["a"]
    together = Distribution().with_batch([(each, 1) for batch in batches for each in batch])

    assert one.counts == together.counts
    assert one.sum_s == pytest.approx(together.sum_s)


def test_it_survives_the_heartbeat_and_other_ranges_are_refused() -> None:
    found = Distribution().with_batch([(0.1, 1)])

    assert msgspec.json.decode(msgspec.json.encode(found), type=Distribution) == found
    with pytest.raises(msgspec.ValidationError, match="3 ranges, where there are"):
        msgspec.json.decode(b'{"counts": [1, 2, 3]}', type=Distribution)
