"""Protobuf is exact: what it writes is what others write, and what does not fit is refused with its field."""

from __future__ import annotations

import pickle
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import msgspec
import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from deltaworks import Json, Protobuf, SerializationError
from deltaworks.serdes.protobuf.descriptors import descriptors
from deltaworks.serdes.schema import breaking_changes, in_words, schema_of
from deltaworks.serdes.schemas import InMemory, Reference, WriterSchema, bound

SCHEMA = """
syntax = "proto3";
package shop;
import "google/protobuf/duration.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/type/date.proto";
import "google/type/decimal.proto";
import "google/type/timeofday.proto";

enum Tier { BASIC = 0; GOLD = 5; }

message Line { string item = 1; int32 count = 2; }

message Everything {
  message Note { string text = 1; }
  string text = 1;
  int32 small = 2;
  uint64 large = 3;
  sint64 signed = 4;
  fixed32 fixed = 5;
  double ratio = 6;
  float half = 7;
  bool flag = 8;
  bytes data = 9;
  string key = 10;
  string amount = 11;
  Tier tier = 12;
  Tier kind = 13;
  Tier number = 14;
  repeated Line lines = 15;
  repeated int64 numbers = 16;
  repeated string tags = 17;
  map<string, Line> by_name = 18;
  map<int64, string> by_id = 19;
  Line line = 20;
  optional string note = 21;
  oneof either { string name = 22; Note remark = 23; }
  google.protobuf.Timestamp at = 24;
  google.protobuf.Duration wait = 25;
  google.type.Date day = 26;
  google.type.TimeOfDay clock = 27;
  google.type.Decimal price = 28;
  google.protobuf.Int64Value count = 29;
  google.protobuf.Value document = 30;
  Everything before = 31;
  string level = 32;
}
"""


class Tier(Enum):
    BASIC = "basic"
    GOLD = "gold"


class Number(IntEnum):
    ZERO = 0
    FIVE = 5


class Line(msgspec.Struct, frozen=True):
    item: str
    count: int


class Note(msgspec.Struct, frozen=True):
    text: str


class Everything(msgspec.Struct, kw_only=True):
    """A value of each type that Protobuf and Python share."""

    text: str
    small: int
    large: int
    signed: int
    fixed: int
    ratio: float
    half: float
    flag: bool
    data: bytes
    key: UUID
    amount: Decimal
    tier: Tier
    kind: Literal["BASIC", "GOLD"]
    number: Number
    lines: list[Line]
    numbers: tuple[int, ...]
    tags: frozenset[str]
    by_name: dict[str, Line]
    by_id: dict[int, str]
    line: Line | None
    note: str | None
    name: str | None
    remark: Note | None
    at: datetime | None
    wait: timedelta | None
    day: date | None
    clock: time | None
    price: Decimal | None
    count: int | None
    document: Any | None
    before: Everything | None = None
    level: Literal["low", "high"] = "low"


INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(allow_nan=False)
NUMBERS = st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**12), max_value=10**12)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
LINES = st.builds(Line, TEXTS, INT32)
EITHER = st.sampled_from([(None, None), ("", None), ("x", None), (None, Note("n"))])
EVERYTHING: st.SearchStrategy[Everything] = st.deferred(
    lambda: st.builds(
        lambda either, **fields: Everything(name=either[0], remark=either[1], **fields),
        EITHER,
        text=TEXTS,
        small=INT32,
        large=st.integers(0, 2**64 - 1),
        signed=INT64,
        fixed=st.integers(0, 2**32 - 1),
        ratio=FLOATS,
        half=st.floats(width=32, allow_nan=False),
        flag=st.booleans(),
        data=st.binary(),
        key=st.uuids(),
        amount=NUMBERS,
        tier=st.sampled_from(Tier),
        kind=st.sampled_from(["BASIC", "GOLD"]),
        number=st.sampled_from(Number),
        lines=st.lists(LINES, max_size=2),
        numbers=st.lists(INT64, max_size=2).map(tuple),
        tags=st.frozensets(TEXTS, max_size=3),
        by_name=st.dictionaries(TEXTS, LINES, max_size=2),
        by_id=st.dictionaries(INT64, TEXTS, max_size=2),
        line=st.none() | LINES,
        note=st.none() | TEXTS,
        at=st.none() | st.datetimes(timezones=st.just(UTC)),
        wait=st.none() | st.timedeltas(timedelta(days=-3_000_000), timedelta(days=3_000_000)),
        day=st.none() | st.dates(),
        clock=st.none() | st.times(),
        price=st.none() | NUMBERS,
        count=st.none() | INT64,
        document=st.sampled_from([True, 1.5, "x", [1.0, None], {"a": {"b": "c"}}]),
        before=st.none() | EVERYTHING,
    )
)
SERDE = Protobuf(Everything, SCHEMA, "shop.Everything")
STORE: Protobuf[Any] = Protobuf(
    msgspec.defstruct(
        "Stored",
        [
            (each.name, each.type)
            for each in msgspec.structs.fields(Everything)
            if each.name not in ("by_id", "before", "level")
        ],
    ),
    SCHEMA,
    "shop.Everything",
)
POINT = 'syntax = "proto3"; package p; message Point { int32 x = 1; int32 y = 2; }'


class Point(msgspec.Struct, frozen=True):
    x: int
    y: int = 0


@settings(max_examples=30, deadline=None)
@given(EVERYTHING)
def test_every_value_comes_back(value: Everything) -> None:
    assert SERDE.deserialize(SERDE.serialize(value)) == value


@settings(max_examples=30, deadline=None)
@given(EVERYTHING)
def test_every_value_comes_back_from_a_store(value: Everything) -> None:
    store = STORE.stored()
    same: Any = STORE.deserialize(SERDE.serialize(value))

    assert store.deserialize(store.serialize(same)) == same


@settings(max_examples=30, deadline=None)
@given(EVERYTHING)
def test_the_messages_are_those_of_the_schema(value: Everything) -> None:
    message = SERDE._message.FromString(SERDE.serialize(value))

    assert (message.text, message.large, message.flag, list(message.numbers)) == (
        *(value.text, value.large, value.flag),
        list(value.numbers),
    )
    assert message.HasField("note") == (value.note is not None)
    assert message.WhichOneof("either") == (
        "name" if value.name is not None else "remark" if value.remark is not None else None
    )


@given(st.binary(max_size=40))
def test_foreign_bytes_are_a_value_or_an_error_of_data(data: bytes) -> None:
    try:
        SERDE.deserialize(data)
    except SerializationError as error:
        assert "bytes are not a protobuf(Everything)" in str(error)


def test_the_bytes_are_those_of_the_specification() -> None:
    serde = Protobuf(Point, POINT)

    assert serde.serialize(Point(150, -1)).hex() == "08960110ffffffffffffffffff01"
    assert serde.deserialize(bytes.fromhex("089601")) == Point(150)


@pytest.mark.parametrize(
    ("message", "golden"),
    [("p.A", "0000000001000801"), ("p.B", "00000000010202" + "0801"), ("p.B.C", "000000000104020" + "00801")],
)
def test_a_header_names_the_schema_and_the_place_of_the_message(message: str, golden: str) -> None:
    schema = 'syntax = "proto3"; package p; message A {int32 x=1;} message B {int32 x=1; message C {int32 x=1;}}'
    serde = bound(Protobuf(Point1, schema, message, registry=True), InMemory(), "t", is_key=False)

    assert serde.serialize(Point1(1)).hex() == golden
    assert serde.deserialize(bytes.fromhex(golden)) == Point1(1)


class Point1(msgspec.Struct):
    x: int


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("", "they do not begin with a zero"),
        ("0801", "they do not begin with a zero"),
        ("0000000001", "the path of the message ends too early"),
        ("000000000108", "has no path of 4 steps|ends too early"),
        ("00000000090008", "names schema 9, which is not in the registry in memory"),
        ("000000000100" + "08", "bytes are not a protobuf\\(Point\\)"),
        ("00000000010204" + "0801", "names a message of schema 1 that is not there: .* no message at \\[2\\]"),
        ("00000000010202" + "0801", "a record is a p.Other and not a p.Point"),
        ("00000000020008", "schema 2, which .* cannot read: it is AVRO and not Protobuf"),
    ],
)
def test_wrong_bytes_are_refused(data: str, reason: str) -> None:
    schemas = InMemory()
    serde = Protobuf(Point, POINT + " message Other {int32 x=1;}", "p.Point", registry=True)
    ours = bound(serde, schemas, "t", is_key=False)
    ours.serialize(Point(1))
    schemas.id_of("others", WriterSchema('"long"', "AVRO"))

    with pytest.raises(SerializationError, match=reason):
        ours.deserialize(bytes.fromhex(data))


def everything(**changed: Any) -> Everything:
    value = SERDE.deserialize(b"\x52\x24" + str(UUID(int=1)).encode() + b"\x5a\x011" + b"\x82\x02\x03low")
    return msgspec.structs.replace(value, **changed)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"small": 2**31}, "cannot be written"),
        ({"large": -1}, "cannot be written"),
        ({"large": 2**64}, "cannot be written"),
        ({"small": True}, "field 'small': int is expected, and this is bool"),
        ({"half": 1e300}, "field 'half': a number is too large for 32 bits"),
        ({"ratio": 2**60 + 1}, "field 'ratio': a number would be rounded"),
        ({"text": None}, "field 'text' is None"),
        ({"text": 5}, "cannot be written"),
        ({"tier": "gold"}, "field 'tier': a value is none of"),
        ({"level": "middle"}, "field 'level': a value is none of 'low', 'high'"),
        ({"at": datetime(2026, 1, 1)}, "field 'at': a datetime has no time zone"),
        ({"amount": Decimal("NaN")}, "field 'amount'"),
        ({"name": "x", "remark": Note("y")}, "only one of name, remark can be set, which are in oneof 'either'"),
    ],
)
def test_what_would_be_changed_on_the_way_is_refused(changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(SerializationError, match=reason):
        SERDE.serialize(everything(**changed))


@pytest.mark.parametrize(
    ("field", "data", "reason"),
    [
        ("at", timestamp_pb2.Timestamp(nanos=1), "field 'at': a timestamp has nanoseconds"),
        ("at", timestamp_pb2.Timestamp(seconds=10**15), "field 'at'"),
        ("tier", 3, "field 'tier': a value is none of 0, 5"),
        ("key", "x", "field 'key': badly formed"),
        ("amount", "many", "field 'amount'"),
    ],
)
def test_what_python_cannot_say_is_refused(field: str, data: Any, reason: str) -> None:
    message = SERDE._message.FromString(SERDE.serialize(everything()))
    if field == "at":
        message.at.MergeFromString(data.SerializeToString())
    else:
        setattr(message, field, data)

    with pytest.raises(SerializationError, match=reason):
        SERDE.deserialize(message.SerializeToString())


def struct(**fields: Any) -> Any:
    return msgspec.defstruct("Shape", [(n, *t) if isinstance(t, tuple) else (n, t) for n, t in fields.items()])


@pytest.mark.parametrize(
    ("type", "reason"),
    [
        (struct(nome=str), "field 'nome' is not in the schema, which has text, small"),
        (struct(text=int), "field 'text' is string in the schema, and int in the type"),
        (struct(text=str | None), "field 'text' may be None in the type, and is never missing in the schema"),
        (struct(name=str), "field 'name' may be missing in the schema, which has it in a oneof, and not in the type"),
        (struct(lines=Line), "field 'lines' is repeated shop.Line in the schema, and Line in the type"),
        (struct(by_id=dict[str, str]), "field 'by_id{}' is int64 in the schema, and str in the type"),
        (struct(by_name=list[Line]), "field 'by_name' is map<string, shop.Line> in the schema, and list"),
        (struct(kind=Literal["BASIC"]), "field 'kind' .*: the schema has BASIC, GOLD"),
        (struct(line=struct(count=str)), "field 'line.count' is int32 in the schema, and str in the type"),
        (struct(at=date), "field 'at' is google.protobuf.Timestamp in the schema, and date in the type"),
        (int, "a message is a Struct, a dataclass or a NamedTuple, and not int"),
    ],
)
def test_a_type_that_does_not_fit_is_refused_by_field(type: Any, reason: str) -> None:
    with pytest.raises(TypeError, match=reason):
        Protobuf(type, SCHEMA, "shop.Everything")


def test_a_message_that_is_not_set_is_named_unless_it_may_be_missing() -> None:
    serde: Any = Protobuf(struct(line=Line), SCHEMA, "shop.Everything")
    with_default: Any = Protobuf(struct(line=(Line, Line("d", 1))), SCHEMA, "shop.Everything")

    with pytest.raises(SerializationError, match="field 'line' is not set"):
        serde.deserialize(b"")
    assert with_default.deserialize(b"").line == Line("d", 1)


def test_equal_values_have_equal_bytes() -> None:
    lines = {f"text-{number}": Line("x", number) for number in range(50)}
    one, other = everything(by_name=lines), everything(by_name=dict(reversed(lines.items())))

    assert SERDE.serialize(one) == SERDE.serialize(other)


@pytest.mark.parametrize(
    ("schema", "message", "reason"),
    [
        ("message {", None, "schema.proto:1: Expected"),
        ('syntax = "proto3"; message A {} message B {}', None, "message= says which one is meant of A, B"),
        (POINT, "p.Pont", "there is no message 'p.Pont', but p.Point"),
        ('syntax = "proto3"; import "gone.proto"; message A {}', None, "gone.proto"),
        (b"\xff", None, "this is no set of descriptors"),
        (b"", None, "an empty set of descriptors"),
    ],
)
def test_what_is_no_schema_is_refused(schema: Any, message: str | None, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Protobuf(Point, schema, message)


def test_a_schema_may_be_a_file_that_imports_others_or_a_set_of_descriptors(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "point.proto").write_text(POINT)
    (tmp_path / "path.proto").write_text(
        'syntax = "proto3"; import "shop/point.proto"; message Path {repeated p.Point of = 1;}'
    )
    path = msgspec.defstruct("Path", [("of", list[Point])])

    serde = Protobuf(path, tmp_path / "path.proto", registry=True)
    files = descriptor_pb2.FileDescriptorSet(
        file=[descriptor_pb2.FileDescriptorProto.FromString(each) for each in serde._descriptors.files]
    )
    (tmp_path / "path.binpb").write_bytes(files.SerializeToString())

    assert Protobuf(path, tmp_path / "path.binpb", registry=True) == serde
    assert [each.name for each in serde.writer_schema.references] == ["shop/point.proto"]
    assert serde.deserialize(serde.serialize(path([Point(1)]))) == path([Point(1)])


def test_the_values_may_be_messages_of_a_generated_class() -> None:
    serde = Protobuf(timestamp_pb2.Timestamp, registry=True)
    value = timestamp_pb2.Timestamp(seconds=5)

    assert serde.deserialize(serde.serialize(value)) == value
    assert serde.stored().serialize(value) == b"\x08\x05"
    assert pickle.loads(pickle.dumps(serde)) == serde


def test_a_type_needs_a_schema() -> None:
    with pytest.raises(TypeError, match="schema= says how Point is written"):
        Protobuf(Point)


V2 = 'syntax = "proto3"; package p; message Point { int64 x = 1; int32 y = 2; repeated string more = 3; }'


def test_versions_that_fit_read_each_other() -> None:
    schemas = InMemory()
    old = bound(Protobuf(Point, POINT, registry=True), schemas, "t", is_key=False)
    bigger = msgspec.defstruct("Point", [("x", int), ("more", list[str])])
    new: Any = bound(Protobuf(bigger, V2, registry=True), schemas, "t", is_key=False)

    assert new.deserialize(old.serialize(Point(1, 2))) == bigger(1, [])
    with pytest.raises(SerializationError, match=r"schema 2, .* field 1, 'x' is written as int64, and read as int32"):
        old.deserialize(new.serialize(bigger(1, ["m"])))


def test_a_registry_may_hold_the_text_of_a_schema_and_its_references() -> None:
    schemas = InMemory()
    text = 'syntax = "proto3"; import "point.proto"; message Path {repeated p.Point of = 1;}'
    number = schemas.id_of(
        "t", WriterSchema(text, "PROTOBUF", (Reference("point.proto", WriterSchema(POINT, "PROTOBUF")),))
    )
    path = msgspec.defstruct("Path", [("of", list[Point])])
    serde: Any = bound(Protobuf(path, text, imports={"point.proto": POINT}, registry=True), schemas, "t", is_key=False)

    assert serde.deserialize(bytes((0, 0, 0, 0, number, 0)) + b"\x0a\x02\x08\x07") == path([Point(7)])


@pytest.mark.parametrize(
    ("old", "new", "reasons"),
    [
        ("int32 x = 1;", "int64 y = 1;", []),
        ("bool x = 1;", "int32 x = 1;", []),
        ("E x = 1;", "int32 x = 1;", []),
        ("string x = 1;", "bytes x = 1;", []),
        ("string x = 1;", "repeated string x = 1;", []),
        ("string x = 1;", "string x = 2;", []),
        ("int64 x = 1;", "int32 x = 1;", ["field 1, 'x' is written as int64, and read as int32"]),
        ("int32 x = 1;", "sint32 x = 1;", ["field 1, 'x' is written as int32, and read as sint32"]),
        ("repeated int32 x = 1;", "int32 x = 1;", ["field 1, 'x' is written as repeated int32, and read as int32"]),
        ("M x = 1;", "string x = 1;", ["field 1, 'x' is written as M, and read as string"]),
        ("M x = 1;", "N x = 1;", ["field 1, 'a' of field 1, 'x' is written as int32, and read as string"]),
        ("E x = 1;", "F x = 1;", ["field 1, 'x' can be 'B', which F does not have"]),
        ("map<string, M> x = 1;", "map<string, N> x = 1;", None),
        (
            "map<int32, M> x = 1;",
            "repeated N x = 1;",
            ["field 1, 'x' is written as map<int32, M>, and read as repeated N"],
        ),
    ],
)
def test_what_cannot_be_read_is_said_by_field(old: str, new: str, reasons: list[str] | None) -> None:
    rest = "message M {int32 a=1;} message N {string a=1;} enum E {A=0; B=1;} enum F {C=0;}"
    head = 'syntax = "proto3"; message T'

    class Empty(msgspec.Struct):
        pass

    one, other = (Protobuf(Empty, f"{head} {{{fields}}} {rest}".replace("C=0", "G=0"), "T") for fields in (old, new))
    found = breaking_changes(schema_of(one), schema_of(other))

    assert found == (reasons or []) if reasons is not None else len(found) == 1
    assert in_words(schema_of(one)) == "protobuf(T)"


def test_older_records_of_another_format_are_read() -> None:
    serde = Protobuf(Point, POINT, registry=True, otherwise=Json(Point))

    assert serde.deserialize(b'{"x":3}') == Point(3)
    assert serde.deserialize(serde.serialize(Point(4))) == Point(4)
    assert pickle.loads(pickle.dumps(serde)) == serde


def test_proto2_fields_that_are_required_are_required() -> None:
    schema = 'syntax = "proto2"; message Point { required int32 x = 1; optional int32 y = 2 [default = 7]; }'
    serde = Protobuf(struct(x=int, y=int), schema)

    assert serde.deserialize(b"\x08\x01") == serde.type(1, 7)
    with pytest.raises(SerializationError, match="x is not set, which is required"):
        serde.deserialize(b"")


def test_descriptors_name_the_only_message() -> None:
    assert descriptors(POINT, None).message == "p.Point"
