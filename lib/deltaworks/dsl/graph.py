"""The one mutable object of the DSL: nodes, stores and problems as the user's calls come in.

Names follow Kafka Streams: one counter for all nodes, and a given name uses up a number too.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TypeVar

from deltaworks.errors import Problem
from deltaworks.topology.nodes import AnyNode, Source
from deltaworks.topology.nodes.base import Origin
from deltaworks.topology.stages import StoreSpec

N = TypeVar("N", bound=AnyNode)

_PACKAGE = str(Path(__file__).parents[1])


class Graph:
    """What a `StreamsBuilder` has collected so far.

    Args:
        name: of the topology, for messages.
        record_cache: stores forward the last update per key and commit.
    """

    def __init__(self, name: str, *, record_cache: bool) -> None:
        self.name = name
        self.record_cache = record_cache
        self.nodes: list[AnyNode] = []
        self.stores: list[tuple[StoreSpec, Origin]] = []
        self.problems: list[Problem] = []
        self.open_splits: dict[str, Origin] = {}
        self.streams: dict[tuple[str, ...], Source] = {}
        """Topics -> the source that reads them as a stream."""
        self.hops: dict[str, tuple[str, str]] = {}
        """Name of a hop -> the node before it, the source behind it."""
        self._count = 0

    def next_name(self, prefix: str) -> str:
        """The next generated name, such as `KSTREAM-FILTER-0000000003`."""
        number, self._count = self._count, self._count + 1
        return f"{prefix}{number:010d}"

    def name_of(self, given: str | None, prefix: str) -> str:
        """The given name, else a generated one."""
        generated = self.next_name(prefix)
        return given or generated

    def add(self, node: N) -> N:
        """Keeps a node; its parents are already there."""
        self.nodes.append(node)
        return node

    def add_store(self, spec: StoreSpec, where: Origin) -> None:
        """Keeps a store; `checks` says whether its name is valid and unique."""
        self.stores.append((spec, where))

    def report(self, what: str, where: Origin | None, hint: str | None = None) -> None:
        """Keeps a problem; `build` raises all of them at once."""
        self.problems.append(Problem(what, str(where) if where else None, hint))


def call_site() -> Origin:
    """The line of the user's code that called into this package."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(_PACKAGE) and frame.f_back is not None:
        frame = frame.f_back
    file = frame.f_code.co_filename
    here = str(Path.cwd()) + "/"
    return Origin(file.removeprefix(here), frame.f_lineno)
