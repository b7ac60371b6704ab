"""The topics of a pipeline, as it needs them before it runs."""

from __future__ import annotations

from dataclasses import dataclass

from deltaworks.dsl.pipeline import Pipeline, Topic
from deltaworks.errors import KafkaTopicError
from deltaworks.kafka import admin
from deltaworks.topology.stages import Plan


@dataclass(frozen=True)
class PreparedTopics:
    """What the broker has now."""

    created: tuple[str, ...]
    """Those that were missing."""
    partitions: dict[str, int]
    """Of every topic that the pipeline reads."""


def prepare(bootstrap: str, pipeline: Pipeline, plan: Plan) -> PreparedTopics:
    """Creates the topics that the pipeline declares or writes, and checks that those that it reads are there.

    A topic that is only read is not made up: its name may be mistyped, and the stream would wait for records for ever.

    Raises:
        KafkaReadError: the broker does not answer.
        KafkaTopicError: one is not as it was declared, or is read, missing and was not declared.
    """
    existing = admin.partition_counts(bootstrap)
    declared = {topic.name for topic in pipeline.topics}
    written = [Topic(name) for name in output_topics(pipeline, plan) if name not in declared | existing.keys()]
    missing = [topic for topic in plan.source_topics if topic not in declared | existing.keys()]
    if missing:
        raise KafkaTopicError(
            f"pipeline {pipeline.name!r} reads topics that do not exist: {', '.join(missing)}",
            hint="list them in the pipeline's `topics`, then they are created at the start",
        )
    created = admin.create_topics(bootstrap, admin.topic_specs([*pipeline.topics, *written]))
    existing = admin.partition_counts(bootstrap)
    return PreparedTopics(tuple(created), {topic: existing[topic] for topic in plan.source_topics})


def output_topics(pipeline: Pipeline, plan: Plan) -> list[str]:
    """Every topic that it writes, dead letters last."""
    return [*plan.sink_topics, *([pipeline.dead_letter_topic] if pipeline.dead_letter_topic else [])]
