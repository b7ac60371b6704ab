"""What the streaming host cannot run yet, although the kernel can: told before anything starts.

Whatever an operator does within its task is the kernel's and not listed here. Not refused either: punctuators on the
wall clock, because processors ask for them only while they run; here they fire in micro-batches that have records for
their task.
"""

from __future__ import annotations

from collections.abc import Iterator

from deltaworks.dsl.pipeline import Pipeline
from deltaworks.errors import Problem, TopologyError
from deltaworks.topology.nodes import AnyNode, ExtractedTopicSink, HopSink, Source, TopicSink
from deltaworks.topology.stages import Plan


def check(plan: Plan, pipeline: Pipeline | None = None) -> None:
    """Refuses a plan, and options of its pipeline, that the streaming host cannot run.

    Raises:
        TopologyError: lists every reason, each with the line that caused it.
    """
    problems = [*_problems(plan), *(() if pipeline is None else _options(pipeline))]
    if problems:
        raise TopologyError(plan.name, problems)


def _problems(plan: Plan) -> Iterator[Problem]:
    for stage in plan.global_stages:
        topics = ", ".join(f"'{topic}'" for topic in stage.topics)
        yield _problem(
            stage.nodes[0],
            f"the global table of {topics} cannot be streamed yet.",
            "read it with builder.table(...), and select_key(...) what it is joined with",
        )
    for node in plan.nodes:
        match node:
            case Source(pattern=str(pattern)):
                yield _problem(
                    node, f"topics by the pattern '{pattern}' cannot be streamed yet.", "name each of the topics"
                )
            case Source(offset_reset="latest"):
                yield _problem(
                    node,
                    "a new pipeline cannot begin at the end of a topic yet.",
                    "leave offset_reset out, and say at the deployment where it begins",
                )
            case ExtractedTopicSink():
                yield _problem(
                    node,
                    f"'{node.name}' computes the names of its topics, which cannot be streamed yet.",
                    "split the stream, and write each branch to a topic of its own",
                )
            case TopicSink() if node.partitioner is not None:
                yield _problem(
                    node,
                    f"'{node.name}' has a partitioner of its own, which cannot be streamed yet.",
                    "leave partitioner= out; then Kafka's own choice counts",
                )
            case HopSink() if node.hop in plan.loops:
                yield _problem(
                    node,
                    f"records would go in a circle: the hop '{node.hop}' leads back, and a micro-batch goes through the"
                    " stages once.",
                    "instead of a foreign-key join, regroup one table by the foreign key and join by key; elsewhere,"
                    " write to a topic and read it back",
                )
            case _:
                pass


def _options(pipeline: Pipeline) -> Iterator[Problem]:
    if pipeline.idle_timeout is not None:
        yield Problem(
            "idle_timeout: a task without records does not run in the stream yet, so its time cannot go on.",
            hint="leave idle_timeout out; the last windows wait for the next record, as in Kafka Streams",
        )
    if pipeline.max_task_idle is not None:
        yield Problem(
            "max_task_idle: the stream cannot hold records back yet.",
            hint="leave max_task_idle out; a micro-batch is processed in the order of the time of its records",
        )


def _problem(node: AnyNode, what: str, hint: str) -> Problem:
    return Problem(what, str(node.origin) if node.origin else None, hint)
