"""Asking another system: concurrency, order, time-out, retries, rate, cache, and what happens while it is down."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from deltaworks import Asking, Breaker, Long
from deltaworks.errors import FencedError
from deltaworks.kernel.call_outs import Answer, Call
from deltaworks.kernel.records import Coordinates
from deltaworks.runtime.call_outs.asking import Asker
from deltaworks.topology.nodes import CallOut

MS = timedelta(milliseconds=1)
QUICK = Asking(backoff=MS, max_backoff=MS, breaker=Breaker(failures=1000))


@pytest.fixture
def asker() -> Iterator[Asker]:
    made = Asker()
    yield made
    made.close()


def node(function: Callable[..., Any], asking: Asking = QUICK, **more: Any) -> CallOut:
    is_async = asyncio.iscoroutinefunction(function)
    return CallOut(
        name="system", function=lambda _, value: function(value), question=lambda _, value: value, answer=Long(),
        asking=asking, is_async=is_async, **more,
    )  # fmt: skip


def calls(of: CallOut, *values: int, at_ms: int = 0) -> list[tuple[Call, bytes]]:
    made = [
        Call(of, "key", value, at_ms, Coordinates("in", 0, n), b"key", is_unique=True, certain=True)
        for n, value in enumerate(values)
    ]
    return [(call, call.digest()) for call in made]


def numbers(answers: list[Answer]) -> list[int | None]:
    return [None if answer.data is None else Long().deserialize(answer.data) for answer in answers]


@pytest.mark.parametrize("is_async", [True, False])
def test_calls_overlap_within_the_limit_and_answers_keep_the_order(asker: Asker, is_async: bool) -> None:
    running, most, lock = 0, 0, threading.Lock()

    def enter(change: int) -> None:
        nonlocal running, most
        with lock:
            running += change
            most = max(most, running)

    async def slow(value: int) -> int:
        enter(1)
        await asyncio.sleep(0.01 * (7 - value % 7))
        enter(-1)
        return value * 10

    def blocking(value: int) -> int:
        enter(1)
        time.sleep(0.01 * (7 - value % 7))
        enter(-1)
        return value * 10

    of = node(slow if is_async else blocking, replace(QUICK, at_once=4))

    assert numbers(asker.ask(calls(of, *range(12)))) == [value * 10 for value in range(12)]
    assert 2 <= most <= 4


def test_what_fails_is_tried_again_and_then_counts_as_failed(asker: Asker) -> None:
    tries: dict[int, int] = {}

    async def shaky(value: int) -> int:
        tries[value] = tries.get(value, 0) + 1
        if tries[value] <= value:
            raise ConnectionError("refused")
        return value

    first, second, third = asker.ask(calls(node(shaky, replace(QUICK, retries=2)), 0, 2, 9))

    assert numbers([first, second]) == [0, 2]
    assert third.failure == "ConnectionError: refused"
    assert tries == {0: 1, 2: 3, 9: 3}


def test_another_error_is_not_tried_again(asker: Asker) -> None:
    asked = []

    def refuse(value: int) -> int:
        asked.append(value)
        raise LookupError("nobody")

    (answer,) = asker.ask(calls(node(refuse), 1))

    assert (answer.failure, answer.about, asked) == ("LookupError: nobody", b"key", [1])


@pytest.mark.parametrize("is_async", [True, False])
def test_a_call_that_hangs_is_given_up(asker: Asker, is_async: bool) -> None:
    over = threading.Event()

    async def hang(value: int) -> int:
        await asyncio.sleep(60)
        return value

    def block(value: int) -> int:
        over.wait(60)
        return value

    of = node(hang if is_async else block, replace(QUICK, timeout=20 * MS, retries=1))
    begun = time.monotonic()

    (answer,) = asker.ask(calls(of, 1))

    over.set()
    assert answer.failure == "TimeoutError: no answer within 0.02 s"
    assert time.monotonic() - begun < 5


def test_an_answer_of_another_type_is_a_failure(asker: Asker) -> None:
    (answer,) = asker.ask(calls(node(lambda value: "five"), 1))

    assert answer.failure is not None and "SerializationError" in answer.failure


def test_the_rate_is_kept(asker: Asker) -> None:
    begun: list[float] = []

    async def note(value: int) -> int:
        begun.append(time.monotonic())
        return value

    asker.ask(calls(node(note, replace(QUICK, per_second=100)), *range(6)))

    assert begun[-1] - begun[0] >= 0.045


def test_the_cache_forgets_by_number_and_by_the_time_of_records(asker: Asker) -> None:
    of = node(lambda value: value, replace(QUICK, cache=2, cache_for=timedelta(seconds=5)))
    asker.ask(calls(of, 1, 2, at_ms=10_000))

    def found(value: int, at_ms: int) -> bool:
        (asked,) = calls(of, value, at_ms=at_ms)
        return asker.remembered(*asked) is not None

    assert found(1, 10_000) and found(1, 15_000) and found(1, 5_000)
    assert not found(1, 15_001) and not found(1, 4_999)
    asker.ask(calls(of, 3, at_ms=10_000))
    assert found(1, 10_000) != found(2, 10_000) and found(3, 10_000)


def down(when_down: Any, **more: Any) -> Asking:
    return Asking(
        retries=0,
        backoff=MS,
        when_down=when_down,
        breaker=Breaker(failures=2, wait=timedelta(milliseconds=150)),
        **more,
    )


def test_while_it_is_down_the_stream_waits_and_nothing_is_lost(asker: Asker) -> None:
    up, asked, attended = threading.Event(), [], []

    async def system(value: int) -> int:
        asked.append(value)
        if not up.is_set():
            raise ConnectionError("refused")
        return value

    def attend() -> None:
        attended.append(1)
        up.set()

    answers = asker.ask(calls(node(system, replace(down("wait"), at_once=3, retries=1)), *range(20)), attend)

    assert numbers(answers) == list(range(20))
    assert attended
    assert len(asked) < 20 + 20  # one call tries while it is down


def test_while_it_is_down_others_take_what_stands_in(asker: Asker) -> None:
    def refuse(value: int) -> int:
        raise ConnectionError("refused")

    of = node(refuse, down("skip", at_once=1), instead=lambda _, value: -value)
    answers = asker.ask(calls(of, 1, 2, 3))

    assert answers[0].failure == "ConnectionError: refused" and not answers[0].skipped
    assert numbers(answers[1:]) == [-2, -3] and all(answer.skipped for answer in answers[1:])


def test_while_it_is_down_others_fail_without_a_call(asker: Asker) -> None:
    asked = []

    def refuse(value: int) -> int:
        asked.append(value)
        raise ConnectionError("refused")

    answers = asker.ask(calls(node(refuse, down("fail", at_once=1)), 1, 2, 3))

    assert asked == [1, 2]
    assert answers[2].failure is not None and "counts as down" in answers[2].failure


def test_whoever_may_no_longer_write_stops_waiting(asker: Asker) -> None:
    def attend() -> None:
        raise FencedError("a newer generation")

    async def hang(value: int) -> int:
        await asyncio.sleep(60)
        return value

    with pytest.raises(FencedError):
        asker.ask(calls(node(hang), 1), attend)


def test_changes_of_the_breaker_are_told() -> None:
    told: list[tuple[str, str]] = []
    asker = Asker(changed=lambda name, breaker: told.append((name, breaker.state)))
    tries = iter([False, False, True])

    async def system(value: int) -> int:
        if not next(tries):
            raise ConnectionError("refused")
        return value

    assert numbers(asker.ask(calls(node(system, replace(down("wait"), retries=1)), 1))) == [1]
    asker.close()

    assert told == [("system", "open"), ("system", "half-open"), ("system", "closed")]
