"""Prepares the topics of a pipeline before it runs."""

from __future__ import annotations

from dataclasses import dataclass

from deltaworks.dsl.pipeline import Pipeline, Topic
from deltaworks.errors import KafkaTopicError
from deltaworks.kafka import admin
from deltaworks.topology.plan import Plan


@dataclass(frozen=True)
class PreparedTopics:
    """The topics of a pipeline that the broker has."""

    created: tuple[str, ...]
    """The missing topics that were created."""
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


def prepare(bootstrap: str, pipeline: Pipeline, plan: Plan) -> PreparedTopics:
    """Creates the topics that the pipeline declares or writes, and checks that the topics that it reads exist.

    A topic that is only read is not created: its name may be mistyped, and the stream would wait for records for ever.

    Raises:
        KafkaReadError: the broker does not answer.
        KafkaTopicError: a topic differs from its declaration, or is read but neither exists nor is declared.
    """
    existing = admin.partition_counts(bootstrap)
    declared = {topic.name for topic in pipeline.topics}
    sources = (*plan.source_topics, *plan.global_topics)
    written = [Topic(name) for name in output_topics(pipeline, plan) if name not in declared | existing.keys()]
    missing = [topic for topic in sources if topic not in declared | existing.keys()]
    if missing:
        raise KafkaTopicError(
            f"pipeline {pipeline.name!r} reads topics that do not exist: {', '.join(missing)}",
            hint="list them in the pipeline's `topics` to have them created at the start",
        )
    created = admin.create_topics(bootstrap, admin.topic_specs([*pipeline.topics, *written]))
    existing = admin.partition_counts(bootstrap)
    matched = {topic for topic in existing if topic not in sources and any(s.reads(topic) for s in plan.stages)}
    return PreparedTopics(
        created=tuple(created),
        named={topic: existing[topic] for topic in plan.source_topics},
        matched={topic: existing[topic] for topic in sorted(matched)},
        whole={topic: existing[topic] for topic in plan.global_topics},
    )


def output_topics(pipeline: Pipeline, plan: Plan) -> list[str]:
    """Every topic that the pipeline writes, dead letters last."""
    return [*plan.sink_topics, *([pipeline.dead_letter_topic] if pipeline.dead_letter_topic else [])]
