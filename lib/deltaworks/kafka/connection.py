"""The clients of one transactional sink, and what to do with a client that hangs."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from deltaworks.kafka import control_topic
from deltaworks.kafka.admin import SILENT
from deltaworks.kafka.limits import LARGEST_REQUEST

T = TypeVar("T")

PATIENCE_S = 5.0
"""A client that says nothing so long after its time is up is abandoned, and a new one takes its place. It was seen with
librdkafka's `send_offsets_to_transaction` (issues 5456 and 5511: no timeout, and a coordinator that is never looked for
again), which is not called any more; the other calls have kept their time so far."""
BATCH_BYTES = 1_000_000
"""Of records that are sent together; every topic with the stock limit takes as much."""


_REMEMBERED = 100


class Connection:
    """A producer that has not claimed its transactional id yet, and a consumer that reads the task's markers.

    Connects in the background, while the task reads and computes.
    """

    def __init__(self, bootstrap: str, transactional_id: str, transaction_timeout_ms: int) -> None:
        self.refused: list[tuple[str, KafkaError]] = []
        """Topic and reason of records that were not written."""
        self.consumer = control_topic.reader(bootstrap)
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
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
                "message.max.bytes": LARGEST_REQUEST,  # topics have limits of their own
                "batch.size": BATCH_BYTES,
                "delivery.report.only.error": True,
                "on_delivery": self._refuse,
            }
        )

    def _refuse(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and len(self.refused) < _REMEMBERED:
            self.refused.append((str(message.topic()), error))

    def close(self) -> None:
        """Forgets what is queued."""
        close_quietly(self.producer)
        self.consumer.close()


def close_quietly(producer: Producer) -> None:
    """Forgets what is queued; a producer that was fenced, or cannot end its transaction, says so once more."""
    warnings.filterwarnings("ignore", "Producer abort_transaction failed during close", RuntimeWarning)
    with contextlib.suppress(KafkaException, SystemError):
        producer.purge()
        producer.close()


def told(action: Callable[[], T]) -> T:
    """Does something with a client; raises what the client says.

    The client raises a fatal error from within a call, and then asks `on_delivery` about the records that it costs.
    Sometimes the error is lost on the way; that there was one is all that is known then.

    What is raised is a new error: the client never lets go of a fatal one, nor of all that its traceback holds.
    """
    try:
        return action()
    except SystemError as error:
        if isinstance(error.__cause__, KafkaException):
            reason = _forgotten(error.__cause__)
        elif "without setting an exception" in str(error):
            reason = KafkaError(KafkaError._FATAL, "the client has failed without a reason", True, False, False)
        else:
            raise
        _forget(error)
    except KafkaException as error:
        reason = _forgotten(error)
    raise KafkaException(reason)


def _forgotten(error: KafkaException) -> KafkaError:
    """The reason is all that stays of it."""
    _forget(error)
    reason: KafkaError = error.args[0]
    return reason


def _forget(error: BaseException) -> None:
    error.__traceback__ = error.__cause__ = error.__context__ = None


def in_time(action: Callable[[], T], timeout_s: float) -> T:
    """Does something that may hang; raises `TimeoutError` and leaves it to itself then."""
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
        del outcome  # it has the error, whose traceback has this frame
