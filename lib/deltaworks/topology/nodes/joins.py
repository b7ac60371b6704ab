"""Joins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from deltaworks.topology.nodes.base import Node


@dataclass(frozen=True, kw_only=True)
class StreamTableJoin(Node):
    """Looks up the table's current row for each record of the stream; only the stream triggers."""

    table: str
    """Name of the node whose rows it looks up."""
    table_stores: tuple[str, ...]
    """The stores that those rows are made from."""
    joiner: Callable[[Any, Any, Any], Any]
    """`(key, stream value, table value or None)`"""
    kind: Literal["inner", "left"]

    @property
    def stores(self) -> tuple[str, ...]:
        return self.table_stores
