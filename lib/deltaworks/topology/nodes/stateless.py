"""One record at a time, without memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from deltaworks.topology.nodes.base import Node


@dataclass(frozen=True, kw_only=True)
class Filter(Node):
    """Keeps a record if the predicate holds (`negate`: if it does not)."""

    predicate: Callable[[Any, Any], bool]
    negate: bool = False


@dataclass(frozen=True, kw_only=True)
class Map(Node):
    """Changes key and value."""

    mapper: Callable[[Any, Any], tuple[Any, Any]]


@dataclass(frozen=True, kw_only=True)
class MapValues(Node):
    """Changes the value and keeps the key; the mapper takes key and value."""

    mapper: Callable[[Any, Any], Any]


@dataclass(frozen=True, kw_only=True)
class FlatMap(Node):
    """Makes any number of new pairs."""

    mapper: Callable[[Any, Any], Iterable[tuple[Any, Any]]]


@dataclass(frozen=True, kw_only=True)
class FlatMapValues(Node):
    """Makes any number of new values and keeps the key; the mapper takes key and value."""

    mapper: Callable[[Any, Any], Iterable[Any]]


@dataclass(frozen=True, kw_only=True)
class SelectKey(Node):
    """Changes the key and keeps the value."""

    selector: Callable[[Any, Any], Any]


@dataclass(frozen=True, kw_only=True)
class Peek(Node):
    """Calls a function for its effect; `terminal` (`foreach`) passes nothing on."""

    action: Callable[[Any, Any], object]
    terminal: bool = False


@dataclass(frozen=True, kw_only=True)
class Merge(Node):
    """Passes on the records of all parents."""


@dataclass(frozen=True, kw_only=True)
class Branch(Node):
    """Sends a record to the child of the first predicate that holds, else to `default`, else nowhere."""

    predicates: tuple[Callable[[Any, Any], bool], ...]
    children: tuple[str, ...]
    """Names of the `Passthrough` nodes, one per predicate."""
    default: str | None = None


@dataclass(frozen=True, kw_only=True)
class Passthrough(Node):
    """A named point of the graph that changes nothing: a branch, the end of a stream-stream join."""
