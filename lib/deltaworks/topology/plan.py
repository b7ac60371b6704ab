"""The plan that a host runs: the stages of a checked topology and their descriptions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from deltaworks.topology import describe, fingerprint, mermaid, partitions
from deltaworks.topology.nodes import AnyNode
from deltaworks.topology.shown import summary
from deltaworks.topology.stages import Stage, Stages, StoreSpec


@dataclass(frozen=True, kw_only=True, repr=False)
class Plan(Stages):
    """A whole topology, checked. A notebook shows its flowchart."""

    def __repr__(self) -> str:
        stages = (*self.stages, *self.global_stages)
        nodes = [node for stage in stages for node in stage.nodes]
        stores = [store.name for stage in stages for store in stage.stores]
        counted = f"{len(self.stages)} stage{'s' * (len(self.stages) != 1)}"
        return f"Plan '{self.name}': {counted}; {summary(nodes, stores)}"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """What a notebook shows: Jupyter draws the flowchart; a front end that cannot shows the text.

        There is no HTML, which JupyterLab would prefer to the flowchart.
        """
        return {"text/vnd.mermaid": self.mermaid(), "text/plain": self.describe()}

    def changed(
        self, node: Callable[[AnyNode], AnyNode], store: Callable[[StoreSpec], StoreSpec] = lambda spec: spec
    ) -> Plan:
        """The plan with what two functions make of its nodes and its stores."""

        def stages(of: tuple[Stage, ...]) -> tuple[Stage, ...]:
            return tuple(
                replace(each, nodes=tuple(map(node, each.nodes)), stores=tuple(map(store, each.stores))) for each in of
            )

        return replace(self, stages=stages(self.stages), global_stages=stages(self.global_stages))

    def tasks(self, topic_partitions: Mapping[str, int]) -> tuple[int, ...]:
        """Number of tasks per stage.

        Args:
            topic_partitions: partitions of every source topic.

        Raises:
            TopologyError: a topic is missing, or topics that are joined are not co-partitioned.
        """
        return partitions.assign(self, topic_partitions).tasks

    def exchange_partitions(self, topic_partitions: Mapping[str, int]) -> dict[str, int]:
        """Number of tasks that each exchange spreads its keys over; at most those of the stage that reads it.

        Raises:
            TopologyError: as `tasks`.
        """
        return dict(partitions.assign(self, topic_partitions).exchanges)

    def describe(self) -> str:
        """The plan in the text format of Kafka Streams' `Topology#describe`."""
        return describe.text(self)

    def mermaid(self) -> str:
        """The plan as a Mermaid flowchart."""
        return mermaid.text(self)

    def fingerprint(self) -> dict[str, Any]:
        """What a checkpoint depends on (stages, stores, serdes, exchanges), as JSON; functions do not count."""
        return fingerprint.of(self)
