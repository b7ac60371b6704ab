"""How a topology is cut into stages, as in Kafka Streams.

Nodes belong to one stage if they are connected, or share a store. Exchanges and topics connect stages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from deltaworks.topology.nodes import AnyNode, ExchangeSink, Source
from deltaworks.topology.stages import Stage, StoreSpec


def split(nodes: Sequence[AnyNode], stores: Iterable[StoreSpec]) -> tuple[Stage, ...]:
    """Cuts a topology into stages, in the order data flows.

    Args:
        nodes: parents before children.
        stores: every store that a node names.
    """
    return _stages(_in_flow_order([group for group in connected(nodes) if not _is_global(group)]), nodes, stores)


def split_off_global(nodes: Sequence[AnyNode], stores: Iterable[StoreSpec]) -> tuple[Stage, ...]:
    """The stages that fill the stores of global tables, which `split` leaves out.

    Args:
        nodes: parents before children.
        stores: every store that a node names.
    """
    return _stages(filter(_is_global, connected(nodes)), nodes, stores)


def _stages(
    groups: Iterable[list[AnyNode]], nodes: Sequence[AnyNode], stores: Iterable[StoreSpec]
) -> tuple[Stage, ...]:
    specs = {store.name: store for store in stores}
    numbers = {group[0].name: number for number, group in enumerate(connected(nodes))}
    return tuple(
        Stage(
            index=index,
            number=numbers[group[0].name],
            nodes=tuple(group),
            stores=tuple(specs[name] for name in sorted({name for node in group for name in node.stores})),
        )
        for index, group in enumerate(groups)
    )


def _is_global(group: Iterable[AnyNode]) -> bool:
    return any(isinstance(node, Source) and node.whole for node in group)


def connected(nodes: Sequence[AnyNode]) -> list[list[AnyNode]]:
    """Groups of nodes that are linked directly or by a store, in the order of their first nodes.

    Source: `InternalTopologyBuilder#makeNodeGroups`.
    """
    root: dict[str, str] = {}

    def find(name: str) -> str:
        while (above := root.setdefault(name, name)) != name:
            root[name] = root.setdefault(above, above)
            name = root[name]
        return name

    for node in nodes:
        for parent in node.parents:
            root[find(node.name)] = find(parent)
        for store in node.stores:
            root[find(node.name)] = find(f"store {store}")
    groups: dict[str, list[AnyNode]] = {}
    for node in nodes:
        groups.setdefault(find(node.name), []).append(node)
    return list(groups.values())


def _in_flow_order(groups: list[list[AnyNode]]) -> list[list[AnyNode]]:
    """Puts writers of exchanges before readers, else keeps Kafka Streams' order. A cycle is cut at its first stage."""
    upstream = [_upstream(index, groups) for index in range(len(groups))]
    waiting = list(range(len(groups)))
    ordered: list[list[AnyNode]] = []
    while waiting:
        # The groups that feed it either have their place already, or are fed by it in turn.
        ready = next(
            index for index in waiting if all(index in upstream[each] for each in upstream[index] & {*waiting})
        )
        waiting.remove(ready)
        ordered.append(groups[ready])
    return ordered


def _upstream(start: int, groups: list[list[AnyNode]]) -> set[int]:
    """The groups from which records reach a group; includes the group itself if it is in a cycle."""
    found: set[int] = set()
    waiting = [start]
    while waiting:
        read = {
            topic
            for node in groups[waiting.pop()]
            if isinstance(node, Source) and node.exchange
            for topic in node.topics
        }
        feeders = {
            index
            for index, group in enumerate(groups)
            if any(isinstance(node, ExchangeSink) and node.exchange in read for node in group)
        }
        waiting += feeders - found
        found |= feeders
    return found
