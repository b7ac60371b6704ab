"""The topics of a pipeline, as it needs them before it runs."""

from __future__ import annotations

from dataclasses import dataclass

from deltaworks.dsl.pipeline import Pipeline
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
    """Creates the topics that the pipeline declares, and checks that all it reads or writes are there.

    Raises:
        KafkaReadError: the broker does not answer.
        KafkaTopicError: one is not as it was declared, or is missing and was not declared.
    """
    created = admin.create_topics(bootstrap, admin.topic_specs(pipeline.topics))
    existing = admin.partition_counts(bootstrap)
    needed = [*plan.source_topics, *output_topics(pipeline, plan)]
    missing = [topic for topic in needed if topic not in existing]
    if missing:
        raise KafkaTopicError(
            f"pipeline {pipeline.name!r} needs topics that do not exist: {', '.join(missing)}",
            hint="list them in the pipeline's `topics`, then they are created at the start",
        )
    return PreparedTopics(tuple(created), {topic: existing[topic] for topic in plan.source_topics})


def output_topics(pipeline: Pipeline, plan: Plan) -> list[str]:
    """Every topic that it writes, dead letters last."""
    return [*plan.sink_topics, *([pipeline.dead_letter_topic] if pipeline.dead_letter_topic else [])]
