"""The wall clock can be set, ticks cannot; who decides by age or plans batches survives both directions."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltaworks import clock
from deltaworks.clock import BatchClock, Sign

HOUR_MS = 3_600_000


@dataclass
class Clocks:
    """What the operating system says; only the test moves it."""

    wall_ms: int = 1_800_000_000_000
    ticks_ms: int = 5_000

    def passes(self, ms: int) -> None:
        self.wall_ms += ms
        self.ticks_ms += ms

    def time_ns(self) -> int:
        return self.wall_ms * 1_000_000

    def monotonic(self) -> float:
        return self.ticks_ms / 1000


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    clocks = Clocks()
    monkeypatch.setattr(clock, "time", clocks)
    monkeypatch.setattr(clock, "_first", None)
    return clocks


@pytest.fixture
def armed() -> Iterator[None]:
    yield
    clock.arm(None)


def test_a_test_sets_the_wall_clock_and_no_ticks(clocks: Clocks, armed: None) -> None:
    ticks = clock.ticks_s()
    clock.arm(lambda: -HOUR_MS * 1_000_000)

    assert clock.wall_ms() == clocks.wall_ms - HOUR_MS
    assert clock.wall_s() == (clocks.wall_ms - HOUR_MS) / 1000
    assert clock.utc_now() == datetime.fromtimestamp((clocks.wall_ms - HOUR_MS) / 1000, UTC)
    assert clock.ticks_s() == ticks

    clock.arm(None)
    assert clock.wall_ns() == clocks.wall_ms * 1_000_000


@pytest.mark.parametrize("step_ms", [-HOUR_MS, HOUR_MS, -1, 0])
def test_a_sign_of_this_boot_ages_by_ticks_whatever_the_wall_clock_does(clocks: Clocks, step_ms: int) -> None:
    sign = Sign.now()
    clocks.passes(7_000)
    clocks.wall_ms += step_ms

    assert sign.age_s() == 7.0


def test_a_sign_of_another_boot_ages_by_the_wall_clock_and_is_never_of_the_future(clocks: Clocks) -> None:
    elsewhere = Sign(clocks.wall_ms / 1000 - 9, 1.0, "another boot")
    before_the_boot = Sign(clocks.wall_ms / 1000 - 9, 99.0, clock.boot_id())

    assert elsewhere.age_s() == before_the_boot.age_s() == Sign.of(elsewhere.wall_s).age_s() == 9.0
    clocks.wall_ms -= HOUR_MS
    assert elsewhere.age_s() == 0.0
    assert Sign.of(datetime.fromtimestamp(clocks.wall_ms / 1000 - 3, UTC)).age_s() == 3.0


def test_a_clock_set_forward_makes_nothing_older_for_what_deletes_by_age(clocks: Clocks) -> None:
    begun_ms = clock.cautious_ms()
    clocks.passes(1_000)
    clocks.wall_ms += 365 * 24 * HOUR_MS
    assert clock.cautious_ms() == begun_ms + 1_000

    clocks.wall_ms = begun_ms - HOUR_MS
    assert clock.cautious_ms() == begun_ms - HOUR_MS


def test_batches_follow_the_wall_clock(clocks: Clocks) -> None:
    batch_clock = BatchClock(0)
    first = batch_clock.now()
    clocks.passes(1_500)

    assert (first, batch_clock.now()) == (clocks.wall_ms - 1_500, clocks.wall_ms)


def test_behind_the_last_batch_time_goes_on_with_ticks(clocks: Clocks, caplog: pytest.LogCaptureFixture) -> None:
    last_ms = clocks.wall_ms
    clocks.wall_ms -= HOUR_MS
    batch_clock = BatchClock(last_ms)  # the driver was started again after the step

    times = [batch_clock.now()]
    for _ in range(3):
        clocks.passes(400)
        times.append(batch_clock.now())

    assert times == [last_ms, last_ms + 400, last_ms + 800, last_ms + 1_200]
    assert caplog.messages == ["the wall clock is 3600.0 s behind the last batch; time goes on from there"]


def test_a_jump_forward_is_told_once_and_followed(clocks: Clocks, caplog: pytest.LogCaptureFixture) -> None:
    batch_clock = BatchClock(clocks.wall_ms - 100 * HOUR_MS)
    batch_clock.now()  # however long the stream was stopped, that is no jump
    clocks.passes(1_000)
    clocks.wall_ms += 2 * HOUR_MS

    assert batch_clock.now() == clocks.wall_ms
    clocks.passes(1_000)
    assert batch_clock.now() == clocks.wall_ms
    assert caplog.messages == ["the wall clock was set forward by 2.0 h; batches follow it"]


def test_a_correction_of_milliseconds_is_not_worth_a_word(clocks: Clocks, caplog: pytest.LogCaptureFixture) -> None:
    batch_clock = BatchClock(clocks.wall_ms)
    clocks.wall_ms -= 20

    assert batch_clock.now() == clocks.wall_ms + 20
    assert caplog.records == []


@given(
    steps=st.lists(st.tuples(st.integers(0, 10_000), st.just(0) | st.integers(-10 * HOUR_MS, 10 * HOUR_MS))),
    ahead_ms=st.integers(-HOUR_MS, HOUR_MS),
)
def test_no_batch_is_before_the_last_one_and_time_never_stands_still(
    steps: list[tuple[int, int]], ahead_ms: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        clocks = Clocks()
        patch.setattr(clock, "time", clocks)
        logging.disable(logging.CRITICAL)
        try:
            last_ms = clocks.wall_ms + ahead_ms
            batch_clock = BatchClock(last_ms)
            for passed_ms, step_ms in steps:
                stood_ms = clocks.wall_ms
                clocks.passes(passed_ms)
                clocks.wall_ms += step_ms
                now_ms = batch_clock.now()
                assert now_ms >= max(last_ms, clocks.wall_ms)
                if step_ms == 0 and stood_ms < last_ms and clocks.wall_ms < now_ms:
                    assert now_ms - last_ms >= passed_ms - 1
                last_ms = now_ms
        finally:
            logging.disable(logging.NOTSET)
