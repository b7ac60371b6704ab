"""Checks a pipeline before it is deployed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from deltaworks import listeners
from deltaworks.control import checkpoint, cluster, jobs, lineage, place, schemas, topics
from deltaworks.control.checkpoint import CheckpointPlan
from deltaworks.control.code import Code
from deltaworks.control.launchers import Launchers, launcher
from deltaworks.control.model import DeployOptions
from deltaworks.control.paths import PipelinePaths
from deltaworks.control.topics import PipelineTopics
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.errors import ConfigurationError, StackError
from deltaworks.kafka import admin
from deltaworks.settings import Settings
from deltaworks.topology.plan import Plan


@dataclass(frozen=True)
class Fit:
    """A pipeline that can run."""

    topics: PipelineTopics
    tasks: tuple[int, ...]
    """Number of tasks per stage."""
    kept: CheckpointPlan | None
    """The plan of the checkpoint that it goes on with; None: it starts with a new one."""


def fit(settings: Settings, pipeline: Pipeline, plan: Plan) -> Fit:
    """Checks that a pipeline and its plan fit its topics and its checkpoint; changes nothing.

    Raises:
        TopologyError: its topics are not co-partitioned.
        ConfigurationError: see `topics.check`.
        KafkaReadError: Kafka does not answer.
        KafkaTopicError: a topic is missing, or does not fit the pipeline.
        IncompatibleCheckpointError: the checkpoint belongs to another plan.
    """
    name = pipeline.name
    stored = PipelinePaths.of(settings, name).current.plan
    known = checkpoint.stored_plan(stored)
    held = None if known is None else known.partitions
    checked = topics.check(settings.cluster_of(name), pipeline, plan, begun=known is not None, held=held)
    tasks = plan.tasks(checked.read)
    return Fit(
        checked,
        tasks,
        checkpoint.fitting_plan(stored, name, plan.fingerprint(), checked.named, tasks, settings.tables_address),
    )


def preflight(
    settings: Settings,
    name: str,
    options: DeployOptions,
    report: Callable[[str], None],
    *,
    take_over: bool = False,
    launchers: Launchers = launcher,
) -> None:
    """Checks everything that would make a driver fail; creates missing topics and registers new schemas.

    Args:
        take_over: the pipeline may belong to another home on this Kafka.

    Raises:
        ConfigurationError: there is no such pipeline or launcher, an option cannot be used, or the object store refuses
            us or does not obey conditions.
        TransientError: the object store does not answer.
        TopologyError: the topology cannot be built, or its topics are not co-partitioned.
        StackError: Kafka or the Spark cluster does not answer, or Kafka belongs to another project.
        KafkaTopicError: a topic is missing, or does not fit the pipeline.
        IncompatibleCheckpointError: the checkpoint belongs to another plan.
        LineageError: the pipeline belongs to another home on this Kafka.
        ConflictError: a format does not fit the schema registry.
        SchemasUnavailableError: the schema registry does not answer.
    """
    _check_options(settings, options, launchers)
    pipeline = jobs.load(settings, name)
    plan = pipeline.plan()
    _require_kafka(settings, name)
    place.require_same(settings, name)
    for remote in (settings.storage, settings.remote):
        if remote is not None:
            remote.check()
    if (executors := cluster.of(settings, name)) is not None:
        executors.require_answer()
    found, kafka = fit(settings, pipeline, plan), settings.cluster_of(name)
    checked, kept = found.topics, found.kept
    if not take_over:
        home = str(settings.home)
        lineage.require_ours(kafka, name, None if kept is None else kept.lineage, home)
    registry = jobs.schemas_of(settings, name)
    formats = schemas.check(plan, registry)
    short = admin.short_transactions(admin.transaction_timeout_ms(kafka))
    admin.create_topics(kafka, checked.missing)  # last: nothing changes before all checks have passed
    report(f"created {', '.join(checked.missing_names)}" if checked.missing else "all topics exist")
    if checked.empty:
        report(f"check the spelling of {', '.join(checked.empty)} if it should have existed: the pipeline reads it")
    if registered := formats.register(registry):
        report(f"schemas registered: {', '.join(registered)}")
    for line in (
        *checked.different,
        *formats.lines,
        *map(topics.grown_line, checked.grown.items()),
        *([short] if short else []),
    ):
        report(line)
    report(f"{sum(found.tasks)} tasks; {'goes on with its checkpoint' if kept else 'starts with a new checkpoint'}")
    cores = checkpoint.usable(plan, found.tasks, pipeline.shards(settings.cores))
    if kept is not None and kept.shards < cores:
        report(f"spreads its state over {cores} cores, {kept.shards} until now, unless a batch is open")


def preflight_again(
    settings: Settings,
    name: str,
    runs: Code,
    options: DeployOptions,
    report: Callable[[str], None],
    *,
    launchers: Launchers = launcher,
) -> None:
    """Like `preflight`, for code that ran before; the files of the project, which may have changed, do not matter.

    Raises:
        ConfigurationError: the code has no such pipeline, or there is no such launcher.
        StackError: Kafka does not answer.
    """
    _check_options(settings, options, launchers)
    if name not in jobs.names(settings.with_code(runs.path)):
        raise ConfigurationError(f"The code {runs.digest} has no pipeline {name!r}.", hint=f"deltaworks deploy {name}")
    _require_kafka(settings, name)
    report(f"the code {runs.digest} runs again")


def _check_options(settings: Settings, options: DeployOptions, launchers: Launchers) -> None:
    launchers(settings, options.launcher).check()
    if options.trigger_interval_s is not None and options.trigger_interval_s < 0:
        raise ConfigurationError("The trigger interval is negative.", hint="0 runs batches without a pause")


def _require_kafka(settings: Settings, name: str) -> None:
    listeners.require_own_kafka(settings)
    kafka = settings.cluster_of(name)
    if not admin.answers(kafka):
        raise admin.refusal(kafka) or StackError(f"Kafka does not answer at {kafka}.", hint="deltaworks up")
