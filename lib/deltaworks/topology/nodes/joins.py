"""Joins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from deltaworks.topology.nodes.base import Node
from deltaworks.topology.nodes.tables import TableFilter, TableMapValues


@dataclass(frozen=True, kw_only=True)
class StreamTableJoin(Node):
    """Looks up the table's current row for each record of the stream; only the stream triggers."""

    table_store: str
    joiner: Callable[[Any, Any, Any], Any]
    """`(key, stream value, table value or None)`"""
    kind: Literal["inner", "left"]
    table_view: tuple[TableFilter | TableMapValues, ...] = ()
    """Applied in this order to a row of the store: the operators between the store and the table that was joined."""
