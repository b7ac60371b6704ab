"""Which versions of an Avro schema can read which others: what we say, what fastavro does, what becomes of values."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal

import fastavro
import msgspec
import pytest

from deltaworks import Avro, DecimalDigits, SerializationError
from deltaworks.serdes import wire
from deltaworks.serdes.avro.changes import incompatibilities
from deltaworks.serdes.avro.nodes import parsed
from deltaworks.serdes.schema import breaking_changes, in_words, schema_of
from deltaworks.serdes.schemas import InMemory, WriterSchema, bound

TS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}


def decimal(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def record(*fields: Any, name: str = "R", **rest: Any) -> dict[str, Any]:
    made = [{"name": each[0], "type": each[1], **(each[2] if len(each) > 2 else {})} for each in fields]
    return {"type": "record", "name": name, "fields": made, **rest}


def enum(*symbols: str, **rest: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": list(symbols), **rest}


AB, ABC = enum("A", "B"), enum("A", "B", "C")
DEFAULT = {"default": 0}


@pytest.mark.parametrize(
    ("writer", "reader", "reasons"),
    [
        ("int", "long", []),
        ("int", "double", []),
        ("long", "float", []),
        ("float", "double", []),
        ("string", "bytes", []),
        ("long", "int", ["the value is written as long, and read as int"]),
        ("double", "float", ["the value is written as double, and read as float"]),
        ("int", "string", ["the value is written as int, and read as string"]),
        ("int", ["null", "long"], []),
        (["null", "int"], "int", ["the value may be null, and is int"]),
        (["int"], "long", []),
        (["null", "int"], ["long", "null"], []),
        (["int", "string"], ["null", "int"], ["the value is written as int | string, and read as null | int"]),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "long"}, []),
        (
            {"type": "array", "items": "int"},
            {"type": "array", "items": "string"},
            ["each item of the value is written as int, and read as string"],
        ),
        (
            {"type": "map", "values": "string"},
            {"type": "map", "values": "int"},
            ["entries of the value is written as string, and read as int"],
        ),
        (TS, MICROS, []),
        ("long", TS, ["the value is written as long, and read as long (timestamp-millis)"]),
        (TS, "long", ["the value is written as long (timestamp-millis), and read as long"]),
        (decimal(4, 2), decimal(6, 2), []),
        (
            decimal(6, 2),
            decimal(4, 2),
            ["the value is written as bytes (decimal 6, 2), and read as bytes (decimal 4, 2)"],
        ),
        (
            decimal(4, 2),
            decimal(4, 3),
            ["the value is written as bytes (decimal 4, 2), and read as bytes (decimal 4, 3)"],
        ),
        (AB, ABC, []),
        (ABC, AB, ["the value can be 'C', and is one of 'A', 'B'"]),
        (ABC, enum("A", "B", default="A"), []),
        (record(("a", "int")), record(), []),
        (record(("a", "int")), record(("a", "long"), ("b", "int", DEFAULT)), []),
        (record(("a", "int")), record(("b", "int")), ["field 'b' is not written, and has no default"]),
        (record(("a", "int")), record(("b", "long", {"aliases": ["a"]})), []),
        (record(name="Old"), record(aliases=["Old"]), []),
        (record(name="Old"), record(), ["the value is written as Old, and read as R"]),
        (record(name="a.R"), record(name="b.R"), []),
        (
            record(("in", record(("x", "int"), name="I"))),
            record(("in", record(("x", "string"), ("y", "int"), name="I"))),
            [
                "field 'x' of field 'in' is written as int, and read as string",
                "field 'y' of field 'in' is not written, and has no default",
            ],
        ),
        (
            record(("in", ["null", record(("x", "int"), name="I")])),
            record(("in", ["null", record(("x", "string"), name="I")])),
            ["field 'x' of field 'in' is written as int, and read as string"],
        ),
        (
            record(("next", ["null", "R"]), ("x", "int")),
            record(("next", ["null", "R"]), ("x", "string")),
            ["field 'x' is written as int, and read as string"],
        ),
        (
            {"type": "fixed", "name": "F", "size": 2},
            {"type": "fixed", "name": "F", "size": 3},
            ["the value is written as F, 2 bytes, and read as F, 3 bytes"],
        ),
    ],
)
def test_what_cannot_be_read_is_said_by_field(writer: Any, reader: Any, reasons: list[str]) -> None:
    assert incompatibilities(parsed(writer), parsed(reader)) == reasons


SAMPLES: dict[str, Any] = {"int": 1, "long": 2**40, "float": 1.5, "double": 1e300, "string": "x", "bytes": b"x"}


@pytest.mark.parametrize("writer", SAMPLES)
@pytest.mark.parametrize("reader", SAMPLES)
def test_fastavro_reads_what_we_say_can_be_read(writer: str, reader: str) -> None:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, {"type": writer}, SAMPLES[writer])
    out.seek(0)
    try:
        fastavro.schemaless_reader(out, {"type": writer}, {"type": reader})
        read = True
    except fastavro.read.SchemaResolutionError:
        read = False

    assert read == (incompatibilities(parsed(writer), parsed(reader)) == [])


class V1(msgspec.Struct, frozen=True):
    id: str
    count: Annotated[int, "int"]


class Order(msgspec.Struct, frozen=True):
    """The newest version, with a default of every kind."""

    id: str
    count: int
    amount: Annotated[Decimal, DecimalDigits(10, 2)] = Decimal("9.99")
    at: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    day: date = date(2026, 1, 1)
    tier: Literal["A", "B"] = "B"
    tags: list[str] = msgspec.field(default_factory=lambda: ["new"])
    inner: V1 = V1("inner", 1)
    data: bytes = b"\xff"
    note: str | None = None


OLD = record(("id", "string"), ("count", "int"), ("gone", {"type": "map", "values": TS}), name="Order")


def test_an_older_record_gets_the_defaults_of_the_type() -> None:
    schemas = InMemory()
    old = msgspec.defstruct("Order", [("id", str), ("count", int), ("gone", dict[str, datetime])])
    writer = bound(Avro(old, OLD, registry=True), schemas, "orders", is_key=False)
    reader = bound(Avro(Order, registry=True), schemas, "orders", is_key=False)

    assert reader.deserialize(writer.serialize(old("a", 5, {"x": datetime(2026, 1, 1, tzinfo=UTC)}))) == Order("a", 5)


def test_a_newer_record_is_read_without_its_new_fields() -> None:
    schemas = InMemory()
    old = msgspec.defstruct("Order", [("id", str), ("tier", Literal["A", "B"])])
    writer = bound(Avro(Order, registry=True), schemas, "orders", is_key=False)
    reader: Any = bound(Avro(old, registry=True), schemas, "orders", is_key=False)

    read = reader.deserialize(writer.serialize(Order("a", 5, tier="A")))

    assert (read.id, read.tier) == ("a", "A")


def test_a_default_of_the_schema_is_read_where_the_type_has_none() -> None:
    schemas = InMemory()
    new = record(
        ("id", "string"),
        ("n", "long", {"default": 7}),
        ("b", "bytes", {"default": "\xff"}),
        ("u", ["null", "int"], {"default": None}),
        ("e", AB, {"default": "B"}),
        ("d", "double", {"default": 1}),
        ("l", {"type": "array", "items": "int"}, {"default": []}),
        name="Order",
    )
    kind = msgspec.defstruct(
        "Order",
        [("id", str), ("n", int), ("b", bytes), ("u", int | None), ("e", str), ("d", float), ("l", list[int])],
    )
    old = msgspec.defstruct("Order", [("id", str)])
    data = bound(Avro(old, registry=True), schemas, "t", is_key=False).serialize(old("a"))

    read = bound(Avro(kind, new, registry=True), schemas, "t", is_key=False).deserialize(data)

    assert read == kind("a", 7, b"\xff", None, "B", 1.0, [])


def test_a_record_that_cannot_be_read_is_refused_by_field() -> None:
    schemas = InMemory()
    old = msgspec.defstruct("Order", [("id", str)])
    data = bound(Avro(old, registry=True), schemas, "t", is_key=False).serialize(old("a"))

    with pytest.raises(SerializationError, match="schema 1, which avro\\(Order\\) cannot read: field 'count' is not"):
        bound(Avro(Order, registry=True), schemas, "t", is_key=False).deserialize(data)


def test_a_type_without_the_default_of_the_schema_that_python_cannot_say_is_told() -> None:
    schemas = InMemory()
    new = record(("id", "string"), ("at", TS, {"default": 5}), name="Order")
    kind = msgspec.defstruct("Order", [("id", str), ("at", datetime)])
    old = msgspec.defstruct("Order", [("id", str)])
    data = bound(Avro(old, registry=True), schemas, "t", is_key=False).serialize(old("a"))

    with pytest.raises(SerializationError, match="give the field of the type one"):
        bound(Avro(kind, new, registry=True), schemas, "t", is_key=False).deserialize(data)


def test_a_store_keeps_the_python_type_so_it_may_change_as_with_json() -> None:
    old = Avro(msgspec.defstruct("Order", [("id", str), ("count", int)]), registry=True).stored()
    new = Avro(Order, registry=True).stored()

    assert breaking_changes(schema_of(old), schema_of(new)) == []
    assert new.deserialize(old.serialize(old.type("a", 5))) == Order("a", 5)
    assert in_words(schema_of(new)) == "packed(Order)"
    assert breaking_changes(schema_of(new), schema_of(Avro(msgspec.defstruct("Order", [("id", int)])).stored())) == [
        "field 'id' was string, is integer"
    ]


def test_bytes_of_avro_in_a_store_may_not_change_their_layout() -> None:
    one, other = Avro(msgspec.defstruct("Order", [("a", int)])), Avro(msgspec.defstruct("Order", [("a", float)]))
    longer = Avro(msgspec.defstruct("Order", [("a", int), ("b", int | None, None)]))

    assert breaking_changes(schema_of(one), schema_of(one)) == []
    for changed in (other, longer):
        assert breaking_changes(schema_of(one), schema_of(changed)) == [
            "its Avro schema has changed, and its bytes do not say which schema wrote them"
        ]
    assert breaking_changes(schema_of(one), schema_of(Avro(one.type, registry=True))) == [
        "it was avro(Order), is avro(Order) with the id of its schema"
    ]
    assert in_words(schema_of(one)) == "avro(Order)"


class Bought(msgspec.Struct, frozen=True):
    tier: Literal["basic", "gold"]
    others: list[Literal["basic", "gold"]] = []
    again: Bought | None = None
    color: Literal["red", "blue"] = "red"


TIER = {"type": "enum", "name": "shop.Tier", "symbols": ["basic", "gold"]}
WRITTEN: dict[str, Any] = {
    "type": "record",
    "name": "Bought",
    "fields": [
        {"name": "tier", "type": TIER},
        {"name": "others", "type": {"type": "array", "items": "shop.Tier"}, "default": []},
        {"name": "again", "type": ["null", "Bought"], "default": None},
        {"name": "color", "type": ["null", {"type": "enum", "name": "Color", "symbols": ["red", "blue"]}]},
    ],
}


def test_a_literal_has_no_name_so_it_reads_enums_of_any() -> None:
    registry = InMemory()
    plain = {**WRITTEN, "fields": WRITTEN["fields"][:3]}
    number = registry.id_of("t-value", WriterSchema(json.dumps(plain), "AVRO"))
    body = io.BytesIO()
    value = {"tier": "gold", "others": ["basic", "gold"], "again": {"tier": "basic", "others": [], "again": None}}
    fastavro.schemaless_writer(body, fastavro.parse_schema(plain), value)
    reader = bound(Avro(Bought, registry=True), registry, "t", is_key=False)

    found = reader.deserialize(wire.header(number) + body.getvalue())

    assert found == Bought("gold", ["basic", "gold"], Bought("basic"))
    nullable = WriterSchema(json.dumps(WRITTEN), "AVRO")
    assert Avro(Bought).unreadable(nullable) == ["field 'color' may be null, and is Color"]
    one_name = {**plain, "fields": [*plain["fields"], {"name": "color", "type": "shop.Tier"}]}
    [reason] = Avro(Bought).unreadable(WriterSchema(json.dumps(one_name), "AVRO"))
    assert reason.startswith("field 'color' is written as")


class Kind(Enum):
    BASIC = "basic"
    GOLD = "gold"


def test_an_enum_of_python_has_a_name() -> None:
    kept = msgspec.defstruct("Bought", [("tier", Kind)])
    renamed = {"type": "record", "name": "Bought", "fields": [{"name": "tier", "type": TIER}]}

    reasons = Avro(kept).unreadable(WriterSchema(json.dumps(renamed), "AVRO"))

    assert reasons == ["field 'tier' is written as shop.Tier, and read as Kind"]
