"""One line about a topology, for a REPL: what it reads, writes and keeps."""

from __future__ import annotations

from collections.abc import Iterable

from deltaworks.topology.nodes import AnyNode, CustomSink, DeltaSink, ExtractedTopicSink, Source, TopicSink


def summary(nodes: Iterable[AnyNode], stores: Iterable[str]) -> str:
    """Such as `reads orders, users; writes topic totals, table counts; keeps counts`."""
    nodes = list(nodes)
    parts = {
        "reads": [topic for node in nodes for topic in topics_read(node)],
        "writes": [written for node in nodes if (written := _written(node))],
        "keeps": list(stores),
    }
    return "; ".join(f"{verb} {', '.join(dict.fromkeys(names))}" for verb, names in parts.items() if names) or "empty"


def topics_read(node: AnyNode) -> tuple[str, ...]:
    """The topics that a node reads from outside, or the pattern of their names."""
    match node:
        case Source(exchange=False):
            return node.topics or (f"pattern {node.pattern}",)
        case _:
            return ()


def _written(node: AnyNode) -> str:
    match node:
        case TopicSink():
            return f"topic {node.topic}"
        case ExtractedTopicSink():
            return "topics by record"
        case DeltaSink():
            return f"table {node.table}"
        case CustomSink():
            return f"sink {node.name}"
        case _:
            return ""
