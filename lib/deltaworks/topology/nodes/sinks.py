"""Where records leave: Kafka topics, Delta tables and sinks that authors write."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from deltaworks.serdes.base import Serde
from deltaworks.topology.nodes.base import Node
from deltaworks.topology.routing import StreamPartitioner, TopicNameExtractor
from deltaworks.topology.sinks import AnySink


@dataclass(frozen=True, kw_only=True)
class TopicSink(Node):
    """Writes an output topic."""

    topic: str
    key: Serde[Any]
    value: Serde[Any]
    partitioner: StreamPartitioner | None = None
    """None: the partition that Kafka's own producer would choose."""


@dataclass(frozen=True, kw_only=True)
class ExtractedTopicSink(Node):
    """Writes each record to the topic that a function names."""

    extractor: TopicNameExtractor
    key: Serde[Any]
    value: Serde[Any]
    partitioner: StreamPartitioner | None = None


class TableKind(Enum):
    """The kind of rows in a Delta table."""

    APPEND = "append"
    """Every record of a stream."""
    CHANGELOG = "changelog"
    """A KTable: `<table>_changelog` (every update) and `<table>` (snapshot)."""
    WINDOWED = "windowed"
    """A windowed KTable: one row per key and window."""


@dataclass(frozen=True, kw_only=True)
class DeltaSink(Node):
    """Writes a Delta table."""

    table: str
    kind: TableKind
    key: Any
    """Python type of the key (the inner key of a windowed one); the columns derive from it."""
    value: Any
    """Python type of the value."""
    key_name: str | tuple[str, ...] | None = None
    """Name of the key's column, or of each of its columns; None: `key`, or the names of its fields."""
    value_name: str | None = None
    """Name of the column of a value without fields; None: `value`."""
    column_docs: tuple[tuple[str, str], ...] = ()
    """Columns and what they mean, as far as the author says so beside their names."""
    doc: str | None = None
    """What the table is, for its readers."""
    window_node: str | None = None
    """Name of the aggregate whose windows the rows belong to; it knows which windows are closed."""


@dataclass(frozen=True, kw_only=True)
class CustomSink(Node):
    """Hands records to a sink that the author wrote, or to one for another system (`topology/external.py`)."""

    sink: AnySink
    in_replay: bool
    """Whether a replay calls it too."""
    kind: TableKind = TableKind.APPEND
    """What it gets: the records of a stream, or the updates of a table."""
    needs_key: bool = False
    """Whether a record without a key is a production error."""
    rows: DeltaSink | None = None
    """Says which columns a record has to fit; no such node is in the topology. None: it takes whatever comes."""
