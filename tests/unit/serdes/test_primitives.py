"""Strings, numbers and bytes are those of Kafka's own serializers."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from deltaworks import (
    Boolean,
    Bytes,
    Double,
    Float,
    Integer,
    Long,
    Serde,
    SerializationError,
    Short,
    String,
    Void,
)


@pytest.mark.parametrize(
    ("serde", "value", "data"),
    [
        (String(), "größe", "größe".encode()),
        (String(), "", b""),
        (Integer(), -2, b"\xff\xff\xff\xfe"),
        (Long(), 1, b"\0\0\0\0\0\0\0\1"),
        (Long(), -(2**63), b"\x80\0\0\0\0\0\0\0"),
        (Double(), 1.5, b"\x3f\xf8\0\0\0\0\0\0"),
        (Bytes(), b"\xff", b"\xff"),
        (Short(), -2, b"\xff\xfe"),
        (Float(), 1.5, b"\x3f\xc0\0\0"),
        (Boolean(), True, b"\1"),
        (Boolean(), False, b"\0"),
    ],
)
def test_bytes_are_those_of_kafka(serde: Serde[Any], value: object, data: bytes) -> None:
    assert serde.serialize(value) == data
    assert serde.deserialize(data) == value


@pytest.mark.parametrize(
    ("serde", "data"),
    [
        (String(), b"\xff"),
        (Integer(), b"\0"),
        (Long(), b"\0" * 7),
        (Double(), b"\0" * 9),
        (Short(), b"\0"),
        (Float(), b"\0"),
        (Boolean(), b"\2"),
        (Void(), b""),
    ],
)
def test_bytes_of_another_type_are_refused_with_their_length_only(serde: Serde[Any], data: bytes) -> None:
    with pytest.raises(SerializationError, match=f"{len(data)} bytes are not a {serde.name}"):
        serde.deserialize(data)


@pytest.mark.parametrize(
    ("serde", "value"),
    [
        (String(), 1),
        (Integer(), 2**31),
        (Long(), 1.5),
        (Double(), "x"),
        (Bytes(), "text"),
        (Short(), 2**15),
        (Float(), 1e39),
        (Boolean(), 1),
        (Void(), 0),
    ],
)
def test_values_of_another_type_are_refused(serde: Serde[Any], value: object) -> None:
    with pytest.raises(SerializationError, match=f"type {type(value).__name__} cannot be written as {serde.name}"):
        serde.serialize(value)


@pytest.mark.parametrize("serde", [String(), Integer(), Long(), Double(), Bytes()])
def test_serdes_travel_and_stay_equal(serde: Serde[Any]) -> None:
    assert pickle.loads(pickle.dumps(serde)) == serde
    assert serde != object()
