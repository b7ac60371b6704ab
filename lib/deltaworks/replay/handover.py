"""Hands a stream over to what a replay has made with new code: stores, tables, and the place in Kafka; and back.

```
old code   ---------------------- drains |
replay     batches 0 ... E' |  catches up |
new code                                  | tables, then the checkpoint | launched: batches E+1 ...
```

The stream runs until the replay has nearly caught up with it; from then until the new checkpoint runs, nothing does.
What fails before the tables go over leaves the old stream, which is started again. A process that dies later leaves a
stream that refuses to start; resuming the run completes the hand-over.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from deltaworks.control import corrections, fence, jobs, sink_corrections, topics
from deltaworks.control.between_drivers import between_drivers
from deltaworks.control.checkpoint import stored_plan
from deltaworks.control.lease import Lease
from deltaworks.control.paths import PipelinePaths, known_pipelines
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.errors import ConfigurationError, ConflictError
from deltaworks.faults import reach
from deltaworks.lakehouse.publish import ownership
from deltaworks.lakehouse.publish.ownership import Handover, HandoverRequest
from deltaworks.lakehouse.schema import plan_schemas
from deltaworks.names import RUN
from deltaworks.replay import runs, same_topics
from deltaworks.replay.begin import Broker
from deltaworks.replay.model import ReplayPaths, ReplayPlan
from deltaworks.replay.plan import extended
from deltaworks.runtime.replay.host import read_progress
from deltaworks.runtime.replay.keeping import bring
from deltaworks.runtime.replay.task_chunks import RunPaths
from deltaworks.settings import Settings
from deltaworks.spark import handover
from deltaworks.topology import fingerprint

CLOSE_RECORDS = 20_000
"""So far behind the stream a replay may be when the stream is stopped."""
_ROUNDS = 8
"""Rounds of catching up; then a stream that is faster than its replay is stopped all the same."""
Report = Callable[[str], None]
Process = Callable[[ReplayPlan], None]
"""Processes the batches of a plan that have not been processed."""


def hand_over(
    settings: Settings, pipeline: Pipeline, paths: ReplayPaths, plan: ReplayPlan, process: Process, report: Report
) -> Handover:
    """Lets the stream go on as the checkpoint of a replay; called again, it completes what was begun, or finds it done.

    Args:
        settings: where the pipeline runs.
        pipeline: with the new code.
        paths: of the replay.
        plan: of the replay; what has come since is processed too, and the plan in `paths` says so.
        process: does it.
        report: called with lines of progress.

    Raises:
        ConflictError: the stream is another one by now, or has left a batch unfinished.
        TableError: a table cannot go over, and why.
        StackError: the new checkpoint does not get going; the switch is made, and can be undone.
    """
    own, run_id = PipelinePaths.of(settings, pipeline.name), plan.run_id
    record = own.handover(run_id)
    ownership.require_not_undone(ownership.read(record))
    if run_id not in own.switched:
        for _ in range(_ROUNDS):
            later = extended(settings, pipeline, plan)
            if later.records - plan.records <= CLOSE_RECORDS:
                break
            report(f"catching up: {later.records - plan.records:,} records")
            plan = _processed(paths, later, process)

    def switch(generation: int, decided: Callable[[], None]) -> None:
        with Lease(own.lease, pipeline.name, generation):
            fence.advance(own.fence, generation, pipeline.name)
            handover.settle(own)
            if run_id not in own.switched:
                _switch(settings, pipeline, own, paths, process, generation, decided, report)

    def is_untouched() -> bool:
        return not record.exists()

    between_drivers(
        settings, pipeline.name, switch, is_untouched, by=plan.request.requested_by, report=report, new_code=True
    )
    done = ownership.read(record)
    assert done is not None
    return done


def undo(settings: Settings, run_id: str, *, requested_by: str, report: Report = lambda _: None) -> Handover:
    """Lets the checkpoint before a hand-over go on where it was stopped; its code has to be there again.

    Raises:
        ConfigurationError: there was no such hand-over, or another checkpoint was switched to since.
        ConflictError: the code of now does not fit that checkpoint, or it is too old.
        TableError: the tables cannot go back, and why.
        StackError: the checkpoint does not get going; it is the stream all the same.
    """
    record = record_of(settings, run_id)
    if record is None:
        raise ConfigurationError(f"The stream was not handed over to a run {run_id!r}.", hint="deltaworks replays")
    name = record.parents[1].name
    own, pipeline = PipelinePaths.of(settings, name), jobs.load(settings, name)
    if run_id in own.switched:
        handover.require_last(own, run_id)
        _require_to_fit(own, run_id, pipeline)

    def switch(generation: int, decided: Callable[[], None]) -> None:
        with Lease(own.lease, name, generation):
            fence.advance(own.fence, generation, name)
            ownership.undo(settings.tables, record, generation)
            decided()
            sink_corrections.mark_all(settings, pipeline, run_id, "undone hand-over")
            reach("handover.between_undo")
            if run_id in own.switched or own.checkpoint_of(run_id).undone.exists():
                handover.undo(own, run_id)

    def is_untouched() -> bool:
        told = ownership.read(record)
        return told is not None and told.state == "handed over"

    between_drivers(settings, name, switch, is_untouched, by=requested_by, report=report, new_code=True)
    done = ownership.read(record)
    assert done is not None
    return done


def take_back(settings: Settings, run_id: str, *, requested_by: str, report: Report = lambda _: None) -> str:
    """Takes back what a run has published, or the hand-over to it; returns what was done, for people.

    Raises like `undo` and `runs.rollback`.
    """
    if record_of(settings, run_id) is not None:
        return f"{len(undo(settings, run_id, requested_by=requested_by, report=report).tables)} tables restored"
    done, sent = runs.rollback(settings, run_id, requested_by=requested_by)
    name = done.request.pipeline
    told = corrections.told(sent) + sink_corrections.told(settings, name, sink_corrections.correct(settings, name))
    return f"{len(done.tables)} tables restored{told}"


def record_of(settings: Settings, run_id: str) -> Path | None:
    """Where it is written down what was done to hand over to a run; None: nothing was."""
    RUN.checked(run_id)
    return next((file for own in known_pipelines(settings) if (file := own.handover(run_id)).exists()), None)


def _switch(
    settings: Settings,
    pipeline: Pipeline,
    own: PipelinePaths,
    paths: ReplayPaths,
    process: Process,
    generation: int,
    decided: Callable[[], None],
    report: Report,
) -> None:
    """Nothing else runs, and nothing else will."""
    plan = paths.read_plan()
    later = extended(settings, pipeline, plan)
    if later.last_batch > plan.last_batch:
        report(f"the stream is stopped; the last {later.records - plan.records:,} records")
        plan = _processed(paths, later, process)
    same_topics.require_unchanged(plan, Broker(settings.cluster_of(pipeline.name)).topic_ids)
    report("making the checkpoint")
    topology = pipeline.plan()
    stores = RunPaths(paths.shared, paths.root)
    if stores.is_shared:
        bring(stores, topology, dict(read_progress(stores).states))
    before = stored_plan(own.current.plan)
    held = None if before is None else before.partitions
    prepared = topics.prepare(settings.cluster_of(pipeline.name), pipeline, topology, begun=True, held=held)
    handover.make_checkpoint(
        own,
        topology,
        tasks=topology.tasks(prepared.read),
        shards=pipeline.shards(settings.cores),
        partitions=prepared.named,
        run_id=plan.run_id,
        last_batch=plan.last_batch,
        offsets=handover.offsets_after(own, plan.last_batch),
        state=stores.state,
    )
    handover.require_switchable(own, plan.run_id)
    report("switching the tables")
    schemas = plan_schemas(topology.tables, pipeline.dead_letters.table, pipeline.archives(topology).tables)
    request, record = request_of(paths, plan), own.handover(plan.run_id)
    ownership.hand_over(settings.tables, paths.tables, schemas, request, record, generation)
    decided()
    sink_corrections.mark_all(settings, pipeline, plan.run_id, "hand-over")
    reach("handover.between_switch")
    handover.switch(own, plan.run_id)


def request_of(paths: ReplayPaths, plan: ReplayPlan) -> HandoverRequest:
    """The request to hand over the tables."""
    approval = paths.read_state().approval
    return HandoverRequest(
        run_id=plan.run_id,
        predecessor=plan.query_id,
        pipeline=plan.request.pipeline,
        code_version=plan.code_version,
        last_batch=plan.last_batch,
        end_offsets=plan.end_offsets,
        reason=plan.request.reason,
        requested_by=plan.request.requested_by,
        approved_by=None if approval is None else approval.by,
    )


def _processed(paths: ReplayPaths, plan: ReplayPlan, process: Process) -> ReplayPlan:
    paths.write_plan(plan)
    process(plan)
    return plan


def _require_to_fit(own: PipelinePaths, run_id: str, pipeline: Pipeline) -> None:
    before = handover.predecessor(own, run_id)
    plan = stored_plan(before.plan)
    if plan is None or not before.spark.exists():
        raise ConflictError(
            f"The checkpoint before run {run_id} is gone: a hand-over can be undone for some days only.",
            hint="hand over to a new replay, with the code of before",
        )
    if changes := fingerprint.differences(plan.fingerprint, pipeline.plan().fingerprint()):
        raise ConflictError(
            f"The checkpoint before run {run_id} has another topology than the code in jobs/: {changes[0]}",
            hint="bring the code of before back into jobs/, then undo",
        )
