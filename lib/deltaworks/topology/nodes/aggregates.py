"""Aggregates of a stream per key, per key and window, per key and session."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from deltaworks.topology.nodes.base import Node
from deltaworks.topology.windows import SessionWindows, TimeWindows

Initializer = Callable[[], Any]
Aggregator = Callable[[Any, Any, Any], Any]
"""`(key, value, aggregate) -> aggregate`"""
Reducer = Callable[[Any, Any], Any]
"""`(aggregate, value) -> aggregate`"""
Merger = Callable[[Any, Any, Any], Any]
"""`(key, aggregate so far, aggregate of the next session) -> aggregate`"""


@dataclass(frozen=True)
class Count:
    """The number of records."""


@dataclass(frozen=True)
class Reduce:
    """The first value, then `reducer(aggregate, value)`."""

    reducer: Reducer


@dataclass(frozen=True)
class Aggregate:
    """`initializer()`, then `aggregator(key, value, aggregate)`; sessions join with `merger`."""

    initializer: Initializer
    aggregator: Aggregator
    merger: Merger | None = None


Aggregation = Count | Reduce | Aggregate


@dataclass(frozen=True, kw_only=True)
class StreamAggregate(Node):
    """An aggregate per key."""

    aggregation: Aggregation
    store: str

    @property
    def stores(self) -> tuple[str, ...]:
        return (self.store,)

    @property
    def fills(self) -> dict[str, str]:
        return {self.store: "aggregate"}


@dataclass(frozen=True, kw_only=True)
class WindowAggregate(Node):
    """An aggregate per key and time window; forwards `Windowed` keys."""

    aggregation: Aggregation
    windows: TimeWindows
    store: str

    @property
    def stores(self) -> tuple[str, ...]:
        return (self.store,)

    @property
    def fills(self) -> dict[str, str]:
        return {self.store: f"aggregate in windows of {self.windows.size_ms} ms every {self.windows.advance_ms} ms"}


@dataclass(frozen=True, kw_only=True)
class SessionAggregate(Node):
    """An aggregate per key and session; forwards `Windowed` keys, a tombstone for each session merged away."""

    aggregation: Aggregation
    windows: SessionWindows
    store: str

    @property
    def stores(self) -> tuple[str, ...]:
        return (self.store,)

    @property
    def fills(self) -> dict[str, str]:
        return {self.store: f"aggregate in sessions with a gap of {self.windows.gap_ms} ms"}
