"""The JDBC sink of Debezium: the newest row of each key, or each record, in a table of a database."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from deltaworks.connect.chains import Transform
from deltaworks.connect.connector import Connector, OnDrift
from deltaworks.connect.converters import Converter
from deltaworks.connect.options import dead_letters_of, given, listed, topics_of
from deltaworks.connect.secrets import Reference
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
    read_committed: bool = True,
    dead_letters: str | None = None,
    dead_letters_replication: int = 3,
    tasks_max: int = 1,
    config: Mapping[str, Value] | None = None,
    secrets: Mapping[str, Reference] | None = None,
    transforms: Sequence[Transform] = (),
    key_converter: Converter | None = None,
    value_converter: Converter | None = None,
    on_drift: OnDrift = "show",
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
        read_committed: whether records of transactions that were aborted are left out.
        dead_letters: the topic for records that fail, with the error in headers; None: the first one ends the task.
        dead_letters_replication: replicas of that topic, if it has to be created.
        tasks_max: how many tasks at most; more than the topics have partitions are of no use.
        config: further settings, which win over what the arguments say.
        secrets: further secrets, as those of `Connector`.
        transforms: what happens to each record, in this order; see `Transform`.
        key_converter: how keys are bytes in Kafka, as that of `Connector`.
        value_converter: likewise for values.
        on_drift: as that of `Connector`.

    Raises:
        ConfigurationError: a value or a reference cannot be used, or the arguments do not fit together.
    """
    names = topics_of(name, topics)
    if delete and primary_key != "record_key":
        raise ConfigurationError(
            f"Connector '{name}' cannot delete rows with primary_key={primary_key!r}: a deletion has a key only.",
            hint='primary_key="record_key"',
        )
    own: dict[str, Value | None] = {
        "topics": names,
        "connection.url": url,
        "connection.username": user,
        "collection.name.format": table,
        "insert.mode": insert_mode,
        "delete.enabled": delete,
        "primary.key.mode": primary_key,
        "primary.key.fields": listed(primary_key_fields),
        "schema.evolution": schema_evolution,
        "consumer.override.isolation.level": "read_committed" if read_committed else None,
        **dead_letters_of(dead_letters, dead_letters_replication),
    }
    return Connector(
        name=name,
        class_=JDBC_SINK,
        config={**given(own), **(config or {})},
        tasks_max=tasks_max,
        secrets={"connection.password": password, **(secrets or {})},
        transforms=transforms,
        key_converter=key_converter,
        value_converter=value_converter,
        on_drift=on_drift,
    )
