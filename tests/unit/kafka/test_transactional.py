"""The transactional sink without a broker: what can be told before one answers."""

from __future__ import annotations

import pickle

import pytest
from confluent_kafka import KafkaError, KafkaException

from deltaworks.errors import KafkaWriteError
from deltaworks.kafka.transactional import TransactionalSink


@pytest.fixture
def sink() -> TransactionalSink:
    return TransactionalSink("127.0.0.1:1", "orders-1", 2, 3, "raw-orders")


def test_identity_is_application_stage_and_task(sink: TransactionalSink) -> None:
    assert sink._id == "orders-1-2-3"
    assert sink._group == "orders-1-2-3-batches"


def test_errors_say_who_what_and_why_and_cross_processes(sink: TransactionalSink) -> None:
    error = sink._failure("commit", KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))

    assert "'orders-1-2-3' cannot commit (batch 0): TOPIC_AUTHORIZATION_FAILED" in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_what_may_be_tried_again_is_and_what_may_not_is_not(sink: TransactionalSink) -> None:
    answers = [KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.NOT_COORDINATOR, None]

    def action() -> str:
        code = answers.pop(0)
        if code is not None:
            raise KafkaException(KafkaError(code))
        return "done"

    assert sink._attempt("do it", action) == "done"

    answers = [KafkaError.INVALID_CONFIG]
    with pytest.raises(KafkaWriteError, match="cannot do it"):
        sink._attempt("do it", action)


def test_abort_and_close_without_a_batch_do_nothing(sink: TransactionalSink) -> None:
    sink.abort()
    sink.close()
