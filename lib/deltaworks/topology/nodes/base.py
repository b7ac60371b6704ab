"""What every node of a topology has. A node is data: what it does lives in `kernel/processors`, file by file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True)
class Origin:
    """The user's line that made a node."""

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
    """Names of the nodes it receives from, in the order they were connected."""
    origin: Origin | None = field(default=None, compare=False)
    old_values: bool = False
    """Tables only: its updates carry the value from before, because a reader asked."""

    @property
    def stores(self) -> tuple[str, ...]:
        """Names of the stores that it reads or writes; nodes that share one belong to one stage."""
        return ()

    @property
    def fills(self) -> dict[str, str]:
        """Store -> what it puts there, in words; a checkpoint depends on it."""
        return {}


@dataclass(frozen=True, kw_only=True)
class Table(Node):
    """A table that may keep its rows in a store of its own."""

    store: str | None = None
    """None: nobody needs its rows, or they are computed from those of its parents when somebody asks."""
    kept_as: ClassVar[str] = "table"
    """What fills the store, in words."""

    @property
    def stores(self) -> tuple[str, ...]:
        return () if self.store is None else (self.store,)

    @property
    def fills(self) -> dict[str, str]:
        return {} if self.store is None else {self.store: self.kept_as}
