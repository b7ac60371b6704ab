"""What is asked of a broker that stands still for a moment."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from deltaworks.errors import KafkaReadError
from deltaworks.kafka import admin


class Broker:
    """Answers the first question with an error, and later ones."""

    def __init__(self, first: int) -> None:
        self.questions, self._first = 0, first

    def list_topics(self, timeout: float) -> Any:
        topic = SimpleNamespace(partitions={0: None}, error=None)
        return SimpleNamespace(topics={"words": topic})

    def list_offsets(self, wanted: Mapping[TopicPartition, Any], **_: Any) -> dict[TopicPartition, Future[Any]]:
        self.questions += 1
        futures: dict[TopicPartition, Future[Any]] = {at: Future() for at in wanted}
        for future in futures.values():
            if self.questions == 1:
                future.set_exception(KafkaException(KafkaError(self._first, "No leaders found")))
            else:
                future.set_result(SimpleNamespace(offset=7))
        return futures


def test_a_broker_that_stood_still_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(KafkaError._NOENT)
    monkeypatch.setattr(admin, "admin", lambda _: broker)
    assert admin.end_offsets("broker:1", ["words"]) == {("words", 0): 7}
    assert broker.questions == 2


def test_another_error_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    monkeypatch.setattr(admin, "admin", lambda _: broker)
    with pytest.raises(KafkaReadError, match="cannot be read"):
        admin.end_offsets("broker:1", ["words"])
    assert broker.questions == 1


def test_a_partition_without_a_leader_takes_no_longer_than_somebody_wants_to_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits, now = [], iter(range(100))

    class Leaderless(Broker):
        def list_topics(self, timeout: float) -> Any:
            waits.append(timeout)
            return super().list_topics(timeout)

        def list_offsets(self, wanted: Mapping[TopicPartition, Any], **options: Any) -> dict[Any, Future[Any]]:
            waits.append(options["request_timeout"])
            self.questions = 0  # each one is the first
            return super().list_offsets(wanted, **options)

    monkeypatch.setattr(admin, "admin", lambda _: Leaderless(KafkaError._NOENT))
    monkeypatch.setattr(admin, "clock", SimpleNamespace(ticks_s=now.__next__))
    with pytest.raises(KafkaReadError, match="cannot be read: No leaders found"):
        admin.end_offsets("broker:1", ["words"], timeout_s=3.0)
    assert waits == [3.0] * 4, "the topics, and the offsets at 1, 2 and 3 s"


class Full:
    """A broker with a topic of two partitions; its offsets by what is asked for."""

    OFFSETS = ({0: 2, 1: 0}, {0: 10, 1: 4}, {0: 7, 1: -1})
    """The first ones, the ends, and the first ones since a time: in partition 1, there is none."""

    def __init__(self, first_error: int | None = None) -> None:
        self.questions, self._error = 0, first_error

    def list_topics(self, timeout: float) -> Any:
        topic = SimpleNamespace(partitions={0: None, 1: None}, error=None)
        return SimpleNamespace(topics={"failed": topic}, cluster_id="ours")

    def list_offsets(
        self, wanted: Mapping[TopicPartition, Any], request_timeout: float
    ) -> dict[TopicPartition, Future[Any]]:
        futures: dict[TopicPartition, Future[Any]] = {at: Future() for at in wanted}
        for at, future in futures.items():
            if self._error is not None:
                future.set_exception(KafkaException(KafkaError(self._error, "no")))
            else:
                future.set_result(SimpleNamespace(offset=self.OFFSETS[self.questions % 3][at.partition]))
        self.questions += 1
        if self.questions == 3:
            self._error = None
        return futures


@pytest.mark.parametrize("first_error", [None, KafkaError._NOENT])
def test_records_are_counted_by_offsets(monkeypatch: pytest.MonkeyPatch, first_error: int | None) -> None:
    monkeypatch.setattr(admin, "admin", lambda _: Full(first_error))

    assert admin.record_counts("broker:1", ["failed", "gone"], since_ms=1) == {"failed": (12, 3, 14)}
    assert admin.record_counts("broker:1", ["gone"], since_ms=1) == {}
    assert admin.cluster_id("broker:1") == "ours"


def test_counts_that_a_broker_refuses_are_an_error_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Full(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    monkeypatch.setattr(admin, "admin", lambda _: broker)

    with pytest.raises(KafkaReadError, match="Offsets of failed cannot be read"):
        admin.record_counts("broker:1", ["failed"], since_ms=1)
    assert broker.questions == 3
