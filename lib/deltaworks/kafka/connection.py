"""The Kafka clients of one transactional sink, and the handling of clients that hang."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from deltaworks.config import Kafka
from deltaworks.kafka import control_topic
from deltaworks.kafka.admin import SILENT
from deltaworks.kafka.clients import make
from deltaworks.kafka.limits import LARGEST_REQUEST

T = TypeVar("T")

PATIENCE_S = 5.0
"""A client that does not answer this long after its timeout is abandoned and replaced by a new one. This happened with
librdkafka's `send_offsets_to_transaction` (issues 5456 and 5511: no timeout, and no new search for the coordinator),
which is no longer called; the other calls have kept their timeouts so far."""
BATCH_BYTES = 1_000_000
"""Maximum size of a batch of records; every topic with the default limit accepts it."""


_REMEMBERED = 100


class Connection:
    """A producer that has not claimed its transactional id yet, and a consumer that reads the task's markers.

    It connects in the background while the task reads and computes.
    """

    def __init__(self, bootstrap: Kafka, transactional_id: str, transaction_timeout_ms: int) -> None:
        self.refused: list[tuple[str, KafkaError]] = []
        """Topics and reasons of records that were not written."""
        self.consumer = control_topic.reader(bootstrap)
        self.producer = make(
            Producer,
            bootstrap,
            {
                "reconnect.backoff.ms": 1,
                "reconnect.backoff.max.ms": 1_000,
                "retry.backoff.ms": 5,
                "retry.backoff.max.ms": 500,
                "enable.metrics.push": False,
                "log_level": 0,
                "logger": SILENT,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": transaction_timeout_ms,
                "partitioner": "murmur2_random",
                "message.max.bytes": LARGEST_REQUEST,  # topics have their own limits
                "batch.size": BATCH_BYTES,
                "delivery.report.only.error": True,
                "on_delivery": self._refuse,
            },
        )

    def _refuse(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and len(self.refused) < _REMEMBERED:
            self.refused.append((str(message.topic()), error))

    def close(self) -> None:
        """Drops queued records and closes the clients."""
        close_quietly(self.producer)
        self.consumer.close()


def close_quietly(producer: Producer) -> None:
    """Drops queued records; silences a producer that was fenced or cannot end its transaction."""
    warnings.filterwarnings("ignore", "Producer abort_transaction failed during close", RuntimeWarning)
    with contextlib.suppress(KafkaException, SystemError):
        producer.purge()
        producer.close()


def told(action: Callable[[], T]) -> T:
    """Does something with a client; raises the client's error.

    The client raises a fatal error from within a call, and then calls `on_delivery` for the records that it loses.
    Sometimes this loses the error, so that only its existence is known.

    The raised error is a new one: the client keeps a fatal error for ever, with everything that its traceback holds.
    """
    try:
        return action()
    except SystemError as error:
        if isinstance(error.__cause__, KafkaException):
            reason = _forgotten(error.__cause__)
        elif "without setting an exception" in str(error):
            reason = KafkaError(KafkaError._FATAL, "the client failed without a reason", True, False, False)
        else:
            raise
        _forget(error)
    except KafkaException as error:
        reason = _forgotten(error)
    raise KafkaException(reason)


def _forgotten(error: KafkaException) -> KafkaError:
    """Clears an error and keeps only its reason."""
    _forget(error)
    reason: KafkaError = error.args[0]
    return reason


def _forget(error: BaseException) -> None:
    error.__traceback__ = error.__cause__ = error.__context__ = None


def in_time(action: Callable[[], T], timeout_s: float) -> T:
    """Does something that may hang; on a timeout, raises `TimeoutError` and abandons it."""
    outcome: Future[T] = Future()

    def call(answer: Future[T] = outcome) -> None:
        try:
            answer.set_result(action())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    try:
        return outcome.result(timeout_s)
    finally:
        del outcome  # it holds the error, whose traceback holds this frame
