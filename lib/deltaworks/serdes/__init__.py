"""Serdes: how keys and values become bytes, compatible with Kafka's own serializers.

A null key or value stays null and never reaches a serde; called with None, each of these returns None.
"""

from deltaworks.serdes.avro.serde import Avro
from deltaworks.serdes.base import Serde
from deltaworks.serdes.debezium.changes import RowChange
from deltaworks.serdes.debezium.key import DebeziumKey
from deltaworks.serdes.debezium.serde import Debezium, DebeziumChanges
from deltaworks.serdes.inference import serde_for
from deltaworks.serdes.json import Json
from deltaworks.serdes.json_schema import JsonSchema
from deltaworks.serdes.lists import ListOf
from deltaworks.serdes.primitives import Boolean, Bytes, Double, Float, Integer, Long, Short, String, Void
from deltaworks.serdes.protobuf.serde import Protobuf
from deltaworks.serdes.scalars import ConnectDecimal, DecimalText, Timestamp, Uuid
from deltaworks.serdes.windowed import SessionWindowed, TimeWindowed, Windowed

__all__ = [
    "Avro",
    "Boolean",
    "Bytes",
    "ConnectDecimal",
    "Debezium",
    "DebeziumChanges",
    "DebeziumKey",
    "DecimalText",
    "Double",
    "Float",
    "Integer",
    "Json",
    "JsonSchema",
    "ListOf",
    "Long",
    "Protobuf",
    "RowChange",
    "Serde",
    "SessionWindowed",
    "Short",
    "String",
    "TimeWindowed",
    "Timestamp",
    "Uuid",
    "Void",
    "Windowed",
    "serde_for",
]
