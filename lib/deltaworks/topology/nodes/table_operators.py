"""Operators on tables: records carry the old and the new value of a key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from deltaworks.topology.nodes.base import Node, Table
from deltaworks.topology.processors import ValueTransformer


@dataclass(frozen=True, kw_only=True)
class TableFilter(Table):
    """A row whose predicate is false becomes a delete."""

    predicate: Callable[[Any, Any], bool]
    negate: bool = False
    kept_as: ClassVar[str] = "filter"


@dataclass(frozen=True, kw_only=True)
class TableMapValues(Table):
    """Changes the value of each row; a delete stays a delete and does not call the mapper."""

    mapper: Callable[[Any, Any], Any]
    kept_as: ClassVar[str] = "map_values"


@dataclass(frozen=True, kw_only=True)
class TableTransformValues(Table):
    """Changes the value of each row, deletes included, with an object that may use stores."""

    supplier: Callable[[], ValueTransformer[Any, Any, Any]]
    """Makes one object per task, and one more for each join that looks rows up."""
    connected: tuple[str, ...] = ()
    """The stores that it may use."""
    kept_as: ClassVar[str] = "transform_values"

    @property
    def stores(self) -> tuple[str, ...]:
        return (*super().stores, *self.connected)

    @property
    def fills(self) -> dict[str, str]:
        return super().fills | dict.fromkeys(self.connected, "processor")


@dataclass(frozen=True, kw_only=True)
class TableToStream(Node):
    """Turns updates into records; a delete is a null value."""
