"""Sinks of search indices: Aiven's connector for OpenSearch, Confluent's for Elasticsearch.

Names of settings are those of the connectors' own sources (OpenSearch 4, Elasticsearch 15).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from deltaworks.connect.chains import Transform
from deltaworks.connect.connector import Connector, OnDrift
from deltaworks.connect.converters import JSON_CONVERTER, STRING_CONVERTER, Converter, require_one_way
from deltaworks.connect.options import dead_letters_of, given, listed, topics_of
from deltaworks.connect.published import ELASTICSEARCH, OPENSEARCH, require_published
from deltaworks.connect.secrets import Reference
from deltaworks.connect.values import Value

OPENSEARCH_SINK = "io.aiven.kafka.connect.opensearch.OpenSearchSinkConnector"
OPENSEARCH_3_SINK = "io.aiven.kafka.connect.opensearch.OpensearchSinkConnector"
ELASTICSEARCH_SINK = "io.confluent.connect.elasticsearch.ElasticsearchSinkConnector"

_JSON: Mapping[str, Value] = {
    "key.converter": STRING_CONVERTER,
    "value.converter": JSON_CONVERTER,
    "value.converter.schemas.enable": False,
    "schema.ignore": True,
}


def OpenSearchSink(
    *,
    name: str,
    topics: Iterable[str],
    urls: Iterable[str],
    user: str | None = None,
    password: Reference | None = None,
    key_as_id: bool = True,
    write: Literal["insert", "upsert"] = "insert",
    nulls: Literal["ignore", "delete", "fail"] = "delete",
    version_conflicts: Literal["ignore", "warn", "fail", "report"] = "ignore",
    drop_invalid: bool = False,
    batch_size: int | None = None,
    plain_json: bool = False,
    read_committed: bool = True,
    dead_letters: str | None = None,
    dead_letters_replication: int = 3,
    connector_version: Literal[3, 4] = 4,
    tasks_max: int = 1,
    config: Mapping[str, Value] | None = None,
    secrets: Mapping[str, Reference] | None = None,
    transforms: Sequence[Transform] = (),
    key_converter: Converter | None = None,
    value_converter: Converter | None = None,
    on_drift: OnDrift = "show",
) -> Connector:
    """A connector that writes the records of topics as documents of OpenSearch, an index per topic.

    With the key as id, its offset is the version of a document, so one that is written again stays the same.

    Args:
        name: of the connector and of its file.
        topics: those that it reads; an index has the name of its topic in small letters.
        urls: of the servers.
        user: who may write.
        password: where the user's password is; see `Connector`.
        key_as_id: whether the key is the id of a document; else topic, partition and offset are.
        write: `insert` replaces a document, `upsert` changes its fields.
        nulls: what a null value does.
        version_conflicts: what happens where a newer document is there.
        drop_invalid: whether a record that cannot become a document is left out.
        batch_size: records of a request at most.
        plain_json: keys are texts, and values JSON without a schema, as `to` writes them.
        read_committed: whether records of transactions that were aborted are left out.
        dead_letters: the topic for records that fail, with the error in headers; None: the first one ends the task.
        dead_letters_replication: replicas of that topic, if it has to be created.
        connector_version: of the plugin, whose class has another name since 4.
        tasks_max: how many tasks at most; more than the topics have partitions are of no use.
        config: further settings, which win over what the arguments say.
        secrets: further secrets, as those of `Connector`.
        transforms: what happens to each record, in this order; see `Transform`.
        key_converter: how keys are bytes in Kafka, as that of `Connector`.
        value_converter: likewise for values.
        on_drift: as that of `Connector`.

    Raises:
        ConfigurationError: a value or a reference cannot be used, or the connector has no such setting.
    """
    require_one_way(name, plain_json, key_converter, value_converter)
    own: dict[str, Value | None] = {
        "topics": topics_of(name, topics),
        "connection.url": listed(urls),
        "connection.username": user,
        "key.ignore": not key_as_id,
        "index.write.method": write,
        "behavior.on.null.values": nulls,
        "behavior.on.version.conflict": version_conflicts,
        "drop.invalid.message": drop_invalid,
        "batch.size": batch_size,
        **(_JSON if plain_json else {}),
        "consumer.override.isolation.level": "read_committed" if read_committed else None,
        **dead_letters_of(dead_letters, dead_letters_replication),
    }
    class_ = OPENSEARCH_SINK if connector_version == 4 else OPENSEARCH_3_SINK
    made = _made(name, class_, OPENSEARCH, own, tasks_max, password, config, secrets, on_drift)
    return replace(made, transforms=transforms, key_converter=key_converter, value_converter=value_converter)


def ElasticsearchSink(
    *,
    name: str,
    topics: Iterable[str],
    urls: Iterable[str],
    user: str | None = None,
    password: Reference | None = None,
    key_as_id: bool = True,
    write: Literal["insert", "upsert"] = "insert",
    nulls: Literal["ignore", "delete", "fail"] = "delete",
    drop_invalid: bool = False,
    batch_size: int | None = None,
    plain_json: bool = False,
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
    """A connector that writes the records of topics as documents of Elasticsearch, an index per topic.

    With the key as id, its offset is the version of a document, so one that is written again stays the same.

    Args:
        name: of the connector and of its file.
        topics: those that it reads; an index has the name of its topic in small letters.
        urls: of the servers.
        user: who may write.
        password: where the user's password is; see `Connector`.
        key_as_id: whether the key is the id of a document; else topic, partition and offset are.
        write: `insert` replaces a document, `upsert` changes its fields.
        nulls: what a null value does.
        drop_invalid: whether a record that cannot become a document is left out.
        batch_size: records of a request at most.
        plain_json: keys are texts, and values JSON without a schema, as `to` writes them.
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
        ConfigurationError: a value or a reference cannot be used, or the connector has no such setting.
    """
    require_one_way(name, plain_json, key_converter, value_converter)
    own: dict[str, Value | None] = {
        "topics": topics_of(name, topics),
        "connection.url": listed(urls),
        "connection.username": user,
        "key.ignore": not key_as_id,
        "write.method": write,
        "behavior.on.null.values": nulls,
        "drop.invalid.message": drop_invalid,
        "batch.size": batch_size,
        **(_JSON if plain_json else {}),
        "consumer.override.isolation.level": "read_committed" if read_committed else None,
        **dead_letters_of(dead_letters, dead_letters_replication),
    }
    made = _made(name, ELASTICSEARCH_SINK, ELASTICSEARCH, own, tasks_max, password, config, secrets, on_drift)
    return replace(made, transforms=transforms, key_converter=key_converter, value_converter=value_converter)


def _made(
    name: str,
    class_: str,
    published: frozenset[str],
    own: Mapping[str, Value | None],
    tasks_max: int,
    password: Reference | None,
    config: Mapping[str, Value] | None,
    secrets: Mapping[str, Reference] | None,
    on_drift: OnDrift,
) -> Connector:
    held: dict[str, Reference] = {} if password is None else {"connection.password": password}
    settings = {**given(own), **(config or {})}
    hidden = {**held, **(secrets or {})}
    require_published(name, class_, published, (*settings, *hidden))
    return Connector(name=name, class_=class_, config=settings, tasks_max=tasks_max, secrets=hidden, on_drift=on_drift)
