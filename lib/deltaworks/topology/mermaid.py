"""A plan as a Mermaid flowchart: a box per stage, stores as cylinders, topics and tables around them."""

from __future__ import annotations

from collections.abc import Iterator

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


def text(plan: Stages) -> str:
    """The flowchart; it renders on GitHub inside a `mermaid` code block."""
    chart = _Chart()
    lines = ["flowchart LR"]
    for stage in plan.stages:
        lines += chart.stage(stage)
    for stage in plan.global_stages:
        lines += chart.stage(stage, "global")
    for node in (*plan.nodes, *(node for stage in plan.global_stages for node in stage.nodes)):
        lines += chart.edges(node)
    return "\n".join(lines) + "\n"


class _Chart:
    """Short ids for names that Mermaid would not accept."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}
        self._shown: set[str] = set()

    def stage(self, stage: Stage, kind: str = "stage") -> Iterator[str]:
        yield f'  subgraph {kind}{stage.index}["{kind} {stage.index}"]'
        for node in stage.nodes:
            yield f'    {self._id(node.name)}["{node.name}"]'
            if isinstance(node, ExchangeSink):
                self._ids[f"exchange {node.exchange}"] = self._id(node.name)
        for store in stage.stores:
            yield f'    {self._id(f"store {store.name}")}[("{store.name}")]'
        yield "  end"

    def edges(self, node: AnyNode) -> Iterator[str]:
        me = self._id(node.name)
        for parent in node.parents:
            yield f"  {self._id(parent)} --> {me}"
        match node:
            case Source(exchange=False):
                for topic in node.topics or (str(node.pattern),):
                    yield from self._outside(f"topic {topic}", f'(["topic {topic}"])')
                    yield f"  {self._id(f'topic {topic}')} --> {me}"
            case Source():
                for exchange in node.topics:
                    yield f"  {self._id(f'exchange {exchange}')} -. {exchange} .-> {me}"
            case TopicSink():
                yield from self._outside(f"topic {node.topic}", f'(["topic {node.topic}"])')
                yield f"  {me} --> {self._id(f'topic {node.topic}')}"
            case ExtractedTopicSink():
                yield from self._outside(f"topics of {node.name}", '(["topics by record"])')
                yield f"  {me} --> {self._id(f'topics of {node.name}')}"
            case DeltaSink():
                yield from self._outside(f"table {node.table}", f'[/"table {node.table}"/]')
                yield f"  {me} --> {self._id(f'table {node.table}')}"
            case CustomSink():
                yield from self._outside(f"sink {node.name}", f'(["{node.name}"])')
                yield f"  {me} --> {self._id(f'sink {node.name}')}"
            case _:
                pass
        for store in node.stores:
            yield f"  {self._id(f'store {store}')} --- {me}"

    def _outside(self, key: str, shape: str) -> Iterator[str]:
        if key not in self._shown:
            self._shown.add(key)
            yield f"  {self._id(key)}{shape}"

    def _id(self, key: str) -> str:
        return self._ids.setdefault(key, f"n{len(self._ids)}")
