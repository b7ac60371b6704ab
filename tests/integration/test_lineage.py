"""Who may run a pipeline at a Kafka, against a real broker."""

from __future__ import annotations

import itertools
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from deltaworks.control.lineage import Claim, Watch, claim, new_incarnation, owner
from deltaworks.errors import DeltaworksError, FencedError, KafkaTopicError, LineageError, TransientError
from deltaworks.kafka.control_topic import prepare
from tests.live_stack import LiveStack

_numbers = itertools.count()


@pytest.fixture
def pipeline(kafka: LiveStack) -> str:
    name = f"owned-{next(_numbers)}"
    prepare(kafka.bootstrap, name, (1,))
    return name


def started(kafka: LiveStack, pipeline: str, lineage: str, home: str = "/one", *, take_over: bool = False) -> Claim:
    return claim(kafka.bootstrap, pipeline, lineage, new_incarnation(), generation=1, home=home, take_over=take_over)


def fenced(watch: Watch) -> FencedError:
    """What the watch says in the end."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            watch.check()
        except FencedError as error:
            return error
    raise AssertionError("not fenced")


def test_a_second_lineage_of_the_same_name_is_refused_and_told_who_is_there(kafka: LiveStack, pipeline: str) -> None:
    assert owner(kafka.bootstrap, pipeline) is None
    first = started(kafka, pipeline, "a", "/first/home")

    with pytest.raises(LineageError, match=r"belongs to another stream: /first/home on .*since 20") as refused:
        started(kafka, pipeline, "b")

    assert "--take-over" in str(refused.value)
    assert owner(kafka.bootstrap, pipeline) == first
    assert started(kafka, pipeline, "a") == owner(kafka.bootstrap, pipeline)


def test_to_take_over_is_deliberate_and_fences_the_other(kafka: LiveStack, pipeline: str) -> None:
    watch = Watch(kafka.bootstrap, pipeline, started(kafka, pipeline, "a"))
    for _ in range(20):
        watch.check()

    started(kafka, pipeline, "b", "/two", take_over=True)

    assert "/two" in str(fenced(watch))
    with pytest.raises(LineageError, match="/two"):
        started(kafka, pipeline, "a")
    watch.close()


def test_the_later_start_of_a_lineage_fences_the_earlier_one(kafka: LiveStack, pipeline: str) -> None:
    earlier = Watch(kafka.bootstrap, pipeline, started(kafka, pipeline, "a"))
    earlier.check()
    moved = started(kafka, pipeline, "a", "/moved")
    later = Watch(kafka.bootstrap, pipeline, moved)

    assert "/moved" in str(fenced(earlier))
    for _ in range(20):
        later.check()
    earlier.close()
    later.close()


def test_whoever_looks_late_is_fenced_too(kafka: LiveStack, pipeline: str) -> None:
    mine = started(kafka, pipeline, "a")
    started(kafka, pipeline, "a", "/moved")

    watch = Watch(kafka.bootstrap, pipeline, mine)
    with pytest.raises(FencedError, match="/moved"):
        watch.check()
    watch.close()


def test_of_two_lineages_that_start_at_the_same_moment_one_wins(kafka: LiveStack, pipeline: str) -> None:
    def start(lineage: str) -> Claim | DeltaworksError:
        try:
            return started(kafka, pipeline, lineage)
        except DeltaworksError as error:
            return error

    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(start, "abcd"))

    won = [outcome for outcome in outcomes if isinstance(outcome, Claim)]
    assert len(won) <= 1
    assert owner(kafka.bootstrap, pipeline) == (won[0] if won else None)
    assert all(isinstance(o, Claim | FencedError | LineageError) for o in outcomes), outcomes


def test_a_broker_that_is_away_is_a_reason_to_try_later(kafka: LiveStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deltaworks.control.lineage._TIMEOUT_S", 1.0)

    with pytest.raises(TransientError, match=r"cannot be claimed at 127\.0\.0\.1:1"):
        claim("127.0.0.1:1", "orders", "a", new_incarnation(), generation=1, home="/one")
    with pytest.raises(KafkaTopicError, match="There is no partition"):
        started(kafka, "never-prepared", "a")
