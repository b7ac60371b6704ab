"""What Confluent's own serializers write and what ours write is the same, with the same registry."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

import msgspec
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from deltaworks import Avro, DecimalDigits, JsonSchema, Protobuf, Serde
from deltaworks.kafka.schema_registry import Registry
from deltaworks.serdes.schemas import bound
from deltaworks.serdes.wire import HEADER_BYTES

VALUE = SerializationContext("orders", MessageField.VALUE)


class Line(msgspec.Struct, frozen=True):
    item: str
    count: int


class Order(msgspec.Struct, frozen=True):
    id: UUID
    amount: Annotated[Decimal, DecimalDigits(10, 2)]
    tier: Literal["BASIC", "GOLD"]
    lines: list[Line]
    at: datetime
    day: date
    note: str | None = None


ORDER = Order(
    UUID(int=7), Decimal("12.50"), "GOLD", [Line("x", 2)], datetime(2026, 3, 1, tzinfo=UTC), date(2026, 3, 1), "n"
)


class Both(NamedTuple):
    """A registry, and Confluent's client of the same one."""

    registry: Registry
    client: Any


@pytest.fixture
def both() -> Both:
    registry = Registry("mock://confluent")
    return Both(registry, registry._client)


def ours(serde: Serde[Any], both: Both) -> Serde[Any]:
    return bound(serde, both.registry, "orders", is_key=False)


def test_avro_is_the_same(both: Both) -> None:
    serde = Avro(Order, registry=True)
    as_dict = {**msgspec.structs.asdict(ORDER), "lines": [{"item": "x", "count": 2}]}

    theirs = AvroSerializer(both.client, serde.schema, conf={"subject.name.strategy.type": "TOPIC"})(as_dict, VALUE)

    assert ours(serde, both).serialize(ORDER) == theirs
    assert ours(serde, both).deserialize(theirs) == ORDER
    assert AvroDeserializer(both.client)(theirs, VALUE) == as_dict


SCHEMA = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Other { int32 x = 1; }
message Shop {
  message Order {
    string id = 1; repeated Line lines = 2; google.protobuf.Timestamp at = 3; map<string, int32> counts = 4;
  }
  message Line { string item = 1; int64 count = 2; }
}
"""


class ProtoOrder(msgspec.Struct, frozen=True):
    id: str
    lines: list[Line]
    at: datetime
    counts: dict[str, int]


@pytest.mark.parametrize("message", ["shop.Shop.Order", "shop.Other"])
def test_protobuf_is_the_same(both: Both, message: str) -> None:
    kind: Any = ProtoOrder if message.endswith("Order") else msgspec.defstruct("Other", [("x", int)])
    serde: Protobuf[Any] = Protobuf(kind, SCHEMA, message, registry=True)
    value = kind("a", [Line("x", 2)], datetime(2026, 3, 1, tzinfo=UTC), {"a": 1}) if kind is ProtoOrder else kind(5)
    conf = {"use.deprecated.format": False, "subject.name.strategy.type": "TOPIC"}
    serializer = ProtobufSerializer(serde._message, both.client, conf)
    deserializer = ProtobufDeserializer(serde._message, {"use.deprecated.format": False}, both.client)

    mine = ours(serde, both).serialize(value)
    theirs = serializer(serde._message.FromString(Protobuf(kind, SCHEMA, message).serialize(value)), VALUE)

    # The registry in memory, unlike a real one, does not see that their descriptor and our text are the same schema.
    assert mine[HEADER_BYTES:] == theirs[HEADER_BYTES:]
    assert ours(serde, both).deserialize(theirs) == value
    assert deserializer(theirs[:HEADER_BYTES] + mine[HEADER_BYTES:], VALUE) == deserializer(theirs, VALUE)


def test_json_is_read_by_both(both: Both) -> None:
    serde = JsonSchema(Line, registry=True)
    conf = {"subject.name.strategy.type": "TOPIC"}

    theirs = JSONSerializer(serde.schema, both.client, conf=conf)({"item": "x", "count": 2}, VALUE)
    mine = ours(serde, both).serialize(Line("x", 2))

    assert mine[:5] == theirs[:5]
    assert json.loads(mine[5:]) == json.loads(theirs[5:])
    assert ours(serde, both).deserialize(theirs) == Line("x", 2)
    assert JSONDeserializer(serde.schema, schema_registry_client=both.client)(mine, VALUE) == {"item": "x", "count": 2}


def test_clients_of_one_address_share_it() -> None:
    assert type(SchemaRegistryClient.new_client({"url": "mock://confluent"})).__name__ == "MockSchemaRegistryClient"
