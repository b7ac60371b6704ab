"""What a topic takes is asked once; that it is not there, again after a while."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource

from deltaworks.errors import KafkaWriteError
from deltaworks.kafka import limits
from deltaworks.kafka.limits import LARGEST_REQUEST, STOCK_LIMIT, TopicLimits


class Client:
    """An admin client whose topics have a limit, or an error."""

    def __init__(self, **topics: int) -> None:
        self.topics, self.asked = topics, []  # type: ignore[var-annotated]

    def describe_configs(self, wanted: Sequence[ConfigResource], request_timeout: float) -> dict[ConfigResource, Any]:
        self.asked.append([resource.name for resource in wanted])
        return {resource: self._answer(resource.name) for resource in wanted}

    def _answer(self, topic: str) -> Future[Any]:
        answer: Future[Any] = Future()
        found = self.topics.get(topic, KafkaError.UNKNOWN_TOPIC_OR_PART)
        if found < 1_000:
            answer.set_exception(KafkaException(KafkaError(found)))
        else:
            answer.set_result({"max.message.bytes": SimpleNamespace(value=str(found))})
        return answer


def test_expected_topics_are_asked_for_at_once_and_nothing_is_asked_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(a=5_000, b=2_000_000_000, secret=KafkaError.TOPIC_AUTHORIZATION_FAILED)
    monkeypatch.setattr(limits, "admin", lambda bootstrap: client)
    known = TopicLimits("here", expected=("a", "b"))

    assert [known.of(topic) for topic in ("a", "b", "a", "b")] == [5_000, LARGEST_REQUEST, 5_000, LARGEST_REQUEST]
    assert known.of("secret") == STOCK_LIMIT
    assert [known.of("nowhere") for _ in range(3)] == [None] * 3
    assert client.asked == [["a", "b"], ["secret"], ["nowhere"]]


def test_a_topic_that_was_missing_is_found_later(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client()
    monkeypatch.setattr(limits, "admin", lambda bootstrap: client)
    known = TopicLimits("here")
    assert known.of("late") is None

    client.topics["late"] = 5_000
    assert known.of("late") is None
    monkeypatch.setattr(limits, "_ASKED_AGAIN_S", -1.0)
    assert known.of("late") == 5_000


def test_a_broker_that_does_not_answer_is_no_reason_to_give_up_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(a=0)
    client._answer = lambda topic: failed(KafkaError._TIMED_OUT)  # type: ignore[method-assign]
    monkeypatch.setattr(limits, "admin", lambda bootstrap: client)

    with pytest.raises(KafkaWriteError, match="The limit of topic 'a' cannot be read"):
        TopicLimits("here").of("a")


def failed(code: int) -> Future[Any]:
    answer: Future[Any] = Future()
    answer.set_exception(KafkaException(KafkaError(code)))
    return answer
