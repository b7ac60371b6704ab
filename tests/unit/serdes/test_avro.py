"""Avro is exact: what it writes is what others write, and what does not fit is refused with its field."""

from __future__ import annotations

import io
import json
import pickle
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

import fastavro
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltaworks import Avro, DecimalDigits, Json, SerializationError
from deltaworks.serdes.schemas import InMemory, WriterSchema, bound
from deltaworks.topology.columns import flat_columns


class Tier(Enum):
    BASIC = "basic"
    GOLD = "gold"


class Line(msgspec.Struct, frozen=True, tag=True):
    item: str
    count: int = 1


class Note(msgspec.Struct, frozen=True, tag=True):
    text: str


@dataclass
class Point:
    x: float
    y: float = 0.0


class Pair(NamedTuple):
    left: int
    right: str | None = None


class Everything(msgspec.Struct, kw_only=True):
    """A value of each type that Avro and Python share."""

    text: str
    number: int
    ratio: float
    flag: bool
    data: bytes
    day: date
    clock: time
    at: datetime
    local: Annotated[datetime, msgspec.Meta(tz=False)]
    key: UUID
    amount: Annotated[Decimal, DecimalDigits(12, 2)]
    tier: Tier
    kind: Literal["A", "B"]
    level: Literal[1, 2]
    lines: list[Line]
    points: tuple[Point, ...]
    tags: frozenset[str]
    prices: dict[str, Annotated[Decimal, DecimalDigits(12, 2)]]
    pair: Pair
    either: Line | Note | None
    mixed: int | str | float | bool | None
    before: Everything | None = None
    when: datetime | None = None


INT64 = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(allow_nan=False)
CENTS = st.decimals("-9999999999.99", "9999999999.99", places=2)
INSTANTS = st.datetimes(timezones=st.just(UTC))
LINES = st.builds(Line, st.text(), INT64)
EVERYTHING: st.SearchStrategy[Everything] = st.deferred(
    lambda: st.builds(
        Everything,
        text=st.text(),
        number=INT64,
        ratio=FLOATS,
        flag=st.booleans(),
        data=st.binary(),
        day=st.dates(),
        clock=st.times(),
        at=INSTANTS,
        local=st.datetimes(),
        key=st.uuids(),
        amount=CENTS,
        tier=st.sampled_from(Tier),
        kind=st.sampled_from(["A", "B"]),
        level=st.sampled_from([1, 2]),
        lines=st.lists(LINES, max_size=2),
        points=st.lists(st.builds(Point, FLOATS, FLOATS), max_size=2).map(tuple),
        tags=st.frozensets(st.text(), max_size=3),
        prices=st.dictionaries(st.text(), CENTS, max_size=3),
        pair=st.builds(Pair, INT64, st.none() | st.text()),
        either=st.none() | LINES | st.builds(Note, st.text()),
        mixed=st.none() | INT64 | st.text() | FLOATS | st.booleans(),
        before=st.none() | EVERYTHING,
        when=st.none() | INSTANTS,
    )
)
SERDE = Avro(Everything)


@settings(max_examples=40, deadline=None)
@given(EVERYTHING)
def test_every_value_comes_back(value: Everything) -> None:
    assert SERDE.deserialize(SERDE.serialize(value)) == value


@settings(max_examples=40, deadline=None)
@given(EVERYTHING)
def test_every_value_comes_back_from_a_store(value: Everything) -> None:
    store = SERDE.stored()

    assert store.deserialize(store.serialize(value)) == value


def test_the_columns_of_a_table_are_those_of_the_type() -> None:
    assert [column.name for column in flat_columns(SERDE.type, "value")][:3] == ["text", "number", "ratio"]


@pytest.mark.parametrize(
    ("type", "value", "golden"),
    [
        (int, 7, "0e"),
        (int, -1, "01"),
        (int, 2**63 - 1, "feffffffffffffffff01"),
        (str, "ä", "04c3a4"),
        (bytes, b"\x00\xff", "0400ff"),
        (bool, True, "01"),
        (float, 1.5, "000000000000f83f"),
        (date, date(1970, 1, 3), "04"),
        (time, time(0, 0, 0, 5), "0a"),
        (datetime, datetime(1970, 1, 1, 0, 0, 0, 7, tzinfo=UTC), "0e"),
        (Annotated[Decimal, DecimalDigits(4, 2)], Decimal("2.56"), "040100"),
        (Annotated[Decimal, DecimalDigits(4, 2)], Decimal(-1), "029c"),
        (list[int], [1, 2], "04020400"),
        (dict[str, int], {"b": 2, "a": 1}, "0402610202620400"),
        (int | None, 7, "000e"),
        (Line, Line("x", 2), "027804"),
    ],
)
def test_the_bytes_are_those_of_the_specification(type: Any, value: Any, golden: str) -> None:
    assert Avro(type).serialize(value).hex() == golden
    assert Avro(type).deserialize(bytes.fromhex(golden)) == value


def test_a_header_names_the_schema() -> None:
    schemas = InMemory()
    serde = bound(Avro(int, registry=True), schemas, "numbers", is_key=False)

    assert serde.serialize(7).hex() == "00000000010e"
    assert serde.deserialize(bytes.fromhex("00000000010e")) == 7
    assert schemas.subjects() == ["numbers-value"]


@pytest.mark.parametrize(
    ("subject", "is_key", "expected"),
    [
        ("topic", True, "orders-key"),
        ("topic", False, "orders-value"),
        ("record", False, "shop.Line"),
        ("topic-record", False, "orders-shop.Line"),
    ],
)
def test_a_schema_has_the_subject_of_its_strategy(subject: Any, is_key: bool, expected: str) -> None:
    schemas = InMemory()
    serde = Avro(Line, namespace="shop", registry=True, subject=subject)

    bound(serde, schemas, "orders", is_key=is_key).serialize(Line("x"))

    assert schemas.subjects() == [expected]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("", "they do not begin with a zero"),
        ("7b7d", "they do not begin with a zero"),
        ("01000000010e", "they do not begin with a zero"),
        ("000000", "they do not begin with a zero"),
        ("00000000070e", "names schema 7, which is not in the registry in memory"),
        ("0000000001", "they end too early"),
        ("00000000010e0e", "the value ends after 1"),
        ("00000000020e", "schema 2, which .* cannot read: it is JSON and not Avro"),
        ("0000000003027a", "the value is written as string, and read as long"),
    ],
)
def test_wrong_bytes_are_refused(data: str, reason: str) -> None:
    schemas = InMemory()
    serde = bound(Avro(int, registry=True), schemas, "numbers", is_key=False)
    serde.serialize(1)
    schemas.id_of("others", WriterSchema("{}", "JSON"))
    schemas.id_of("texts", WriterSchema('"string"', "AVRO"))

    with pytest.raises(SerializationError, match=reason):
        serde.deserialize(bytes.fromhex(data))


@given(st.binary(max_size=40))
def test_foreign_bytes_are_a_value_or_an_error_of_data(data: bytes) -> None:
    try:
        SERDE.deserialize(data)
    except SerializationError as error:
        assert "bytes are not a avro(Everything)" in str(error)


@settings(max_examples=40, deadline=None)
@given(EVERYTHING, st.data())
def test_bytes_that_are_cut_off_are_refused(value: Everything, data: st.DataObject) -> None:
    whole = SERDE.serialize(value)
    size = data.draw(st.integers(0, len(whole) - 1))

    with pytest.raises(SerializationError):
        SERDE.deserialize(whole[:size])


SCHEMAS: dict[str, Any] = {
    "int": "int",
    "float": "float",
    "millis": {"type": "long", "logicalType": "timestamp-millis"},
    "time-millis": {"type": "int", "logicalType": "time-millis"},
    "local": {"type": "long", "logicalType": "local-timestamp-millis"},
    "decimal": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
    "fixed": {"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal", "precision": 6, "scale": 2},
}
NOW = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)


@pytest.mark.parametrize(
    ("type", "schema", "value", "reason"),
    [
        (int, "int", 2**31, "more than 32 bits"),
        (int, None, 2**63, "more than 64 bits"),
        (int, None, True, "int is expected, and this is bool"),
        (int, None, 1.5, "int is expected, and this is float"),
        (float, None, 2**60 + 1, "would be rounded"),
        (float, "float", 1e300, "too large for 32 bits"),
        (str, None, 5, "must be string"),
        (bool, None, 1, "bool is expected, and this is int"),
        (bytes, None, "x", "bytes is expected, and this is str"),
        (datetime, "millis", NOW, "microseconds, and the schema milliseconds"),
        (datetime, None, NOW.replace(tzinfo=None), "has no time zone"),
        (datetime, "local", NOW, "has a time zone"),
        (time, "time-millis", time(0, 0, 0, 1), "microseconds, and the schema milliseconds"),
        (time, None, time(0, tzinfo=UTC), "has a time zone"),
        (date, None, NOW, "date is expected, and this is datetime"),
        (Decimal, "decimal", Decimal("1.234"), "more than 2 digits behind the point"),
        (Decimal, "decimal", Decimal("100"), "more than 4 digits"),
        (Decimal, "decimal", Decimal("NaN"), "cannot be written"),
        (Decimal, "fixed", Decimal("999.99"), "more than 2 bytes"),
        (Line, None, Line("x", 2**63), "field 'count': a number takes more than 64 bits"),
        (Line, None, Note("x"), "no attribute 'item'"),
        (int | str, None, 1.5, "float is none of int, str"),
    ],
)
def test_what_would_be_changed_on_the_way_is_refused(type: Any, schema: str | None, value: Any, reason: str) -> None:
    serde: Avro[Any] = Avro(type, None if schema is None else SCHEMAS[schema])

    with pytest.raises(SerializationError, match=reason):
        serde.serialize(value)


def test_a_decimal_with_too_many_digits_is_refused_and_not_rounded() -> None:
    serde = Avro(Decimal, SCHEMAS["decimal"])

    with pytest.raises(SerializationError, match="more than 4 digits"):
        serde.deserialize(bytes.fromhex("0801020304"))


def test_a_decimal_keeps_its_digits() -> None:
    for schema in ("decimal", "fixed"):
        serde = Avro(Decimal, SCHEMAS[schema])
        assert [str(serde.deserialize(serde.serialize(Decimal(text)))) for text in ("1.5", "-0.01")] == [
            "1.50",
            "-0.01",
        ]


def test_instants_are_read_in_utc() -> None:
    berlin = datetime(2026, 3, 1, 13, tzinfo=timezone(timedelta(hours=1)))

    assert Avro(datetime).deserialize(Avro(datetime).serialize(berlin)).tzinfo is UTC


def test_equal_values_have_equal_bytes() -> None:
    texts = [f"text-{number}" for number in range(50)]
    tags, prices, lists = Avro(frozenset[str]), Avro(dict[str, str]), Avro(dict[str, frozenset[str]])

    assert tags.serialize(frozenset(texts)) == Avro(list[str]).serialize(sorted(texts))
    assert prices.serialize({"b": "1", "a": "2"}) == prices.serialize({"a": "2", "b": "1"})
    assert lists.serialize({"b": frozenset("xy"), "a": frozenset()}) == lists.serialize(
        {"a": frozenset(), "b": frozenset("yx")}
    )


ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "tier", "type": {"type": "enum", "name": "Tier", "symbols": ["BASIC", "GOLD"]}},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [
            {"name": "item", "type": "string"}, {"name": "count", "type": "int", "default": 1}]}}},
    ],
}  # fmt: skip


def order(**fields: Any) -> Any:
    return msgspec.defstruct(
        "Order", [(n, *t) if isinstance(t, tuple) else (n, t) for n, t in fields.items()], kw_only=True
    )


def test_a_type_may_have_fewer_fields_than_the_schema() -> None:
    full = Avro(order(id=str, amount=Decimal, tier=Tier, note=(str | None, None), lines=list[Line]), ORDER)
    part: Avro[Any] = Avro(order(lines=list[order(count=int)], id=str), ORDER)  # type: ignore[misc]

    read = part.deserialize(full.serialize(full.type(id="a", amount=Decimal(1), tier=Tier.GOLD, lines=[Line("x", 3)])))

    assert (read.id, read.lines[0].count) == ("a", 3)


def test_a_type_without_a_field_that_has_no_default_cannot_be_written() -> None:
    serde: Avro[Any] = Avro(order(id=str, lines=list[Line], tier=Tier), ORDER)

    with pytest.raises(SerializationError, match="field 'amount' is not in the type, and has no default"):
        serde.serialize(serde.type(id="a", lines=[], tier=Tier.GOLD))


@pytest.mark.parametrize(
    ("type", "reason"),
    [
        (order(name=str), "field 'name' is not in the schema, which has id, amount, tier, note, lines"),
        (order(id=int), "field 'id' is string in the schema, and int in the type"),
        (order(amount=float), r"field 'amount' is bytes \(decimal 10, 2\) in the schema, and float in the type"),
        (order(amount=Annotated[Decimal, DecimalDigits(9, 2)]), "field 'amount' .* with 9 digits, 2 after the point"),
        (order(tier=Literal["BASIC"]), "field 'tier' .* the schema has BASIC, GOLD"),
        (order(note=str), r"field 'note' is null \| string in the schema, and str in the type: it may be null"),
        (order(lines=list[order(count=str)]), r"field 'lines\[\].count' is int in the schema, and str in the type"),  # type: ignore[misc]
        (order(lines=dict[str, Line]), r"field 'lines' is array of shop.Line in the schema, and dict\[str, Line\]"),
        (order(id=int, name=str), "field 'id' .*; field 'name' "),
    ],
)
def test_a_type_that_does_not_fit_is_refused_by_field(type: Any, reason: str) -> None:
    with pytest.raises(TypeError, match=reason):
        Avro(type, ORDER)


@pytest.mark.parametrize(
    ("type", "reason"),
    [
        (order(wait=timedelta), "field 'wait': Avro has no type for timedelta"),
        (order(any=Any), "field 'any': Avro has no type for Any"),
        (order(pair=tuple[int, str]), "field 'pair': no format has a type for a tuple of a fixed length"),
        (order(inner=order(x=complex)), "field 'inner.x': no format has a type for complex"),
        (order(by_id=dict[int, str]), r"field 'by_id': Avro has no type for dict\[int, str\]"),
        (order(x=list[int] | set[int]), "it cannot be set"),
    ],
)
def test_a_type_that_avro_does_not_have_is_refused_by_field(type: Any, reason: str) -> None:
    with pytest.raises(TypeError, match=reason):
        Avro(type)


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("{", "an Avro schema is JSON"),
        ({"type": "strin"}, "there is no type 'strin'"),
        ({"type": "record", "name": "A"}, "'A' has no 'fields'"),
        ({"type": "array", "items": {"type": "enum", "name": "E"}}, "'E' has no 'symbols'"),
    ],
)
def test_what_is_no_schema_is_refused(schema: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Avro(int, schema)


def test_a_schema_may_be_a_file_or_a_text_and_refer_to_others(tmp_path: Path) -> None:
    (tmp_path / "line.avsc").write_text(json.dumps(ORDER["fields"][4]["type"]["items"]))  # type: ignore[index]
    lines = {"type": "record", "name": "Lines", "fields": [{"name": "all", "type": {"type": "array", "items": "Line"}}]}
    (tmp_path / "lines.avsc").write_text(json.dumps(lines))
    lines_type = msgspec.defstruct("Lines", [("all", list[Line])])

    serde = Avro(lines_type, tmp_path / "lines.avsc", references={"Line": tmp_path / "line.avsc"})

    assert serde == Avro(lines_type, lines, references={"Line": (tmp_path / "line.avsc").read_text()})
    assert serde.serialize(lines_type([Line("x")])).hex() == "0202780200"


def test_names_in_bytes_may_differ_from_those_in_python() -> None:
    class Renamed(msgspec.Struct, rename="camel"):
        order_id: str
        is_new: bool = True

    serde = Avro(Renamed)

    assert [each["name"] for each in json.loads(serde.schema)["fields"]] == ["orderId", "isNew"]
    assert serde.deserialize(serde.serialize(Renamed("a", False))) == Renamed("a", False)


def test_fastavro_agrees_with_the_schema() -> None:
    value = Everything(
        text="t", number=1, ratio=1.5, flag=True, data=b"d", day=date(2026, 1, 2), clock=time(1, 2, 3, 4), at=NOW,
        local=NOW.replace(tzinfo=None), key=UUID(int=5), amount=Decimal("1.50"), tier=Tier.GOLD, kind="B", level=2,
        lines=[Line("x")], points=(Point(1.0),), tags=frozenset("a"), prices={"p": Decimal("2.00")}, pair=Pair(1),
        either=Note("n"), mixed=4,
    )  # fmt: skip

    read: Any = fastavro.schemaless_reader(io.BytesIO(SERDE.serialize(value)), json.loads(SERDE.schema), None)

    assert (read["at"], read["local"], read["amount"], read["key"]) == (value.at, value.local, value.amount, value.key)
    assert (read["tier"], read["lines"], read["either"]) == ("gold", [{"item": "x", "count": 1}], {"text": "n"})


def test_older_records_of_another_format_are_read() -> None:
    serde = Avro(Line, registry=True, otherwise=Json(Line))

    assert serde.deserialize(b'{"type":"Line","item":"x","count":2}') == Line("x", 2)
    assert serde.deserialize(serde.serialize(Line("y"))) == Line("y")


def test_an_otherwise_needs_a_header() -> None:
    with pytest.raises(TypeError, match="needs registry=True"):
        Avro(Line, otherwise=Json(Line))


def test_the_serde_travels_without_its_registry() -> None:
    serde = Avro(Everything, registry=True, subject="record")
    serde.serialize  # noqa: B018
    bound_serde = bound(serde, InMemory(), "t", is_key=True)

    assert pickle.loads(pickle.dumps(bound_serde)) == serde == bound_serde
    assert serde != Avro(Everything)
    assert serde.name == "avro(Everything)"


def test_a_registry_gets_a_schema_as_it_was_given() -> None:
    line = {"type": "record", "name": "shop.Line", "connect.version": 2, "fields": [{"name": "item", "type": "string"}]}
    text = '{"type": "record", "name": "shop.Order", "owner": "us", "fields": [{"type": "Line", "name": "line"}]}'
    kind = msgspec.defstruct("Order", [("line", msgspec.defstruct("Line", [("item", str)]))])
    serde = Avro(kind, text, references={"shop.Unused": '"int"', "shop.Line": line}, registry=True)

    registered = serde.writer_schema

    assert json.loads(registered.text) == json.loads(text)
    assert [(each.name, json.loads(each.schema.text)) for each in registered.references] == [("shop.Line", line)]
    again: Any = pickle.loads(
        pickle.dumps(bound(Avro.generic(text, references={"shop.Line": line}), InMemory(), "t", is_key=False))
    )
    assert again.deserialize(again.serialize(again.deserialize(b"\x02x"))).line.item == "x"
