"""Prepares the topics of a pipeline before it runs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from deltaworks.config import Kafka
from deltaworks.dsl.pipeline import Pipeline, Topic
from deltaworks.errors import KafkaTopicError
from deltaworks.kafka import admin
from deltaworks.topology.plan import Plan


@dataclass(frozen=True)
class PreparedTopics:
    """The topics of a pipeline that the broker has."""

    created: tuple[str, ...]
    """The missing topics that were created."""
    empty: tuple[str, ...]
    """Those of them that the pipeline reads but does not declare; a misspelt name would be among them."""
    named: dict[str, int]
    """Partitions of every topic that the topology names as a source; a checkpoint depends on them."""
    matched: dict[str, int]
    """Partitions of every other topic that a pattern matches now."""
    whole: dict[str, int]
    """Partitions of the topics of global tables."""

    @property
    def read(self) -> dict[str, int]:
        """Partitions of the topics whose records go to tasks."""
        return self.named | self.matched


def prepare(bootstrap: Kafka, pipeline: Pipeline, plan: Plan, *, begun: bool) -> PreparedTopics:
    """Creates the missing topics of the pipeline.

    Args:
        begun: the pipeline has a checkpoint. Then a topic that it reads and does not declare was there and is gone; it
            is not created, since an empty topic would hide that.

    Raises:
        KafkaReadError: the broker does not answer.
        KafkaTopicError: a topic differs from its declaration, or is gone.
    """
    existing = admin.partition_counts(bootstrap)
    declared = {topic.name for topic in pipeline.topics}
    sources = (*plan.source_topics, *plan.global_topics)
    missing = [topic for topic in sources if topic not in declared | existing.keys()]
    if begun and missing:
        raise KafkaTopicError(
            f"pipeline {pipeline.name!r} reads topics that do not exist any more: {', '.join(missing)}",
            hint="restore them, or list them in the pipeline's `topics` to have them created again",
        )
    created = create(bootstrap, pipeline, plan, existing)
    existing = admin.partition_counts(bootstrap)
    matched = {topic for topic in existing if topic not in sources and any(s.reads(topic) for s in plan.stages)}
    return PreparedTopics(
        created=tuple(created),
        empty=tuple(topic for topic in missing if topic in created),
        named={topic: existing[topic] for topic in plan.source_topics},
        matched={topic: existing[topic] for topic in sorted(matched)},
        whole={topic: existing[topic] for topic in plan.global_topics},
    )


def create(bootstrap: Kafka, pipeline: Pipeline, plan: Plan, existing: Collection[str] = ()) -> list[str]:
    """Creates the topics that the pipeline declares, and those that it reads or writes, if they do not exist.

    Args:
        existing: topics that exist, and need no check if they are not declared.

    Returns:
        The topics that it created.
    """
    declared = {topic.name for topic in pipeline.topics}
    others = [Topic(name) for name in all_topics(pipeline, plan) if name not in {*declared, *existing}]
    return admin.create_topics(bootstrap, admin.topic_specs([*pipeline.topics, *others]))


def all_topics(pipeline: Pipeline, plan: Plan) -> list[str]:
    """Every topic that the pipeline declares, reads or writes by name."""
    declared = (topic.name for topic in pipeline.topics)
    return list(dict.fromkeys((*declared, *plan.source_topics, *plan.global_topics, *output_topics(pipeline, plan))))


def output_topics(pipeline: Pipeline, plan: Plan) -> list[str]:
    """Every topic that the pipeline writes, dead letters last."""
    return [*plan.sink_topics, *([pipeline.dead_letters.topic] if pipeline.dead_letters.topic else [])]
