"""Connectors that functions make of typed arguments: their settings, as the classes know them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from deltaworks.connect import (
    Connector,
    DebeziumMariaDb,
    DebeziumMongoDb,
    DebeziumMySql,
    DebeziumPostgres,
    ElasticsearchSink,
    FileSink,
    FileSource,
    HdfsSink,
    JdbcSink,
    OpenSearchSink,
    S3Sink,
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
    assert not [each for each in sink if each.startswith("errors.")]
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


@pytest.mark.parametrize(
    "make",
    [
        partial(FileSink, file="/data/out.txt"),
        partial(JdbcSink, url="jdbc:postgresql://db/shop", user="w", password=PW),
    ],
)
def test_sinks_keep_records_that_fail_with_the_error_in_headers(make: Callable[..., Connector]) -> None:
    made = make(name="s", topics=["a"], dead_letters="s_failed", dead_letters_replication=2).properties

    assert {name: value for name, value in made.items() if name.startswith("errors.")} == {
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "s_failed",
        "errors.deadletterqueue.topic.replication.factor": "2",
        "errors.deadletterqueue.context.headers.enable": "true",
    }


def test_sinks_read_topics_and_delete_by_key() -> None:
    with pytest.raises(ConfigurationError, match="reads no topic"):
        FileSink(name="out", file="/x", topics=[])
    with pytest.raises(ConfigurationError, match="a deletion has a key only"):
        JdbcSink(name="s", topics=["a"], url="u", user="u", password=PW, delete=True, primary_key="record_value")
    with pytest.raises(ConfigurationError, match="reads no topic"):
        JdbcSink(name="s", topics=[], url="u", user="u", password=PW)


SEARCH: dict[str, Any] = {"name": "s", "topics": ["orders", "users"], "urls": ["https://a:9200", "https://b:9200"]}
FILES: dict[str, Any] = {"name": "s", "topics": ["orders"], "flush_size": 1000}


def test_opensearch_sink() -> None:
    made = OpenSearchSink(
        **SEARCH, user="w", password=PW, plain_json=True, dead_letters="dlq", config={"linger.ms": 5}, tasks_max=2
    )

    assert made.properties == {
        "name": "s",
        "connector.class": "io.aiven.kafka.connect.opensearch.OpenSearchSinkConnector",
        "tasks.max": "2",
        "topics": "orders,users",
        "connection.url": "https://a:9200,https://b:9200",
        "connection.username": "w",
        "connection.password": "${env:CDC_PASSWORD}",
        "key.ignore": "false",
        "index.write.method": "insert",
        "behavior.on.null.values": "delete",
        "behavior.on.version.conflict": "ignore",
        "drop.invalid.message": "false",
        "linger.ms": "5",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "schema.ignore": "true",
        "consumer.override.isolation.level": "read_committed",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "dlq",
        "errors.deadletterqueue.topic.replication.factor": "3",
        "errors.deadletterqueue.context.headers.enable": "true",
    }


def test_the_class_of_opensearch_had_another_name() -> None:
    made = OpenSearchSink(**SEARCH, connector_version=3)
    assert made.properties["connector.class"] == "io.aiven.kafka.connect.opensearch.OpensearchSinkConnector"


def test_elasticsearch_sink() -> None:
    made = ElasticsearchSink(**SEARCH, key_as_id=False, nulls="ignore", read_committed=False)

    assert made.properties == {
        "name": "s",
        "connector.class": "io.confluent.connect.elasticsearch.ElasticsearchSinkConnector",
        "tasks.max": "1",
        "topics": "orders,users",
        "connection.url": "https://a:9200,https://b:9200",
        "key.ignore": "true",
        "write.method": "insert",
        "behavior.on.null.values": "ignore",
        "drop.invalid.message": "false",
    }


def test_s3_sink() -> None:
    made = S3Sink(
        **FILES,
        bucket="lake",
        region="eu-west-1",
        endpoint="http://store:8333",
        path_style=True,
        access_key="me",
        secret_key=PW,
        format="parquet",
        path_format="'date'=YYYY-MM-dd",
        partition_duration=timedelta(days=1),
    )

    assert made.properties == {
        "name": "s",
        "connector.class": "io.confluent.connect.s3.S3SinkConnector",
        "tasks.max": "1",
        "topics": "orders",
        "s3.bucket.name": "lake",
        "s3.region": "eu-west-1",
        "store.url": "http://store:8333",
        "s3.path.style.access.enabled": "true",
        "aws.access.key.id": "me",
        "aws.secret.access.key": "${env:CDC_PASSWORD}",
        "storage.class": "io.confluent.connect.s3.storage.S3Storage",
        "format.class": "io.confluent.connect.s3.format.parquet.ParquetFormat",
        "flush.size": "1000",
        "topics.dir": "topics",
        "partitioner.class": "io.confluent.connect.storage.partitioner.TimeBasedPartitioner",
        "path.format": "'date'=YYYY-MM-dd",
        "partition.duration.ms": "86400000",
        "timestamp.extractor": "Record",
        "timezone": "UTC",
        "locale": "en-US",
        "consumer.override.isolation.level": "read_committed",
    }


@pytest.mark.parametrize(("hadoop", "class_"), [(2, "hdfs.HdfsSinkConnector"), (3, "hdfs3.Hdfs3SinkConnector")])
def test_hdfs_sink(hadoop: Any, class_: str) -> None:
    made = HdfsSink(**FILES, url="hdfs://n:8020", hadoop=hadoop, principal="p", keytab="/k", partition_by=["city"])

    assert made.properties == {
        "name": "s",
        "connector.class": f"io.confluent.connect.{class_}",
        "tasks.max": "1",
        "topics": "orders",
        "hdfs.url": "hdfs://n:8020",
        "format.class": f"io.confluent.connect.{class_.split('.')[0]}.json.JsonFormat",
        "logs.dir": "logs",
        "hdfs.authentication.kerberos": "true",
        "connect.hdfs.principal": "p",
        "connect.hdfs.keytab": "/k",
        "flush.size": "1000",
        "topics.dir": "topics",
        "partitioner.class": "io.confluent.connect.storage.partitioner.FieldPartitioner",
        "partition.field.name": "city",
        "consumer.override.isolation.level": "read_committed",
    }


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: OpenSearchSink(**SEARCH, config={"lingr.ms": 5}),
            "'lingr.ms', which OpenSearchSinkConnector .*'linger.ms'",
        ),
        (lambda: ElasticsearchSink(**SEARCH, config={"index.write.method": "x"}), "does not know"),
        (lambda: S3Sink(**FILES, bucket="b", region="r", access_key="a"), "belong together"),
        (lambda: S3Sink(**FILES, bucket="b", region="r", config={"s3.bucket": "c"}), "did you mean 's3.bucket.name'"),
        (lambda: HdfsSink(**FILES, url="u", path_format="x"), "partition_duration= belong together"),
        (
            lambda: HdfsSink(**FILES, url="u", path_format="x", partition_duration=timedelta(1), partition_by=["a"]),
            "both partition_by= and path_format=",
        ),
        (lambda: HdfsSink(**FILES, url="u", keytab="/k"), "belong together"),
    ],
)
def test_a_setting_that_no_version_has_published_is_refused(make: Callable[[], Connector], message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"(?s){message}"):
        make()


def test_settings_of_connect_itself_are_not_asked_about() -> None:
    own: dict[str, Any] = {
        "transforms": "t",
        "transforms.t.type": "x.T",
        "errors.log.enable": True,
        "connection.ssl.protocol": "TLS",
    }
    assert own.keys() <= OpenSearchSink(**SEARCH, config=own).properties.keys()
