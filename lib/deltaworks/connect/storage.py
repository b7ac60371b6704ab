"""Sinks of files: Confluent's connectors for S3 and HDFS.

Names of settings are those of the connectors' own sources (S3 12, HDFS 10, storage-common 12). Confluent's licences say
who may run them.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Literal, Unpack

from deltaworks.connect.connector import Connector
from deltaworks.connect.options import listed, milliseconds
from deltaworks.connect.published import HDFS, S3
from deltaworks.connect.secrets import Reference
from deltaworks.connect.sinks import SinkOptions, sink
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
    **options: Unpack[SinkOptions],
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
        **options: see `SinkOptions`.

    Raises:
        ConfigurationError: a value or a reference cannot be used, the arguments do not fit together, or the connector
            has no such setting.
        TypeError: an argument that there is not.
    """
    if (access_key is None) is not (secret_key is None):
        raise ConfigurationError(f"Connector '{name}': access_key= and secret_key= belong together.")
    own: dict[str, Value | None] = {
        "s3.bucket.name": bucket,
        "s3.region": region,
        "store.url": endpoint,
        "s3.path.style.access.enabled": path_style,
        "aws.access.key.id": access_key,
        "storage.class": "io.confluent.connect.s3.storage.S3Storage",
        "format.class": _S3_FORMATS[format],
        "s3.compression.type": "gzip" if gzip else None,
        **_files(name, flush_size, folder, rotate, partition_by, path_format, partition_duration, timezone),
    }
    return sink(
        "S3Sink",
        name,
        S3_SINK,
        topics,
        own,
        options,
        secrets={"aws.secret.access.key": secret_key},
        plain_json=plain_json,
        published=S3,
    )


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
    **options: Unpack[SinkOptions],
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
        **options: see `SinkOptions`.

    Raises:
        ConfigurationError: a value or a reference cannot be used, the arguments do not fit together, or the connector
            has no such setting.
        TypeError: an argument that there is not.
    """
    if (principal is None) is not (keytab is None):
        raise ConfigurationError(f"Connector '{name}': principal= and keytab= belong together.")
    own: dict[str, Value | None] = {
        "hdfs.url": url,
        "format.class": f"io.confluent.connect.hdfs{'3' if hadoop == 3 else ''}.{_HDFS_FORMATS[format]}",
        "logs.dir": logs,
        "hadoop.conf.dir": hadoop_conf_dir,
        "hdfs.authentication.kerberos": None if principal is None else True,
        "connect.hdfs.principal": principal,
        "connect.hdfs.keytab": keytab,
        "hdfs.namenode.principal": namenode_principal,
        **_files(name, flush_size, folder, rotate, partition_by, path_format, partition_duration, timezone),
    }
    return sink(
        "HdfsSink",
        name,
        HDFS3_SINK if hadoop == 3 else HDFS_SINK,
        topics,
        own,
        options,
        secrets={},
        plain_json=plain_json,
        published=HDFS,
    )


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
