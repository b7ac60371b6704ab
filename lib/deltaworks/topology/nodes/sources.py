"""Where records enter: topics, read as a stream or as a table, and hops between stages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from deltaworks.serdes.base import Serde
from deltaworks.topology.nodes.base import Node, Table
from deltaworks.topology.timestamps import TimestampExtractor


@dataclass(frozen=True, kw_only=True)
class Source(Node):
    """Reads topics (`StreamsBuilder.stream`, the source half of `.table`, the far side of a hop)."""

    topics: tuple[str, ...]
    key: Serde[Any]
    value: Serde[Any]
    pattern: str | None = None
    """Reads every topic whose whole name matches this regular expression, in place of `topics`."""
    timestamp_extractor: TimestampExtractor | None = None
    """None: the record's own timestamp."""
    offset_reset: Literal["earliest", "latest"] | None = None
    """Where a new pipeline begins to read; None: as the host is set up."""
    hop: bool = False
    """The topic is a hop between two stages, not a topic of the user's."""
    whole: bool = False
    """Every task reads all of its partitions (`global_table`); its stage is not cut into tasks."""


@dataclass(frozen=True, kw_only=True)
class TableSource(Table):
    """Turns records into updates of a table: last offset wins, null key dropped, null value deletes."""
