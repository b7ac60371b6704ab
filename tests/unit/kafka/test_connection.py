"""What a client says that fails in the middle of a call, or not at all."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import KafkaError, KafkaException

from deltaworks.kafka.connection import in_time, told


def test_a_fatal_error_is_told_though_a_callback_stumbled_over_it() -> None:
    def poll() -> None:
        raise SystemError("returned a result with an exception set") from KafkaException(KafkaError(KafkaError._FENCED))

    with pytest.raises(KafkaException) as error:
        told(poll)
    assert error.value.args[0].code() == KafkaError._FENCED


def test_an_error_that_was_lost_on_the_way_is_fatal() -> None:
    def flush() -> None:
        raise SystemError("<method 'flush'> returned NULL without setting an exception")

    with pytest.raises(KafkaException) as error:
        told(flush)
    assert error.value.args[0].fatal()


def test_other_errors_stay_what_they_are() -> None:
    def broken() -> None:
        raise SystemError("something else")

    with pytest.raises(SystemError, match="something else"):
        told(broken)


def test_a_client_that_hangs_is_left_to_itself() -> None:
    released = threading.Event()

    with pytest.raises(TimeoutError):
        in_time(lambda: released.wait(5), 0.01)
    released.set()
    assert in_time(lambda: "done", 10) == "done"
