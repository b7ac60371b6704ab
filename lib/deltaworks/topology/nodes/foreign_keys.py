"""A join of tables by a foreign key: five operators in a ring of two stages.

A row of the left table subscribes to a row of the right one (`ForeignKeySubscribe`, an exchange by foreign key). The
right side keeps the subscription (`ForeignKeyRegister`) and answers with the row (`ForeignKeyAnswer`), now and whenever
the row changes (`ForeignKeyUpdate`). The answer goes back (an exchange by the key of the left row), where it is joined
if the left row is still the same (`ForeignKeyResolve`); the result is a table again, a `TableSource`.
Source: KIP-213; `KTableImpl#doJoinOnForeignKey`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from deltaworks.serdes.base import Serde
from deltaworks.topology.nodes.base import Node


@dataclass(frozen=True, kw_only=True)
class ForeignKeySubscribe(Node):
    """Tells the right side which of its rows a row of the left table wants, and which it no longer wants."""

    foreign_key: Callable[[Any, Any], Any]
    """`(key, value) -> foreign key or None`"""
    kind: Literal["inner", "left"]
    key: Serde[Any]
    """Serde of the left table's keys."""
    value: Serde[Any]
    """Serde of the left table's values."""
    other_key: Serde[Any]
    """Serde of the right table's keys."""


@dataclass(frozen=True, kw_only=True)
class ForeignKeyRegister(Node):
    """Keeps subscriptions."""

    key: Serde[Any]
    """Serde of the right table's keys."""
    store: str

    @property
    def stores(self) -> tuple[str, ...]:
        return (self.store,)

    @property
    def fills(self) -> dict[str, str]:
        return {self.store: "subscriptions of a foreign-key join"}


@dataclass(frozen=True, kw_only=True)
class ForeignKeyAnswer(Node):
    """Answers a subscription with the current row of the right table."""

    table: str
    """Name of the node of the right table."""
    table_stores: tuple[str, ...]
    key: Serde[Any]
    """Serde of the left table's keys."""

    @property
    def stores(self) -> tuple[str, ...]:
        return self.table_stores


@dataclass(frozen=True, kw_only=True)
class ForeignKeyUpdate(Node):
    """Tells all subscribers of a row of the right table that it has changed."""

    store: str
    """The store of the subscriptions."""
    key: Serde[Any]
    """Serde of the left table's keys."""
    other_key: Serde[Any]
    """Serde of the right table's keys."""

    @property
    def stores(self) -> tuple[str, ...]:
        return (self.store,)


@dataclass(frozen=True, kw_only=True)
class ForeignKeyResolve(Node):
    """Joins an answer with the row of the left table that asked, if this row has not changed since."""

    table: str
    """Name of the node of the left table."""
    table_stores: tuple[str, ...]
    value: Serde[Any]
    """Serde of the left table's values."""
    joiner: Callable[[Any, Any], Any]
    """`(left value, right value or None) -> value`"""
    kind: Literal["inner", "left"]

    @property
    def stores(self) -> tuple[str, ...]:
        return self.table_stores
