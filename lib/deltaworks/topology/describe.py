"""A plan in the text format of Kafka Streams' `Topology#describe`, so that tools which read it keep working.

Kafka Streams lists heavy nodes first. The order among children and parents is an accident of Java's hash order, because
weights still grow while the lists are filled; `_linked` repeats it, so that the texts are equal to the letter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from deltaworks.topology.nodes import (
    AnyNode,
    CustomSink,
    DeltaSink,
    ExchangeSink,
    ExtractedTopicSink,
    Source,
    TopicSink,
)
from deltaworks.topology.stages import Stage, Stages
from deltaworks.topology.tree_set import TreeSet


def text(plan: Stages) -> str:
    """The plan in Kafka Streams' format; sub-topologies carry the numbers that Kafka Streams gives them."""
    numbered = sorted((*plan.stages, *plan.global_stages), key=lambda stage: stage.number)
    return "Topologies:\n   " + "  ".join(
        _global_store(stage.number, stage) if stage in plan.global_stages else _sub_topology(stage.number, stage)
        for stage in numbered
    )


def _sub_topology(number: int, stage: Stage) -> str:
    weights, parents, children = _linked(stage.nodes)
    lines = [f"Sub-topology: {number}"]
    for node in sorted(stage.nodes, key=lambda node: (-weights[node.name], node.name)):
        lines.append(f"    {_heading(node)}")
        if not isinstance(node, TopicSink | ExtractedTopicSink | DeltaSink | CustomSink | ExchangeSink):
            lines.append(f"      --> {', '.join(children[node.name]) or 'none'}")
        if not isinstance(node, Source):
            lines.append(f"      <-- {', '.join(parents[node.name]) or 'none'}")
    return "\n".join(lines) + "\n\n"


def _global_store(number: int, stage: Stage) -> str:
    source, processor, *_ = stage.nodes
    return (
        f"Sub-topology: {number} for global store (will not generate tasks)\n"
        f"    {_heading(source)}\n      --> {processor.name}\n"
        f"    {_heading(processor)}\n      --> none\n      <-- {source.name}\n"
    )


def _heading(node: AnyNode) -> str:
    match node:
        case Source():
            topics = f"[{', '.join(node.topics)}]" if node.pattern is None else node.pattern
            return f"Source: {node.name} (topics: {topics})"
        case TopicSink():
            return f"Sink: {node.name} (topic: {node.topic})"
        case ExtractedTopicSink():
            return f"Sink: {node.name} (extractor class: function)"
        case ExchangeSink():
            return f"Sink: {node.name} (topic: {node.exchange})"
        case DeltaSink():
            return f"Sink: {node.name} (table: {node.table})"
        case CustomSink():
            return f"Sink: {node.name} (sink class: {type(node.sink).__name__})"
        case _:
            return f"Processor: {node.name} (stores: [{', '.join(_hashed(node.stores))}])"


def _linked(nodes: Sequence[AnyNode]) -> tuple[dict[str, int], dict[str, TreeSet], dict[str, TreeSet]]:
    """Weights (paths that begin at a node), parents and children by name, in Kafka Streams' order.

    Source: `InternalTopologyBuilder#describeSubtopology`.
    """
    weights = {node.name: 1 for node in nodes}
    parents, children = ({node.name: TreeSet(lambda name: (-weights[name], name)) for node in nodes} for _ in range(2))

    def grow(name: str, weight: int) -> None:
        weights[name] += weight
        for parent in parents[name]:
            grow(parent, weight)

    for node in _in_hash_order(nodes):
        for parent in node.parents:
            parents[node.name].add(parent)
            children[parent].add(node.name)
            grow(parent, weights[node.name])
    return weights, parents, children


def _in_hash_order(nodes: Iterable[AnyNode]) -> list[AnyNode]:
    """The order in which a `java.util.HashMap` with these names as keys, put in this order, would be walked."""
    ordered = list(nodes)
    mask = _capacity(len(ordered)) - 1
    return sorted(ordered, key=lambda node: _spread(node.name) & mask)


def _hashed(names: Sequence[str]) -> list[str]:
    """The order in which a `java.util.HashSet` of these names would be walked."""
    mask = _capacity(len(names)) - 1
    return sorted(names, key=lambda name: _spread(name) & mask)


def _capacity(size: int) -> int:
    capacity = 16
    while size > capacity * 3 // 4:
        capacity *= 2
    return capacity


def _spread(name: str) -> int:
    code = 0
    for character in name:
        code = (31 * code + ord(character)) & 0xFFFFFFFF
    return code ^ (code >> 16)
