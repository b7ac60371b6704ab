"""How many tasks each stage has, and over how many of them a hop spreads its keys.

As in Kafka Streams: a stage has as many tasks as its widest source has partitions. A hop is as wide as the stage before
it, unless it is joined: then it is as wide as what it is joined with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deltaworks.errors import Problem, TopologyError
from deltaworks.topology.nodes import HopSink, Source, StreamTableJoin, TableTableJoin

if TYPE_CHECKING:
    from deltaworks.topology.stages import Plan, Stage


@dataclass(frozen=True)
class Assignment:
    """Numbers of tasks."""

    tasks: tuple[int, ...]
    """Per stage."""
    hops: Mapping[str, int]
    """Per hop."""


def assign(plan: Plan, topic_partitions: Mapping[str, int]) -> Assignment:
    """Number of tasks per stage and hop.

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
    sinks = {node.hop: node for node in plan.nodes if isinstance(node, HopSink)}
    widths = {topic: topic_partitions[topic] for topic in plan.source_topics}
    matched = {
        stage.index: [topic for topic in topic_partitions if topic not in widths and stage.reads(topic)]
        for stage in plan.stages
        if stage.patterns
    }
    widths |= {topic: topic_partitions[topic] for topics in matched.values() for topic in topics}
    widths |= {hop: sink.partitions for hop, sink in sinks.items() if sink.partitions is not None}
    tasks: dict[int, int] = {}
    before = {hop: stage.index for stage in plan.stages for hop in stage.hops_out}
    for stage in plan.stages:
        for join in stage.nodes:
            if isinstance(join, StreamTableJoin) or (isinstance(join, TableTableJoin) and join.side == "left"):
                problems += _join(stage, join, widths)
        for hop in stage.hops_in:
            widths.setdefault(hop, tasks.get(before[hop], 1))
        read = (*stage.topics, *matched.get(stage.index, ()), *stage.hops_in)
        tasks[stage.index] = max((widths[topic] for topic in read), default=1)
    if problems:
        raise TopologyError(plan.name, problems)
    return Assignment(tuple(tasks[stage.index] for stage in plan.stages), {hop: widths[hop] for hop in sinks})


def _join(stage: Stage, join: StreamTableJoin | TableTableJoin, widths: dict[str, int]) -> Iterable[Problem]:
    """Gives the hops of a join the width of the other side; two sides of different width are a problem."""
    left = _topics_above(stage, join.parents)
    right = _topics_above(stage, (join.table,))
    known = {topic: widths[topic] for topic in (*left, *right) if topic in widths}
    if len(set(known.values())) > 1:
        sizes = ", ".join(f"'{topic}' has {_count(width)}" for topic, width in known.items())
        target = next((widths[topic] for topic in right if topic in widths), None)
        if isinstance(join, TableTableJoin):
            kind, hint = "table-table", f"read one as a stream: stream(...).repartition(partitions={target}).to_table(...)"
        else:
            kind, hint = "stream-table", f"repartition(partitions={target}) the stream before the join"
        yield Problem(
            f"'{join.name}' ({kind} join): {sizes}; joined topics must be co-partitioned.",
            str(join.origin) if join.origin else None,
            hint,
        )
    for topic in (*left, *right):
        if known:
            widths.setdefault(topic, max(known.values()))


def _topics_above(stage: Stage, names: Iterable[str]) -> tuple[str, ...]:
    """The topics and hops from which records of this stage reach these nodes."""
    nodes = {node.name: node for node in stage.nodes}
    topics: dict[str, None] = {}
    waiting, seen = list(names), set[str]()
    while waiting:
        node = nodes[waiting.pop()]
        if node.name in seen:
            continue
        seen.add(node.name)
        if isinstance(node, Source):
            topics.update(dict.fromkeys(node.topics))
        waiting += node.parents
    return tuple(topics)


def _where(plan: Plan, topic: str) -> str | None:
    origins = (node.origin for node in plan.nodes if isinstance(node, Source) and topic in node.topics)
    return next((str(origin) for origin in origins if origin), None)


def _count(partitions: int) -> str:
    return "1 partition" if partitions == 1 else f"{partitions} partitions"
