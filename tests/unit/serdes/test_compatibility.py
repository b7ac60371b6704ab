"""Schemas of a registry are compared with those of serdes, whatever their format is."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from deltaworks import Avro, ConfigurationError, JsonSchema, Protobuf
from deltaworks.serdes.compatibility import incompatibilities
from deltaworks.serdes.schemas import NoRegistry, Reference, WriterSchema, bound

OLD = msgspec.defstruct("Order", [("id", int)])
NEW = msgspec.defstruct("Order", [("id", str)])
PROTO = 'syntax = "proto3"; message Order {{ {} id = 1; }}'


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (Avro(OLD), Avro(NEW), "field 'id' is written as long, and read as string"),
        (JsonSchema(OLD), JsonSchema(NEW), "field 'id' was integer, is string"),
        (
            Protobuf(OLD, PROTO.format("int32")),
            Protobuf(NEW, PROTO.format("string")),
            "field 1, 'id' is written as int32, and read as string",
        ),
        (Avro(OLD), JsonSchema(NEW), "the value is written as AVRO, and read as JSON"),
    ],
)
def test_what_cannot_be_read_is_said_by_field(old: Any, new: Any, reason: str) -> None:
    assert incompatibilities(old.writer_schema, new.writer_schema) == [reason]
    assert incompatibilities(old.writer_schema, old.writer_schema) == []


def test_references_belong_to_a_schema() -> None:
    line = WriterSchema('{"type":"record","name":"Line","fields":[{"name":"n","type":"int"}]}', "AVRO")
    text = '{"type":"record","name":"Order","fields":[{"name":"line","type":"Line"}]}'
    whole = text.replace('"Line"', line.text.replace("int", "string"))

    assert incompatibilities(WriterSchema(text, "AVRO", (Reference("Line", line),)), WriterSchema(whole, "AVRO")) == [
        "field 'n' of field 'line' is written as int, and read as string"
    ]


def test_references_may_refer_to_others() -> None:
    a = WriterSchema('{"type":"fixed","name":"A","size":2}', "AVRO")
    b = WriterSchema('{"type":"record","name":"B","fields":[{"name":"a","type":"A"}]}', "AVRO", (Reference("A", a),))
    c = WriterSchema('{"type":"record","name":"C","fields":[{"name":"b","type":"B"}]}', "AVRO", (Reference("B", b),))

    assert list(c.referred) == ["A", "B"]
    assert incompatibilities(c, c) == []


def test_a_message_is_named_if_there_are_several() -> None:
    schema = WriterSchema('syntax = "proto3"; message A {} message B {}', "PROTOBUF")

    assert incompatibilities(schema, schema, message="B") == []
    with pytest.raises(ValueError, match="message= says which one is meant of A, B"):
        incompatibilities(schema, schema)
    with pytest.raises(ValueError, match="there is no message 'C', but A, B"):
        incompatibilities(schema, schema, message="C")


def test_without_a_registry_everything_that_needs_one_says_so() -> None:
    unbound = Avro(int, registry=True)
    serde = bound(unbound, NoRegistry(), "t", is_key=False)

    with pytest.raises(ConfigurationError, match="registered under 't-value', and there is no schema registry"):
        serde.serialize(1)
    with pytest.raises(ConfigurationError, match="names schema 5, and there is no schema registry"):
        serde.deserialize(bytes.fromhex("000000000502"))
    with pytest.raises(ConfigurationError, match="subject 't' is asked for"):
        NoRegistry().versions("t")
    with pytest.raises(ConfigurationError, match="registered under 't', and there is no schema registry"):
        NoRegistry().refusal("t", unbound.writer_schema)
