"""Connectors of Debezium, which read the changes of a database (change data capture).

Each function sets what such a connector needs, and what its arguments say; all else has Debezium's default.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Literal, TypedDict, Unpack

from deltaworks.connect import chains
from deltaworks.connect.chains import Transform
from deltaworks.connect.connector import Connector, OnDrift
from deltaworks.connect.converters import Converter, require_one_way
from deltaworks.connect.options import given, listed, milliseconds, require_known
from deltaworks.connect.secrets import Reference
from deltaworks.connect.transforms import ExtractNewRecordState, RegexRouter, require_source
from deltaworks.connect.values import Value

POSTGRES = "io.debezium.connector.postgresql.PostgresConnector"
MARIADB = "io.debezium.connector.mariadb.MariaDbConnector"
MYSQL = "io.debezium.connector.mysql.MySqlConnector"
MONGODB = "io.debezium.connector.mongodb.MongoDbConnector"
_DOCUMENT = "io.debezium.connector.mongodb.transforms.ExtractNewDocumentState"
_ADDED_FIELDS = ("op", "ts_ms", "source.ts_ms")
_SLOT_CHARACTERS = 63
Decimals = Literal["precise", "string", "double"]


class CaptureOptions(TypedDict, total=False):
    """What all functions of this module take besides their own arguments."""

    snapshot_mode: str
    """What is read before changes are, such as `initial` (all rows, the default), `no_data` or `when_needed`."""
    heartbeat: timedelta
    """How often a record says that the connector goes on; a database with little traffic needs it."""
    poll_interval: timedelta
    """How long it waits for changes if there are none."""
    max_batch_size: int
    """Changes that are handed on together, at most."""
    max_queue_size: int
    """Changes that are held in memory, at most; more than `max_batch_size`."""
    tombstones: bool
    """Whether a record with a null value follows each deletion (yes)."""
    unwrap: bool
    """Records are rows, not changes with `before` and `after`: ExtractNewRecordState. A deletion is a row with
    `__deleted`, and then null."""
    added_fields: Sequence[str]
    """With `unwrap`: what rows get of a change, as fields that begin with `__`: `op`, `ts_ms`, `source.ts_ms` unless
    said otherwise."""
    topics: str
    """What topics are called instead of `PREFIX.SCHEMA.TABLE`; `$1` is the table: `cdc.$1`."""
    partitions: int
    """Of topics that Connect creates; give `replication` as well."""
    replication: int
    """Replicas of topics that Connect creates; give `partitions` as well."""
    topic_config: Mapping[str, Value]
    """Settings of topics that Connect creates, such as `{"cleanup.policy": "compact"}`."""
    plain_json: bool
    """Keys and values are JSON without a schema in each record, which `Json(Order)` reads."""
    exactly_once: bool
    """Each change is written once, also if a worker dies; the workers need `exactly.once.source.support=enabled`."""
    transforms: Sequence[Transform]
    """What happens to each record, in this order, after `unwrap` and `topics`; what reads changes goes before them."""
    key_converter: Converter
    """How keys are bytes in Kafka, as that of `Connector`."""
    value_converter: Converter
    """Likewise for values."""
    config: Mapping[str, Value]
    """Further settings of the connector, which win over what the function sets."""
    secrets: Mapping[str, Reference]
    """Further secrets, as those of `Connector`."""
    on_drift: OnDrift
    """As that of `Connector`."""
    plugin_version: str | None
    """Likewise."""


def DebeziumPostgres(
    *,
    name: str,
    hostname: str,
    user: str,
    password: Reference,
    dbname: str,
    topic_prefix: str,
    port: int = 5432,
    tables: Iterable[str] = (),
    slot: str | None = None,
    publication: str | None = None,
    decimals: Decimals | None = None,
    **options: Unpack[CaptureOptions],
) -> Connector:
    """A connector that writes the changes of tables of PostgreSQL to topics, by logical decoding (`pgoutput`).

    Args:
        name: of the connector and of its file.
        hostname: of the server.
        user: who may replicate.
        password: where the user's password is; see `Connector`.
        dbname: the database.
        topic_prefix: what the names of its topics begin with; no other connector of the cluster may have it.
        port: of the server.
        tables: `schema.table`, or expressions of Java that match it; none: all tables.
        slot: the replication slot, which no other connector may use; default: the name, as a slot can have it.
        publication: the publication, which is made for these tables; default: the name of the slot.
        decimals: how `numeric` is written: `precise` (bytes, the default of Debezium), `string` or `double`.
        **options: see `CaptureOptions`.

    Raises:
        ConfigurationError: a value or a reference cannot be used.
        TypeError: an argument that there is not.
    """
    slot = slot or re.sub(r"[^a-z0-9_]", "_", name.lower())[:_SLOT_CHARACTERS]
    own: dict[str, Value | None] = {
        **_server(hostname, port, user),
        "database.dbname": dbname,
        "plugin.name": "pgoutput",
        "slot.name": slot,
        "publication.name": publication or slot,
        "publication.autocreate.mode": "filtered",
        "table.include.list": listed(tables),
        "decimal.handling.mode": decimals,
    }
    secrets: dict[str, Reference] = {"database.password": password}
    return _connector("DebeziumPostgres", name, POSTGRES, topic_prefix, own, secrets, options)


def DebeziumMariaDb(
    *,
    name: str,
    hostname: str,
    user: str,
    password: Reference,
    server_id: int,
    topic_prefix: str,
    bootstrap: str,
    port: int = 3306,
    databases: Iterable[str] = (),
    tables: Iterable[str] = (),
    history_topic: str | None = None,
    decimals: Decimals | None = None,
    **options: Unpack[CaptureOptions],
) -> Connector:
    """A connector that writes the changes of tables of MariaDB to topics, by its binary log.

    Args:
        name: of the connector and of its file.
        hostname: of the server.
        user: who may read the binary log.
        password: where the user's password is; see `Connector`.
        server_id: as which replica it comes; no other replica and no other connector of this server may have it.
        topic_prefix: what the names of its topics begin with; no other connector of the cluster may have it.
        bootstrap: `host:port[,host:port...]` of Kafka, as workers reach it, for the history of the tables' columns.
        port: of the server.
        databases: those whose tables are read; none: all.
        tables: `database.table`, or expressions of Java that match it; none: all tables.
        history_topic: where the history is kept; default: `PREFIX.schema-history`. One partition, and never deleted.
        decimals: how `DECIMAL` is written: `precise` (bytes, the default of Debezium), `string` or `double`.
        **options: see `CaptureOptions`.

    Raises:
        ConfigurationError: a value or a reference cannot be used.
        TypeError: an argument that there is not.
    """
    own = _server(hostname, port, user) | _binary_log(server_id, databases, tables, decimals)
    own |= _history(bootstrap, history_topic, topic_prefix)
    secrets: dict[str, Reference] = {"database.password": password}
    return _connector("DebeziumMariaDb", name, MARIADB, topic_prefix, own, secrets, options)


def DebeziumMySql(
    *,
    name: str,
    hostname: str,
    user: str,
    password: Reference,
    server_id: int,
    topic_prefix: str,
    bootstrap: str,
    port: int = 3306,
    databases: Iterable[str] = (),
    tables: Iterable[str] = (),
    history_topic: str | None = None,
    snapshot_locking: str | None = None,
    decimals: Decimals | None = None,
    **options: Unpack[CaptureOptions],
) -> Connector:
    """A connector that writes the changes of tables of MySQL to topics, by its binary log.

    Args:
        name: of the connector and of its file.
        hostname: of the server.
        user: who may read the binary log.
        password: where the user's password is; see `Connector`.
        server_id: as which replica it comes; no other replica and no other connector of this server may have it.
        topic_prefix: what the names of its topics begin with; no other connector of the cluster may have it.
        bootstrap: `host:port[,host:port...]` of Kafka, as workers reach it, for the history of the tables' columns.
        port: of the server.
        databases: those whose tables are read; none: all.
        tables: `database.table`, or expressions of Java that match it; none: all tables.
        history_topic: where the history is kept; default: `PREFIX.schema-history`. One partition, and never deleted.
        snapshot_locking: `minimal` (the default of Debezium), `extended` or `none`.
        decimals: how `DECIMAL` is written: `precise` (bytes, the default of Debezium), `string` or `double`.
        **options: see `CaptureOptions`.

    Raises:
        ConfigurationError: a value or a reference cannot be used.
        TypeError: an argument that there is not.
    """
    own = _server(hostname, port, user) | _binary_log(server_id, databases, tables, decimals)
    own |= _history(bootstrap, history_topic, topic_prefix) | {"snapshot.locking.mode": snapshot_locking}
    secrets: dict[str, Reference] = {"database.password": password}
    return _connector("DebeziumMySql", name, MYSQL, topic_prefix, own, secrets, options)


def DebeziumMongoDb(
    *,
    name: str,
    connection: str,
    topic_prefix: str,
    user: str | None = None,
    password: Reference | None = None,
    databases: Iterable[str] = (),
    collections: Iterable[str] = (),
    capture_mode: str | None = None,
    tasks_max: int = 1,
    **options: Unpack[CaptureOptions],
) -> Connector:
    """A connector that writes the changes of collections of MongoDB to topics, by change streams.

    Args:
        name: of the connector and of its file.
        connection: `mongodb://host:27017/?replicaSet=rs0`, without user and password.
        topic_prefix: what the names of its topics begin with; no other connector of the cluster may have it.
        user: who may read the change streams; None: nobody logs in.
        password: where the user's password is; see `Connector`.
        databases: those whose collections are read; none: all.
        collections: `database.collection`, or expressions of Java that match it; none: all.
        capture_mode: such as `change_streams_update_full` (the default of Debezium).
        tasks_max: how many tasks at most, of a sharded cluster.
        **options: see `CaptureOptions`.

    Raises:
        ConfigurationError: a value or a reference cannot be used.
        TypeError: an argument that there is not.
    """
    own: dict[str, Value | None] = {
        "mongodb.connection.string": connection,
        "mongodb.user": user,
        "database.include.list": listed(databases),
        "collection.include.list": listed(collections),
        "capture.mode": capture_mode,
    }
    secrets: dict[str, Reference] = {} if password is None else {"mongodb.password": password}
    return _connector("DebeziumMongoDb", name, MONGODB, topic_prefix, own, secrets, options, tasks_max)


def _server(hostname: str, port: int, user: str) -> dict[str, Value | None]:
    return {"database.hostname": hostname, "database.port": port, "database.user": user}


def _binary_log(
    server_id: int, databases: Iterable[str], tables: Iterable[str], decimals: Decimals | None
) -> dict[str, Value | None]:
    return {
        "database.server.id": server_id,
        "database.include.list": listed(databases),
        "table.include.list": listed(tables),
        "decimal.handling.mode": decimals,
    }


def _history(bootstrap: str, topic: str | None, prefix: str) -> dict[str, Value | None]:
    return {
        "schema.history.internal.kafka.bootstrap.servers": bootstrap,
        "schema.history.internal.kafka.topic": topic or f"{prefix}.schema-history",
    }


def _connector(
    function: str,
    name: str,
    class_: str,
    topic_prefix: str,
    own: Mapping[str, Value | None],
    secrets: Mapping[str, Reference],
    options: CaptureOptions,
    tasks_max: int = 1,
) -> Connector:
    require_known(options, CaptureOptions.__annotations__, function)
    settings = {
        "topic.prefix": topic_prefix,
        **given(own),
        **given(_reading(options)),
        **_topic_creation(options),
        **options.get("config", {}),
    }
    plain_json = options.get("plain_json", False)
    key, value = options.get("key_converter"), options.get("value_converter")
    require_one_way(name, plain_json, key, value)
    return Connector(
        name=name,
        class_=class_,
        config=settings,
        tasks_max=tasks_max,
        secrets={**secrets, **options.get("secrets", {})},
        on_drift=options.get("on_drift", "show"),
        plugin_version=options.get("plugin_version"),
        transforms=_transforms(name, class_, topic_prefix, options),
        key_converter="json" if plain_json else key,
        value_converter="json" if plain_json else value,
    )


def _reading(options: CaptureOptions) -> dict[str, Value | None]:
    exactly_once = options.get("exactly_once", False)
    return {
        "snapshot.mode": options.get("snapshot_mode"),
        "heartbeat.interval.ms": milliseconds(options.get("heartbeat")),
        "poll.interval.ms": milliseconds(options.get("poll_interval")),
        "max.batch.size": options.get("max_batch_size"),
        "max.queue.size": options.get("max_queue_size"),
        "tombstones.on.delete": options.get("tombstones"),
        "exactly.once.support": "required" if exactly_once else None,
        "transaction.boundary": "poll" if exactly_once else None,
    }


def _topic_creation(options: CaptureOptions) -> dict[str, Value]:
    sizes = {"partitions": options.get("partitions"), "replication.factor": options.get("replication")}
    if list(sizes.values()).count(None) == 1 or (options.get("topic_config") and None in sizes.values()):
        raise TypeError("topics are created by Connect with partitions= and replication=: give both")
    found = given(sizes) | dict(options.get("topic_config", {}))
    return {f"topic.creation.default.{setting}": value for setting, value in found.items()}


def _transforms(name: str, class_: str, topic_prefix: str, options: CaptureOptions) -> list[Transform]:
    own = chains.listed(name, options.get("transforms", ()))
    require_source(name, own, has_timestamps=False)
    found = [each for each in own if isinstance(each, Transform) and each.of_changes]
    if options.get("unwrap", False):
        unwrap = ExtractNewRecordState(fields=options.get("added_fields", _ADDED_FIELDS), name="unwrap")
        found.append(replace(unwrap, class_=_DOCUMENT) if class_ == MONGODB else unwrap)
    elif "added_fields" in options:
        raise TypeError("added_fields= are added to rows: give unwrap=True as well")
    if "topics" in options:
        found.append(RegexRouter(rf"{re.escape(topic_prefix)}\.[^.]+\.(.*)", options["topics"], name="route"))
    return [*found, *(each for each in own if not (isinstance(each, Transform) and each.of_changes))]
