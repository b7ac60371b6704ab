"""The phases that need heavy libraries: Spark processes, Great Expectations checks (`phases.Engines`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import takewhile

import msgspec

from deltaworks import clock
from deltaworks.control import batches, jobs
from deltaworks.control.paths import PipelinePaths
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.files import replace_file
from deltaworks.lakehouse.publish.scope import Scope
from deltaworks.lakehouse.sandbox import Limits
from deltaworks.lakehouse.schema import plan_schemas
from deltaworks.object_path import ObjectPath
from deltaworks.quality import results, suites
from deltaworks.quality.gate import gate
from deltaworks.replay import handover
from deltaworks.replay.model import ReplayPaths, ReplayPlan
from deltaworks.runtime.forgetting import forgetting
from deltaworks.runtime.global_tables import Reader
from deltaworks.runtime.history import History
from deltaworks.runtime.replay.executors import Executor, InProcess
from deltaworks.runtime.replay.host import Progress, ReplayHost
from deltaworks.runtime.replay.steps import Step, begun_later, globals_start, recorded_steps
from deltaworks.settings import Settings
from deltaworks.spark import class_data, session
from deltaworks.spark.cluster import Executors, sent
from deltaworks.spark.replay import by_time
from deltaworks.spark.replay.executors import OnSpark
from deltaworks.topology.archives import Archives

Report = Callable[[str], None]
_IN_PROCESS_RECORDS = 100_000


def process(settings: Settings, pipeline: Pipeline, paths: ReplayPaths, plan: ReplayPlan, report: Report) -> None:
    """Runs the batches of a plan into staging tables; continues where an earlier attempt stopped.

    A run that is shared goes on in this machine's Spark if the settings name no cluster any more; one that is not stays
    here.

    Raises:
        StreamsError: a record failed, and the pipeline's error policy is to fail.
        KafkaReadError: records are gone, or the broker did not answer.
        StackError, TransientError: the cluster does not answer, or does not take the replay.
    """
    executors = None
    if isinstance(paths.shared, ObjectPath) and (executors := Executors.of(settings, pipeline.name)) is not None:
        settings = sent(settings)
        pipeline = replace(pipeline, schemas=jobs.schemas_of(settings, pipeline.name))
    history, recorded = _recorded(settings, pipeline, plan)
    spark = session.build(
        f"deltaworks-replay-{pipeline.name}",
        cores=settings.cores,
        partitions=settings.cores,
        driver_memory=settings.driver_memory,
        scratch=paths.scratch,
        python_path=settings.joined_python_path,
        options=class_data.option(settings),
        extra=settings.spark_of(pipeline.name),
        executors=executors,
    )
    try:
        steps: Iterable[Step] = recorded
        clients = readers = _readers(settings, pipeline, history)
        if plan.request.order == "time":
            report("sorting all records by time")
            batches_of_plan = (plan.first_batch, plan.last_batch)
            steps = by_time.in_order_of_time(spark, readers, list(recorded), paths.sorted, batches_of_plan)
            clients = by_time.ByTime(paths.sorted, readers)
        host = _host(settings, pipeline, paths, plan, clients, OnSpark(spark, fault_hook=settings.fault_hook))
        estimate = _Estimate(plan.records, host.progress.records)
        host.run(steps, lambda progress: report(estimate.line(progress)))
    finally:
        spark.stop()


def hand_over(settings: Settings, pipeline: Pipeline, paths: ReplayPaths, plan: ReplayPlan, report: Report) -> None:
    """Lets the stream go on with the stores and tables of the replay; see `handover`."""

    def process_more(later: ReplayPlan) -> None:
        _process_more(settings, pipeline, paths, later, report)

    handover.hand_over(settings, pipeline, paths, plan, process_more, report)


def _process_more(settings: Settings, pipeline: Pipeline, paths: ReplayPaths, plan: ReplayPlan, report: Report) -> None:
    """Like `process`, for a plan that was extended; starts Spark only for many records."""
    history, recorded = _recorded(settings, pipeline, plan)
    host = _host(settings, pipeline, paths, plan, _readers(settings, pipeline, history), InProcess())
    if plan.records - host.progress.records > _IN_PROCESS_RECORDS:
        process(settings, pipeline, paths, plan, report)
    else:
        host.run(recorded)


def _recorded(settings: Settings, pipeline: Pipeline, plan: ReplayPlan) -> tuple[History, Iterable[Step]]:
    """The records, and the steps in which the stream processed them."""
    topology = pipeline.plan()
    record = PipelinePaths.of(settings, pipeline.name).batches
    begin = globals_start(batches.read(record), plan.global_partitions)
    steps = recorded_steps(takewhile(lambda each: each.batch <= plan.last_batch, batches.read(record)), begin)
    if plan.begin is not None:
        steps = begun_later(steps, plan.begin.batch, plan.begin.topics)
    history = History(
        settings.cluster_of(pipeline.name),
        settings.tables,
        Archives.of(topology),
        compacted=frozenset(plan.compacted),
        gone=frozenset(plan.gone),
        topics=plan.topics,
    )
    return history, steps


def _readers(settings: Settings, pipeline: Pipeline, history: History) -> Callable[[], Reader]:
    return forgetting(history, PipelinePaths.of(settings, pipeline.name), pipeline.plan())


def _host(
    settings: Settings,
    pipeline: Pipeline,
    paths: ReplayPaths,
    plan: ReplayPlan,
    clients: Callable[[], Reader],
    executor: Executor,
) -> ReplayHost:
    return ReplayHost(
        pipeline,
        tasks=plan.tasks,
        exchange_partitions=pipeline.plan().exchange_partitions(plan.partitions),
        sink_partitions=plan.sink_partitions,
        sink_limits=plan.sink_limits,
        root=paths.shared,
        local=paths.root,
        run_id=plan.run_id,
        clients=clients,
        executor=executor,
        answers=PipelinePaths.of(settings, pipeline.name).answers,
    )


class _Estimate:
    """Estimates the time left from the time spent."""

    def __init__(self, total: int, done: int) -> None:
        self._total, self._done, self._begun = total, done, clock.ticks_s()

    def line(self, progress: Progress) -> str:
        """For people."""
        seconds = clock.ticks_s() - self._begun
        rate = (progress.records - self._done) / max(seconds, 1e-9)
        share = progress.records / max(self._total, 1)
        left = (self._total - progress.records) / max(rate, 1e-9)
        return (
            f"{progress.records:,} of {self._total:,} records, {share:.0%}, {rate:,.0f} a second, "
            f"batch {progress.last_batch}, about {left:.0f} s left"
        )


def judge(
    settings: Settings, pipeline: Pipeline, paths: ReplayPaths, plan: ReplayPlan, scope: Scope, report: Report
) -> bool:
    """Decides whether the staging tables may be published; keeps the verdicts in the run's folder and in a table."""
    report("loading Great Expectations")
    found = suites.load_if_there(settings, pipeline.name)
    verdicts = gate(
        paths.tables,
        settings.tables,
        schemas=plan_schemas(pipeline.plan().tables, pipeline.dead_letters.table),
        suites=found,
        scope=scope,
        published=plan.tables,
        begin=plan.begin,
        order=plan.request.order,
        limits=Limits.of(settings),
    )
    replace_file(paths.verdicts, msgspec.json.encode(verdicts, enc_hook=str))
    results.append(settings.tables, plan.run_id, pipeline.name, verdicts, clock.utc_now())
    blocking = [verdict for verdict in verdicts if verdict.blocks]
    report(f"{len(verdicts)} checks, {len(blocking)} not passed")
    return not blocking
