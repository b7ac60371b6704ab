"""How the objects of the DSL show themselves in a REPL: handles with their types, their node and what it reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from deltaworks.dsl.graph import Graph
from deltaworks.dsl.point import Point
from deltaworks.serdes.type_names import type_name
from deltaworks.topology.nodes import ExchangeSink, Source
from deltaworks.topology.shown import summary, topics_read


def handle(of: object, at: Point, *details: str) -> str:
    """Such as `KTable[str, int] from KSTREAM-AGGREGATE-0000000002 (orders), store 'counts'`.

    Args:
        of: The handle.
        at: Where its records come out.
        details: What else there is to say; empty ones are left out.
    """
    types = f"{type_name(at.key.type)}, {type_name(at.value.type)}"
    read = ", ".join(_topics_behind(at.graph, [at.node]))
    return ", ".join([f"{type(of).__name__}[{types}] from {at.node} ({read})", *filter(None, details)])


def cogrouped(of: object, streams: Sequence[Point], value: Any, *details: str) -> str:
    """Such as `CogroupedKStream[str, int] of 2 streams (ins, outs)`.

    Args:
        of: The handle.
        streams: Where the records of its streams come out.
        value: The type or serde of the aggregate that the author has given, or None.
        details: What else there is to say.
    """
    kind = value.type if hasattr(value, "deserialize") else value
    types = f"{type_name(streams[0].key.type)}, {type_name(kind)}"
    read = ", ".join(_topics_behind(streams[0].graph, [at.node for at in streams]))
    counted = f"{len(streams)} stream{'s' * (len(streams) > 1)}"
    return ", ".join([f"{type(of).__name__}[{types}] of {counted} ({read})", *details])


def stored(store: str | None) -> str:
    """Such as `store 'counts'`; empty without a store."""
    return "" if store is None else f"store '{store}'"


def collected(of: object, graph: Graph) -> str:
    """Such as `StreamsBuilder 'shop': reads orders; writes table counts; keeps counts; 1 problem`."""
    text = f"{type(of).__name__} '{graph.name}': {summary(graph.nodes, [spec.name for spec, _ in graph.stores])}"
    found = len(graph.problems)
    return f"{text}; {found} problem{'s' * (found > 1)}, see build()" if found else text


def _topics_behind(graph: Graph, names: Iterable[str]) -> list[str]:
    """The topics whose records reach some nodes, sorted."""
    nodes = {node.name: node for node in graph.nodes}
    senders = {node.exchange: node.name for node in nodes.values() if isinstance(node, ExchangeSink)}
    waiting, seen = list(names), set[str]()
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            node = nodes[name]
            waiting += node.parents
            if isinstance(node, Source) and node.exchange:
                waiting += [senders[exchange] for exchange in node.topics]
    return sorted({topic for name in seen for topic in topics_read(nodes[name])})
