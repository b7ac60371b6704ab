"""The number of tasks of each stage, and the number over which an exchange spreads its keys.

As in Kafka Streams: a stage has as many tasks as its widest source has partitions. An exchange is as wide as the stage
before it, unless it is joined: then it is as wide as what it is joined with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from deltaworks.errors import Problem, TopologyError
from deltaworks.topology.nodes import (
    AnyNode,
    ExchangeSink,
    ForeignKeyAnswer,
    ForeignKeyResolve,
    Source,
    StreamStreamJoin,
    StreamTableJoin,
    TableTableJoin,
)
from deltaworks.topology.stages import Stage, Stages


@dataclass(frozen=True)
class Assignment:
    """Numbers of tasks."""

    tasks: tuple[int, ...]
    """Per stage."""
    exchanges: Mapping[str, int]
    """Per exchange."""


def assign(plan: Stages, topic_partitions: Mapping[str, int]) -> Assignment:
    """Number of tasks per stage and exchange.

    Raises:
        TopologyError: a topic is missing, or topics that are joined are not co-partitioned.
    """
    problems = [
        Problem(f"topic '{topic}' has no partitions: it does not exist.", _where(plan, topic), "create the topic first")
        for topic in plan.source_topics
        if topic not in topic_partitions
    ]
    if problems:
        raise TopologyError(plan.name, problems)
    sinks = {node.exchange: node for node in plan.nodes if isinstance(node, ExchangeSink)}
    widths = {topic: topic_partitions[topic] for topic in plan.source_topics}
    matched = {
        stage.index: [topic for topic in topic_partitions if topic not in widths and stage.reads(topic)]
        for stage in plan.stages
        if stage.patterns
    }
    widths |= {topic: topic_partitions[topic] for topics in matched.values() for topic in topics}
    widths |= {exchange: sink.partitions for exchange, sink in sinks.items() if sink.partitions is not None}
    tasks: dict[int, int] = {}
    before = {exchange: stage.index for stage in plan.stages for exchange in stage.exchanges_out}
    for stage in plan.stages:
        widths_before = {exchange: tasks.get(before[exchange], 1) for exchange in stage.exchanges_in}
        problems += _co_partition(list(_joins(stage)), widths, widths_before)
        for exchange in stage.exchanges_in:
            widths.setdefault(exchange, widths_before[exchange])
        read = (*stage.topics, *matched.get(stage.index, ()), *stage.exchanges_in)
        tasks[stage.index] = max((widths[topic] for topic in read), default=1)
    if problems:
        raise TopologyError(plan.name, problems)
    return Assignment(
        tuple(tasks[stage.index] for stage in plan.stages), {exchange: widths[exchange] for exchange in sinks}
    )


@dataclass(frozen=True)
class _Join:
    """A join of a stage, with the topics and exchanges from which its records come."""

    node: AnyNode
    kind: str
    left: tuple[str, ...]
    right: tuple[str, ...]

    @property
    def topics(self) -> tuple[str, ...]:
        return (*self.left, *self.right)


def _joins(stage: Stage) -> Iterator[_Join]:
    for node in stage.nodes:
        match node:
            case StreamTableJoin():
                kind, other = "stream-table", node.table
            case TableTableJoin(side="left"):
                kind, other = "table-table", node.table
            case StreamStreamJoin(side="left"):
                kind, other = "stream-stream", node.other
            case ForeignKeyAnswer() | ForeignKeyResolve():
                kind, other = "foreign-key", node.table
            case _:
                continue
        yield _Join(node, kind, _topics_above(stage, node.parents), _topics_above(stage, (other,)))


def _co_partition(joins: Sequence[_Join], widths: dict[str, int], before: Mapping[str, int]) -> Iterator[Problem]:
    """Gives the exchanges of joins the width of the other side; reports sides of different width.

    Args:
        joins: the joins of one stage.
        widths: the known widths by topic and exchange; the function adds to them.
        before: exchange -> tasks of the stage before it, which decide where a join has nothing but exchanges.
    """
    given = dict(widths)
    waiting = list(joins)
    while waiting:
        # A join with a known side goes first, so that widths spread from join to join.
        join = next((join for join in waiting if any(topic in widths for topic in join.topics)), waiting[0])
        waiting.remove(join)
        known = {topic: widths[topic] for topic in join.topics if topic in widths}
        if len(set(known.values())) > 1:
            yield _mismatch(join, {topic: width for topic, width in known.items() if topic in given}, known)
        width = max(known.values(), default=max((before.get(topic, 1) for topic in join.topics), default=1))
        for topic in join.topics:
            widths.setdefault(topic, width)


def _mismatch(join: _Join, given: Mapping[str, int], known: Mapping[str, int]) -> Problem:
    told = given if len(set(given.values())) > 1 else known
    sizes = ", ".join(f"'{topic}' has {_count(width)}" for topic, width in told.items())
    target = next((known[topic] for topic in join.right if topic in known), None)
    match join.kind:
        case "table-table":
            hint = f"read one as a stream: stream(...).repartition(partitions={target}).to_table(...)"
        case "stream-table":
            hint = f"repartition(partitions={target}) the stream before the join"
        case _:
            hint = f"repartition(partitions={target}) the left stream before the join, or the right one to its number"
    origin = join.node.origin
    what = f"'{join.node.name}' ({join.kind} join): {sizes}; joined topics must be co-partitioned."
    return Problem(what, str(origin) if origin else None, hint)


def nodes_above(stage: Stage, names: Iterable[str]) -> list[AnyNode]:
    """These nodes of a stage, and those from which records reach them."""
    nodes = {node.name: node for node in stage.nodes}
    found: dict[str, AnyNode] = {}
    waiting = list(names)
    while waiting:
        node = nodes[waiting.pop()]
        if node.name not in found:
            found[node.name] = node
            waiting += node.parents
    return list(found.values())


def sources_above(stage: Stage, names: Iterable[str]) -> tuple[Source, ...]:
    """The sources of a stage from which records reach these nodes, or which are among them."""
    return tuple(node for node in nodes_above(stage, names) if isinstance(node, Source))


def _topics_above(stage: Stage, names: Iterable[str]) -> tuple[str, ...]:
    """The topics and exchanges from which records of this stage reach these nodes."""
    return tuple(dict.fromkeys(topic for source in sources_above(stage, names) for topic in source.topics))


def _where(plan: Stages, topic: str) -> str | None:
    origins = (node.origin for node in plan.nodes if isinstance(node, Source) and topic in node.topics)
    return next((str(origin) for origin in origins if origin), None)


def _count(partitions: int) -> str:
    return "1 partition" if partitions == 1 else f"{partitions} partitions"
