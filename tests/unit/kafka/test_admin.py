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
