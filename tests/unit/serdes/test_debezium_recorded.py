"""Records that Debezium 3.5.0 has written of PostgreSQL and MariaDB, byte for byte.

Each file has three connectors of the same table: `envelope` (plain JSON), `schema` (JSON with a schema in each key and
value) and `row` (ExtractNewRecordState with rewrite-with-tombstone). Headers that name the connector are left out.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import msgspec
import pytest

from deltaworks import Debezium, DebeziumChanges, DebeziumKey, DecimalDigits, Materialized, StreamsBuilder
from deltaworks.errors import SerializationError
from deltaworks.testing import TopologyTestDriver
from jobs.sample_data import customers as sample

FOLDER = Path(__file__).parent / "debezium_records"
Local = Annotated[datetime, msgspec.Meta(tz=False)]


class OfPostgres(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    name: str
    vip: bool
    born: date | None
    seen: Local | None
    zoned: datetime | None
    at: time | None
    lasts: timedelta | None
    amount: Annotated[Decimal, DecimalDigits(10, 2)] | None
    anything: Annotated[Decimal, DecimalDigits(38, 3)] | None
    price: Annotated[Decimal, DecimalDigits(20, 2)] | None
    uid: UUID | None
    photo: bytes | None
    tags: list[str] | None
    numbers: list[int] | None
    details: dict[str, int] | None
    score: float | None
    code: str | None
    small: int | None


class OfMariaDb(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    name: str
    vip: bool
    born: date | None
    local: Local | None
    seen: Local | None
    zoned: datetime | None
    at: time | None
    amount: Annotated[Decimal, DecimalDigits(10, 2)] | None
    photo: bytes | None
    details: dict[str, int] | None
    score: float | None
    kind: str | None
    flags: set[str] | None
    year: int | None


class Document(msgspec.Struct, frozen=True):
    id: int
    part: int
    body: str
    n: int | None = None


class Part(msgspec.Struct, frozen=True):
    id: int
    part: int


@dataclass(frozen=True)
class Written:
    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


def recorded(database: str, topic: str) -> list[Written]:
    def data(text: str | None) -> bytes | None:
        return None if text is None else text.encode()

    lines = (FOLDER / f"{database}.jsonl").read_text().splitlines()
    return [
        Written(
            each["topic"], data(each["key"]), data(each["value"]), tuple((n, v.encode()) for n, v in each["headers"])
        )
        for each in map(json.loads, lines)
        if each["topic"] == topic
    ]


COMMON: dict[str, Any] = {
    "name": "Ann Ü",
    "born": date(2026, 3, 3),
    "at": time(12, 0, 0, 1),
    "amount": Decimal("12.34"),
    "photo": b"\x00\xff",
    "details": {"a": 1},
    "score": 1.5,
}
MOMENT = datetime(2026, 3, 3, 8, 0, 0, 1)
POSTGRES = OfPostgres(
    id=1,
    vip=True,
    seen=MOMENT,
    zoned=datetime(2026, 3, 3, 8, 0, 0, 500000, UTC),
    lasts=timedelta(hours=25),
    anything=Decimal("12.345"),
    price=Decimal("5.50"),
    uid=UUID("0191e9c7-7b1c-7c3e-8f2a-3d2b1a0c9d8e"),
    tags=["a", "b"],
    numbers=[1, 2],
    code="abc",
    small=7,
    **COMMON,
)
MARIADB = OfMariaDb(
    id=1,
    vip=True,
    local=datetime(2026, 3, 3, 8),
    seen=MOMENT,
    zoned=MOMENT.replace(tzinfo=UTC),
    kind="b",
    flags={"x", "y"},
    year=2026,
    **COMMON,
)
UNITS: Any = {"local": "ms", "seen": "us", "at": "us", "lasts": "us"}
TABLES = [("postgres", f"pg_{form}.public.customers", POSTGRES) for form in ("envelope", "schema", "row")] + [
    ("mariadb", f"ma_{form}.shop.customers", MARIADB) for form in ("envelope", "schema", "row")
]


def serde_of(topic: str, kind: Any) -> Debezium[Any]:
    """With a schema nothing has to be said; without one, units and decimals."""
    if "schema" in topic:
        return Debezium(kind)
    return Debezium(kind, unit=UNITS, decimals="precise" if "envelope" in topic else "string")


@pytest.mark.parametrize(("database", "topic", "first"), TABLES)
def test_each_type_is_read_as_the_database_has_it(database: str, topic: str, first: Any) -> None:
    read = serde_of(topic, type(first)).deserialize

    assert read(recorded(database, topic)[0].value) == first


@pytest.mark.parametrize(("database", "topic", "first"), TABLES)
def test_keys_come_back_with_their_bytes(database: str, topic: str, first: Any) -> None:
    keys = [each.key for each in recorded(database, topic) if each.key is not None]
    serde = DebeziumKey(int, field="id", schema=DebeziumKey.schema_in(keys[0]))

    assert serde.deserialize(keys[0]) == 1
    assert [serde.serialize(serde.deserialize(each)) for each in keys] == keys


@pytest.mark.parametrize(("database", "topic", "first"), [each for each in TABLES if "schema" not in each[1]])
def test_a_table_is_that_of_the_database(database: str, topic: str, first: Any) -> None:
    """Rows 1, 2 and 3; 2 is changed, 3 deleted, 2 becomes 20; 9 comes last. The records of a snapshot come first."""
    builder = StreamsBuilder()
    serde = serde_of(topic, type(first))
    table = builder.table(
        "in", key=DebeziumKey(int, field="id"), value=serde, store=Materialized("rows", caching=False)
    )
    table.to_stream().to("out")
    driver = TopologyTestDriver(builder.build())
    records = driver.create_input_topic("in")
    for each in recorded(database, topic):
        if each.key is not None:
            records.pipe_raw(each.key, each.value, headers=each.headers)

    updates = [(key, row and row.vip) for key, row in driver.create_output_topic("out").read_key_values_to_list()]
    assert updates == [(1, True), (2, False), (3, False), (2, True), (3, None), (2, None), (20, True), (9, False)]
    rows = dict(driver.store("rows").all())
    assert sorted(rows) == [1, 9, 20]
    assert rows[20] == msgspec.structs.replace(first, id=20)


def test_a_truncated_table_says_so() -> None:
    truncated = [each for each in recorded("postgres", "pg_envelope.public.customers") if each.key is None]

    assert len(truncated) == 1
    with pytest.raises(SerializationError, match="the table was truncated"):
        Debezium(OfPostgres, unit=UNITS).deserialize(truncated[0].value)


@pytest.mark.parametrize(
    ("database", "topic", "what"),
    [
        ("postgres", "pg_envelope.message", "a logical message"),
        ("postgres", "pg_envelope.transaction", "the border of a transaction"),
        ("mariadb", "ma_envelope", "a change of a table's columns"),
    ],
)
def test_what_is_no_row_says_what_it_is(database: str, topic: str, what: str) -> None:
    found = recorded(database, topic)

    assert found
    for each in found:
        with pytest.raises(SerializationError, match=what):
            Debezium(Document).deserialize(each.value)


def test_a_long_value_that_was_not_sent_is_that_of_a_whole_row_before() -> None:
    """Created; deleted and created with another key; updated without the row before, and with it; deleted."""
    found = recorded("postgres", "pg_envelope.public.docs")
    serde, keys = Debezium(Document), DebeziumKey(Part)
    body = "long text " * 400

    assert [keys.deserialize(each.key) for each in found] == [Part(1, 1)] * 3 + [Part(1, 2)] * 4
    assert serde.deserialize(found[0].value) == Document(1, 1, body)
    assert serde.deserialize(found[1].value) is None
    for left_out in (found[3], found[4]):
        with pytest.raises(SerializationError, match="field 'body' has not been sent"):
            serde.deserialize(left_out.value)
    assert serde.deserialize(found[5].value) == Document(1, 2, body, 2)
    assert serde.deserialize(found[6].value) is None


def test_the_row_before_is_made_up_in_postgresql_and_whole_in_mariadb() -> None:
    deleted = {
        database: next(each.value for each in recorded(database, topic) if b'"op":"d"' in (each.value or b""))
        for database, topic in (("postgres", "pg_envelope.public.customers"), ("mariadb", "ma_envelope.shop.customers"))
    }
    of_postgres = DebeziumChanges(OfPostgres, unit=UNITS, decimals="precise").deserialize(deleted["postgres"])
    of_mariadb = DebeziumChanges(OfMariaDb, unit=UNITS, decimals="precise").deserialize(deleted["mariadb"])

    assert json.loads(deleted["postgres"] or b"")["before"]["name"] == ""
    assert of_postgres.before is None
    assert of_mariadb.before is not None and of_mariadb.before.name == "Bob"
    assert (of_postgres.table, of_postgres.schema, of_postgres.op) == ("customers", "public", "d")
    assert of_postgres.lsn is not None and of_postgres.tx_id is not None
    assert (of_mariadb.file, of_mariadb.gtid, of_mariadb.snapshot) == ("binlog.000001", "0-1-6", False)


def test_changes_of_rows_say_what_was_added() -> None:
    found = [
        DebeziumChanges(OfMariaDb, unit=UNITS, whole_before=True).deserialize(each.value)
        for each in recorded("mariadb", "ma_row.shop.customers")
        if each.value is not None
    ]

    assert [each.op for each in found] == ["r", "c", "c", "u", "d", "d", "c", "c"]
    assert [each.gtid for each in found][:2] == [None, "0-1-3"]
    assert all(each.source_ms and each.source_ms % 1000 == 0 for each in found)
    assert [each.before and each.before.name for each in found if each.op == "d"] == ["Bob", "Ann Ü"]


def test_sample_data_has_the_fields_of_real_records_in_their_order() -> None:
    real = json.loads(recorded("postgres", "pg_envelope.public.customers")[0].value or b"")
    row = json.loads(recorded("postgres", "pg_row.public.customers")[0].value or b"")
    records = [each for each in sample.records(300) if each.value]
    changes = [json.loads(each.value or b"") for each in records if each.kind is sample.Kind.CHANGED]
    rows = [json.loads(each.value or b"") for each in records if each.kind is sample.Kind.CUSTOMER_CREATED]

    assert changes and rows
    assert {tuple(each) for each in changes} == {tuple(real)}
    assert {tuple(each["source"]) for each in changes} == {tuple(real["source"])}
    added = [name for name in row if name.startswith("__") and name != "__source_lsn"]
    assert {tuple(name for name in each if name.startswith("__")) for each in rows} == {tuple(added)}
