"""Connectors that functions make of typed arguments: their settings, as the classes know them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from deltaworks.connect import (
    Connector,
    DebeziumMariaDb,
    DebeziumMongoDb,
    DebeziumMySql,
    DebeziumPostgres,
    FileSink,
    FileSource,
    JdbcSink,
)
from deltaworks.errors import ConfigurationError

PW = {"env": "CDC_PASSWORD"}
SERVER: dict[str, Any] = {"hostname": "db", "user": "cdc", "password": PW, "topic_prefix": "shop"}
BINLOG: dict[str, Any] = {**SERVER, "server_id": 17, "bootstrap": "kafka:9092"}


def postgres(**arguments: Any) -> Connector:
    return DebeziumPostgres(**{"name": "Orders-cdc", **SERVER, "dbname": "shop", **arguments})


def test_postgres() -> None:
    made = postgres(tables=["public.orders", "public.users"])

    assert made.properties == {
        "name": "Orders-cdc",
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "tasks.max": "1",
        "topic.prefix": "shop",
        "database.hostname": "db",
        "database.port": "5432",
        "database.user": "cdc",
        "database.dbname": "shop",
        "plugin.name": "pgoutput",
        "slot.name": "orders_cdc",
        "publication.name": "orders_cdc",
        "publication.autocreate.mode": "filtered",
        "table.include.list": "public.orders,public.users",
        "database.password": "${env:CDC_PASSWORD}",
    }


def test_what_all_of_debezium_take() -> None:
    made = postgres(
        slot="s",
        snapshot_mode="initial",
        heartbeat=timedelta(seconds=30),
        poll_interval=timedelta(milliseconds=100),
        max_batch_size=2048,
        max_queue_size=8192,
        tombstones=False,
        decimals="string",
        unwrap=True,
        topics="cdc.$1",
        partitions=12,
        replication=3,
        topic_config={"retention.ms": 604_800_000},
        plain_json=True,
        exactly_once=True,
        config={"snapshot.mode": "no_data", "transforms.unwrap.add.fields": "op"},
        secrets={"database.ssl.password": PW},
    ).properties

    assert made["slot.name"] == made["publication.name"] == "s"
    assert made["snapshot.mode"] == "no_data"
    expected = {
        "heartbeat.interval.ms": "30000",
        "poll.interval.ms": "100",
        "max.batch.size": "2048",
        "max.queue.size": "8192",
        "tombstones.on.delete": "false",
        "decimal.handling.mode": "string",
        "transforms": "unwrap,route",
        "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
        "transforms.unwrap.delete.tombstone.handling.mode": "rewrite-with-tombstone",
        "transforms.unwrap.add.fields": "op",
        "transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.route.regex": r"shop\.[^.]+\.(.*)",
        "transforms.route.replacement": "cdc.$1",
        "topic.creation.default.partitions": "12",
        "topic.creation.default.replication.factor": "3",
        "topic.creation.default.retention.ms": "604800000",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "key.converter.schemas.enable": "false",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "exactly.once.support": "required",
        "transaction.boundary": "poll",
        "database.ssl.password": "${env:CDC_PASSWORD}",
    }
    assert expected.items() <= made.items()


@pytest.mark.parametrize(
    ("make", "class_"),
    [
        (DebeziumMariaDb, "io.debezium.connector.mariadb.MariaDbConnector"),
        (DebeziumMySql, "io.debezium.connector.mysql.MySqlConnector"),
    ],
)
def test_binary_logs(make: Callable[..., Connector], class_: str) -> None:
    made = make(name="a", **BINLOG, databases=["shop"], tables=["shop.orders"])

    expected = {
        "connector.class": class_,
        "database.port": "3306",
        "database.server.id": "17",
        "database.include.list": "shop",
        "table.include.list": "shop.orders",
        "schema.history.internal.kafka.bootstrap.servers": "kafka:9092",
        "schema.history.internal.kafka.topic": "shop.schema-history",
    }
    assert expected.items() <= made.properties.items()


def test_snapshots_of_mysql_may_lock_nothing() -> None:
    assert DebeziumMySql(name="a", **BINLOG, snapshot_locking="none").properties["snapshot.locking.mode"] == "none"


def test_mongodb() -> None:
    url = "mongodb://db:27017/?replicaSet=rs0"
    made = DebeziumMongoDb(
        name="a", connection=url, topic_prefix="shop", user="cdc", password=PW, collections=["shop.orders"], unwrap=True
    ).properties

    assert (made["mongodb.connection.string"], made["mongodb.password"]) == (url, "${env:CDC_PASSWORD}")
    assert made["collection.include.list"] == "shop.orders"
    assert made["transforms.unwrap.type"].endswith(".ExtractNewDocumentState")
    assert "mongodb.password" not in DebeziumMongoDb(name="a", connection=url, topic_prefix="shop").properties


def test_jdbc_sink() -> None:
    made = JdbcSink(
        name="sink",
        topics=["cdc.orders"],
        url="jdbc:postgresql://db:5432/shop",
        user="writer",
        password={"file": "/run/secrets/db.properties", "key": "pw"},
        table="orders",
        delete=True,
        schema_evolution="basic",
        dead_letters="dlq.orders",
        dead_letters_replication=1,
        tasks_max=4,
        config={"batch.size": 100},
    )

    assert made.properties == {
        "name": "sink",
        "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
        "tasks.max": "4",
        "topics": "cdc.orders",
        "connection.url": "jdbc:postgresql://db:5432/shop",
        "connection.username": "writer",
        "collection.name.format": "orders",
        "insert.mode": "upsert",
        "delete.enabled": "true",
        "primary.key.mode": "record_key",
        "schema.evolution": "basic",
        "consumer.override.isolation.level": "read_committed",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "dlq.orders",
        "errors.deadletterqueue.topic.replication.factor": "1",
        "errors.deadletterqueue.context.headers.enable": "true",
        "batch.size": "100",
        "connection.password": "${file:/run/secrets/db.properties:pw}",
    }


def test_files() -> None:
    source = FileSource(name="lines", file="/data/lines.txt", topic="lines", batch_size=100).properties
    sink = FileSink(name="out", file="/data/out.txt", topics=["a", "b"], config={"a": 1}).properties

    assert (source["file"], source["topic"], source["batch.size"]) == ("/data/lines.txt", "lines", "100")
    assert (sink["topics"], sink["a"]) == ("a,b", "1")
    assert source["value.converter"] == sink["value.converter"] == "org.apache.kafka.connect.storage.StringConverter"


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: postgres(tabels=["a"]), r"DebeziumPostgres\(\) has no argument 'tabels'"),
        (lambda: postgres(snapshot_mod="a"), r"did you mean 'snapshot_mode'"),
        (lambda: postgres(tables="public.orders"), r"write \['public.orders'\]"),
        (lambda: postgres(partitions=3), "partitions= and replication="),
        (lambda: postgres(topic_config={"cleanup.policy": "compact"}), "partitions= and replication="),
        (lambda: postgres(added_fields=["op"]), "give unwrap=True"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(make: Callable[[], Connector], told: str) -> None:
    with pytest.raises(TypeError, match=told):
        make()


def test_sinks_read_topics_and_delete_by_key() -> None:
    with pytest.raises(ConfigurationError, match="reads no topic"):
        FileSink(name="out", file="/x", topics=[])
    with pytest.raises(ConfigurationError, match="a deletion has a key only"):
        JdbcSink(name="s", topics=["a"], url="u", user="u", password=PW, delete=True, primary_key="record_value")
    with pytest.raises(ConfigurationError, match="reads no topic"):
        JdbcSink(name="s", topics=[], url="u", user="u", password=PW)
