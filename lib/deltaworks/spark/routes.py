"""Which row goes where: one number per slot of a stage, chosen so that slots spread one per shuffle partition.

Spark sends a row to partition `pmod(murmur3(route, seed 42), partitions)`. Any other choice of route would put two
slots of a stage on one partition and leave another one empty.
"""

from __future__ import annotations

from dataclasses import dataclass

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
    """Routes of every slot of a plan; a checkpoint depends on them.

    A slot is one group of a stateful operator and hosts the tasks `slot, slot + slots, ...` of its stage. As many slots
    as cores keep the fixed cost of a batch down; as many as tasks let a stage grow to that many cores.
    """

    tasks: tuple[int, ...]
    """Number of tasks per stage."""
    slots: int
    """Largest number of slots per stage."""

    @property
    def partitions(self) -> int:
        """Shuffle partitions: as many as the largest stage has slots."""
        return max(self.stage_slots(stage) for stage in range(len(self.tasks)))

    def stage_slots(self, stage: int) -> int:
        return min(self.tasks[stage], self.slots)

    def by_task(self) -> dict[tuple[int, int], int]:
        """`(stage, task) -> route`."""
        routes: dict[tuple[int, int], int] = {}
        candidate = 0
        for stage, count in enumerate(self.tasks):
            slots = self.stage_slots(stage)
            wanted = set(range(slots))
            while wanted:
                slot = spark_hash(candidate) % self.partitions
                if slot in wanted:
                    wanted.remove(slot)
                    routes.update({(stage, task): candidate for task in range(slot, count, slots)})
                candidate += 1
        return routes
