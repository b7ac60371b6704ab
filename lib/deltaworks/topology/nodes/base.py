"""The base of all nodes of a topology. A node is data; `kernel/processors` has its behaviour, file by file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True)
class Origin:
    """The line of the user's code that made a node."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, kw_only=True)
class Node:
    """One processor of the topology, as Kafka Streams counts them."""

    name: str
    """Kafka's name, generated (`KSTREAM-FILTER-0000000003`) or given."""
    parents: tuple[str, ...] = ()
    """Names of the nodes that it gets records from, in the order they were connected."""
    origin: Origin | None = field(default=None, compare=False)
    old_values: bool = False
    """Tables only: whether its updates carry the previous value, because a reader asked for it."""

    @property
    def stores(self) -> tuple[str, ...]:
        """Names of the stores that it reads or writes; nodes that share one belong to one stage."""
        return ()

    @property
    def fills(self) -> dict[str, str]:
        """Store -> a description of what it puts there; a checkpoint depends on it."""
        return {}


@dataclass(frozen=True, kw_only=True)
class Table(Node):
    """A table that may keep its rows in a store of its own."""

    store: str | None = None
    """None: nothing needs its rows, or each lookup computes them from those of its parents."""
    kept_as: ClassVar[str] = "table"
    """A description of what fills the store."""

    @property
    def stores(self) -> tuple[str, ...]:
        return () if self.store is None else (self.store,)

    @property
    def fills(self) -> dict[str, str]:
        return {} if self.store is None else {self.store: self.kept_as}
