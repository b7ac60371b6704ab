"""All transforms of Kafka that are documented, and our own, in a real worker; each record is compared as a whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from deltaworks.connect import (
    Cast,
    ChangeHeaders,
    Connector,
    DebeziumMariaDb,
    DebeziumPostgres,
    DropHeaders,
    ExtractField,
    FileSink,
    Filter,
    Flatten,
    HasHeaderKey,
    HeaderFrom,
    HoistField,
    InsertField,
    InsertHeader,
    MaskField,
    RecordIsTombstone,
    RegexRouter,
    ReplaceField,
    SetSchemaMetadata,
    TimestampConverter,
    TimestampRouter,
    TopicNameMatches,
    Transform,
    ValueToKey,
    planning,
    states,
)
from deltaworks.connect.api import ConnectApi
from deltaworks.kafka.admin import TopicSpec, create_topics, partition_counts
from deltaworks.settings import Settings
from deltaworks.stack.components import read_components
from deltaworks.stack.java import find_java
from deltaworks.stack.lifecycle import up
from tests.integration.test_sources import in_mariadb, in_postgres, log_in, own_home
from tests.support import polling
from tests.support.live_stack import read_all

until = partial(polling.until, timeout_s=90)
PASSWORD = {"env": "DELTAWORKS_CONNECT_SOURCE_POSTGRES_PASSWORD"}
TABLES = [
    "CREATE TABLE people (id INT PRIMARY KEY, name TEXT, tel TEXT, card TEXT, pin TEXT, age INT, born DATE)",
    "ALTER TABLE people REPLICA IDENTITY FULL",
    "CREATE TABLE secrets (id INT PRIMARY KEY, word TEXT)",
]
BEFORE = [
    "INSERT INTO people VALUES (1, 'Ann', '01', '4711', '1', 30, '1990-02-03')",
    "INSERT INTO secrets VALUES (1, 'x')",
]
CHANGES = [
    "INSERT INTO people VALUES (2, 'Bob', '02', '4712', '2', 40, '1980-02-03')",
    "UPDATE secrets SET word = 'y'",
    "DELETE FROM people WHERE id = 2",
    "UPDATE people SET age = 31 WHERE id = 1; UPDATE people SET age = 32 WHERE id = 1",
]
"""The last two changes are in one transaction."""
ROWS = [
    ("Ann", "30", "1990-02-03", "r"),
    ("Bob", "40", "1980-02-03", "c"),
    ("Bob", "40", "1980-02-03", "d"),
    ("Ann", "31", "1990-02-03", "u"),
    ("Ann", "32", "1990-02-03", "u"),
]
NOON_MS = 1_772_366_400_000
"""2026-03-01 12:00 UTC"""


def require_compiler() -> None:
    """Our own transform is compiled here."""
    here = Settings.from_environment()
    java = find_java(here, read_components(here.infra).java_versions)
    if not (java.home / "bin" / "javac").is_file():
        pytest.skip(f"{java.home} has no javac: the transforms of deltaworks need a JDK, not only a JRE")


@pytest.fixture(scope="module")
def settings() -> Iterator[Settings]:
    require_compiler()
    with own_home("file", "debezium-postgres", "deltaworks") as settings:
        up(settings, only=["connect", "source-postgres"], tethered=True)
        yield settings


def client(settings: Settings) -> ConnectApi:
    return ConnectApi.of(Settings.from_environment(settings.environment(), cwd=settings.project))


def apply(settings: Settings, connector: Connector) -> None:
    with client(settings) as api:
        planned = planning.plan({connector.name: connector}, api)
        planned.require_sound()
        planning.apply(planned, api)
        assert not states.wait(api, [connector.name], 60, lambda _: None).has_failures


def people(settings: Settings) -> Connector:
    return DebeziumPostgres(
        name="people",
        hostname="127.0.0.1",
        port=settings.source_postgres_port,
        user="cdc",
        password=PASSWORD,
        dbname="shop",
        publication="shop",
        topic_prefix="shop",
        tables=["public.people", "public.secrets"],
        poll_interval=timedelta(milliseconds=100),
        unwrap=True,
        topics="out.$1",
        partitions=1,
        replication=1,
        key_converter="string",
        value_converter="json-with-schema",
        transforms=[
            ChangeHeaders(),
            # The null after a deletion is no change.
            Filter(predicate=HasHeaderKey("change.op"), negate=True),
            Filter(predicate=TopicNameMatches(r"out\.secrets")),
            MaskField("card", replacement="****"),
            MaskField("pin"),
            ReplaceField(exclude=["__deleted", "__ts_ms", "__source_ts_ms", "id"], renames={"tel": "phone"}),
            Cast({"age": "string"}),
            InsertField(static=("shop", "main")),
            HeaderFrom({"__op": "op"}, move=True),
            InsertHeader("team", "red"),
            DropHeaders("change.ts_ms"),
            HoistField("row"),
            Flatten(delimiter="_"),
            SetSchemaMetadata(schema="Person", version=3),
            ValueToKey("row_name"),
            ExtractField("row_name", of="key"),
            RegexRouter("out.(.*)", "final.$1"),
        ],
        config={"publication.autocreate.mode": "disabled", "time.precision.mode": "connect"},
    )


def records(settings: Settings, topic: str) -> list[Any]:
    return read_all(settings.cluster, topic) if topic in partition_counts(settings.cluster) else []


def headers(message: Any) -> dict[str, str]:
    """All but those that Debezium itself gives every record, with the id of its run."""
    own = [(name, value) for name, value in message.headers() or [] if not name.startswith("__debezium.context.")]
    found = [(name, value.decode()) for name, value in own]
    assert len(dict(found)) == len(found)
    return dict(found)


def test_rows_go_through_a_chain_and_keep_where_they_come_from(settings: Settings) -> None:
    in_postgres(settings, *TABLES, *BEFORE)
    apply(settings, people(settings))
    until(lambda: len(records(settings, "final.people")) == 1)
    in_postgres(settings, *CHANGES)
    until(lambda: len(records(settings, "final.people")) >= len(ROWS))

    found = records(settings, "final.people")
    assert [message.key().decode() for message in found] == [name for name, *_ in ROWS]
    days = {"1990-02-03": 7338, "1980-02-03": 3685}
    assert [json.loads(message.value())["payload"] for message in found] == [
        {"row_name": name, "row_phone": "01" if name == "Ann" else "02", "row_card": "****", "row_pin": "",
         "row_age": age, "row_born": days[born], "row_shop": "main"}
        for name, age, born, _ in ROWS
    ]  # fmt: skip
    schema = json.loads(found[0].value())["schema"]
    assert (schema["name"], schema["version"]) == ("Person", 3)
    assert {each["field"]: each["type"] for each in schema["fields"]} == {
        "row_name": "string", "row_phone": "string", "row_card": "string", "row_pin": "string", "row_age": "string",
        "row_born": "int32", "row_shop": "string",
    }  # fmt: skip

    told = [headers(message) for message in found]
    positions = [each.pop("change.position") for each in told]
    snapshots = [each.pop("change.snapshot") for each in told]
    transactions = [int(each.pop("change.transaction")) for each in told]
    assert transactions[1] < transactions[2] < transactions[3] == transactions[4]
    assert told == [{"change.op": op, "change.connector": "postgresql", "op": op, "team": "red"} for *_, op in ROWS]
    assert positions == sorted(set(positions)) and len({len(each) for each in positions}) == 1
    assert [each[-2:] for each in positions] == ["-0", "-1", "-1", "-1", "-1"]
    assert snapshots[0] != "false" and set(snapshots[1:]) == {"false"}

    with closing(log_in(settings, "app")) as connection:
        (end,) = connection.execute("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn").fetchone() or (0,)
    assert 0 < int(positions[-1][:16], 16) <= end
    topics = set(partition_counts(settings.cluster))
    assert not [topic for topic in topics if "secrets" in topic or topic.startswith("out.")]


def test_a_sink_reads_records_as_its_chain_makes_them(settings: Settings, tmp_path: Path) -> None:
    create_topics(settings.cluster, [TopicSpec(name=topic, partitions=1) for topic in ("visits", "other")])
    producer = Producer({"bootstrap.servers": settings.bootstrap})
    for topic, value in [("visits", {"at": NOON_MS, "city": "Ulm"}), ("visits", None), ("other", {"city": "Bonn"})]:
        text = None if value is None else json.dumps(value)
        producer.produce(topic, key="k", value=text, timestamp=NOON_MS + 1)
    producer.flush(30)
    ours = TopicNameMatches("visits-.*")
    connector = FileSink(
        name="visits",
        file=str(tmp_path / "out.txt"),
        topics=["visits", "other"],
        value_converter="json",
        key_converter="string",
        transforms=[
            Filter(predicate=RecordIsTombstone()),
            InsertField(timestamp="written", offset="offset"),
            TimestampRouter("${topic}-${timestamp}", "yyyy-MM-dd"),
            InsertField(topic="topic"),
            TimestampConverter("string", field="at", format="yyyy-MM-dd HH:mm", predicate=ours),
            HoistField("row", predicate=ours, negate=True),
            Flatten(delimiter="/"),
        ],
    )
    apply(settings, connector)

    def lines() -> list[dict[str, str]]:
        """What the sink has written: Java's text of a map."""
        texts = (tmp_path / "out.txt").read_text().splitlines() if (tmp_path / "out.txt").is_file() else []
        return sorted((dict(f.split("=") for f in text.strip("{}").split(", ")) for text in texts), key=len)

    until(lambda: len(lines()) >= 2)
    written = str(NOON_MS + 1)
    visit = {"at": "2026-03-01 12:00", "city": "Ulm", "written": written, "offset": "0", "topic": "visits-2026-03-01"}
    other = {"city": "Bonn", "written": written, "offset": "0", "topic": "other-2026-03-01"}
    assert lines() == [{f"row/{name}": text for name, text in other.items()}, visit]


def test_the_worker_finds_what_is_wrong_with_a_transform(settings: Settings) -> None:
    wrong = [
        Transform("org.apache.kafka.connect.transforms.MaskField$Value", {"fields": "a", "replacment": "x"}, name="a"),
        Transform("org.example.Gone", name="b"),
        RegexRouter("(", "x", name="c"),
        ChangeHeaders(config={"prefixx": "a"}, name="d"),
    ]
    with client(settings) as api:
        for each in wrong:
            connector = FileSink(name="wrong", file="/x", topics=["t"], transforms=[each])
            problems = planning.plan({"wrong": connector}, api).problems
            assert [p for p in problems if f"transforms.{each.name}." in (p.setting or "")], (each, problems)


@pytest.mark.slow
def test_records_of_debezium_have_no_time_before_they_are_in_kafka(settings: Settings) -> None:
    """So its functions refuse what needs one."""
    in_postgres(settings, "CREATE TABLE IF NOT EXISTS times (id INT PRIMARY KEY)", "INSERT INTO times VALUES (1)")

    def timed(name: str, transform: Transform) -> Connector:
        made = DebeziumPostgres(
            name=name, hostname="127.0.0.1", port=settings.source_postgres_port, user="cdc", password=PASSWORD,
            dbname="shop", publication="shop", topic_prefix=name, tables=["public.times"], unwrap=True, added_fields=[],
            topics=f"{name}.$1", plain_json=True, partitions=1, replication=1,
            config={"publication.autocreate.mode": "disabled"},
        )  # fmt: skip
        return replace(made, transforms=[*made.transforms, transform])

    apply(settings, timed("fields", InsertField(timestamp="at", topic="topic")))
    until(lambda: len(records(settings, "fields.times")) == 1)
    (row,) = records(settings, "fields.times")
    assert json.loads(row.value()) == {"id": 1, "__deleted": "false", "topic": "fields.times", "at": None}

    with client(settings) as api:
        api.put("router", timed("router", TimestampRouter()).properties)

        def trace() -> str:
            status = api.status("router")
            return "" if status is None else "".join(task.trace or "" for task in status.tasks)

        until(lambda: "Timestamp missing on record" in trace())


@pytest.mark.slow
def test_positions_of_a_binary_log_grow_with_each_change() -> None:
    require_compiler()
    with own_home("debezium-mariadb", "deltaworks") as settings:
        up(settings, only=["connect", "source-mariadb"], tethered=True)
        in_mariadb(settings, "CREATE TABLE people (id INT PRIMARY KEY, age INT)", "INSERT INTO people VALUES (1, 30)")
        connector = DebeziumMariaDb(
            name="people", hostname="127.0.0.1", port=settings.source_mariadb_port, user="cdc",
            password={"env": "DELTAWORKS_CONNECT_SOURCE_MARIADB_PASSWORD"}, server_id=5002,
            bootstrap=settings.bootstrap, databases=["shop"], topic_prefix="shop", tables=["shop.people"],
            poll_interval=timedelta(milliseconds=100), unwrap=True, topics="out.$1", plain_json=True,
            partitions=1, replication=1, transforms=[ChangeHeaders(prefix="cdc_")],
        )  # fmt: skip
        apply(settings, connector)
        until(lambda: len(records(settings, "out.people")) == 1)
        in_mariadb(
            settings,
            "INSERT INTO people VALUES (2, 40), (3, 50)",
            "UPDATE people SET age = age + 1",
            "DELETE FROM people WHERE id = 3",
        )
        until(lambda: len(records(settings, "out.people")) >= 8)

        rows = [message for message in records(settings, "out.people") if message.value() is not None]
        told = [headers(message) for message in rows]
        positions = [each["cdc_position"] for each in told]
        assert [each["cdc_op"] for each in told] == list("rccuuud")
        assert positions == sorted(set(positions)) and len({len(each) for each in positions}) == 1
        assert {each["cdc_connector"] for each in told} == {"mariadb"}
        assert all("cdc_gtid" in each for each in told[1:])
        (empty,) = [message for message in records(settings, "out.people") if message.value() is None]
        assert not headers(empty)
