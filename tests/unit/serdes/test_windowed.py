"""Windowed keys have the bytes of Kafka Streams."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta

import pytest

from deltaworks import SerializationError, SessionWindowed, String, TimeWindowed, Windowed


def test_a_time_window_is_the_key_and_its_start() -> None:
    serde = TimeWindowed(String(), timedelta(milliseconds=10))
    key = Windowed("ann", 20, 30)

    assert serde.serialize(key) == b"ann" + (20).to_bytes(8, "big")
    assert serde.deserialize(serde.serialize(key)) == key


def test_a_session_is_the_key_its_end_and_its_start() -> None:
    serde = SessionWindowed(String())
    key = Windowed("ann", 20, 25)

    assert serde.serialize(key) == b"ann" + (25).to_bytes(8, "big") + (20).to_bytes(8, "big")
    assert serde.deserialize(serde.serialize(key)) == key


@pytest.mark.parametrize("serde", [TimeWindowed(String(), timedelta(milliseconds=10)), SessionWindowed(String())])
def test_too_few_bytes_are_refused(serde: TimeWindowed[str] | SessionWindowed[str]) -> None:
    with pytest.raises(SerializationError, match="7 bytes are not a "):
        serde.deserialize(b"1234567")


def test_a_windowed_key_is_hashable_ordered_and_travels() -> None:
    early, late = Windowed("ann", 0, 10), Windowed("ann", 10, 20)

    assert {early: 1}[Windowed("ann", 0, 10)] == 1
    assert early < late
    assert pickle.loads(pickle.dumps(early)) == early
    assert str(early) == "[ann@0/10]"


def test_a_window_knows_its_instants() -> None:
    key = Windowed("ann", 1_500, 2_000)

    assert key.start == datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)
    assert key.end == datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)
