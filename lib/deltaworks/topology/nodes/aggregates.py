"""Aggregates of streams per key, per key and window, per key and session."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, assert_never

from deltaworks.topology.nodes.base import Node
from deltaworks.topology.windows import (
    EmitStrategy,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
    Windows,
)

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


def _emitted(emit: EmitStrategy) -> str:
    """The part of the strategy that a checkpoint depends on: final results must be tracked from the first record on."""
    return ", emitted when they close" if emit is EmitStrategy.ON_WINDOW_CLOSE else ""


@dataclass(frozen=True, kw_only=True)
class AggregateNode(Node):
    """The fields that all aggregates of streams have."""

    aggregation: Aggregation
    store: str
    cogrouped: int | None = None
    """The number of its stream in a cogroup, from 0; these streams share the store. None: no cogroup."""

    @property
    def stores(self) -> tuple[str, ...]:
        return (self.store,)

    @property
    def clock(self) -> str:
        """The name under which the task remembers its times; each stream of a cogroup has its own times."""
        return f"{self.store}/{self.cogrouped}" if self.cogrouped else self.store


@dataclass(frozen=True, kw_only=True)
class StreamAggregate(AggregateNode):
    """An aggregate per key."""

    @property
    def fills(self) -> dict[str, str]:
        return {self.store: "aggregate"}


@dataclass(frozen=True, kw_only=True)
class WindowAggregate(AggregateNode):
    """An aggregate per key and time window; forwards `Windowed` keys."""

    windows: TimeWindows | UnlimitedWindows | Windows
    emit: EmitStrategy = EmitStrategy.ON_WINDOW_UPDATE
    emit_interval_ms: int = 0
    """Wall-clock pause between two checks for windows that have closed."""

    @property
    def fills(self) -> dict[str, str]:
        windows = self.windows
        match windows:
            case TimeWindows():
                spans = f"windows of {windows.size_ms} ms every {windows.advance_ms} ms"
            case UnlimitedWindows():
                spans = f"an unlimited window from {windows.start_ms} ms"
            case Windows():
                spans = f"the windows {windows.name}"
            case _:
                assert_never(windows)
        return {self.store: f"aggregate in {spans}{_emitted(self.emit)}"}


@dataclass(frozen=True, kw_only=True)
class SlidingAggregate(AggregateNode):
    """An aggregate per key and sliding window; forwards `Windowed` keys."""

    windows: SlidingWindows
    emit: EmitStrategy = EmitStrategy.ON_WINDOW_UPDATE
    emit_interval_ms: int = 0
    """The pause, as in `WindowAggregate`."""

    @property
    def fills(self) -> dict[str, str]:
        return {self.store: f"aggregate in sliding windows of {self.windows.difference_ms} ms{_emitted(self.emit)}"}


@dataclass(frozen=True, kw_only=True)
class SessionAggregate(AggregateNode):
    """An aggregate per key and session; forwards `Windowed` keys, a tombstone for each session merged away."""

    windows: SessionWindows
    emit: EmitStrategy = EmitStrategy.ON_WINDOW_UPDATE
    emit_interval_ms: int = 0
    """The pause, as in `WindowAggregate`."""

    @property
    def fills(self) -> dict[str, str]:
        longest_ms = self.windows.max_duration_ms
        limit = "" if longest_ms is None else f", at most {longest_ms} ms long"
        gap = f"aggregate in sessions with a gap of {self.windows.gap_ms} ms"
        return {self.store: f"{gap}{limit}{_emitted(self.emit)}"}


@dataclass(frozen=True, kw_only=True)
class CogroupMerge(Node):
    """The table of a cogroup: the updates of all its aggregates."""

    store: str
    """The store that they share; the table's rows are read from it."""
