"""Which tasks may have a key.

In Kafka and in exchanges the bytes of a key decide the partition, and so the task. But what others write into a topic
may be partitioned otherwise, and processors choose their own keys: then all tasks are asked, the likely one first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from deltaworks.kernel.partitioning import partition_of
from deltaworks.serdes.windowed import SessionWindowed, TimeWindowed
from deltaworks.topology import partitions
from deltaworks.topology.nodes import ExchangeSink
from deltaworks.topology.nodes.processor_api import FixedKeyProcessorNode, ProcessorNode
from deltaworks.topology.plan import Plan
from deltaworks.topology.stages import Stage, StoreSpec


@dataclass(frozen=True)
class Places:
    """The tasks of a store.

    Args:
        tasks: number of tasks.
        width: what the hash of a key is divided by; None: keys do not decide.
        certain: whether no other task can have a key.
    """

    tasks: int
    width: int | None
    certain: bool

    @classmethod
    def of(cls, plan: Plan, stage: Stage, spec: StoreSpec, tasks: int, topics: Mapping[str, int]) -> Places:
        """
        Args:
            plan: has the stage.
            stage: has the store.
            spec: of the store.
            tasks: number of tasks of the stage.
            topics: partitions of every topic that is read.
        """
        users = [node for node in stage.nodes if spec.name in node.stores]
        fillers = [node for node in users if spec.name in node.fills] or users
        authors = any(isinstance(node, ProcessorNode | FixedKeyProcessorNode) for node in users)
        if authors or isinstance(spec.key, TimeWindowed | SessionWindowed):
            return cls(tasks, None, certain=False)
        widths = {**topics, **partitions.assign(plan, topics).exchanges}
        sources = partitions.sources_above(stage, [node.name for node in fillers])
        found = {widths.get(topic) for source in sources for topic in source.topics}
        if len(found) != 1 or any(source.pattern for source in sources) or None in found:
            return cls(tasks, None, certain=False)
        names = {topic for source in sources if source.exchange for topic in source.topics}
        sinks = [node for node in plan.nodes if isinstance(node, ExchangeSink) and node.exchange in names]
        if any(sink.partitioner is not None for sink in sinks):
            return cls(tasks, None, certain=False)
        return cls(tasks, found.pop(), certain=all(source.exchange for source in sources))

    def likely(self, key: bytes) -> int | None:
        """The task that gets the records of a key, by Kafka's default partitioner."""
        return None if self.width is None else partition_of(key, self.width)

    def asked(self, key: bytes) -> list[int]:
        """The tasks that may have a key, in the order in which they are asked."""
        likely = self.likely(key)
        if likely is None:
            return list(range(self.tasks))
        return [likely] if self.certain else [likely, *(task for task in range(self.tasks) if task != likely)]


WHOLE = Places(1, 1, certain=True)
"""Those of a global table."""
