"""Merging hops: where several operators behind one change of key each make a hop, one hop will do.

It comes right behind the operator that changes the key. What lies between that and the former hops is now behind the
new one, and gets no null keys any more.

Source: `InternalStreamsBuilder#mergeRepartitionTopics`. Differs where Kafka Streams goes wrong: an operator that two of
the hops have above them may be moved (there, an error), and two kinds of hops stay where they are: one that other
records reach too, past the operator that changes the key, and one behind a processor of a user, who may have changed
the key once more (there, records lose the hop that they need).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from deltaworks.dsl.hops import key_is_not_null
from deltaworks.topology.nodes import (
    AnyNode,
    Filter,
    FlatMap,
    FlatMapValues,
    HopSink,
    Map,
    MapValues,
    Merge,
    ProcessorNode,
    SelectKey,
    Source,
)


def merge_hops(nodes: Sequence[AnyNode], mergeable: Iterable[str]) -> list[AnyNode]:
    """The same topology with fewer hops.

    Args:
        nodes: parents before children.
        mergeable: the sources behind hops that operators have made for themselves, by name, oldest first.
    """
    graph = _Graph(nodes)
    merged: dict[str, _Hop] = {}
    for changer, sources in _hops_by_changer(graph, mergeable):
        left = [source for source in sources if source in graph.hops and graph.always_passes(source, changer)]
        if left:
            hop = graph.hops[left[0]].moved(changer)
            graph.merge(left, changer, hop.source.name)
            merged[changer] = hop
    return graph.rebuilt(merged)


@dataclass(frozen=True)
class _Hop:
    """The nodes of one hop."""

    guard: Filter | None
    sink: HopSink
    source: Source

    @property
    def nodes(self) -> tuple[AnyNode, ...]:
        return (self.sink, self.source) if self.guard is None else (self.guard, self.sink, self.source)

    def moved(self, parent: str) -> _Hop:
        """The same behind another node, with the names that Kafka Streams gives it there."""
        hop, origin = self.sink.hop, self.sink.origin
        guard = Filter(name=f"{hop}-filter", parents=(parent,), predicate=key_is_not_null, origin=origin)
        sink = replace(self.sink, name=f"{hop}-sink", parents=(guard.name,))
        return _Hop(guard, sink, replace(self.source, name=f"{hop}-source"))


class _Graph:
    """A topology in which a hop is one node, named like its source."""

    def __init__(self, nodes: Sequence[AnyNode]) -> None:
        self.nodes = {node.name: node for node in nodes}
        sinks = {node.hop: node for node in nodes if isinstance(node, HopSink)}
        self.hops = {
            node.name: _Hop(self._guard(sinks[node.topics[0]]), sinks[node.topics[0]], node)
            for node in nodes
            if isinstance(node, Source) and node.hop
        }
        self._gone: set[str] = set()
        """Nodes of hops that are no more."""
        self._inside = {node.name: hop.source.name for hop in self.hops.values() for node in hop.nodes}
        self.parents = {
            node.name: list(self.hops[node.name].nodes[0].parents if node.name in self.hops else node.parents)
            for node in nodes
            if self._inside.get(node.name, node.name) == node.name
        }

    def find(self, start: str, wanted: Callable[[str], bool]) -> str | None:
        """A node or one above it; of several parents without it, what is found above the last one counts."""
        if wanted(start):
            return start
        found = None
        for parent in self.parents[start]:
            if wanted(parent):
                return parent
            found = self.find(parent, wanted)
        return found

    def below(self, start: str, parent: str) -> str | None:
        """The node on the way up from `start` that has this parent."""
        return self.find(start, lambda name: parent in self.parents[name])

    def always_passes(self, start: str, above: str) -> bool:
        """Every record that reaches a node has passed the other one."""
        waiting, seen = [start], {above}
        while waiting:
            if (name := waiting.pop()) not in seen:
                seen.add(name)
                if not self.parents[name]:
                    return False
                waiting += self.parents[name]
        return True

    def merge(self, hops: Sequence[str], changer: str, merged: str) -> None:
        """Takes hops out, and puts what lies between them and the changer of the key behind the merged one.

        The merged hop may have the name of one that goes.
        """
        between = dict.fromkeys(name for hop in hops if (name := self.below(hop, changer)) and name not in hops)
        for hop in hops:
            above = [merged if parent == changer else parent for parent in self.parents.pop(hop)]
            for name, parents in self.parents.items():
                if hop in parents:
                    others = [parent for parent in parents if parent != hop]
                    self.parents[name] = [*others, *(parent for parent in above if parent not in others)]
            self._gone.update(node.name for node in self.hops.pop(hop).nodes)
        for name in between:
            self.parents[name] = [*(parent for parent in self.parents[name] if parent != changer), merged]
        self.parents[merged] = [changer]

    def rebuilt(self, merged: dict[str, _Hop]) -> list[AnyNode]:
        """As nodes, each merged hop right behind its changer of the key."""
        result: list[AnyNode] = []
        for node in self.nodes.values():
            logical = self._inside.get(node.name, node.name)
            if node.name in self._gone:
                continue
            if logical == node.name and node.name not in self.hops:
                result.append(replace(node, parents=tuple(self.parents[node.name])))
            elif node is self.hops[logical].nodes[0]:
                result.append(replace(node, parents=tuple(self.parents[logical])))
            else:
                result.append(node)
            if node.name in merged:
                result += merged[node.name].nodes
        return result

    def _guard(self, sink: HopSink) -> Filter | None:
        above = self.nodes[sink.parents[0]]
        return above if isinstance(above, Filter) and above.predicate is key_is_not_null else None


def _hops_by_changer(graph: _Graph, mergeable: Iterable[str]) -> list[tuple[str, list[str]]]:
    """Operator behind which a hop may come -> the hops that it may replace."""
    changers: dict[str, list[str]] = {name: [] for name, node in graph.nodes.items() if _changes_key(node)}
    for hop in mergeable:
        changer = graph.find(hop, lambda name: _changes_key(graph.nodes[name]))
        # A change of the value in between is an end: the merged hop would carry other values.
        if changer and changer == graph.find(hop, lambda name: _changes_record(graph.nodes[name])):
            changers[changer].append(hop)
    merges: list[tuple[str, list[str]]] = []
    replaced: set[str] = set()
    for merge, node in graph.nodes.items():
        if isinstance(node, Merge):
            above = [
                changer
                for changer, hops in changers.items()
                if all(graph.below(hop, merge) for hop in hops) and graph.below(merge, changer)
            ]
            merges.append((merge, [hop for changer in above for hop in changers[changer]]))
            replaced.update(above)
    own = [(changer, hops) for changer, hops in changers.items() if changer not in replaced]
    # Of several merges on one way the last one counts: only there all of its records have come together.
    return [*own, *reversed(merges)]


def _changes_key(node: AnyNode) -> bool:
    return isinstance(node, Map | FlatMap | SelectKey)


def _changes_record(node: AnyNode) -> bool:
    # What a processor of a user forwards may have another key, which Kafka Streams overlooks.
    return isinstance(node, Map | FlatMap | SelectKey | MapValues | FlatMapValues | ProcessorNode)
