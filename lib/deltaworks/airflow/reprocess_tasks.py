"""The tasks of `<name>__reprocess` that `<name>__replay` has not: which days, and what may be published without asking.

What the pipeline's `reprocess=` says is read again by each task, so no mark or cleared task gets around it.
"""

from __future__ import annotations

import logging
import shutil
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from deltaworks.airflow import replay_tasks
from deltaworks.airflow.access import ENVIRONMENT, Access
from deltaworks.airflow.tasks import no_retry_where_it_cannot_help, requester
from deltaworks.control import jobs
from deltaworks.control.checkpoint import stored_plan
from deltaworks.control.paths import PipelinePaths
from deltaworks.dsl.reprocess import Reprocess
from deltaworks.replay.model import ReplayPaths, ReplayRequest
from deltaworks.settings import Settings

if TYPE_CHECKING:
    from deltaworks.lakehouse.publish.decision import Decision

log = logging.getLogger(__name__)
_DAY = timedelta(days=1)


def plan(name: str, dag_run: Any = None, access: Access = ENVIRONMENT) -> str:
    """Plans the replay of the run's days; returns its id.

    Raises:
        AirflowSkipException: the stream has nothing that could be processed again, or no complete day.
    """
    settings = access.settings()
    policy = policy_of(settings, name)
    if stored_plan(PipelinePaths.of(settings, name).current.plan) is None:
        raise AirflowSkipException(f"{name} has not run yet: nothing to reprocess")
    first, end = days_of(policy, dag_run)
    log.info("days %s to %s (exclusive), UTC", first, end)
    request = ReplayRequest(
        pipeline=name,
        from_ms=replay_tasks.ms(first),
        to_ms=replay_tasks.ms(end),
        tables=policy.tables,
        order=policy.order,
        complete_days=True,
        only_different=True,
        reason=f"reprocess {first} to {end}",
        requested_by=requester(dag_run),
    )
    return replay_tasks.planned(settings, request, dag_run)


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
    decision = decided(settings, name, run)
    log.info("%s", decision.why)
    return {"publish": "publish", "ask": "approve", "nothing": "unchanged"}[decision.answer]


def decided(settings: Settings, name: str, run: str) -> Decision:
    """What the pipeline's `reprocess=` says about a replay that has passed the gate."""
    import msgspec

    from deltaworks.lakehouse.publish.comparison import Comparison
    from deltaworks.lakehouse.publish.decision import decide as decide_by

    with no_retry_where_it_cannot_help():
        paths = replay_tasks.resume(settings, run).paths
    replay_tasks.require_turn(paths.read_state(), "publish")
    return decide_by(policy_of(settings, name), msgspec.json.decode(paths.comparison.read_bytes(), type=Comparison))


def approved_by(settings: Settings, name: str, run: str, ti: Any) -> str | None:
    """Who says that a replay may be published: a person, or the pipeline itself; None: it is published.

    Raises:
        AirflowFailException: it would have to be a person, and nobody has approved it; or nothing is to be published.
    """
    if replay_tasks.has_ended(settings, name, run):
        return None
    decision = decided(settings, name, run)
    match decision.answer:
        case "publish":
            return f"reprocess= of {name}: {decision.why}"
        case "ask":
            return replay_tasks.require_approval(True, ti)
        case _:
            raise AirflowFailException(f"Nothing is to be published: {decision.why}. Clear the task `decide`.")


def unchanged(name: str, run: str, access: Access = ENVIRONMENT) -> None:
    """Removes a replay of which nothing is published, since production is equal.

    Raises:
        AirflowFailException: production differs.
    """
    from deltaworks.replay import runs

    settings = access.settings()
    paths = ReplayPaths.of(PipelinePaths.of(settings, name), run)
    if paths.plan.exists():
        decision = decided(settings, name, run)
        if decision.answer != "nothing":
            raise AirflowFailException(f"Production is not equal: {decision.why}. Clear the task `decide`.")
        with no_retry_where_it_cannot_help():
            replay_tasks.patiently(lambda: runs.discard(settings, run))
    shutil.rmtree(paths.root, ignore_errors=True)
    log.info("production holds what %s has computed; nothing was published", run)


def policy_of(settings: Settings, name: str) -> Reprocess:
    """What the pipeline says.

    Raises:
        AirflowFailException: it says nothing any more.
    """
    with no_retry_where_it_cannot_help():
        policy = jobs.load(settings, name).reprocess
    if policy is None:
        raise AirflowFailException(f"jobs/{name}.py has no reprocess= any more, so there is nothing to do.")
    return policy


def _date(moment: datetime) -> date:
    return moment.astimezone(UTC).date()
