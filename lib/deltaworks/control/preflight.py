"""What can be known to be wrong before a pipeline is deployed."""

from __future__ import annotations

from collections.abc import Callable

from deltaworks.control import checkpoint, jobs, topics
from deltaworks.control.launchers import Launchers, launcher
from deltaworks.control.model import DeployOptions
from deltaworks.control.paths import PipelinePaths
from deltaworks.errors import ConfigurationError, StackError
from deltaworks.kafka import admin
from deltaworks.settings import Settings


def preflight(
    settings: Settings,
    name: str,
    options: DeployOptions,
    report: Callable[[str], None],
    *,
    launchers: Launchers = launcher,
) -> None:
    """Checks everything that a driver would stumble over; creates the topics that are missing.

    Raises:
        ConfigurationError: there is no such pipeline or launcher, or an option cannot be used.
        TopologyError: the topology cannot be built, or its topics are not co-partitioned.
        StackError: Kafka does not answer.
        KafkaTopicError: a topic is missing, or is not as the pipeline needs it.
        IncompatibleCheckpointError: the checkpoint belongs to another plan.
    """
    launchers(settings, options.launcher).check()
    if options.trigger_interval_s is not None and options.trigger_interval_s < 0:
        raise ConfigurationError("The trigger interval is negative.", hint="0 runs batches without a pause")
    pipeline = jobs.load(settings, name)
    plan = pipeline.plan()
    if not admin.answers(settings.bootstrap):
        raise StackError(f"Kafka does not answer at {settings.bootstrap}.", hint="deltaworks up")
    prepared = topics.prepare(settings.bootstrap, pipeline, plan)
    report(f"created {', '.join(prepared.created)}" if prepared.created else "all topics are there")
    tasks = plan.tasks(prepared.read)
    paths = PipelinePaths.of(settings, name)
    kept = checkpoint.fitting_plan(paths.plan, name, plan.fingerprint(), prepared.named, tasks)
    report(f"{sum(tasks)} tasks; {'goes on with its checkpoint' if kept else 'starts with a new checkpoint'}")
