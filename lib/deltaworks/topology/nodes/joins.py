"""Joins of a stream with a stream, a table, a global table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from deltaworks.topology.join_windows import JoinWindows
from deltaworks.topology.nodes.base import Node

StreamJoiner = Callable[[Any, Any, Any], Any]
"""`(key, left value or None, right value or None)`"""


@dataclass(frozen=True, kw_only=True)
class StreamTableJoin(Node):
    """Looks up the table's row for each record of the stream; only the stream triggers results.

    The row is the current one; in a versioned table, the one as of the record's timestamp.
    """

    table: str
    """Name of the node whose rows it looks up."""
    table_stores: tuple[str, ...]
    """The stores that those rows are made from."""
    joiner: Callable[[Any, Any, Any], Any]
    """`(key, stream value, table value or None)`"""
    kind: Literal["inner", "left"]
    grace_ms: int | None = None
    """How long a record waits, in stream time, for out-of-order rows; None: it does not wait."""
    buffer: str | None = None
    """The store in which records wait."""

    @property
    def stores(self) -> tuple[str, ...]:
        return self.table_stores if self.buffer is None else (*self.table_stores, self.buffer)

    @property
    def fills(self) -> dict[str, str]:
        return {} if self.buffer is None else {self.buffer: f"records that wait {self.grace_ms} ms for a table"}


@dataclass(frozen=True, kw_only=True)
class GlobalTableJoin(Node):
    """Looks up a row of a global table for each record of the stream, by a key that is computed from the record."""

    table: str
    """The store of the global table; it belongs to another stage, and every task can read it."""
    selector: Callable[[Any, Any], Any]
    """`(key, value) -> lookup key or None`"""
    joiner: Callable[[Any, Any, Any], Any]
    """`(key, stream value, table value or None)`"""
    kind: Literal["inner", "left"]


@dataclass(frozen=True, kw_only=True)
class JoinWindow(Node):
    """Keeps the records of one side of a stream-stream join; each is forwarded before it is kept."""

    windows: JoinWindows
    store: str

    @property
    def stores(self) -> tuple[str, ...]:
        return (self.store,)

    @property
    def fills(self) -> dict[str, str]:
        return {self.store: f"records of a join in [-{self.windows.before_ms} ms, +{self.windows.after_ms} ms]"}


@dataclass(frozen=True, kw_only=True)
class StreamStreamJoin(Node):
    """One side of a stream-stream join: joins each of its records with the records that the other side keeps."""

    side: Literal["left", "right"]
    windows: JoinWindows
    joiner: StreamJoiner
    other: str
    """The `JoinWindow` of the other side."""
    other_store: str
    """The store of that `JoinWindow`."""
    alone: bool = False
    """Whether a record without a partner is a result too (left side of a left join, both sides of an outer one)."""
    waiting: str | None = None
    """Left and outer joins: the store in which both sides keep records that may still find a partner."""
    emit_interval_ms: int = 0
    """Wall-clock pause between two checks for records that no partner can join any more."""

    @property
    def stores(self) -> tuple[str, ...]:
        return (self.other_store,) if self.waiting is None else (self.other_store, self.waiting)

    @property
    def fills(self) -> dict[str, str]:
        return {} if self.waiting is None else {self.waiting: "records without partner"}


@dataclass(frozen=True, kw_only=True)
class StreamSelfJoin(Node):
    """A stream joined with itself, with one store instead of two."""

    windows: JoinWindows
    joiner: StreamJoiner
    store: str
    """The store of the stream's `JoinWindow`."""

    @property
    def stores(self) -> tuple[str, ...]:
        return (self.store,)
