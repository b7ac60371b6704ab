"""Joins of two tables: a node per side, and one that merges their results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from deltaworks.topology.nodes.base import Node, Table


@dataclass(frozen=True, kw_only=True)
class TableTableJoin(Node):
    """Joins the updates of one side with the current row of the other."""

    kind: Literal["inner", "left", "outer"]
    side: Literal["left", "right"]
    """The side whose updates it gets."""
    joiner: Callable[[Any, Any], Any]
    """`(left value or None, right value or None)`"""
    table: str
    """Name of the node of the other side, whose rows it looks up."""
    table_stores: tuple[str, ...]
    """The stores that those rows are made from."""

    @property
    def stores(self) -> tuple[str, ...]:
        return self.table_stores


@dataclass(frozen=True, kw_only=True)
class TableJoinMerge(Table):
    """The table that a join makes; its parents are the two sides, the left one first."""

    kept_as: ClassVar[str] = "join of tables"
    window_nodes: tuple[str, ...] = ()
    """The nodes that know which windows of its sides are final, if its keys are windowed."""
