"""Sinks of search indices: Aiven's connector for OpenSearch, Confluent's for Elasticsearch.

Names of settings are those of the connectors' own sources (OpenSearch 4, Elasticsearch 15).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, Unpack

from deltaworks.connect.connector import Connector
from deltaworks.connect.options import listed
from deltaworks.connect.published import ELASTICSEARCH, OPENSEARCH
from deltaworks.connect.secrets import Reference
from deltaworks.connect.sinks import SinkOptions, sink
from deltaworks.connect.values import Value

OPENSEARCH_SINK = "io.aiven.kafka.connect.opensearch.OpenSearchSinkConnector"
OPENSEARCH_3_SINK = "io.aiven.kafka.connect.opensearch.OpensearchSinkConnector"
ELASTICSEARCH_SINK = "io.confluent.connect.elasticsearch.ElasticsearchSinkConnector"


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
    connector_version: Literal[3, 4] = 4,
    **options: Unpack[SinkOptions],
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
        connector_version: of the plugin, whose class has another name since 4.
        **options: see `SinkOptions`.

    Raises:
        ConfigurationError: a value or a reference cannot be used, or the connector has no such setting.
        TypeError: an argument that there is not.
    """
    own: dict[str, Value | None] = {
        "connection.url": listed(urls),
        "connection.username": user,
        "key.ignore": not key_as_id,
        "index.write.method": write,
        "behavior.on.null.values": nulls,
        "behavior.on.version.conflict": version_conflicts,
        "drop.invalid.message": drop_invalid,
        "batch.size": batch_size,
        "schema.ignore": True if plain_json else None,
    }
    return sink(
        "OpenSearchSink",
        name,
        OPENSEARCH_SINK if connector_version == 4 else OPENSEARCH_3_SINK,
        topics,
        own,
        options,
        secrets={"connection.password": password},
        plain_json=plain_json,
        published=OPENSEARCH,
    )


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
    **options: Unpack[SinkOptions],
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
        **options: see `SinkOptions`.

    Raises:
        ConfigurationError: a value or a reference cannot be used, or the connector has no such setting.
        TypeError: an argument that there is not.
    """
    own: dict[str, Value | None] = {
        "connection.url": listed(urls),
        "connection.username": user,
        "key.ignore": not key_as_id,
        "write.method": write,
        "behavior.on.null.values": nulls,
        "drop.invalid.message": drop_invalid,
        "batch.size": batch_size,
        "schema.ignore": True if plain_json else None,
    }
    return sink(
        "ElasticsearchSink",
        name,
        ELASTICSEARCH_SINK,
        topics,
        own,
        options,
        secrets={"connection.password": password},
        plain_json=plain_json,
        published=ELASTICSEARCH,
    )
