"""Where records enter: topics, read as a stream or as a table, and exchanges between stages."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import msgspec

from deltaworks.serdes.base import Serde
from deltaworks.topology.nodes.base import Node, Table
from deltaworks.topology.timestamps import ConsumedRecord, TimestampExtractor, Timestamps

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

    def time_before_its_turn(self, record: ConsumedRecord, partition_time_ms: int) -> int:
        """The time by which a record waits for its turn.

        An error counts for nothing here: the task asks again when it takes the record, and reports it.

        Args:
            record: with key and value as bytes.
            partition_time_ms: as for the timestamp extractor.
        """
        if self.timestamp_extractor is None:
            return record.timestamp_ms
        try:
            key = None if record.key is None else self.key.deserialize(record.key)
            value = None if record.value is None else self.value.deserialize(record.value)
            decoded = msgspec.structs.replace(record, key=key, value=value)
            return self.timestamp_extractor(decoded, partition_time_ms)
        except Exception:
            return record.timestamp_ms


@dataclass(frozen=True, kw_only=True)
class TableSource(Table):
    """Turns records into updates of a table: last offset wins, null key dropped, null value deletes."""

    deletes_once: bool = False
    """A deletion of a row that is not there is dropped: its source says each deletion twice."""
