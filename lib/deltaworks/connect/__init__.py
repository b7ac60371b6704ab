"""Connectors of Kafka Connect as files of a project: what each is, what would change, and what its tasks do.

```py
# jobs/connectors/orders_cdc.py
from deltaworks.connect import DebeziumPostgres

connector = DebeziumPostgres(
    name="orders_cdc",
    hostname="db.example.com",
    user="cdc",
    password={"env": "CDC_PASSWORD"},
    dbname="shop",
    topic_prefix="shop",
    tables=["public.orders"],
)
```

`connector.py` is the connector; `debezium.py`, `jdbc.py`, `search.py`, `storage.py` and `file_streams.py` make ones of
common classes, sinks with what `sinks.py` has for all; `published.py` has the settings that others have published.
`chains.py` has transforms and predicates, which `transforms.py` makes of typed arguments, and `converters.py` the names
of converters. `secrets.py` says what is a secret and how it is referred to. `project.py` finds and loads the files.
`checks.py` needs no worker; `validation.py` asks one. `planning.py` compares files with the cluster and applies them;
`states.py` is what connectors and tasks do now. `api.py` is the client of Connect's REST interface, `answers.py` what
that says. Nothing here prints. What needs the registry is in `deltaworks.connectors`.
"""

from deltaworks.connect.chains import Predicate, Transform
from deltaworks.connect.connector import Connector
from deltaworks.connect.debezium import (
    CaptureOptions,
    DebeziumMariaDb,
    DebeziumMongoDb,
    DebeziumMySql,
    DebeziumPostgres,
)
from deltaworks.connect.file_streams import FileSink, FileSource
from deltaworks.connect.jdbc import JdbcSink
from deltaworks.connect.search import ElasticsearchSink, OpenSearchSink
from deltaworks.connect.sinks import SinkOptions
from deltaworks.connect.storage import HdfsSink, S3Sink
from deltaworks.connect.transforms import (
    Cast,
    ChangeHeaders,
    DropHeaders,
    ExtractField,
    ExtractNewRecordState,
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
    TransformOptions,
    ValueToKey,
)

__all__ = [
    "CaptureOptions",
    "Cast",
    "ChangeHeaders",
    "Connector",
    "DebeziumMariaDb",
    "DebeziumMongoDb",
    "DebeziumMySql",
    "DebeziumPostgres",
    "DropHeaders",
    "ElasticsearchSink",
    "ExtractField",
    "ExtractNewRecordState",
    "FileSink",
    "FileSource",
    "Filter",
    "Flatten",
    "HasHeaderKey",
    "HdfsSink",
    "HeaderFrom",
    "HoistField",
    "InsertField",
    "InsertHeader",
    "JdbcSink",
    "MaskField",
    "OpenSearchSink",
    "Predicate",
    "RecordIsTombstone",
    "RegexRouter",
    "ReplaceField",
    "S3Sink",
    "SetSchemaMetadata",
    "SinkOptions",
    "TimestampConverter",
    "TimestampRouter",
    "TopicNameMatches",
    "Transform",
    "TransformOptions",
    "ValueToKey",
]
