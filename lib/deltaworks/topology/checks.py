"""What makes a topology wrong. Every check looks at the whole topology, so that all problems are told at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from deltaworks.errors import Problem
from deltaworks.topology.nodes import AnyNode
from deltaworks.topology.nodes.base import Origin
from deltaworks.topology.stages import StoreSpec


def check(nodes: Sequence[AnyNode], stores: Sequence[tuple[StoreSpec, Origin]]) -> Iterator[Problem]:
    """Every problem of a topology."""
    yield from ()
