"""Where records enter: topics, read as a stream or as a table, and exchanges between stages."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from deltaworks.serdes.base import Serde
from deltaworks.topology.nodes.base import Node, Table
from deltaworks.topology.timestamps import TimestampExtractor, Timestamps

OnNull: TypeAlias = Literal["forward", "skip", "skip_empty"]
"""A source hands on a null value as None, drops its record, or drops records with an empty value too."""


@dataclass(frozen=True, kw_only=True)
class Source(Node):
    """Reads topics (`StreamsBuilder.stream`, the source half of `.table`, the far side of an exchange)."""

    topics: tuple[str, ...]
    key: Serde[Any]
    value: Serde[Any]
    pattern: str | None = None
    """Instead of `topics`: a regular expression; the source reads every topic whose whole name matches it."""
    timestamp_extractor: TimestampExtractor | None = None
    """None: the record's own timestamp."""
    timestamps: tuple[tuple[str, Timestamps], ...] = ()
    """Topic -> the limit of its records' timestamps; topics without an entry have no limit."""
    offset_reset: Literal["earliest", "latest"] | None = None
    """Where a new pipeline begins to read; None: the host's setting."""
    on_null: OnNull = "forward"
    """What happens to records without a value."""
    exchange: bool = False
    """Whether the topic is an exchange between two stages, not a topic of the user."""
    whole: bool = False
    """Whether every task reads all of its partitions (`global_table`); then its stage is not cut into tasks."""

    def reads(self, topic: str) -> bool:
        """Whether it reads a topic."""
        return topic in self.topics or (self.pattern is not None and re.fullmatch(self.pattern, topic) is not None)


@dataclass(frozen=True, kw_only=True)
class TableSource(Table):
    """Turns records into updates of a table: last offset wins, null key dropped, null value deletes."""
