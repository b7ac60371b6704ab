"""How many tasks each stage has, and over how many of them a hop spreads its keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deltaworks.topology.stages import Plan


@dataclass(frozen=True)
class Assignment:
    """Numbers of tasks."""

    tasks: tuple[int, ...]
    """Per stage."""
    hops: Mapping[str, int]
    """Per hop."""


def assign(plan: Plan, topic_partitions: Mapping[str, int]) -> Assignment:
    """Number of tasks per stage and hop."""
    raise NotImplementedError
