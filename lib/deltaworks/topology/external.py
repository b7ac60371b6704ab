"""Other systems that a stream writes to without a connector: a search index, a table of a database, files.

Only settings are here, which travel with the topology; `deltaworks.sinks` has what writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, ClassVar, Literal

from deltaworks.topology.nodes.sinks import DeltaSink
from deltaworks.topology.sinks import SinkTask, SinkWriter

DATE = "{date}"
"""Where the date is in the name of an index."""
OnPublish = Literal["correct", "stale"]
"""What becomes of a sink when a replay is published; see `topology/published_sinks.py`."""


@dataclass(frozen=True)
class Given:
    """A setting as the author gives it: a text, or where the text is."""

    what: str
    """Names it in errors."""
    text: str | None = None
    env: str | None = None
    file: str | None = None


class _External:
    """A `Sink` whose writer is in `deltaworks.sinks`, above this module, and imports the client of its system."""

    def open(self, task: SinkTask) -> SinkWriter[Any, Any]:
        """A writer for a task."""
        writer: SinkWriter[Any, Any] = import_module("deltaworks.sinks").writer(self, task)
        return writer


@dataclass(frozen=True, kw_only=True)
class SearchIndex(_External):
    """An index of Elasticsearch or OpenSearch; a document per key."""

    may_refuse: ClassVar[bool] = True
    index: str
    """Its name; `{date}` stands for the date."""
    date_format: str
    urls: tuple[Given, ...]
    username: Given | None
    password: Given | None
    api_key: Given | None
    ca_file: Given | None
    key_field: str | None
    """Field of the document that has the key; None: only its id has it."""
    timestamp_field: str | None
    batch_documents: int
    batch_bytes: int
    timeout_s: float
    """Of a request."""
    patience_s: float
    """How long a batch is tried again while the servers do not take it."""
    on_publish: OnPublish | None = None
    """None: correct, if that is possible."""


@dataclass(frozen=True, kw_only=True)
class JdbcTable(_External):
    """A table of PostgreSQL, MariaDB or MySQL."""

    table: str
    schema: str | None
    url: Given
    username: Given | None
    password: Given | None
    mode: Literal["upsert", "append"]
    create_table: bool
    timestamp_column: str | None
    rows: DeltaSink
    """What its columns derive from; no such node is in the topology."""
    on_publish: OnPublish | None = None
    """None: correct, if that is possible."""


@dataclass(frozen=True, kw_only=True)
class FileFolder(_External):
    """A folder of files, here, in an object store or in HDFS: one per task and batch."""

    url: Given
    format: Literal["parquet", "jsonl"]
    compression: Literal["none", "gzip", "snappy", "zstd"]
    partition_by: tuple[str, ...]
    storage: Mapping[str, str | Given] = field(default_factory=dict)
    """How an object store is reached; empty: as `[s3]` of the project says."""
    rows: DeltaSink
    """What its columns derive from; no such node is in the topology."""


EXTERNAL = (SearchIndex, JdbcTable, FileFolder)
"""All kinds of them."""
