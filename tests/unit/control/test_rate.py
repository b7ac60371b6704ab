"""The rate of the last minute."""

from __future__ import annotations

import pytest

from deltaworks.control.rate import Rate


class Ticks:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def ticks() -> Ticks:
    return Ticks()


def test_it_is_that_of_all_batches_of_the_last_minute(ticks: Ticks) -> None:
    rate = Rate(ticks)
    for _ in range(300):
        ticks.now += 0.5
        rate.add(50)
    assert rate.per_second() == pytest.approx(100.0)


def test_a_stream_that_idles_slows_down_and_has_none_after_a_minute(ticks: Ticks) -> None:
    rate = Rate(ticks)
    ticks.now += 60
    rate.add(6_000)
    found = []
    for _ in range(3):
        found.append(rate.per_second())
        ticks.now += 30
    assert found == [100.0, 100.0, 0.0]


def test_a_stream_that_has_just_begun_is_measured_since_then(ticks: Ticks) -> None:
    rate = Rate(ticks)
    assert rate.per_second() == 0.0
    ticks.now += 10
    rate.add(1_000)
    assert rate.per_second() == 100.0


def test_one_batch_at_once_is_no_rate_without_end(ticks: Ticks) -> None:
    rate = Rate(ticks)
    rate.add(1_000)
    assert rate.per_second() == 1_000.0
