"""Every serde returns None for None, as Kafka's do."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NamedTuple

import msgspec
import pytest

import deltaworks
from deltaworks import (
    Avro,
    Boolean,
    Bytes,
    ConnectDecimal,
    Debezium,
    DebeziumChanges,
    DebeziumKey,
    DecimalText,
    Double,
    Float,
    Integer,
    Json,
    JsonSchema,
    ListOf,
    Long,
    Protobuf,
    SerializationError,
    SessionWindowed,
    Short,
    String,
    Timestamp,
    TimeWindowed,
    Uuid,
    Void,
    Windowed,
)
from deltaworks.serdes.base import is_serde


class Row(msgspec.Struct):
    """A row of a database."""

    x: int


class Point(NamedTuple):
    """A message."""

    x: int


SERDES: list[Any] = [
    *(Boolean(), Bytes(), ConnectDecimal(2), DecimalText(), Double(), Float(), Integer(), Json(int)),
    *(ListOf(Long()), ListOf(String()), Long(), SessionWindowed(String()), Short(), String(), Timestamp()),
    *(TimeWindowed(String(), timedelta(milliseconds=5)), Uuid(), Void()),
    *(Debezium(Row), DebeziumChanges(Row), DebeziumKey(int, field="x")),
    *(Avro(int), JsonSchema(int), Protobuf(Point, 'syntax = "proto3"; message Point { int32 x = 1; }')),
]


@pytest.mark.parametrize("serde", SERDES, ids=lambda each: each.name)
def test_none_becomes_none(serde: Any) -> None:
    assert serde.serialize(None) is None
    assert serde.deserialize(None) is None


def test_all_serdes_are_here() -> None:
    public = {name for name in deltaworks.__all__ if is_serde(getattr(deltaworks, name))}

    assert public - {"Serde"} == {type(serde).__name__ for serde in SERDES}


@pytest.mark.parametrize("serde", [TimeWindowed(String(), timedelta(milliseconds=5)), SessionWindowed(String())])
def test_a_window_without_a_key_is_refused(serde: Any) -> None:
    with pytest.raises(SerializationError, match="it has no key"):
        serde.serialize(Windowed(None, 0, 5))


@pytest.mark.parametrize("serde", [each for each in SERDES if each != Bytes()], ids=lambda each: each.name)
def test_what_is_no_bytes_is_refused(serde: Any) -> None:
    with pytest.raises((SerializationError, TypeError, AttributeError)):
        serde.deserialize(7)
