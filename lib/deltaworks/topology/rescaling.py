"""Which stores get other tasks when sources get other numbers of partitions, and whether keys decide which.

In Kafka and in exchanges the bytes of a key decide the partition, so an entry belongs to the task that gets the records
of its key. Where something else decides, nobody can say to which task an entry would have to go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

from deltaworks.errors import Problem, TopologyError
from deltaworks.serdes.base import Serde
from deltaworks.serdes.schema import schema_of
from deltaworks.topology import partitions
from deltaworks.topology.nodes import AnyNode, ExchangeSink, ForeignKeySubscribe, Source
from deltaworks.topology.nodes.processor_api import FixedKeyProcessorNode, ProcessorNode
from deltaworks.topology.stages import Stage, Stages, StoreSpec

_START_OVER = "it can only start over: under another name, or with its folder and tables moved away"


@dataclass(frozen=True)
class Widths:
    """The number of tasks of each stage, and of partitions of each topic and exchange."""

    tasks: tuple[int, ...]
    sources: Mapping[str, int]

    @classmethod
    def of(cls, plan: Stages, topic_partitions: Mapping[str, int]) -> Widths:
        """The widths with so many partitions of each topic that is read."""
        assigned = partitions.assign(plan, topic_partitions)
        return cls(assigned.tasks, {**topic_partitions, **assigned.exchanges})


@dataclass(frozen=True)
class Keys:
    """The records whose keys say to which task an entry belongs."""

    topics: tuple[str, ...]
    """Where they are read, and where records are read that meet the entries; empty: from exchanges only, which are
    partitioned by murmur2."""
    before: int
    """Number of partitions, and so of tasks that get them."""
    after: int
    serde: Serde[Any]
    """Of the keys of the records."""

    def children(self, task: int) -> range:
        """The new tasks that may get entries of an old one."""
        return children(task, self.before, self.after)


@dataclass(frozen=True)
class StoreMove:
    """A store, and the keys by which its entries find their tasks."""

    spec: StoreSpec
    keys: Keys
    left: Keys | None = None
    """Subscriptions of a foreign-key join: the keys of the left table, whose tasks get the answers."""


@dataclass(frozen=True)
class StageMove:
    """A stage, and its stores."""

    stage: Stage
    before: int
    """Number of tasks."""
    after: int
    stores: Mapping[str, StoreMove]

    @property
    def is_needed(self) -> bool:
        """Whether anything of it changes."""
        keys = [each for store in self.stores.values() for each in (store.keys, store.left) if each is not None]
        return self.before != self.after or any(each.before != each.after for each in keys)


def children(task: int, before: int, after: int) -> range:
    """The tasks among `after` that get keys which one of `before` tasks has had: `hash % before == task`."""
    common = gcd(before, after)
    return range(task % common, after, common)


def can_follow(plan: Stages, before: Mapping[str, int], after: Mapping[str, int]) -> bool:
    """Whether the state can be spread when topics go from some numbers of partitions to others."""
    try:
        stage_moves(plan, Widths.of(plan, before), Widths.of(plan, after))
    except TopologyError:
        return False
    return True


def stage_moves(plan: Stages, before: Widths, after: Widths) -> tuple[StageMove, ...]:
    """What happens to each stage.

    Args:
        plan: has the stages.
        before: the widths that the state has.
        after: the widths that it gets.

    Raises:
        TopologyError: the keys do not say where entries belong.
    """
    problems: list[Problem] = []
    moves = []
    for stage in plan.stages:
        finder = _Finder(plan, stage, before, after, problems)
        stores = {move.spec.name: move for move in map(finder.move, stage.stores) if move is not None}
        moves.append(StageMove(stage, before.tasks[stage.index], after.tasks[stage.index], stores))
    if problems:
        raise TopologyError(plan.name, list(dict.fromkeys(problems)))
    return tuple(moves)


@dataclass(frozen=True)
class _Finder:
    plan: Stages
    stage: Stage
    before: Widths
    after: Widths
    problems: list[Problem]

    def move(self, spec: StoreSpec) -> StoreMove | None:
        """None: it cannot be moved, as `problems` says."""
        users = [node for node in self.stage.nodes if spec.name in node.stores]
        fillers = [node for node in users if spec.name in node.fills] or users
        keys = self._keys(self.stage, fillers, f"store '{spec.name}'", users)
        if keys is None:
            return None
        left = self._left(fillers) if spec.kind == "subscriptions" else None
        if keys.before == keys.after:
            return StoreMove(spec, keys, left)
        authors = [node for node in fillers if isinstance(node, ProcessorNode | FixedKeyProcessorNode)]
        if authors and spec.record_key is None:
            what = "has bytes of your own" if spec.kind == "custom" else "is filled by a processor with keys of its own"
            hint = (
                f"a pipeline with such a store keeps its number of tasks: {_START_OVER}"
                if spec.kind == "custom"
                else f"say which record an entry belongs to: Stores...({spec.name!r}, ..., record_key=lambda key: key)"
            )
            self._problem(f"store '{spec.name}' {what}, so nothing says to which task an entry belongs.", authors, hint)
            return None
        return StoreMove(spec, keys, left)

    def _keys(self, stage: Stage, nodes: Sequence[AnyNode], what: str, readers: Sequence[AnyNode] = ()) -> Keys | None:
        """The keys of the records that reach these nodes of a stage; `readers` meet what they keep."""
        sources = partitions.sources_above(stage, [node.name for node in nodes])
        names = dict.fromkeys(topic for source in sources for topic in source.topics)
        before, after = ({name: widths.sources[name] for name in names} for widths in (self.before, self.after))
        tasks = self.before.tasks[stage.index], self.after.tasks[stage.index]
        has_pattern = any(source.pattern for source in sources)
        if before == after and not (has_pattern and tasks[0] != tasks[1]):
            return Keys((), max(tasks), max(tasks), sources[0].key)
        if has_pattern:
            self._problem(
                f"{what} is fed by topics that a pattern matches, whose numbers of partitions may differ.",
                nodes,
                f"a pipeline with such a source keeps its number of tasks: {_START_OVER}",
            )
            return None
        befores, afters = set(before.values()), set(after.values())
        if len(befores) != 1 or len(afters) != 1:
            told = ", ".join(f"'{name}' {before[name]} -> {after[name]}" for name in sorted(names))
            self._problem(
                f"{what} is fed by sources of different widths ({told} partitions), so a key may be in two tasks.",
                nodes,
                "give all of these topics the same number of partitions, and try again",
            )
            return None
        if not self._are_decided_by_keys(sources, nodes, what):
            return None
        meeting = partitions.sources_above(stage, [node.name for node in (*nodes, *readers)])
        topics = {topic for source in meeting if not source.exchange for topic in source.topics}
        return Keys(tuple(sorted(topics)), befores.pop(), afters.pop(), sources[0].key)

    def _are_decided_by_keys(self, sources: tuple[Source, ...], nodes: Sequence[AnyNode], what: str) -> bool:
        known = len(self.problems)
        for source in sources:
            for name in source.topics:
                before, after = self.before.sources[name], self.after.sources[name]
                if not source.exchange and after % before:
                    self._problem(
                        f"topic '{name}' went from {before} to {after} partitions, which is no multiple: keys have "
                        "moved between the old partitions, too.",
                        nodes,
                        f"give it {-(-after // before) * before} partitions, and try again",
                    )
                for sink in self._sinks(name) if source.exchange else ():
                    if sink.partitioner is not None:
                        self._problem(
                            f"{what} is fed by '{sink.name}', whose partitioner chooses the tasks.",
                            [sink],
                            f"a pipeline with a partitioner of its own keeps its number of tasks: {_START_OVER}",
                        )
        if len({str(schema_of(source.key)) for source in sources}) > 1:
            self._problem(f"{what} is fed by sources whose keys have different serdes.", nodes, "read all keys alike")
        return len(self.problems) == known

    def _left(self, registers: Sequence[AnyNode]) -> Keys | None:
        """The keys of the left table of a foreign-key join."""
        names = {name for source in partitions.sources_above(self.stage, [n.name for n in registers])
                 for name in source.topics}  # fmt: skip
        for stage in self.plan.stages:
            for node in stage.nodes:
                if isinstance(node, ForeignKeySubscribe) and names & set(_exchanges_below(stage, node)):
                    return self._keys(stage, [node], f"the left table of the join '{node.name}'")
        raise AssertionError("a foreign-key join has two sides")

    def _sinks(self, exchange: str) -> Iterator[ExchangeSink]:
        return (node for node in self.plan.nodes if isinstance(node, ExchangeSink) and node.exchange == exchange)

    def _problem(self, what: str, nodes: Sequence[AnyNode], hint: str) -> None:
        origin = next((node.origin for node in nodes if node.origin is not None), None)
        self.problems.append(Problem(what, None if origin is None else str(origin), hint))


def _exchanges_below(stage: Stage, node: AnyNode) -> Iterator[str]:
    """The exchanges to which a node sends its records."""
    below = {node.name}
    for each in stage.nodes:  # parents come first
        if below.intersection(each.parents):
            below.add(each.name)
            if isinstance(each, ExchangeSink):
                yield each.exchange
