"""Who may run a pipeline at a Kafka, against a real broker."""

from __future__ import annotations

import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from deltaworks import Pipeline, StreamsBuilder
from deltaworks.control import lineage
from deltaworks.control.checkpoint import open_plan
from deltaworks.control.lineage import Claim, Watch, claim, new_incarnation, owner
from deltaworks.control.paths import PipelinePaths
from deltaworks.control.topics import prepare as prepare_topics
from deltaworks.errors import DeltaworksError, FencedError, IntentError, KafkaTopicError, LineageError, TransientError
from deltaworks.kafka.control_topic import place_of, prepare
from deltaworks.kafka.transactional import TransactionalSink, application
from deltaworks.spark.beginning import Beginning
from tests.support.live_stack import LiveStack

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


@pytest.mark.parametrize("committed", [True, False])
def test_a_commit_of_which_the_broker_does_not_know_how_it_went_is_made_again(
    kafka: LiveStack, pipeline: str, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    """It answers so now and then when two drivers start at the same moment."""
    made: list[Unsure] = []

    class Unsure:
        def __init__(self, producer: Producer) -> None:
            self._producer, self._first = producer, not made
            made.append(self)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._producer, name)

        def commit_transaction(self, timeout_s: float) -> None:
            if committed or not self._first:
                self._producer.commit_transaction(timeout_s)
            if self._first:
                raise KafkaException(KafkaError(KafkaError.UNKNOWN))

    producer = lineage._producer
    monkeypatch.setattr(lineage, "_producer", lambda *of: Unsure(producer(*of)))

    claimed = started(kafka, pipeline, "a")

    assert owner(kafka.bootstrap, pipeline) == claimed
    assert len(made) == 2


def test_a_broker_that_is_away_is_a_reason_to_try_later(kafka: LiveStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deltaworks.control.lineage._TIMEOUT_S", 1.0)

    with pytest.raises(TransientError, match=r"cannot be claimed at 127\.0\.0\.1:1"):
        claim("127.0.0.1:1", "orders", "a", new_incarnation(), generation=1, home="/one")
    with pytest.raises(KafkaTopicError, match="There is no partition"):
        started(kafka, "never-prepared", "a")


def test_an_old_copy_is_refused_before_it_can_fence_the_one_that_runs(kafka: LiveStack, tmp_path: Path) -> None:
    topics = {name: kafka.topic(name) for name in ("copied-in", "copied-out")}

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(topics["copied-in"], key=str, value=str).to(topics["copied-out"])

    pipeline = Pipeline(name="copied", topology=topology)
    plan, settings = pipeline.plan(), replace(kafka.settings, home=tmp_path)
    paths, there = PipelinePaths.of(settings, "copied"), prepare_topics(kafka.bootstrap, pipeline, plan, begun=False)
    tasks = plan.tasks(there.read)
    stored = open_plan(paths.current.plan, "copied", plan.fingerprint(), there.named, tasks, 1, lineage="a")
    prepare(kafka.bootstrap, "copied", tasks)
    place = place_of("copied", stored.query_id, tasks, (0, 0))
    with closing(TransactionalSink(kafka.bootstrap, application("copied", stored.query_id), 0, 0, place)) as sink:
        assert sink.begin(3, "ab" * 32)
        sink.commit()
    running = started(kafka, "copied", "a", "/runs")

    old = Beginning(pipeline, plan, settings, paths, there, generation=1, code="")
    with pytest.raises(IntentError, match="holds batch 3 of pipeline 'copied', but this home"):
        old.begin(take_over=False)

    assert owner(kafka.bootstrap, "copied") == running
