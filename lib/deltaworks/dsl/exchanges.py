"""Exchanges: where the DSL sends records to the task that owns their new key."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from deltaworks.dsl.graph import Graph
from deltaworks.dsl.point import Point
from deltaworks.serdes.change import ChangeSerde
from deltaworks.topology.nodes import (
    AnyNode,
    ExchangeSink,
    Filter,
    GlobalTableJoin,
    Source,
    StreamStreamJoin,
    StreamTableJoin,
)
from deltaworks.topology.nodes.base import Origin
from deltaworks.topology.routing import StreamPartitioner

_SUFFIX = "-repartition"
_GENERATED = re.compile(r"K(STREAM|TABLE).*-\d{10}")


def key_is_not_null(key: Any, _value: Any) -> bool:
    """The filter before an exchange: no task owns a null key."""
    return key is not None


def always(_key: Any, _value: Any) -> bool:
    """The filter before an exchange to a left join, which keeps null keys."""
    return True


def keep_null_keys(nodes: Sequence[AnyNode]) -> list[AnyNode]:
    """Lets null keys pass the filter before each exchange that a left join follows.

    Source: `InternalStreamsBuilder#rewriteRepartitionNodes`, KIP-962.
    """
    above: set[str] = set()
    exchanges = {node.exchange: node.name for node in nodes if isinstance(node, ExchangeSink)}
    for node in reversed(nodes):
        if node.name in above or _keeps_null_keys(node):
            above.update(node.parents)
            if isinstance(node, Source) and node.exchange:
                above.update(exchanges[topic] for topic in node.topics)
    return [
        replace(node, predicate=always)
        if isinstance(node, Filter) and node.predicate is key_is_not_null and node.name in above
        else node
        for node in nodes
    ]


def _keeps_null_keys(node: AnyNode) -> bool:
    """Whether a node is a left or outer join, on either side."""
    match node:
        case StreamTableJoin() | GlobalTableJoin():
            return node.kind == "left"
        case StreamStreamJoin():
            return node.waiting is not None
        case _:
            return False


def exchange(
    point: Point,
    name: str,
    *,
    operator: str,
    where: Origin,
    partitions: int | None = None,
    partitioner: StreamPartitioner | None = None,
    named: bool | None = None,
) -> Point:
    """Connects an exchange, or returns the one that has this name at the same point.

    Args:
        named: whether the user gave the name; None: yes, unless it looks generated.

    Source: `KStreamImpl#createRepartitionedSource`; three numbers are used up whether or not the names are.
    """
    graph = point.graph
    topic = name if name.endswith(_SUFFIX) else name + _SUFFIX
    generated = graph.next_name("KSTREAM-SINK-"), graph.next_name("KSTREAM-FILTER-"), graph.next_name("KSTREAM-SOURCE-")
    sink, guard, source = (
        generated if _GENERATED.fullmatch(name) else (f"{topic}-sink", f"{topic}-filter", f"{topic}-source")
    )
    if (parent_and_source := graph.exchanges.get(topic)) is not None:
        parent, source = parent_and_source
        if parent != point.node:
            graph.report(
                f"{operator}: the name '{name}' is already taken by another exchange.",
                where,
                "give each grouping and repartition a name of its own",
            )
        return replace(point, node=source, rekeyed=False)
    _demand_name(graph, name, named, operator, where)
    key = point.need(point.key, operator=operator, argument="key", where=where)
    value = point.need(point.value, operator=operator, argument="value", where=where)
    graph.exchanges[topic] = (point.node, source)
    graph.add(Filter(name=guard, parents=(point.node,), predicate=key_is_not_null, origin=where))
    graph.add(
        ExchangeSink(
            name=sink,
            parents=(guard,),
            exchange=topic,
            key=key,
            value=value,
            partitions=partitions,
            partitioner=partitioner,
            origin=where,
        )
    )
    graph.add(Source(name=source, topics=(topic,), key=key, value=value, exchange=True, origin=where))
    if operator != "repartition":
        graph.mergeable_exchanges.append(source)
    return replace(point, node=source, rekeyed=False)


def table_exchange(point: Point, name: str, ends: tuple[str, str], *, operator: str, where: Origin) -> Point:
    """Connects an exchange for the updates of a regrouped table; it carries old and new values.

    Args:
        name: name of the exchange; a grouping connects it once.
        ends: names of its sink and of its source.

    Source: `KGroupedTableImpl#createRepartitionNode`.
    """
    graph, topic, (sink, source) = point.graph, name + _SUFFIX, ends
    if (parent_and_source := graph.exchanges.get(topic)) is not None:
        parent, source = parent_and_source
        if parent != point.node:
            graph.report(
                f"{operator}: the name '{name}' is already taken by another exchange.",
                where,
                "give each grouping and repartition a name of its own",
            )
        return replace(point, node=source)
    _demand_name(graph, name, None, operator, where)
    key = point.need(point.key, operator=operator, argument="key", where=where)
    value = ChangeSerde(point.need(point.value, operator=operator, argument="value", where=where))
    graph.exchanges[topic] = (point.node, source)
    graph.add(ExchangeSink(name=sink, parents=(point.node,), exchange=topic, key=key, value=value, origin=where))
    graph.add(Source(name=source, topics=(topic,), key=key, value=value, exchange=True, origin=where))
    return replace(point, node=source)


def _demand_name(graph: Graph, name: str, named: bool | None, operator: str, where: Origin) -> None:
    """Reports an exchange that the user has not named, if the builder requires a name."""
    if named is None:
        named = not _GENERATED.fullmatch(name)
    if not named and graph.config.explicit_names == "all":
        graph.report(
            f"{operator} sends records over an exchange that you have not named.",
            where,
            "give a name to the repartition, the join or the grouping (name='...'), or to the store of the aggregate",
        )
