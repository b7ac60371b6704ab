"""Records move to the task that owns their new key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from deltaworks.serdes.base import Serde
from deltaworks.topology.nodes.base import Node
from deltaworks.topology.routing import StreamPartitioner


@dataclass(frozen=True, kw_only=True)
class ExchangeSink(Node):
    """The near side of an exchange; the far side is the `Source` whose topic is `exchange`.

    It replaces Kafka Streams' repartition topic by a shuffle, partitioned by Kafka's murmur2 of the key bytes.
    Null keys are dropped by the `Filter` before it, unless a left join behind the exchange needs them.
    """

    exchange: str
    """`<name>-repartition`"""
    key: Serde[Any]
    value: Serde[Any]
    partitions: int | None = None
    """None: as many as the tasks of the upstream stage, or as the topics that it is joined with."""
    partitioner: StreamPartitioner | None = None
    """None: Kafka's murmur2 of the key bytes."""
