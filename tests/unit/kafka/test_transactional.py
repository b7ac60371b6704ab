"""The transactional sink without a broker: what can be told before one answers."""

from __future__ import annotations

import pickle

import pytest
from confluent_kafka import KafkaError, KafkaException

from deltaworks.clock import ticks_s
from deltaworks.errors import BatchTooLongError, IntentError, KafkaWriteError, StreamsError
from deltaworks.exits import DATA, code_of
from deltaworks.kafka.control_topic import Marker, MarkerPlace, place_of
from deltaworks.kafka.transactional import TransactionalSink, is_committed


@pytest.fixture
def sink() -> TransactionalSink:
    return TransactionalSink("127.0.0.1:1", "orders-1", 2, 3, place_of("orders", "1", (1, 1, 4), (2, 3)))


def test_identity_is_application_stage_and_task(sink: TransactionalSink) -> None:
    assert sink._id == "orders-1-2-3"
    assert sink._place == MarkerPlace("__deltaworks-orders-control", 6, b"1/2-3")


def test_errors_say_who_what_and_why_and_cross_processes(sink: TransactionalSink) -> None:
    error = sink._failure("commit", KafkaException(KafkaError(KafkaError.INVALID_CONFIG)))

    assert "'orders-1-2-3' cannot commit (batch 0): INVALID_CONFIG" in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_what_the_broker_would_refuse_again_is_no_reason_to_try_later(sink: TransactionalSink) -> None:
    for code in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.INVALID_RECORD):
        error = sink._failure("commit", KafkaException(KafkaError(code)))
        assert isinstance(error, StreamsError)
        assert code_of(error) == DATA


def test_a_marker_decides_by_batch_and_intent() -> None:
    marker = Marker(batch=5, intent="x")

    assert not is_committed(None, 5, "x", -1, "me")
    assert not is_committed(marker, 6, "y", 5, "me")
    assert is_committed(marker, 5, "x", 4, "me")
    assert is_committed(marker, 3, "w", 5, "me")
    for batch_id, intent, known in ((5, "other", 9), (4, "w", 4), (3, "w", -1)):
        with pytest.raises(IntentError, match="'me' have committed batch 5"):
            is_committed(marker, batch_id, intent, known, "me")


def test_tasks_have_partitions_of_their_own_behind_that_of_the_lineage() -> None:
    tasks = (3, 1, 2)
    each = [(stage, number) for stage, count in enumerate(tasks) for number in range(count)]

    assert [place_of("p", "q", tasks, task).partition for task in each] == [1, 2, 3, 4, 5, 6]


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


def test_whoever_is_about_to_be_too_late_is_warned_once(
    sink: TransactionalSink, caplog: pytest.LogCaptureFixture
) -> None:
    for open_s in (299, 301, 400):
        sink._began_s = ticks_s() - open_s
        sink._look_at_the_clock()

    assert [record.getMessage() for record in caplog.records] == [
        "The transaction of 'orders-1-2-3' for batch 0 has been open for 301 s; the broker ends it after 600 s."
    ]


def test_a_transaction_that_the_broker_has_ended_says_that_the_batch_was_too_long(
    sink: TransactionalSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "abort", lambda: None)
    ended = KafkaException(KafkaError(KafkaError._STATE, "ended", False, False, True))
    for open_s, kind in ((599, KafkaWriteError), (601, BatchTooLongError)):
        sink._open, sink._began_s = True, ticks_s() - open_s
        assert type(sink._failure("commit", ended)) is kind


def test_abort_and_close_without_a_batch_do_nothing(sink: TransactionalSink) -> None:
    sink.abort()
    sink.close()
