from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltaworks import exits
from deltaworks.control.policy import End, GiveUp, Restart, RestartPolicy, Wait

POLICY = RestartPolicy()
KILLED = End(exit_code=None, reason=None, ago_s=3.0, ran_s=10.0)


def test_the_pauses_begin_with_the_second_restart_and_double_up_to_five_minutes() -> None:
    assert [POLICY.pause_s(n) for n in range(9)] == [0, 5, 10, 20, 40, 80, 160, 300, 300]


def test_a_killed_stream_is_back_at_once_and_waits_from_the_second_time_on() -> None:
    assert POLICY.decide(replace(KILLED, ago_s=0.0), restarts=0) == Restart(0)
    assert POLICY.decide(KILLED, restarts=1) == Wait(2.0)
    assert POLICY.decide(replace(KILLED, ago_s=5.0), restarts=1) == Restart(1)
    assert POLICY.decide(replace(KILLED, ago_s=5.0), restarts=3) == Wait(15.0)


def test_kills_with_batches_in_between_are_no_crash_loop() -> None:
    for restarts in range(20):
        assert POLICY.decide(replace(KILLED, ago_s=0.0, committed=True), restarts) == Restart(0)


def test_after_five_restarts_it_is_given_up() -> None:
    long_ago = replace(KILLED, ago_s=1_000.0)
    assert POLICY.decide(long_ago, restarts=4) == Restart(4)
    assert POLICY.decide(long_ago, restarts=5) == GiveUp("5 restarts without a batch or 10 healthy minutes")


def test_ten_healthy_minutes_are_a_new_beginning() -> None:
    healthy = End(exit_code=None, reason=None, ago_s=5.0, ran_s=600.0)
    nearly = End(exit_code=None, reason=None, ago_s=5.0, ran_s=599.0)

    assert POLICY.decide(healthy, restarts=5) == Restart(0)
    assert isinstance(POLICY.decide(nearly, restarts=5), GiveUp)


@pytest.mark.parametrize("code", sorted(exits.NO_RESTART))
def test_an_exit_code_that_forbids_it_gives_up_with_the_reason(code: int) -> None:
    end = End(exit_code=code, reason="store 'a' is gone", ago_s=1e9, ran_s=None)

    decision = POLICY.decide(end, restarts=0)

    assert decision == GiveUp(f"exit code {code} says that a restart would not help: store 'a' is gone")


@pytest.mark.parametrize("code", [None, exits.OK, exits.UNAVAILABLE, exits.INTERNAL, exits.INTERRUPTED, -9, 137])
def test_every_other_end_is_tried_again(code: int | None) -> None:
    end = End(exit_code=code, reason=None, ago_s=1e9, ran_s=None)

    assert POLICY.decide(end, restarts=0) == Restart(0)


def test_a_full_disk_is_waited_for_as_long_as_it_lasts() -> None:
    end = End(exit_code=exits.DISK_FULL, reason=None, ago_s=1e9, ran_s=None)

    assert POLICY.decide(end, restarts=500) == Restart(4)
    assert POLICY.decide(replace(end, ago_s=0.0), restarts=500) == Wait(40.0)


@given(
    code=st.none() | st.integers(0, 255),
    ran_s=st.none() | st.floats(0, 1e6),
    restarts=st.integers(0, 20),
    passed_s=st.floats(0, 1e6),
)
def test_a_wait_ends_in_a_restart_and_the_count_never_passes_the_limit(
    code: int | None, ran_s: float | None, restarts: int, passed_s: float
) -> None:
    end = End(exit_code=code, reason=None, ago_s=passed_s, ran_s=ran_s)
    match POLICY.decide(end, restarts):
        case Wait(seconds):
            assert 0 < seconds <= POLICY.longest_s
            assert isinstance(POLICY.decide(replace(end, ago_s=passed_s + seconds + 1e-3), restarts), Restart)
        case Restart(counted):
            assert counted in (0, restarts) or code == exits.DISK_FULL
            assert counted < POLICY.limit
        case GiveUp():
            assert code in exits.NO_RESTART or restarts >= POLICY.limit
