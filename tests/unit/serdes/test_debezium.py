"""Records are those of Debezium 3.5: its envelope, with and without schema, and rows of ExtractNewRecordState."""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, get_type_hints
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltaworks import Debezium, DebeziumChanges, DecimalDigits, Json, RowChange, SerializationError
from deltaworks.serdes.debezium.columns import column_of
from deltaworks.serdes.schema import breaking_changes, schema_of

LEFT_OUT = "__debezium_unavailable_value"
UID = "0191e9c7-7b1c-7c3e-8f2a-3d2b1a0c9d8e"


class Customer(msgspec.Struct, frozen=True):
    id: int
    name: str
    vip: bool = False


class Everything(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    amount: Annotated[Decimal, DecimalDigits(10, 2)] | None = None
    born: date | None = None
    seen: datetime | None = None
    local: Annotated[datetime, msgspec.Meta(tz=False)] | None = None
    at: time | None = None
    lasts: timedelta | None = None
    uid: UUID | None = None
    photo: bytes | None = None
    vip: bool | None = None
    tags: list[str] | None = None
    days: list[date] | None = None
    details: dict[str, int] | None = None
    anything: Any = None
    kind: Literal["a", "b"] | None = None
    score: float | None = None
    flags: set[str] | None = None


POSTGRES = {
    "version": "3.5.0.Final",
    "connector": "postgresql",
    "name": "shop",
    "ts_ms": 1772524800000,
    "snapshot": "false",
    "db": "shop",
    "sequence": '["26857744","26858016"]',
    "ts_us": 1772524800000123,
    "ts_ns": 1772524800000123000,
    "schema": "public",
    "table": "customers",
    "txId": 771,
    "lsn": 26858016,
    "xmin": None,
    "origin": None,
    "origin_lsn": None,
}
MARIADB = {
    "version": "3.5.0.Final",
    "connector": "mariadb",
    "name": "crm",
    "ts_ms": 1772524800000,
    "snapshot": "false",
    "db": "crm",
    "sequence": None,
    "ts_us": 1772524800000000,
    "ts_ns": 1772524800000000000,
    "table": "customers",
    "server_id": 1,
    "gtid": "0-1-42",
    "file": "binlog.000001",
    "pos": 1337,
    "row": 0,
    "thread": 9,
}


def packed(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def envelope(
    op: str,
    after: Mapping[str, Any] | None = None,
    before: Mapping[str, Any] | None = None,
    source: Mapping[str, Any] = POSTGRES,
) -> bytes:
    times = {"ts_ms": 1772524800456, "ts_us": 1772524800456789, "ts_ns": 1772524800456789000}
    return packed({"before": before, "after": after, "source": source, "transaction": None, "op": op, **times})


def row(deleted: str = "false", op: str = "u", **columns: Any) -> bytes:
    return packed({**columns, "__deleted": deleted, "__op": op, "__ts_ms": 5, "__source_ts_ms": 1772524800000})


def with_schema(payload: bytes, columns: list[dict[str, Any]] | None, *, inside: bool = True) -> bytes:
    """A record as the JSON converter writes it, with the schema of the envelope or of a row."""
    struct = {"type": "struct", "fields": columns, "optional": True, "name": "shop.public.customers.Value"}
    fields = [{**struct, "field": "before"}, {**struct, "field": "after"}]
    whole = {"type": "struct", "fields": fields, "optional": False, "name": "shop.public.customers.Envelope"}
    return packed({"schema": whole if inside else struct, "payload": json.loads(payload)})


ID = {"type": "int32", "optional": False, "field": "id"}


def column(name: str, kind: str, meaning: str | None = None, **more: Any) -> dict[str, Any]:
    said = {"name": meaning, "version": 1} if meaning else {}
    return {"type": kind, "optional": True, **said, **more, "field": name}


ANN = Customer(7, "Ann")
AFTER = {"id": 7, "name": "Ann"}


@pytest.mark.parametrize("op", ["c", "r", "u"])
def test_a_change_is_the_row_after_it(op: str) -> None:
    assert Debezium(Customer).deserialize(envelope(op, AFTER)) == ANN


def test_a_deletion_is_a_null() -> None:
    serde = Debezium(Customer)

    assert serde.deserialize(envelope("d", None, {"id": 7, "name": None})) is None
    assert serde.deserialize(row("true", "d", id=7, name=None)) is None
    assert serde.deserialize(packed({"id": 7, "__op": "d"})) is None
    assert serde.deserialize(None) is None
    assert serde.deserialize(b'{"schema":{"type":"string"},"payload":null}') is None


def test_a_row_is_read_with_what_was_added_to_it() -> None:
    assert Debezium(Customer).deserialize(row(id=7, name="Ann", other=1)) == ANN
    assert Debezium(Customer).deserialize(packed(AFTER)) == ANN


def test_a_topic_may_go_from_changes_to_rows() -> None:
    serde, columns = Debezium(Customer), [ID, column("name", "string")]
    records = [
        envelope("c", AFTER),
        with_schema(envelope("c", AFTER), columns),
        row(id=7, name="Ann"),
        with_schema(row(id=7, name="Ann"), columns, inside=False),
    ]

    assert [serde.deserialize(each) for each in records] == [ANN] * 4


def test_a_row_may_have_columns_named_like_parts_of_a_change() -> None:
    class Odd(msgspec.Struct):
        op: str
        before: int
        after: str
        source: str
        payload: int
        schema: str

    found = {"op": "x", "before": 1, "after": "y", "source": '{"connector":1}', "payload": 2, "schema": "{}"}

    assert Debezium(Odd).deserialize(packed(found)) == Odd("x", 1, "y", '{"connector":1}', 2, "{}")


def test_a_record_of_the_other_form_is_refused() -> None:
    with pytest.raises(SerializationError, match="form='row' takes only rows"):
        Debezium(Customer, form="row").deserialize(envelope("c", AFTER))
    with pytest.raises(SerializationError, match="form='envelope' takes only changes"):
        Debezium(Customer, form="envelope").deserialize(row(id=7, name="Ann"))
    with pytest.raises(TypeError, match="form is 'rows'"):
        Debezium(Customer, form="rows")  # type: ignore[arg-type]


class AllDefaults(msgspec.Struct):
    id: int = 0


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"ts_ms":1772524800000}', "a heartbeat"),
        (
            packed({"schema": {"type": "struct", "name": "io.debezium.connector.common.Heartbeat", "fields": []},
                    "payload": {"ts_ms": 1}}),
            "a heartbeat",
        ),
        (
            packed({"status": "END", "id": "571:53195832", "event_count": 2, "data_collections": [], "ts_ms": 1}),
            "the border of a transaction",
        ),
        (
            packed({"source": MARIADB, "ts_ms": 1, "databaseName": "crm", "schemaName": None, "ddl": "ALTER",
                    "tableChanges": []}),
            "a change of a table's columns",
        ),
        (packed({"op": "m", "ts_ms": 1, "source": POSTGRES, "message": {"prefix": "a", "content": "eA=="}}), "op=m"),
        (packed({"op": "c", "after": '{"_id":1}', "source": {"connector": "mongodb"}}), "MongoDB"),
        (envelope("x", AFTER), "operation is 'x'"),
        (envelope("u", None), "it has no `after`"),
        (envelope("t"), "the table was truncated"),
        (b"[]", "Expected `object`"),
        (b'{"id":', "truncated"),
        (b"\xff", "malformed"),
    ],
)  # fmt: skip
def test_what_is_no_row_is_refused_and_says_what_it_is(data: bytes, reason: str) -> None:
    with pytest.raises(SerializationError, match=reason):
        Debezium(AllDefaults).deserialize(data)


def test_a_truncated_table_can_be_ignored() -> None:
    assert Debezium(Customer, on_truncate="ignore").deserialize(envelope("t")) is None
    assert DebeziumChanges(Customer).deserialize(envelope("t")).op == "t"


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        ({"id": "7", "name": "Ann"}, r"Expected `int`, got `str` - at `\$.id`"),
        ({"id": 7}, "missing required field `name`"),
        ({"id": 7, "name": None}, r"Expected `str`, got `null` - at `\$.name`"),
        ({"id": 7, "name": "Ann", "vip": 2}, r"Expected `bool`, got `int` - at `\$.vip`"),
    ],
)
def test_a_column_that_does_not_fit_is_named(after: dict[str, Any], reason: str) -> None:
    with pytest.raises(SerializationError, match=reason) as caught:
        Debezium(Customer).deserialize(envelope("u", after))
    assert "Ann" not in str(caught.value)


def test_a_new_column_flows_on_once_the_type_has_it() -> None:
    class Wider(Customer, frozen=True):
        city: str | None = None

    old, new = envelope("u", AFTER), envelope("u", AFTER | {"city": "Ulm"})

    assert Debezium(Customer).deserialize(new) == ANN
    assert [Debezium(Wider).deserialize(each).city for each in (old, new)] == [None, "Ulm"]


# Types: (field, what the schema says, the value in JSON, the value in Python)
TYPED = [
    ("amount", ("bytes", "org.apache.kafka.connect.data.Decimal"), "BNI=", Decimal("12.34")),
    ("amount", ("bytes", "org.apache.kafka.connect.data.Decimal"), "/w==", Decimal("-0.01")),
    ("amount", ("bytes", "org.apache.kafka.connect.data.Decimal"), "1234", Decimal("-26588.24")),
    ("amount", ("struct", "io.debezium.data.VariableScaleDecimal"), {"scale": 3, "value": "MDk="}, Decimal("12.345")),
    ("amount", ("string", None), "12.34", Decimal("12.34")),
    ("amount", ("double", None), 12.34, Decimal("12.34")),
    ("born", ("int32", "io.debezium.time.Date"), 20515, date(2026, 3, 3)),
    ("born", ("int32", "org.apache.kafka.connect.data.Date"), -1, date(1969, 12, 31)),
    ("born", ("string", "io.debezium.time.IsoDate"), "2026-03-03Z", date(2026, 3, 3)),
    ("seen", ("int64", "io.debezium.time.Timestamp"), 1772524800123, datetime(2026, 3, 3, 8, 0, 0, 123000, UTC)),
    ("seen", ("int64", "io.debezium.time.MicroTimestamp"), 1772524800000001, datetime(2026, 3, 3, 8, 0, 0, 1, UTC)),
    ("seen", ("int64", "io.debezium.time.NanoTimestamp"), 1772524800000001000, datetime(2026, 3, 3, 8, 0, 0, 1, UTC)),
    ("seen", ("int64", "org.apache.kafka.connect.data.Timestamp"), -1, datetime(1969, 12, 31, 23, 59, 59, 999000, UTC)),
    ("seen", ("string", "io.debezium.time.ZonedTimestamp"), "1970-01-02T00:00:00Z", datetime(1970, 1, 2, tzinfo=UTC)),
    ("local", ("int64", "io.debezium.time.MicroTimestamp"), 1772524800000001, datetime(2026, 3, 3, 8, 0, 0, 1)),
    ("at", ("int64", "io.debezium.time.MicroTime"), 43_200_000_001, time(12, 0, 0, 1)),
    ("at", ("int32", "io.debezium.time.Time"), 1, time(0, 0, 0, 1000)),
    ("at", ("string", "io.debezium.time.ZonedTime"), "12:00:00Z", time(12, tzinfo=UTC)),
    ("lasts", ("int64", "io.debezium.time.MicroDuration"), 90_000_000_000, timedelta(hours=25)),
    ("lasts", ("int64", "io.debezium.time.MicroTime"), 90_000_000_000, timedelta(hours=25)),
    ("uid", ("string", "io.debezium.data.Uuid"), UID, UUID(UID)),
    ("photo", ("bytes", None), "AP8=", b"\x00\xff"),
    ("vip", ("boolean", None), True, True),
    ("vip", ("int16", None), 0, False),
    ("vip", ("int16", None), 1, True),
    ("tags", ("array", None), ["a", "b"], ["a", "b"]),
    ("tags", ("string", "io.debezium.data.Json"), '["a"]', ["a"]),
    ("details", ("string", "io.debezium.data.Json"), '{"a": 1}', {"a": 1}),
    ("details", ("map", None), {"a": 1}, {"a": 1}),
    ("anything", ("string", "io.debezium.data.Json"), '[1, {"a": null}]', [1, {"a": None}]),
    ("anything", ("string", None), "[1]", "[1]"),
    ("kind", ("string", "io.debezium.data.Enum"), "b", "b"),
    ("score", ("double", None), 1.5, 1.5),
    ("flags", ("string", "io.debezium.data.EnumSet"), "x,y", {"x", "y"}),
    ("flags", ("string", "io.debezium.data.EnumSet"), "", set()),
]  # fmt: skip


def alone(name: str) -> Any:
    return msgspec.defstruct("Alone", [(name, get_type_hints(Everything, include_extras=True)[name])])


@pytest.mark.parametrize(("name", "said", "written", "value"), TYPED)
def test_a_schema_says_what_a_value_means(name: str, said: tuple[str, str | None], written: Any, value: Any) -> None:
    scale: dict[str, Any] = {"parameters": {"scale": "2", "connect.decimal.precision": "10"}} if said[1] else {}
    columns, after = [ID, column(name, *said, **scale)], {"id": 1, name: written}
    expected = Everything(id=1, **{name: value})
    serde = Debezium(Everything)

    assert serde.deserialize(with_schema(envelope("u", after), columns)) == expected
    assert serde.deserialize(with_schema(packed(after), columns, inside=False)) == expected
    assert serde.deserialize(with_schema(envelope("u", {"id": 1, name: None}), columns)) == Everything(id=1)
    # A type with this field alone, whose JSON may be read as it is.
    assert getattr(Debezium(alone(name)).deserialize(with_schema(envelope("u", after), columns)), name) == value


@pytest.mark.parametrize(
    ("name", "written", "value", "unit"),
    [
        ("amount", "12.34", Decimal("12.34"), None),
        ("amount", 12.5, Decimal("12.5"), None),
        ("born", 20515, date(2026, 3, 3), None),
        ("seen", 1772524800000001, datetime(2026, 3, 3, 8, 0, 0, 1, UTC), "us"),
        ("seen", 1772524800000, datetime(2026, 3, 3, 8, tzinfo=UTC), {"seen": "ms"}),
        ("seen", "2026-03-03T08:00:00Z", datetime(2026, 3, 3, 8, tzinfo=UTC), None),
        ("local", 1772524800000, datetime(2026, 3, 3, 8), "ms"),
        ("at", 43_200_000_000, time(12), "us"),
        ("lasts", 1_000, timedelta(microseconds=1), "ns"),
        ("uid", UID, UUID(UID), None),
        ("photo", "AP8=", b"\x00\xff", None),
        ("vip", 1, True, None),
        ("days", [20515, 0], [date(2026, 3, 3), date(1970, 1, 1)], None),
        ("details", '{"a": 1}', {"a": 1}, None),
        ("score", 2, 2.0, None),
        ("flags", "x,y", {"x", "y"}, None),
    ],
)
def test_without_a_schema_the_annotation_says_what_a_value_means(
    name: str, written: Any, value: Any, unit: Any
) -> None:
    found = Debezium(Everything, unit=unit).deserialize(envelope("u", {"id": 1, name: written}))

    assert found == Everything(id=1, **{name: value})
    assert getattr(Debezium(alone(name), unit=unit).deserialize(envelope("u", {name: written})), name) == value


@pytest.mark.parametrize(
    ("name", "written", "reason"),
    [
        ("seen", 1772524800000, r"field 'seen': a time is a number, and nothing says its unit"),
        ("at", 1, "field 'at': a time is a number"),
        ("born", 1772524800000, "field 'born'"),
        ("vip", 7, r"\$.vip"),
        ("details", "{", "field 'details'"),
    ],
)
def test_a_value_that_cannot_be_told_is_refused(name: str, written: Any, reason: str) -> None:
    with pytest.raises(SerializationError, match=reason):
        Debezium(Everything).deserialize(envelope("u", {"id": 1, name: written}))


@pytest.mark.parametrize(
    ("name", "kind", "meaning", "written", "reason"),
    [
        ("born", "int64", "io.debezium.time.Timestamp", 1, "field 'born': the column is io.debezium.time.Timestamp"),
        ("seen", "int32", None, 1, "field 'seen': the column is int32, and not a time"),
        ("seen", "int64", "io.debezium.time.NanoTimestamp", 1, "field 'seen': a time has nanoseconds"),
        ("at", "int64", "io.debezium.time.MicroTime", 86_400_000_000, "field 'at': a time is not within a day"),
        ("amount", "bytes", "org.apache.kafka.connect.data.Decimal", "1.5", "field 'amount': a decimal is not in"),
    ],
)
def test_a_retyped_column_is_refused_by_its_name(name: str, kind: str, meaning: str, written: Any, reason: str) -> None:
    said = column(name, kind, meaning, parameters={"scale": "2"})

    with pytest.raises(SerializationError, match=reason):
        Debezium(Everything, unit="us").deserialize(with_schema(envelope("u", {"id": 1, name: written}), [ID, said]))


def test_decimals_in_bytes_without_a_schema_have_the_scale_of_the_annotation() -> None:
    # Four digits are base64 as well.
    found = Debezium(alone("amount"), decimals="precise").deserialize(envelope("u", {"amount": "1234"}))

    assert found.amount == Decimal(int.from_bytes(base64.b64decode("1234"), "big", signed=True)).scaleb(-2)


def test_decimals_in_bytes_need_a_scale() -> None:
    class Price(msgspec.Struct):
        amount: Decimal

    with pytest.raises(TypeError, match="field 'amount': decimals='precise' needs the scale"):
        Debezium(Price, decimals="precise")


@pytest.mark.parametrize(
    ("name", "placeholder", "value", "known"),
    [
        ("tags", [LEFT_OUT], ["a"], ["a"]),
        (
            "photo",
            base64.b64encode(LEFT_OUT.encode()).decode(),
            base64.b64encode(b"\x00\xff" * 9).decode(),
            b"\x00\xff" * 9,
        ),
        ("details", LEFT_OUT, '{"a":1' + " " * 20 + "}", {"a": 1}),
        ("anything", LEFT_OUT, "text" * 9, "text" * 9),
        ("amount", LEFT_OUT, "1." + "5" * 20, Decimal("1." + "5" * 20)),
    ],
)
def test_a_value_that_was_not_sent_is_that_before_the_change(
    name: str, placeholder: Any, value: Any, known: Any
) -> None:
    after = {"id": 1, name: placeholder}
    serde = Debezium(Everything)

    assert serde.deserialize(envelope("u", after, {"id": 1, name: value})) == Everything(id=1, **{name: known})
    nothing: list[Any] = [None, "", "{}", [], 0]
    made_up = ({"id": 1, name: each} for each in nothing)
    for before in (None, *made_up, {"id": 1}, {"id": 1, name: placeholder}):
        with pytest.raises(SerializationError, match=f"field '{name}' has not been sent.*REPLICA IDENTITY FULL"):
            serde.deserialize(envelope("u", after, before))
    with pytest.raises(SerializationError, match="has not been sent"):
        serde.deserialize(row(**after))


def test_numbers_and_ids_that_were_not_sent_are_no_values() -> None:
    class Lists(msgspec.Struct):
        numbers: list[int] = []
        ids: list[UUID] = []

    numbers, id = (
        list(LEFT_OUT.encode()),
        "b68a35a7-17ad-35b3-af2a-ae46edb4545a",
    )  # of the text, by UUID.nameUUIDFromBytes
    serde = Debezium(Lists)
    for name, placeholder in (("numbers", numbers), ("ids", [id])):
        with pytest.raises(SerializationError, match=f"field '{name}' has not been sent"):
            serde.deserialize(envelope("u", {name: placeholder}))
    assert serde.deserialize(envelope("u", {"ids": [UID], "numbers": numbers[:3]})).ids == [UUID(UID)]


def test_another_placeholder_can_be_said() -> None:
    serde = Debezium(Customer, unavailable="?")

    with pytest.raises(SerializationError, match="field 'name' has not been sent"):
        serde.deserialize(envelope("u", {"id": 7, "name": "?"}))
    assert serde.deserialize(envelope("u", {"id": 7, "name": LEFT_OUT})).name == LEFT_OUT


def test_a_change_says_where_it_was_made_in_postgresql() -> None:
    found = DebeziumChanges(Customer, whole_before=True).deserialize(envelope("u", AFTER, {"id": 7, "name": "An"}))

    assert found == RowChange(
        op="u",
        before=Customer(7, "An"),
        after=ANN,
        source_ms=1772524800000,
        connector="postgresql",
        database="shop",
        schema="public",
        table="customers",
        lsn=26858016,
        tx_id="771",
    )


def test_a_change_says_where_it_was_made_in_mariadb() -> None:
    found = DebeziumChanges(Customer).deserialize(envelope("r", AFTER, source=MARIADB | {"snapshot": "last"}))

    assert (found.op, found.snapshot, found.file, found.pos, found.gtid) == ("r", True, "binlog.000001", 1337, "0-1-42")
    assert (found.schema, found.lsn, found.tx_id) == (None, None, None)


def test_a_row_before_that_is_only_a_key_is_none() -> None:
    only_key = {"id": 7, "name": None, "vip": None}
    found = DebeziumChanges(Customer, whole_before=True).deserialize(envelope("d", None, only_key))

    assert (found.op, found.before, found.after) == ("d", None, None)


def test_a_row_before_is_known_to_be_whole_or_none() -> None:
    made_up = envelope("d", None, {"id": 7, "name": "", "vip": False})
    of_mariadb = envelope("d", None, {"id": 7, "name": "Ann", "vip": 0}, source=MARIADB)

    assert DebeziumChanges(Customer).deserialize(made_up).before is None
    assert DebeziumChanges(Customer, whole_before=True).deserialize(made_up).before == Customer(7, "")
    assert DebeziumChanges(Customer).deserialize(of_mariadb).before == ANN
    assert DebeziumChanges(Customer, whole_before=False).deserialize(of_mariadb).before is None


def test_a_row_before_that_is_whole_is_checked() -> None:
    with pytest.raises(SerializationError, match=r"\$.id"):
        DebeziumChanges(Customer, whole_before=True).deserialize(envelope("d", None, {"id": "x", "name": "Ann"}))


def test_a_row_says_of_its_change_what_was_added_to_it() -> None:
    serde = DebeziumChanges(Customer, whole_before=True)
    added = {"__deleted": "false", "__op": "c", "__source_lsn": 5, "__table": "customers", "__ts_ms": 9}

    assert serde.deserialize(packed(AFTER | added)) == RowChange(op="c", after=ANN, lsn=5, table="customers")
    assert serde.deserialize(row("true", "d", **AFTER)).before == ANN
    assert serde.deserialize(row("true", "d", id=7, name=None)).before is None
    assert DebeziumChanges(Customer).deserialize(row("true", "d", **AFTER)).before is None
    assert serde.deserialize(packed(AFTER)) == RowChange(op=None, after=ANN)


def test_the_time_of_the_source_is_that_of_the_database() -> None:
    class Read(msgspec.Struct):
        value: Any
        timestamp_ms: int = 3

    change = DebeziumChanges(Customer).deserialize(envelope("u", AFTER))

    assert DebeziumChanges.source_time(Read(change), -1) == 1772524800000
    assert DebeziumChanges.source_time(Read(None), -1) == 3
    assert DebeziumChanges.source_time(Read(RowChange(op="c", after=ANN)), -1) == 3
    with pytest.raises(TypeError, match="value=DebeziumChanges"):
        DebeziumChanges.source_time(Read(ANN), -1)


@dataclass(frozen=True)
class Tone:
    id: int
    name: str


class Color(Enum):
    RED = "red"


def test_rows_are_structs_or_dataclasses() -> None:
    assert Debezium(Tone).deserialize(packed({"id": 1, "name": "a"})) == Tone(1, "a")
    for kind in (dict[str, int], int, Color, list[Customer]):
        with pytest.raises(TypeError, match=r"a msgspec.Struct or a dataclass"):
            Debezium(kind)


def test_equal_arguments_make_equal_serdes_that_travel() -> None:
    for serde in (
        Debezium(Customer, unit={"at": "ms"}, on_truncate="ignore", form="row", decimals="string", unavailable="?"),
        DebeziumChanges(Customer, unit="us", form="envelope", whole_before=True),
    ):
        assert pickle.loads(pickle.dumps(serde)) == serde
        assert hash(pickle.loads(pickle.dumps(serde))) == hash(serde)
    assert Debezium(Customer) != Debezium(Customer, unit="us")
    assert Debezium(Customer) != DebeziumChanges(Customer)
    assert repr(Debezium(Customer)) == "Debezium(Customer)"
    assert Debezium(Customer).name == "debezium(Customer)"


def test_after_the_source_values_are_json_of_the_row() -> None:
    assert Debezium(Customer).onward() == Json(Customer)
    assert DebeziumChanges(Customer).onward() == Json(RowChange[Customer])
    assert breaking_changes(schema_of(Json(Customer)), schema_of(Debezium(Customer).onward())) == []


def test_schemas_are_parsed_once() -> None:
    data = json.dumps({"type": "struct", "fields": [ID]}).encode()

    assert column_of(data) is column_of(bytes(bytearray(data)))


ROWS = st.builds(
    Everything,
    id=st.integers(-(2**63), 2**63 - 1),
    amount=st.none() | st.decimals(min_value=-99999, max_value=99999, places=2),
    born=st.none() | st.dates(),
    seen=st.none() | st.datetimes(timezones=st.just(UTC)),
    local=st.none() | st.datetimes(),
    at=st.none() | st.times(),
    lasts=st.none() | st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=300)),
    uid=st.none() | st.uuids(),
    photo=st.none() | st.binary(),
    vip=st.none() | st.booleans(),
    tags=st.none() | st.lists(st.text()),
    days=st.none() | st.lists(st.dates()),
    details=st.none() | st.dictionaries(st.text(), st.integers(-1000, 1000)),
    kind=st.none() | st.sampled_from(["a", "b"]),
    score=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    flags=st.none() | st.sets(st.text()),
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def as_debezium(value: Everything) -> dict[str, Any]:
    """A row as a connector for PostgreSQL writes it, by code of this test alone."""

    def written(field: Any) -> Any:
        match field:
            case Decimal() | UUID():
                return str(field)
            case datetime():
                return (field.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
            case date():
                return (field - date(1970, 1, 1)).days
            case time():
                return ((field.hour * 60 + field.minute) * 60 + field.second) * 1_000_000 + field.microsecond
            case timedelta():
                return field // timedelta(microseconds=1)
            case bytes():
                return base64.b64encode(field).decode()
            case bool():
                return int(field)
            case dict():
                return json.dumps(field)
            case list() | set():
                return [written(each) for each in field]
            case _:
                return field

    return {name: written(getattr(value, name)) for name in value.__struct_fields__}


@settings(max_examples=40)
@given(ROWS)
def test_rows_of_all_types_are_read_as_they_were_written(value: Everything) -> None:
    serde = Debezium(Everything, unit="us")

    for data in (envelope("u", as_debezium(value)), row(**as_debezium(value))):
        assert serde.deserialize(data) == value


@settings(max_examples=40)
@given(ROWS, st.sampled_from(["string", "precise"]))
def test_rows_that_a_test_writes_are_read_back(value: Everything, decimals: Literal["string", "precise"]) -> None:
    serde = Debezium(Everything, decimals=decimals)

    assert serde.deserialize(serde.serialize(value)) == value


@settings(max_examples=40)
@given(ROWS | st.none(), ROWS, st.sampled_from(["r", "c", "u"]), st.integers(0, 2**40), st.booleans())
def test_changes_that_a_test_writes_are_read_back(
    before: Everything | None, after: Everything, op: Literal["r", "c", "u"], at: int, snapshot: bool
) -> None:
    serde = DebeziumChanges(Everything, whole_before=True)
    change = RowChange(op=op, before=before, after=after, source_ms=at, snapshot=snapshot, lsn=at, tx_id="7")

    assert serde.deserialize(serde.serialize(change)) == change


@given(st.binary())
def test_any_bytes_are_a_row_or_an_error_of_ours(data: bytes) -> None:
    for serde in (Debezium(Customer), DebeziumChanges(Customer)):
        with suppress(SerializationError):
            serde.deserialize(data)
