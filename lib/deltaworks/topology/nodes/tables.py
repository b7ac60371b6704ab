"""Operators on tables: records carry the old and the new value of a key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from deltaworks.topology.nodes.base import Node
from deltaworks.topology.processors import ValueTransformer


@dataclass(frozen=True, kw_only=True)
class TableFilter(Node):
    """A row whose predicate is false becomes a delete."""

    predicate: Callable[[Any, Any], bool]
    negate: bool = False
    store: str | None = None
    """Keeps the rows; None: they are computed from the parent's when somebody asks."""

    @property
    def stores(self) -> tuple[str, ...]:
        return () if self.store is None else (self.store,)

    @property
    def fills(self) -> dict[str, str]:
        return {} if self.store is None else {self.store: "filter"}


@dataclass(frozen=True, kw_only=True)
class TableMapValues(Node):
    """New value per row; a delete stays a delete and does not call the mapper."""

    mapper: Callable[[Any, Any], Any]
    store: str | None = None
    """As in `TableFilter`."""

    @property
    def stores(self) -> tuple[str, ...]:
        return () if self.store is None else (self.store,)

    @property
    def fills(self) -> dict[str, str]:
        return {} if self.store is None else {self.store: "map_values"}


@dataclass(frozen=True, kw_only=True)
class TableTransformValues(Node):
    """New value per row, deletes included, made by an object that may use stores."""

    supplier: Callable[[], ValueTransformer[Any, Any, Any]]
    """Makes one object per task, and one more for each join that looks rows up."""
    connected: tuple[str, ...] = ()
    """The stores that it may use."""
    store: str | None = None
    """As in `TableFilter`."""

    @property
    def stores(self) -> tuple[str, ...]:
        return self.connected if self.store is None else (self.store, *self.connected)

    @property
    def fills(self) -> dict[str, str]:
        own = {} if self.store is None else {self.store: "transform_values"}
        return own | dict.fromkeys(self.connected, "processor")


@dataclass(frozen=True, kw_only=True)
class TableToStream(Node):
    """Updates as records; a delete is a null value."""
