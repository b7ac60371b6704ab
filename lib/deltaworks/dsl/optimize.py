"""The changes of `optimize=True` to a topology: exchanges are merged, and a stream joined with itself keeps one store.

Where several operators behind one change of key each make an exchange, one exchange is enough. It is placed right
behind the operator that changes the key. The operators between that one and the former exchanges are now behind the
new one, and no longer get null keys.

Source: `InternalStreamsBuilder#mergeRepartitionTopics`. Differs where Kafka Streams goes wrong: an operator that two of
the exchanges have above them may be moved (there, an error), and two kinds of exchanges stay where they are: one that
other records reach too, past the operator that changes the key, and one behind a processor of a user, who may have
changed the key once more (there, records lose the exchange that they need).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from deltaworks.dsl.exchanges import key_is_not_null
from deltaworks.topology.nodes import (
    AnyNode,
    CallOut,
    ExchangeSink,
    Filter,
    FlatMap,
    FlatMapValues,
    JoinWindow,
    Map,
    MapValues,
    Merge,
    Passthrough,
    ProcessorNode,
    SelectKey,
    Source,
    StreamSelfJoin,
    StreamStreamJoin,
)
from deltaworks.topology.stages import StoreSpec


def merge_exchanges(nodes: Sequence[AnyNode], mergeable: Iterable[str]) -> list[AnyNode]:
    """The same topology with fewer exchanges.

    Args:
        nodes: parents before children.
        mergeable: the sources behind exchanges that operators have made for themselves, by name, oldest first.
    """
    graph = _Graph(nodes)
    merged: dict[str, _Exchange] = {}
    for changer, sources in _exchanges_by_changer(graph, mergeable):
        left = [source for source in sources if source in graph.exchanges and graph.always_passes(source, changer)]
        if left:
            exchange = graph.exchanges[left[0]].moved(changer)
            graph.merge(left, changer, exchange.source.name)
            merged[changer] = exchange
    return graph.rebuilt(merged)


def with_one_store(nodes: Sequence[AnyNode], stores: Iterable[StoreSpec]) -> tuple[list[AnyNode], list[StoreSpec]]:
    """The same topology without the right side of each self-join and its store.

    The left side already keeps the same records.

    A left or outer join becomes an inner one: every record has itself as a partner. Kafka Streams does the same, even
    where the window excludes a record's own time.
    Source: `InternalStreamsBuilder#rewriteSingleStoreSelfJoin`.
    """
    by_name = {node.name: node for node in nodes}
    changed: dict[str, AnyNode | None] = {}
    gone: set[str] = set()
    for merge in nodes:
        sides = [by_name[parent] for parent in merge.parents] if isinstance(merge, Passthrough) else []
        match sides:
            case [StreamStreamJoin() as left, StreamStreamJoin() as right]:
                this, other = by_name[right.other], by_name[left.other]
                if left.parents == (this.name,) and this.parents == other.parents:
                    assert isinstance(this, JoinWindow)
                    changed |= {left.name: None, right.name: None, other.name: None}
                    changed[merge.name] = StreamSelfJoin(
                        name=merge.name,
                        parents=(this.name,),
                        windows=left.windows,
                        joiner=left.joiner,
                        store=this.store,
                        origin=left.origin,
                    )
                    gone |= {left.other_store, *filter(None, [left.waiting])}
            case _:
                pass
    kept = [changed.get(node.name, node) for node in nodes]
    return [node for node in kept if node is not None], [spec for spec in stores if spec.name not in gone]


@dataclass(frozen=True)
class _Exchange:
    """The nodes of one exchange."""

    guard: Filter | None
    sink: ExchangeSink
    source: Source

    @property
    def nodes(self) -> tuple[AnyNode, ...]:
        return (self.sink, self.source) if self.guard is None else (self.guard, self.sink, self.source)

    def moved(self, parent: str) -> _Exchange:
        """The same exchange behind another node, with the names that Kafka Streams gives it there."""
        exchange, origin = self.sink.exchange, self.sink.origin
        guard = Filter(name=f"{exchange}-filter", parents=(parent,), predicate=key_is_not_null, origin=origin)
        sink = replace(self.sink, name=f"{exchange}-sink", parents=(guard.name,))
        return _Exchange(guard, sink, replace(self.source, name=f"{exchange}-source"))


class _Graph:
    """A topology in which an exchange is one node, named like its source."""

    def __init__(self, nodes: Sequence[AnyNode]) -> None:
        self.nodes = {node.name: node for node in nodes}
        sinks = {node.exchange: node for node in nodes if isinstance(node, ExchangeSink)}
        self.exchanges = {
            node.name: _Exchange(self._guard(sinks[node.topics[0]]), sinks[node.topics[0]], node)
            for node in nodes
            if isinstance(node, Source) and node.exchange
        }
        self._gone: set[str] = set()
        """Nodes of removed exchanges."""
        self._inside = {
            node.name: exchange.source.name for exchange in self.exchanges.values() for node in exchange.nodes
        }
        self.parents = {
            node.name: list(self.exchanges[node.name].nodes[0].parents if node.name in self.exchanges else node.parents)
            for node in nodes
            if self._inside.get(node.name, node.name) == node.name
        }

    def find(self, start: str, wanted: Callable[[str], bool]) -> str | None:
        """A node or one above it; if no parent matches, the result above the last parent counts."""
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
        """Whether every record that reaches a node has passed the other one."""
        waiting, seen = [start], {above}
        while waiting:
            if (name := waiting.pop()) not in seen:
                seen.add(name)
                if not self.parents[name]:
                    return False
                waiting += self.parents[name]
        return True

    def merge(self, exchanges: Sequence[str], changer: str, merged: str) -> None:
        """Removes exchanges, and moves the nodes between them and the key changer behind the merged exchange.

        The merged exchange may have the name of a removed one.
        """
        between = dict.fromkeys(
            name for exchange in exchanges if (name := self.below(exchange, changer)) and name not in exchanges
        )
        for exchange in exchanges:
            above = [merged if parent == changer else parent for parent in self.parents.pop(exchange)]
            for name, parents in self.parents.items():
                if exchange in parents:
                    others = [parent for parent in parents if parent != exchange]
                    self.parents[name] = [*others, *(parent for parent in above if parent not in others)]
            self._gone.update(node.name for node in self.exchanges.pop(exchange).nodes)
        for name in between:
            self.parents[name] = [*(parent for parent in self.parents[name] if parent != changer), merged]
        self.parents[merged] = [changer]

    def rebuilt(self, merged: dict[str, _Exchange]) -> list[AnyNode]:
        """The nodes, with each merged exchange right behind its key changer."""
        result: list[AnyNode] = []
        for node in self.nodes.values():
            logical = self._inside.get(node.name, node.name)
            if node.name in self._gone:
                continue
            if logical == node.name and node.name not in self.exchanges:
                result.append(replace(node, parents=tuple(self.parents[node.name])))
            elif node is self.exchanges[logical].nodes[0]:
                result.append(replace(node, parents=tuple(self.parents[logical])))
            else:
                result.append(node)
            if node.name in merged:
                result += merged[node.name].nodes
        return result

    def _guard(self, sink: ExchangeSink) -> Filter | None:
        above = self.nodes[sink.parents[0]]
        return above if isinstance(above, Filter) and above.predicate is key_is_not_null else None


def _exchanges_by_changer(graph: _Graph, mergeable: Iterable[str]) -> list[tuple[str, list[str]]]:
    """Operator that an exchange may follow -> the exchanges that it may replace."""
    changers: dict[str, list[str]] = {name: [] for name, node in graph.nodes.items() if _changes_key(node)}
    for exchange in mergeable:
        changer = graph.find(exchange, lambda name: _changes_key(graph.nodes[name]))
        # A change of the value in between ends the search: the merged exchange would carry other values.
        if changer and changer == graph.find(exchange, lambda name: _changes_record(graph.nodes[name])):
            changers[changer].append(exchange)
    merges: list[tuple[str, list[str]]] = []
    replaced: set[str] = set()
    for merge, node in graph.nodes.items():
        if isinstance(node, Merge):
            above = [
                changer
                for changer, exchanges in changers.items()
                if all(graph.below(exchange, merge) for exchange in exchanges) and graph.below(merge, changer)
            ]
            merges.append((merge, [exchange for changer in above for exchange in changers[changer]]))
            replaced.update(above)
    own = [(changer, exchanges) for changer, exchanges in changers.items() if changer not in replaced]
    # If a path has several merges, the last one counts: only there have all of its records come together.
    return [*own, *reversed(merges)]


def _changes_key(node: AnyNode) -> bool:
    return isinstance(node, Map | FlatMap | SelectKey) or (isinstance(node, CallOut) and node.key is not None)


def _changes_record(node: AnyNode) -> bool:
    # A user's processor may forward another key, which Kafka Streams overlooks.
    return isinstance(node, Map | FlatMap | SelectKey | MapValues | FlatMapValues | ProcessorNode | CallOut)
