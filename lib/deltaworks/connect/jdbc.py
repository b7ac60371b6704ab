"""The JDBC sink of Debezium: the newest row of each key, or each record, in a table of a database."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, Unpack

from deltaworks.connect.connector import Connector
from deltaworks.connect.options import listed
from deltaworks.connect.secrets import Reference
from deltaworks.connect.sinks import SinkOptions, sink
from deltaworks.connect.values import Value
from deltaworks.errors import ConfigurationError

JDBC_SINK = "io.debezium.connector.jdbc.JdbcSinkConnector"


def JdbcSink(
    *,
    name: str,
    topics: Iterable[str],
    url: str,
    user: str,
    password: Reference,
    table: str | None = None,
    insert_mode: Literal["insert", "update", "upsert"] = "upsert",
    delete: bool = False,
    primary_key: Literal["none", "kafka", "record_key", "record_value", "record_header"] = "record_key",
    primary_key_fields: Iterable[str] = (),
    schema_evolution: Literal["none", "basic"] = "none",
    **options: Unpack[SinkOptions],
) -> Connector:
    """A connector that writes the records of topics into a table of a database.

    Records need a schema: JSON with `schemas.enable`, or Avro and others of a schema registry.

    Args:
        name: of the connector and of its file.
        topics: those that it reads.
        url: `jdbc:postgresql://db.example.com:5432/shop`, without user and password.
        user: who may write.
        password: where the user's password is; see `Connector`.
        table: its name, which may have `${topic}` in it; None: that of the topic, as Debezium derives it.
        insert_mode: `upsert` writes a row again for a record that comes again.
        delete: whether a null value deletes the row; needs `primary_key="record_key"`.
        primary_key: where the primary key is.
        primary_key_fields: fields of it; none: all.
        schema_evolution: `basic`: tables are created, and get columns.
        **options: see `SinkOptions`.

    Raises:
        ConfigurationError: a value or a reference cannot be used, or the arguments do not fit together.
        TypeError: an argument that there is not.
    """
    if delete and primary_key != "record_key":
        raise ConfigurationError(
            f"Connector '{name}' cannot delete rows with primary_key={primary_key!r}: a deletion has a key only.",
            hint='primary_key="record_key"',
        )
    own: dict[str, Value | None] = {
        "connection.url": url,
        "connection.username": user,
        "collection.name.format": table,
        "insert.mode": insert_mode,
        "delete.enabled": delete,
        "primary.key.mode": primary_key,
        "primary.key.fields": listed(primary_key_fields),
        "schema.evolution": schema_evolution,
    }
    return sink("JdbcSink", name, JDBC_SINK, topics, own, options, secrets={"connection.password": password})
