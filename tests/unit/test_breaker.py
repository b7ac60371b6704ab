"""A circuit breaker, against a model with every call's time."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltaworks import Breaker, ConfigurationError
from deltaworks.breaker import CircuitBreaker


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def breaker(clock: Clock, failures: int = 3, rate: float | None = None, window: int = 4) -> CircuitBreaker:
    return CircuitBreaker(Breaker(failures=failures, rate=rate, window=window, wait=timedelta(seconds=10)), clock)


def state(of: CircuitBreaker) -> str:
    return of.state


def fail(of: CircuitBreaker, times: int = 1) -> None:
    for _ in range(times):
        permit = of.permit()
        assert permit is not None
        of.failed(permit)


def test_opens_after_failures_in_a_row_and_lets_one_call_try() -> None:
    clock = Clock()
    of = breaker(clock)

    fail(of, 2)
    assert state(of) == "closed"
    fail(of)

    assert (state(of), of.permit(), of.pause_s()) == ("open", None, 10.0)
    clock.now += 9.5
    assert (of.permit(), of.pause_s()) == (None, 0.5)
    clock.now += 0.5
    probe = of.permit()
    assert probe is not None and state(of) == "half-open"
    assert of.permit() is None
    of.succeeded(probe)
    assert state(of) == "closed" and of.permit() is not None


def test_a_failed_try_opens_it_again() -> None:
    clock = Clock()
    of = breaker(clock)
    fail(of, 3)
    clock.now += 10
    fail(of)

    assert (state(of), of.pause_s()) == ("open", 10.0)


def test_a_try_that_nobody_waits_for_makes_room_for_another() -> None:
    clock = Clock()
    of = breaker(clock)
    fail(of, 3)
    clock.now += 10
    probe = of.permit()
    assert probe is not None

    of.gave_up(probe)

    assert of.permit() == probe


def test_a_success_ends_the_row() -> None:
    of = breaker(Clock())
    for _ in range(5):
        fail(of, 2)
        permit = of.permit()
        assert permit is not None
        of.succeeded(permit)

    assert state(of) == "closed"


def test_opens_by_the_share_of_failures() -> None:
    of = breaker(Clock(), failures=100, rate=0.5, window=4)
    for good in (True, False, True):
        permit = of.permit()
        assert permit is not None
        (of.succeeded if good else of.failed)(permit)
    assert state(of) == "closed"

    fail(of)

    assert state(of) == "open"


def test_calls_that_began_before_it_opened_change_nothing() -> None:
    clock = Clock()
    of = breaker(clock)
    early = of.permit()
    assert early is not None
    fail(of, 3)

    of.succeeded(early)
    assert state(of) == "open"
    clock.now += 10
    assert of.permit() is not None
    of.failed(early)
    of.gave_up(early)

    assert state(of) == "half-open" and of.permit() is None


STEP = st.one_of(
    st.tuples(st.just("wait"), st.floats(0, 12)),
    st.tuples(st.sampled_from(["begin", "fail", "succeed", "give up"]), st.integers(0, 3)),
)


@given(st.lists(STEP, max_size=60))
def test_nobody_asks_while_it_is_open_and_it_never_stays_shut(steps: list[tuple[str, float]]) -> None:
    """Whatever calls overlap: open for the whole wait, one try at a time, and closed by a success of that try."""
    clock = Clock()
    of = breaker(clock)
    running: list[int] = []
    opened_s = None
    for what, amount in steps:
        before = state(of)
        if what == "wait":
            clock.now += amount
        elif what == "begin":
            permit = of.permit()
            if permit is not None:
                assert opened_s is None or clock.now - opened_s >= 10
                running.append(permit)
        elif running:
            permit = running.pop(int(amount) % len(running))
            {"fail": of.failed, "succeed": of.succeeded, "give up": of.gave_up}[what](permit)
        if state(of) == "open" and before != "open":
            opened_s = clock.now
        elif state(of) == "closed":
            opened_s = None
        assert (of.pause_s() > 0) == (state(of) == "open")
    for permit in running:
        of.gave_up(permit)
    clock.now += 10
    last = of.permit()
    assert last is not None
    of.succeeded(last)
    assert state(of) == "closed"


@pytest.mark.parametrize(
    ("wrong", "shown"),
    [
        ({"failures": 0}, "failures=0"), ({"rate": 0.0}, "rate=0.0"), ({"rate": 1.5}, "rate=1.5"),
        ({"window": 0}, "window=0"), ({"wait": timedelta(0)}, "wait=0:00:00"),
    ],
)  # fmt: skip
def test_numbers_out_of_range_are_refused(wrong: dict[str, object], shown: str) -> None:
    with pytest.raises(ConfigurationError, match=shown):
        Breaker(**wrong)  # type: ignore[arg-type]
