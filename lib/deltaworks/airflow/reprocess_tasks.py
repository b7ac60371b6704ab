"""The tasks of `<name>__reprocess` that `<name>__replay` has not: which days, and what may be published without asking.

What the pipeline's `reprocess=` says is read again by each task, so no mark or cleared task gets around it.
"""

from __future__ import annotations

import logging
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from deltaworks import clock
from deltaworks.airflow import replay_tasks
from deltaworks.airflow.access import ENVIRONMENT, Access
from deltaworks.airflow.tasks import no_retry_where_it_cannot_help, requester
from deltaworks.control import jobs
from deltaworks.control.checkpoint import stored_plan
from deltaworks.control.paths import PipelinePaths
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.dsl.reprocess import Reprocess
from deltaworks.replay.model import ReplayPaths, ReplayRequest
from deltaworks.settings import Settings

if TYPE_CHECKING:
    from deltaworks.lakehouse.publish.decision import Decision
    from deltaworks.replay.phases import ReplayRun

log = logging.getLogger(__name__)
_DAY = timedelta(days=1)


def plan(name: str, dag_run: Any = None, access: Access = ENVIRONMENT) -> str:
    """Plans the replay of the run's days, or of all history; returns its id.

    Raises:
        AirflowSkipException: the stream has nothing that could be processed again, or no complete day.
    """
    settings = access.settings()
    with no_retry_where_it_cannot_help():
        pipeline = jobs.load(settings, name)
    policy = policy_of(pipeline)
    if stored_plan(PipelinePaths.of(settings, name).current.plan) is None:
        raise AirflowSkipException(f"{name} has not run yet: nothing to reprocess")
    replay_tasks.throw_away_leftovers(settings, name, dag_run)
    return replay_tasks.planned(settings, _request(name, policy, dag_run), dag_run)


def _request(name: str, policy: Reprocess, dag_run: Any) -> ReplayRequest:
    if policy.hand_over is not None:
        log.info("all history, for a hand-over")
        return ReplayRequest(
            pipeline=name,
            hand_over=True,
            cascade=policy.cascade,
            by_policy=True,
            reason="reprocess all history",
            requested_by=requester(dag_run),
        )
    first, end = days_of(policy, dag_run)
    log.info("days %s to %s (exclusive), UTC", first, end)
    return ReplayRequest(
        pipeline=name,
        from_ms=replay_tasks.ms(first),
        to_ms=replay_tasks.ms(end),
        tables=policy.tables,
        order=policy.order,
        complete_days=True,
        only_different=True,
        cascade=policy.cascade,
        by_policy=True,
        reason=f"reprocess {first} to {end}",
        requested_by=requester(dag_run),
    )


def days_of(policy: Reprocess, dag_run: Any) -> tuple[date, date]:
    """The days of a run: the first, and the one after the last.

    A scheduled run processes the days before its time, however late it starts; one that is triggered, those before now.
    A run of a backfill processes the days of its own interval, so its runs have no day twice and leave none out.
    """
    begin, end = dag_run.data_interval_start, dag_run.data_interval_end
    kind = str(getattr(dag_run.run_type, "value", dag_run.run_type))
    if kind == "backfill" and begin is not None and end is not None:
        last = _date(end)
        return min(_date(begin), last - _DAY), last
    last = _date(end if kind == "scheduled" and end is not None else dag_run.run_after)
    return last - policy.days * _DAY, last


def decide(name: str, run: str, access: Access = ENVIRONMENT) -> str:
    """The id of the next task: `publish`, `approve` or `unchanged`."""
    settings = access.settings()
    if replay_tasks.has_ended(settings, name, run):
        log.info("replay %s has ended: nothing to decide", run)
        return "publish"
    decision = _decided(settings, run)
    log.info("%s", decision.why)
    return {"publish": "publish", "ask": "approve", "nothing": "unchanged"}[decision.answer]


def decided(replay: ReplayRun) -> Decision:
    """Decides about a replay that has passed the gate, as the pipeline's `reprocess=` says."""
    from deltaworks.lakehouse.publish.decision import decide as decide_by
    from deltaworks.replay.report import comparison_of

    replay_tasks.require_turn(replay.paths.read_state(), "publish")
    return decide_by(policy_of(replay.pipeline), comparison_of(replay.paths))


def _decided(settings: Settings, run: str) -> Decision:
    with no_retry_where_it_cannot_help():
        replay = replay_tasks.resume(settings, run)
    return decided(replay)


def approved_by(settings: Settings, name: str, run: str, ti: Any, plan_ms: int | None = None) -> str | None:
    """Who says that a replay may be published: a person, or the pipeline itself; None: it is published.

    Args:
        settings: name the home.
        name: the pipeline.
        run: id of the replay.
        ti: of the task that publishes.
        plan_ms: see `replay_tasks.require_approval`.

    Raises:
        AirflowFailException: it would have to be a person, and nobody has approved it; or nothing is to be published.
    """
    if replay_tasks.has_ended(settings, name, run):
        return None
    decision = _decided(settings, run)
    match decision.answer:
        case "publish":
            return f"reprocess= of {name}: {decision.why}"
        case "ask":
            return replay_tasks.require_approval(True, ti, plan_ms=plan_ms)
        case _:
            raise AirflowFailException(f"Nothing is to be published: {decision.why}. Clear the task `decide`.")


def opens_at(settings: Settings, name: str, run: str) -> datetime | None:
    """When a replay may be handed over to; None: now, since somebody has to approve it or it was begun.

    Whatever was begun is completed at once: until then the stream does not run.
    """
    if replay_tasks.has_ended(settings, name, run) or PipelinePaths.of(settings, name).handover(run).exists():
        return None
    with no_retry_where_it_cannot_help():
        replay = replay_tasks.resume(settings, run)
    hand_over = policy_of(replay.pipeline).hand_over
    if hand_over is None or decided(replay).answer != "publish":
        return None
    return hand_over.opens_at(clock.utc_now())


def unchanged(name: str, run: str, access: Access = ENVIRONMENT) -> None:
    """Removes a replay of which nothing is published, since production is equal.

    Raises:
        AirflowFailException: production differs.
    """
    settings = access.settings()
    if ReplayPaths.of(PipelinePaths.of(settings, name), run).plan.exists():
        decision = _decided(settings, run)
        if decision.answer != "nothing":
            raise AirflowFailException(f"Production is not equal: {decision.why}. Clear the task `decide`.")
    replay_tasks.throw_away(settings, name, run)
    log.info("production holds what %s has computed; nothing was published", run)


def policy_of(pipeline: Pipeline) -> Reprocess:
    """Returns the pipeline's `reprocess=`.

    Raises:
        AirflowFailException: it has none any more.
    """
    if pipeline.reprocess is None:
        raise AirflowFailException(f"jobs/{pipeline.name}.py has no reprocess= any more, so there is nothing to do.")
    return pipeline.reprocess


def _date(moment: datetime) -> date:
    return moment.astimezone(UTC).date()
