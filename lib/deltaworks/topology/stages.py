"""Stages (Kafka Streams' sub-topologies), their stores, topics and tables.

`split.py` cuts a topology into stages, `checks.py` refuses invalid ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from deltaworks.serdes.base import Serde
from deltaworks.serdes.windowed import WindowEnds
from deltaworks.topology.nodes import AnyNode
from deltaworks.topology.nodes.processor_api import FixedKeyProcessorNode, ProcessorNode
from deltaworks.topology.nodes.repartition import ExchangeSink
from deltaworks.topology.nodes.sinks import DeltaSink, TopicSink
from deltaworks.topology.nodes.sources import Source
from deltaworks.topology.state_stores import OrderedBytes

StoreKind = Literal[
    "key-value",
    "versioned",
    "window",
    "session",
    "suppress",
    "subscriptions",
    "lru",
    "custom",
    "join-window",
    "join-buffer",
    "waiting-list",
]
Migration: TypeAlias = tuple[Serde[Any], Callable[[Any], Any]]
"""`(previous serde, old value -> new value)`; None instead of a value deletes the entry."""


@dataclass(frozen=True, kw_only=True)
class StoreSpec:
    """One state store; its name is its identity across restarts."""

    name: str
    kind: StoreKind
    key: Serde[Any]
    """Serde of the key; in window and session stores, of the inner key."""
    value: Serde[Any]
    retention_ms: int | None = None
    """Window and session stores: entries older than the newest one by more than this are gone. Versioned stores: how
    far back a version can be read or written."""
    windows: WindowEnds | None = None
    """Window stores: says where a window ends."""
    cached: bool = False
    """With a record cache, a commit forwards the last update per key; without, every update is forwarded at once."""
    timestamped: bool = True
    """Key-value and window stores: whether entries have a time; those of tables do."""
    retain_duplicates: bool = False
    """Window stores of users: whether all values of a key and start are kept, oldest first."""
    max_entries: int | None = None
    """LRU stores: the maximum number of entries; above it, the least recently used one is removed."""
    emits_final: bool = False
    """Window and session stores: results are read back when their window closes, which may be after it has expired."""
    keeps_unforwarded: bool = False
    """Stores with `emits_final`: a window stays until it has been forwarded; else it expires as in Kafka Streams."""
    expired_stay_cached: bool = False
    """Only in tests: a record cache that is never full keeps showing entries that have left the store."""
    factory: Callable[[OrderedBytes], Any] | None = None
    """Custom stores: makes the user's object over the bytes of the store."""

    record_key: Callable[[Any], Any] | None = None
    """Stores of users: from a key (in window and session stores, the inner one) to the key of the records that it
    belongs to; None: nobody says."""
    migrate: Migration | None = None
    """Converts previously written values to values of `value`."""

    @property
    def timed(self) -> bool:
        """Whether the last 8 bytes of a key are a time, by which the store expires entries."""
        return self.kind in ("versioned", "window", "session", "join-window")

    @property
    def layout(self) -> str:
        """The layout of its bytes, in words; a checkpoint depends on it."""
        plain = "plain " if not self.timestamped and self.kind in ("key-value", "window") else ""
        return f"{plain}{self.kind}{' with duplicates' if self.retain_duplicates else ''}"


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A sub-topology: one copy of it (a task) runs per input partition."""

    index: int
    """Position in `Plan.stages`, or in `Plan.global_stages`."""
    number: int
    """The number that Kafka Streams gives it, in the order in which the user made the stages."""
    nodes: tuple[AnyNode, ...]
    """Parents come before children; the children of a node are in the order they were connected."""
    stores: tuple[StoreSpec, ...]
    """Sorted by name."""

    @property
    def topics(self) -> tuple[str, ...]:
        """The external topics it reads, sorted."""
        return tuple(sorted({topic for node in self.sources if not node.exchange for topic in node.topics}))

    @property
    def patterns(self) -> tuple[str, ...]:
        """The regular expressions by which it reads external topics, sorted."""
        return tuple(sorted({node.pattern for node in self.sources if node.pattern is not None}))

    def reads(self, topic: str) -> bool:
        """Whether it reads this external topic."""
        return topic in self.topics or any(re.fullmatch(pattern, topic) for pattern in self.patterns)

    @property
    def exchanges_in(self) -> tuple[str, ...]:
        """The exchanges it reads, sorted."""
        return tuple(sorted({topic for node in self.sources if node.exchange for topic in node.topics}))

    @property
    def exchanges_out(self) -> tuple[str, ...]:
        """The exchanges it writes, sorted."""
        return tuple(sorted({node.exchange for node in self.nodes if isinstance(node, ExchangeSink)}))

    @property
    def sources(self) -> tuple[Source, ...]:
        """The nodes through which records enter."""
        return tuple(node for node in self.nodes if isinstance(node, Source))

    @property
    def tables(self) -> tuple[DeltaSink, ...]:
        """The Delta tables it writes."""
        return tuple(node for node in self.nodes if isinstance(node, DeltaSink))

    @property
    def has_processors(self) -> bool:
        """Whether it has users' processors, which may schedule punctuators."""
        return any(isinstance(node, ProcessorNode | FixedKeyProcessorNode) for node in self.nodes)

    def ticks(self, *, idle_timeout: bool) -> bool:
        """Whether its tasks run when only the wall clock has moved on.

        Args:
            idle_timeout: Whether the pipeline has one.
        """
        return idle_timeout or self.has_processors

    @property
    def stateful(self) -> bool:
        """Whether it has a store."""
        return bool(self.stores)


@dataclass(frozen=True)
class StageGroup:
    """Stages that a host runs together, most often one."""

    stages: tuple[int, ...]
    """Indices of the stages."""
    cyclic: bool
    """Whether records go round among them; then they take turns until none is left, before the next group begins."""


@dataclass(frozen=True, kw_only=True)
class Stages:
    """All stages of a topology, in the order data flows; a host gets a `Plan`."""

    stages: tuple[Stage, ...]
    name: str = "topology"
    global_stages: tuple[Stage, ...] = ()
    """They fill the stores of global tables and global stores, which every task can read. They are not cut into
    tasks, and only `global_topics` and `uses` count them. `index` is the position here."""

    @property
    def nodes(self) -> tuple[AnyNode, ...]:
        """The nodes of all stages."""
        return tuple(node for stage in self.stages for node in stage.nodes)

    @property
    def stores(self) -> tuple[StoreSpec, ...]:
        """The stores of all stages."""
        return tuple(store for stage in self.stages for store in stage.stores)

    @property
    def readers(self) -> dict[str, int]:
        """Exchange -> index of the stage that reads it."""
        return {exchange: stage.index for stage in self.stages for exchange in stage.exchanges_in}

    @property
    def loops(self) -> tuple[str, ...]:
        """The exchanges that lead back to the stage that writes them, or to an earlier one; sorted.

        With a foreign-key join, or a stream joined with a table made from itself, records go in a cycle.
        """
        readers = self.readers
        return tuple(
            sorted(
                exchange
                for stage in self.stages
                for exchange in stage.exchanges_out
                if readers[exchange] <= stage.index
            )
        )

    @property
    def groups(self) -> tuple[StageGroup, ...]:
        """The stages in the order data flows; the stages of a cycle are one group."""
        readers = self.readers
        onward = {stage.index: {readers[exchange] for exchange in stage.exchanges_out} for stage in self.stages}
        reached = {index: _reached(index, onward) for index in onward}
        groups: dict[int, list[int]] = {}
        for index in reached:
            cycle = [other for other in reached[index] if index in reached[other]]
            groups.setdefault(min(cycle, default=index), []).append(index)
        return tuple(StageGroup(tuple(group), first in reached[first]) for first, group in groups.items())

    @property
    def topic_sources(self) -> list[Source]:
        """The nodes that read topics, global tables included."""
        stages = (*self.stages, *self.global_stages)
        return [node for stage in stages for node in stage.sources if not node.exchange]

    def sources_of(self, topic: str) -> list[Source]:
        """The nodes that read a topic, global tables included."""
        return [node for node in self.topic_sources if node.reads(topic)]

    def serdes_of(self, topic: str) -> list[tuple[Serde[Any], Serde[Any]]]:
        """The serdes of key and value, a pair for each node that reads a topic."""
        return [(node.key, node.value) for node in self.sources_of(topic)]

    @property
    def source_topics(self) -> tuple[str, ...]:
        """The topics it reads, sorted; those that it reads by a pattern are not known here."""
        return tuple(sorted({topic for stage in self.stages for topic in stage.topics}))

    def reads(self, topic: str) -> bool:
        """Whether tasks read a topic, by its name or by a pattern."""
        return any(stage.reads(topic) for stage in self.stages)

    def uses(self, topic: str) -> bool:
        """Whether tasks read a topic, or a global table or store is filled from it."""
        return topic in self.global_topics or self.reads(topic)

    @property
    def global_topics(self) -> tuple[str, ...]:
        """The topics from which global stores are filled, sorted."""
        return tuple(sorted({topic for stage in self.global_stages for topic in stage.topics}))

    @property
    def source_patterns(self) -> tuple[str, ...]:
        """The regular expressions by which it reads topics, sorted."""
        return tuple(sorted({pattern for stage in self.stages for pattern in stage.patterns}))

    @property
    def sink_topics(self) -> tuple[str, ...]:
        """The topics it writes, sorted; those that a function names are not known here."""
        return tuple(sorted({node.topic for node in self.nodes if isinstance(node, TopicSink)}))

    @property
    def tables(self) -> tuple[DeltaSink, ...]:
        """The Delta tables it writes, sorted by name."""
        return tuple(sorted((table for stage in self.stages for table in stage.tables), key=lambda sink: sink.table))


def _reached(start: int, onward: Mapping[int, set[int]]) -> set[int]:
    """The stages that records from one stage reach; includes the stage itself if they come back."""
    found: set[int] = set()
    waiting = [start]
    while waiting:
        new = onward[waiting.pop()] - found
        found |= new
        waiting += new
    return found
