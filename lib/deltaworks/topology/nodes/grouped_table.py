"""A regrouped table: its rows go to the task of their group, where they are added and subtracted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from deltaworks.topology.nodes.base import Node


@dataclass(frozen=True, kw_only=True)
class TableGroupBy(Node):
    """Turns an update into the values that leave and enter groups; an exchange follows."""

    selector: Callable[[Any, Any], tuple[Any, Any]]
    """`(key, value) -> (group, value)`"""


@dataclass(frozen=True)
class TableReduce:
    """The first value, then `adder(aggregate, value)`; `subtractor(aggregate, value)` for a value that leaves."""

    adder: Callable[[Any, Any], Any]
    subtractor: Callable[[Any, Any], Any]


@dataclass(frozen=True)
class TableFold:
    """`initializer()`, then `adder(group, value, aggregate)`, and `subtractor` for a value that leaves."""

    initializer: Callable[[], Any]
    adder: Callable[[Any, Any, Any], Any]
    subtractor: Callable[[Any, Any, Any], Any]


@dataclass(frozen=True, kw_only=True)
class TableAggregate(Node):
    """An aggregate per group over its current rows."""

    aggregation: TableReduce | TableFold
    store: str

    @property
    def stores(self) -> tuple[str, ...]:
        return (self.store,)

    @property
    def fills(self) -> dict[str, str]:
        return {self.store: "aggregate of a table"}
