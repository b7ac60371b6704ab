"""Sinks of files: Confluent's connectors for S3 and HDFS.

Names of settings are those of the connectors' own sources (S3 12, HDFS 10, storage-common 12). Confluent's licences say
who may run them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Literal

from deltaworks.connect.chains import Transform
from deltaworks.connect.connector import Connector, OnDrift
from deltaworks.connect.converters import JSON_CONVERTER, STRING_CONVERTER, Converter, require_one_way
from deltaworks.connect.options import (
    dead_letters_of,
    given,
    listed,
    milliseconds,
    topics_of,
)
from deltaworks.connect.published import HDFS, S3, require_published
from deltaworks.connect.secrets import Reference
from deltaworks.connect.values import Value
from deltaworks.errors import ConfigurationError

S3_SINK = "io.confluent.connect.s3.S3SinkConnector"
HDFS_SINK = "io.confluent.connect.hdfs.HdfsSinkConnector"
HDFS3_SINK = "io.confluent.connect.hdfs3.Hdfs3SinkConnector"

_PARTITIONERS = "io.confluent.connect.storage.partitioner"
_S3_FORMATS = {
    "json": "io.confluent.connect.s3.format.json.JsonFormat",
    "avro": "io.confluent.connect.s3.format.avro.AvroFormat",
    "parquet": "io.confluent.connect.s3.format.parquet.ParquetFormat",
    "bytes": "io.confluent.connect.s3.format.bytearray.ByteArrayFormat",
}
_HDFS_FORMATS = {"json": "json.JsonFormat", "avro": "avro.AvroFormat", "parquet": "parquet.ParquetFormat"}


def S3Sink(
    *,
    name: str,
    topics: Iterable[str],
    bucket: str,
    region: str,
    flush_size: int,
    format: Literal["json", "avro", "parquet", "bytes"] = "json",
    folder: str = "topics",
    endpoint: str | None = None,
    path_style: bool | None = None,
    access_key: str | None = None,
    secret_key: Reference | None = None,
    gzip: bool = False,
    rotate: timedelta | None = None,
    partition_by: Iterable[str] = (),
    path_format: str | None = None,
    partition_duration: timedelta | None = None,
    timezone: str = "UTC",
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
    """A connector that writes the records of topics into objects of S3, or of another store that speaks it.

    Which records an object has depends on their offsets and timestamps only, so it is exact after a restart.

    Args:
        name: of the connector and of its file.
        topics: those that it reads.
        bucket: where objects go.
        region: of the bucket.
        flush_size: records of an object.
        format: of an object. `avro` and `parquet` need records with a schema.
        folder: where objects begin.
        endpoint: of another store than AWS.
        path_style: whether the bucket is in the path of a URL; None: as the connector does it.
        access_key: who may write; None: as AWS' own chain finds it.
        secret_key: where the key's secret is; see `Connector`.
        gzip: whether objects with JSON and bytes are compressed.
        rotate: span of the records' timestamps after which an object ends although it is not full.
        partition_by: fields of the value that become folders.
        path_format: folders by time instead, such as `"'date'=YYYY-MM-dd"`; of the records' timestamps.
        partition_duration: the time of such a folder.
        timezone: of its names.
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
        ConfigurationError: a value or a reference cannot be used, the arguments do not fit together, or the connector
            has no such setting.
    """
    if (access_key is None) is not (secret_key is None):
        raise ConfigurationError(f"Connector '{name}': access_key= and secret_key= belong together.")
    require_one_way(name, plain_json, key_converter, value_converter)
    own: dict[str, Value | None] = {
        "topics": topics_of(name, topics),
        "s3.bucket.name": bucket,
        "s3.region": region,
        "store.url": endpoint,
        "s3.path.style.access.enabled": path_style,
        "aws.access.key.id": access_key,
        "storage.class": "io.confluent.connect.s3.storage.S3Storage",
        "format.class": _S3_FORMATS[format],
        "s3.compression.type": "gzip" if gzip else None,
        **_files(name, flush_size, folder, rotate, partition_by, path_format, partition_duration, timezone),
        **_converted(plain_json, read_committed),
        **dead_letters_of(dead_letters, dead_letters_replication),
    }
    held: dict[str, Reference] = {} if secret_key is None else {"aws.secret.access.key": secret_key}
    made = _made(name, S3_SINK, S3, own, tasks_max, {**held, **(secrets or {})}, config, on_drift)
    return replace(made, transforms=transforms, key_converter=key_converter, value_converter=value_converter)


def HdfsSink(
    *,
    name: str,
    topics: Iterable[str],
    url: str,
    flush_size: int,
    hadoop: Literal[2, 3] = 3,
    format: Literal["json", "avro", "parquet"] = "json",
    folder: str = "topics",
    logs: str = "logs",
    hadoop_conf_dir: str | None = None,
    principal: str | None = None,
    keytab: str | None = None,
    namenode_principal: str | None = None,
    rotate: timedelta | None = None,
    partition_by: Iterable[str] = (),
    path_format: str | None = None,
    partition_duration: timedelta | None = None,
    timezone: str = "UTC",
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
    """A connector that writes the records of topics into files of HDFS.

    A log of its own there makes it exact after a restart.

    Args:
        name: of the connector and of its file.
        topics: those that it reads.
        url: of HDFS, `hdfs://namenode:8020`.
        flush_size: records of a file.
        hadoop: version of HDFS; each has a connector of its own.
        format: of a file. `avro` and `parquet` need records with a schema.
        folder: where files begin.
        logs: where its log is.
        hadoop_conf_dir: the folder of Hadoop's configuration, on the workers.
        principal: of Kerberos; None: there is none.
        keytab: the principal's file, on the workers.
        namenode_principal: of the name node.
        rotate: span of the records' timestamps after which a file ends although it is not full.
        partition_by: fields of the value that become folders.
        path_format: folders by time instead, such as `"'date'=YYYY-MM-dd"`; of the records' timestamps.
        partition_duration: the time of such a folder.
        timezone: of its names.
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
        ConfigurationError: a value or a reference cannot be used, the arguments do not fit together, or the connector
            has no such setting.
    """
    if (principal is None) is not (keytab is None):
        raise ConfigurationError(f"Connector '{name}': principal= and keytab= belong together.")
    require_one_way(name, plain_json, key_converter, value_converter)
    own: dict[str, Value | None] = {
        "topics": topics_of(name, topics),
        "hdfs.url": url,
        "format.class": f"io.confluent.connect.hdfs{'3' if hadoop == 3 else ''}.{_HDFS_FORMATS[format]}",
        "logs.dir": logs,
        "hadoop.conf.dir": hadoop_conf_dir,
        "hdfs.authentication.kerberos": None if principal is None else True,
        "connect.hdfs.principal": principal,
        "connect.hdfs.keytab": keytab,
        "hdfs.namenode.principal": namenode_principal,
        **_files(name, flush_size, folder, rotate, partition_by, path_format, partition_duration, timezone),
        **_converted(plain_json, read_committed),
        **dead_letters_of(dead_letters, dead_letters_replication),
    }
    class_ = HDFS3_SINK if hadoop == 3 else HDFS_SINK
    made = _made(name, class_, HDFS, own, tasks_max, dict(secrets or {}), config, on_drift)
    return replace(made, transforms=transforms, key_converter=key_converter, value_converter=value_converter)


def _files(
    name: str,
    flush_size: int,
    folder: str,
    rotate: timedelta | None,
    partition_by: Iterable[str],
    path_format: str | None,
    partition_duration: timedelta | None,
    timezone: str,
) -> dict[str, Value | None]:
    fields = listed(partition_by)
    if fields is not None and path_format is not None:
        raise ConfigurationError(f"Connector '{name}' has both partition_by= and path_format=; give one of them.")
    if (path_format is None) is not (partition_duration is None):
        raise ConfigurationError(f"Connector '{name}': path_format= and partition_duration= belong together.")
    by_time = path_format is not None or rotate is not None
    kind = "FieldPartitioner" if fields else "DefaultPartitioner" if path_format is None else "TimeBasedPartitioner"
    return {
        "flush.size": flush_size,
        "topics.dir": folder,
        "rotate.interval.ms": milliseconds(rotate),
        "partitioner.class": f"{_PARTITIONERS}.{kind}",
        "partition.field.name": fields,
        "path.format": path_format,
        "partition.duration.ms": milliseconds(partition_duration),
        "timestamp.extractor": "Record" if by_time else None,
        "timezone": timezone if by_time else None,
        "locale": "en-US" if path_format is not None else None,
    }


def _converted(plain_json: bool, read_committed: bool) -> dict[str, Value | None]:
    return {
        "key.converter": STRING_CONVERTER if plain_json else None,
        "value.converter": JSON_CONVERTER if plain_json else None,
        "value.converter.schemas.enable": False if plain_json else None,
        "consumer.override.isolation.level": "read_committed" if read_committed else None,
    }


def _made(
    name: str,
    class_: str,
    published: frozenset[str],
    own: Mapping[str, Value | None],
    tasks_max: int,
    secrets: Mapping[str, Reference],
    config: Mapping[str, Value] | None,
    on_drift: OnDrift,
) -> Connector:
    settings = {**given(own), **(config or {})}
    require_published(name, class_, published, (*settings, *secrets))
    return Connector(name=name, class_=class_, config=settings, tasks_max=tasks_max, secrets=secrets, on_drift=on_drift)
