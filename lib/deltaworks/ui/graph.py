"""A topology as boxes and lines: topics, operators with their stores, tables and sinks."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

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
from deltaworks.ui.layout import placed

_GENERATED = re.compile(r"^(?:KSTREAM|KTABLE|COGROUPED)-[A-Z-]+-(\d{10})$")
_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")
_LETTER, _LEAST, _MOST = 7.7, 96.0, 280.0
_HEIGHT, _STORE_HEIGHT = 44.0, 20.0


class Box(msgspec.Struct, frozen=True, kw_only=True):
    """A box of the graph, in pixels."""

    id: str
    kind: str
    """`topic`, `table`, `sink`, `exchange` between two stages, or `operator`."""
    title: str
    subtitle: str
    stage: int | None = None
    """The number of its sub-topology."""
    stores: tuple[str, ...] = ()
    x: float = 0.0
    y: float = 0.0
    width: float = 0.0
    height: float = 0.0


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the graph."""

    source: str
    target: str
    topic: str | None = None
    """The topic from which its records come."""
    points: tuple[tuple[float, float], ...] = ()


class Graph(msgspec.Struct, frozen=True, kw_only=True):
    """A topology, drawn."""

    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]
    width: float
    height: float


def drawn(plan: Stages) -> Graph:
    """Draws a plan. Sources and sinks have no boxes of their own: the topics and tables behind them do."""
    boxes: dict[str, Box] = {}
    shown: dict[str, list[str]] = {}
    nodes = [(node, stage) for stage in (*plan.stages, *plan.global_stages) for node in stage.nodes]
    for node, stage in nodes:
        for box in _boxes(node, stage):
            boxes.setdefault(box.id, box)
            shown.setdefault(node.name, []).append(box.id)
    lines: dict[tuple[str, str], Line] = {}
    for node, _ in nodes:
        for source in (box for parent in node.parents for box in shown.get(parent, ())):
            for target in shown.get(node.name, ()):
                topic = boxes[source].title if boxes[source].kind == "topic" else None
                lines.setdefault((source, target), Line(source=source, target=target, topic=topic))
    sizes = {name: _size(box) for name, box in boxes.items()}
    layout = placed(sizes, list(lines))
    return Graph(
        boxes=tuple(
            msgspec.structs.replace(
                box, x=layout.boxes[name][0], y=layout.boxes[name][1], width=sizes[name][0], height=sizes[name][1]
            )
            for name, box in boxes.items()
        ),
        lines=tuple(msgspec.structs.replace(line, points=layout.lines[edge]) for edge, line in lines.items()),
        width=layout.width,
        height=layout.height,
    )


def _boxes(node: AnyNode, stage: Stage) -> Iterator[Box]:
    def outside(kind: str, title: str) -> Box:
        return Box(id=f"{kind} {title}", kind=kind, title=title, subtitle=kind)

    match node:
        case Source(exchange=True):
            yield from (outside("exchange", exchange) for exchange in node.topics)
        case ExchangeSink():
            yield outside("exchange", node.exchange)
        case Source():
            yield from (outside("topic", topic) for topic in node.topics or (f"like {node.pattern}",))
        case TopicSink():
            yield outside("topic", node.topic)
        case ExtractedTopicSink():
            yield outside("topic", "named by records")
        case DeltaSink():
            yield outside("table", node.table)
        case CustomSink():
            yield Box(id=node.name, kind="sink", title=node.name, subtitle=type(node.sink).__name__)
        case _:
            yield _operator(node, stage)


def _operator(node: AnyNode, stage: Stage) -> Box:
    generated = _GENERATED.match(node.name)
    kind = _WORD.sub(" ", type(node).__name__.removesuffix("Node")).lower()
    return Box(
        id=node.name,
        kind="operator",
        title=kind if generated else node.name,
        subtitle=f"stage {stage.number} · {f'#{int(generated.group(1))}' if generated else kind}",
        stage=stage.number,
        stores=node.stores,
    )


def _size(box: Box) -> tuple[float, float]:
    longest = max(map(len, (box.title, box.subtitle, *(f"{store}  " for store in box.stores))))
    round_ends = 14.0 if box.kind in ("topic", "exchange") else 0.0
    width = round(min(_MOST, max(_LEAST, 26.0 + round_ends + _LETTER * longest)))
    return float(width), _HEIGHT + _STORE_HEIGHT * len(box.stores)
