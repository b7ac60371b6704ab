"""The partition of a record, by Kafka's default partitioner or by a user's own."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from deltaworks.topology.routing import StreamPartitioner

_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_SEED = 0x9747B28C


def murmur2(data: bytes) -> int:
    """Kafka's `Utils.murmur2`, as an unsigned 32-bit number."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for position in range(0, whole, 4):
        k = int.from_bytes(data[position : position + 4], "little") * _M & _MASK
        h = (h * _M & _MASK) ^ ((k ^ (k >> 24)) * _M & _MASK)
    if whole != length:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)


def hash_of(key: bytes) -> int:
    """What Kafka's producers divide by the number of partitions."""
    return murmur2(key) & 0x7FFFFFFF


def partition_of(key: bytes, partitions: int) -> int:
    """The partition that Kafka's producers choose for a key."""
    return hash_of(key) % partitions


def chosen_partitions(
    partitioner: StreamPartitioner, topic: str, key: Any, value: Any, partitions: int
) -> tuple[int, ...] | None:
    """The partitions that a user's partitioner chose; None leaves the choice to the default.

    Raises:
        TypeError: It chose something other than partitions.
        ValueError: There is no such partition. The partitioner's own exceptions pass, too.
    """
    chosen = partitioner(topic, key, value, partitions)
    if chosen is None:
        return None
    several = (chosen,) if isinstance(chosen, int) else _several(topic, chosen)
    for partition in several:
        if not 0 <= partition < partitions:
            raise ValueError(f"topic '{topic}' has no partition {partition}; it has {partitions}")
    return several


def _several(topic: str, chosen: Any) -> tuple[int, ...]:
    """The chosen partitions, each once, in order."""
    if not isinstance(chosen, Collection) or not all(isinstance(partition, int) for partition in chosen):
        raise TypeError(
            f"the partitioner of topic '{topic}' returned {chosen!r}, neither a partition nor a set of them"
        )
    return tuple(sorted(set(chosen)))
