"""The shuffle key of each row: one number per shard of a stage, chosen so that every partition gets one shard.

Spark sends a row to partition `pmod(murmur3(route, seed 42), partitions)`. Any other choice of route would put two
shards of a stage on one partition and leave another one empty.
"""

from __future__ import annotations

from dataclasses import dataclass

from deltaworks.runtime.shard import Operator
from deltaworks.topology.plan import Plan
from deltaworks.topology.stages import StageGroup

_SEED = 42
_MASK = 0xFFFFFFFF


def spark_hash(value: int) -> int:
    """Spark's Murmur3 of one `int` column, signed 32 bits (`org.apache.spark.unsafe.hash.Murmur3_x86_32`)."""
    k = (value * 0xCC9E2D51) & _MASK
    k = ((k << 15) | (k >> 17)) & _MASK
    k = (k * 0x1B873593) & _MASK
    h = _SEED ^ k
    h = ((h << 13) | (h >> 19)) & _MASK
    h = (h * 5 + 0xE6546B64) & _MASK
    h ^= 4
    h ^= h >> 16
    h = (h * 0x85EBCA6B) & _MASK
    h ^= h >> 13
    h = (h * 0xC2B2AE35) & _MASK
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h


@dataclass(frozen=True)
class Routes:
    """Routes of every shard of a plan; a checkpoint depends on them.

    A shard is one group of a stateful operator and hosts the tasks `shard, shard + shards, ...` of its stages. As many
    shards as cores keep the fixed cost of a batch down; as many as tasks let a stage grow to that many cores. With one
    shard a single operator runs all stages, and so costs as much as one stage does.
    """

    tasks: tuple[int, ...]
    """Number of tasks per stage."""
    shards: int
    """Largest number of shards per stage."""
    groups: tuple[StageGroup, ...]
    """The stages in the order in which data flows."""

    @classmethod
    def of(cls, plan: Plan, tasks: tuple[int, ...], shards: int) -> Routes:
        """The routes of a plan."""
        return cls(tasks, shards, plan.groups)

    @property
    def operators(self) -> tuple[Operator, ...]:
        """The operators in the order in which data flows."""
        if self.shards == 1:
            return (Operator(self.groups, 1),)
        return tuple(
            Operator((group,), 1 if group.cyclic else min(self.tasks[group.stages[0]], self.shards))
            for group in self.groups
        )

    @property
    def partitions(self) -> int:
        """Shuffle partitions: as many as the widest operator has shards."""
        return max(operator.shards for operator in self.operators)

    def by_task(self) -> dict[tuple[int, int], int]:
        """`(stage, task) -> route`."""
        routes: dict[tuple[int, int], int] = {}
        candidate = 0
        for operator in self.operators:
            wanted = set(range(operator.shards))
            while wanted:
                shard = spark_hash(candidate) % self.partitions
                if shard in wanted:
                    wanted.remove(shard)
                    routes |= {
                        (stage, task): candidate
                        for stage in operator.stages
                        for task in range(shard, self.tasks[stage], operator.shards)
                    }
                candidate += 1
        return routes
