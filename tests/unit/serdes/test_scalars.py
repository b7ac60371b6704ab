"""Decimals, instants and ids: exact, or refused."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltaworks import ConnectDecimal, DecimalText, Serde, SerializationError, Timestamp, Uuid

ID = UUID("01234567-89ab-cdef-0123-456789abcdef")


@pytest.mark.parametrize(
    ("serde", "value", "data"),
    [
        (Uuid(), ID, b"01234567-89ab-cdef-0123-456789abcdef"),
        (DecimalText(), Decimal("12.50"), b"12.50"),
        (DecimalText(), Decimal("-0.000001"), b"-0.000001"),
        (DecimalText(), Decimal("1E+3"), b"1000"),
        (ConnectDecimal(2), Decimal("2.56"), b"\x01\x00"),
        (ConnectDecimal(0), Decimal("-1"), b"\xff"),
        (ConnectDecimal(2), Decimal("1.27"), b"\x7f"),
        (ConnectDecimal(2), Decimal("1.28"), b"\x00\x80"),
        (ConnectDecimal(2), Decimal("-1.28"), b"\x80"),
        (ConnectDecimal(2), Decimal(0), b"\x00"),
        (Timestamp(), datetime(1970, 1, 1, 0, 0, 0, 1_000, UTC), b"\0" * 7 + b"\1"),
        (Timestamp(), datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC), b"\xff" * 8),
    ],
)
def test_bytes_are_those_of_kafka_and_connect(serde: Serde[Any], value: object, data: bytes) -> None:
    assert serde.serialize(value) == data
    assert serde.deserialize(data) == value
    assert pickle.loads(pickle.dumps(serde)) == serde


@given(st.decimals(min_value=-(10**12), max_value=10**12, allow_nan=False, places=4))
def test_decimals_come_back_with_their_digits(value: Decimal) -> None:
    assert str(ConnectDecimal(4).deserialize(ConnectDecimal(4).serialize(value))) in (f"{value:f}", f"{abs(value):f}")
    assert ConnectDecimal(4).deserialize(ConnectDecimal(4).serialize(value)) == value
    assert DecimalText().deserialize(DecimalText().serialize(value)).as_tuple() == value.as_tuple()


def test_an_instant_of_another_zone_is_read_in_utc() -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=2)))

    assert Timestamp().deserialize(Timestamp().serialize(noon)) == datetime(2026, 3, 1, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("serde", "value", "reason"),
    [
        (Uuid(), str(ID), "type str cannot be written as uuid"),
        (DecimalText(), 1.5, "type float cannot be written as decimal"),
        (DecimalText(), Decimal("NaN"), "cannot be written as decimal"),
        (ConnectDecimal(2), Decimal("0.001"), "more than 2 digits behind the point"),
        (Timestamp(), datetime(2026, 3, 1), "it has no time zone"),
        (Timestamp(), datetime(2026, 3, 1, microsecond=1, tzinfo=UTC), "it has microseconds"),
    ],
)
def test_what_would_be_rounded_or_guessed_is_refused(serde: Serde[Any], value: object, reason: str) -> None:
    with pytest.raises(SerializationError, match=reason):
        serde.serialize(value)


@pytest.mark.parametrize(
    ("serde", "data"),
    [
        (Uuid(), b"0123456789abcdef0123456789abcdef"),
        (DecimalText(), b"a lot"),
        (DecimalText(), b"NaN"),
        (ConnectDecimal(2), b""),
        (Timestamp(), b"\x7f" * 8),
    ],
)
def test_other_bytes_are_refused(serde: Serde[Any], data: bytes) -> None:
    with pytest.raises(SerializationError, match=f"{len(data)} bytes are not a "):
        serde.deserialize(data)
