"""Prepares the topics of a pipeline before it runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from deltaworks.config import Kafka
from deltaworks.dsl.pipeline import Pipeline, Topic
from deltaworks.errors import KafkaTopicError
from deltaworks.kafka import admin, durability, permissions
from deltaworks.kafka.admin import TopicSpec
from deltaworks.kafka.control_topic import (
    control_topic,
    markers_specification,
    markers_topic,
    specification,
)
from deltaworks.topology import rescaling
from deltaworks.topology.plan import Plan


@dataclass(frozen=True)
class PipelineTopics:
    """The topics of a pipeline: those that the broker has, and those that it will have."""

    missing: tuple[TopicSpec, ...]
    """Topics to be created."""
    empty: tuple[str, ...]
    """Those of them that the pipeline reads but does not declare; a misspelt name would be among them."""
    different: tuple[str, ...]
    """Differences between topics that exist and their declarations, a line each."""
    named: dict[str, int]
    """Partitions of every topic that the topology names as a source; a checkpoint depends on them."""
    matched: dict[str, int]
    """Partitions of every other topic that a pattern matches now."""
    whole: dict[str, int]
    """Partitions of the topics of global tables."""
    grown: dict[str, int] = field(default_factory=dict)
    """Topics of `named` with more partitions than the checkpoint has: how many there are. `deltaworks rescale` lets the
    stream go on with them; until then it reads those that it began with."""

    @property
    def read(self) -> dict[str, int]:
        """Partitions of the topics whose records go to tasks."""
        return self.named | self.matched

    @property
    def now(self) -> dict[str, int]:
        """Partitions of the topics of `read`, as the broker has them."""
        return self.read | self.grown

    @property
    def missing_names(self) -> list[str]:
        return [topic.name for topic in self.missing]


def check(
    bootstrap: Kafka, pipeline: Pipeline, plan: Plan, *, begun: bool, held: Mapping[str, int] | None = None
) -> PipelineTopics:
    """The topics of the pipeline; creates none.

    Args:
        begun: the pipeline has a checkpoint. Then a topic that it reads and does not declare was there and is gone; it
            is not created, since an empty topic would hide that.
        held: the partitions of the source topics that the checkpoint has.

    Raises:
        ConfigurationError: the cluster does not let our clients in, or not do what the pipeline needs, or does not
            keep what it acknowledges.
        KafkaReadError: the broker does not answer.
        KafkaTopicError: a topic differs from its declaration, or is gone.
    """
    existing = admin.partition_counts(bootstrap)
    declared = {topic.name for topic in pipeline.topics}
    sources = (*plan.source_topics, *plan.global_topics)
    gone = [topic for topic in sources if topic not in declared | existing.keys()]
    if begun and gone:
        raise KafkaTopicError(
            f"pipeline {pipeline.name!r} reads topics that do not exist any more: {', '.join(gone)}",
            hint="restore them, or list them in the pipeline's `topics` to have them created again",
        )
    wanted = _wanted(pipeline, plan, existing)
    held = held or {}
    declared_partitions = {topic.name: topic.partitions for topic in wanted}
    later = {topic for topic in held if existing.get(topic, 0) > declared_partitions.get(topic, existing.get(topic, 0))}
    admin.check_partitions({topic: count for topic, count in existing.items() if topic not in later}, wanted)
    will_be = {topic.name: topic.partitions for topic in wanted} | existing
    matched = {topic for topic in will_be if topic not in sources and any(s.reads(topic) for s in plan.stages)}
    named, more = {topic: will_be[topic] for topic in plan.source_topics}, {topic: will_be[topic] for topic in matched}
    grown = {topic: named[topic] for topic, count in held.items() if named.get(topic, count) > count}
    if grown and rescaling.can_follow(plan, named | dict(held) | more, named | more):
        named |= {topic: held[topic] for topic in grown}
    else:
        grown = {}
    missing = tuple(topic for topic in wanted if topic.name not in existing)
    _require_exactly_once(bootstrap, pipeline, plan, missing, [*sources, *matched])
    return PipelineTopics(
        missing=missing,
        empty=tuple(gone),
        different=tuple(admin.differences(bootstrap, [topic for topic in wanted if topic.name in existing])),
        named=named,
        matched={topic: will_be[topic] for topic in sorted(matched)},
        whole={topic: will_be[topic] for topic in plan.global_topics},
        grown=grown,
    )


def prepare(
    bootstrap: Kafka, pipeline: Pipeline, plan: Plan, *, begun: bool, held: Mapping[str, int] | None = None
) -> PipelineTopics:
    """Checks the topics of the pipeline and creates the missing ones; see `check`."""
    topics = check(bootstrap, pipeline, plan, begun=begun, held=held)
    admin.create_topics(bootstrap, topics.missing)
    return topics


def grown_line(grown: tuple[str, int]) -> str:
    """A topic with more partitions than the checkpoint has, in words."""
    topic, count = grown
    return f"topic '{topic}' has {count} partitions; those that are new are not read before a deltaworks rescale"


def _require_exactly_once(
    bootstrap: Kafka, pipeline: Pipeline, plan: Plan, missing: Collection[TopicSpec], reads: Collection[str]
) -> None:
    """Raises `ConfigurationError` if the cluster does not allow or not keep what the pipeline writes."""
    new = {topic.name: topic for topic in missing}
    control, client = control_topic(pipeline.name), admin.admin(bootstrap)
    if control not in admin.topic_states(client, [control]):
        new[control] = specification(pipeline.name)
    writes = output_topics(pipeline, plan)
    if pipeline.corrections is not None:
        markers = markers_topic(pipeline.name, "corrections")
        if markers not in admin.topic_states(client, [markers]):
            new[markers] = markers_specification(pipeline.name, "corrections")
        reads, writes = [*reads, markers], [*writes, markers]
    needed = permissions.of_pipeline(pipeline.name, reads, writes)
    permissions.require(bootstrap, client, needed, list(new.values()))
    existing = [topic for topic in (*writes, control) if topic not in new]
    durability.require(bootstrap, client, existing, [new[topic] for topic in (*writes, control) if topic in new])


def _wanted(pipeline: Pipeline, plan: Plan, existing: Collection[str]) -> list[TopicSpec]:
    """The topics that the pipeline declares, and those that it needs and that do not exist."""
    declared = {topic.name for topic in pipeline.topics}
    others = [Topic(name) for name in all_topics(pipeline, plan) if name not in {*declared, *existing}]
    return admin.topic_specs([*pipeline.topics, *others])


def all_topics(pipeline: Pipeline, plan: Plan) -> list[str]:
    """Every topic that the pipeline declares, reads or writes by name."""
    declared = (topic.name for topic in pipeline.topics)
    return list(dict.fromkeys((*declared, *plan.source_topics, *plan.global_topics, *output_topics(pipeline, plan))))


def output_topics(pipeline: Pipeline, plan: Plan) -> list[str]:
    """Every topic that the pipeline writes: its results, then dead letters and corrections."""
    corrections = None if pipeline.corrections is None else pipeline.corrections.topic
    return [*plan.sink_topics, *filter(None, (pipeline.dead_letters.topic, corrections))]
