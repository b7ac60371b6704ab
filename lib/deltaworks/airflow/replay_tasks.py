"""The tasks of `<name>__replay`: each does one phase of `deltaworks.replay`.

The id of a replay follows from the id of the DAG run, so every task can be retried and cleared: it finds what is
already done. A DAG run that is cleared as a whole after its replay has ended replays again, under another id.

The heavy phases `run` and `gate` are in `replay_operators`. Engines are imported when a task runs, not when its DAG is
parsed.
"""

from __future__ import annotations

import hashlib
import logging
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import date, timedelta
from itertools import count
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from deltaworks import clock, listeners
from deltaworks.airflow.access import ENVIRONMENT, Access
from deltaworks.airflow.events import TableEvent, cut_of
from deltaworks.airflow.replay_form import Tables
from deltaworks.airflow.tasks import day_of_key, no_retry_where_it_cannot_help, reporter, requester
from deltaworks.control.paths import PipelinePaths
from deltaworks.errors import ConflictError
from deltaworks.replay.model import Phase, ReplayPaths, ReplayRequest, ReplayState
from deltaworks.settings import Settings

if TYPE_CHECKING:
    from deltaworks.replay.phases import ReplayRun

log = logging.getLogger(__name__)
APPROVED_PLAN = "approved_plan"
"""Key of an XCom of `approve`: which plan was approved, see `plan_ms`."""
HOLD_S = 60.0
"""How long the process of an earlier try may keep the run while Airflow ends it."""
_POLL_S = 1.0
_NAME = 60


def plan(name: str, params: Any = None, dag_run: Any = None, access: Access = ENVIRONMENT) -> str:
    """Plans the replay of the form's days, or of the day that is the run's partition key; returns its id."""
    first, end, reason = _day(params["from"]), _day(params["to"]), params["reason"].strip()
    if key := dag_run.partition_key:
        if first is not None or end is not None:
            raise AirflowFailException(f"This run is for {key}, its partition key: leave From and To empty.")
        first = day_of_key(key)
        end, reason = first + timedelta(days=1), reason or f"replay of {key}"
    if not reason:
        raise AirflowFailException("Say why you replay: the field Reason is empty. The tables' history keeps it.")
    if first is not None and end is not None and first >= end:
        raise AirflowFailException(
            f"The range of days is empty: From is {first}, To is {end}.\n"
            "To is the first day not to publish: to publish one day, set it to the day after."
        )
    request = ReplayRequest(
        pipeline=name,
        from_ms=ms(first),
        to_ms=ms(end),
        tables=tuple(params["tables"]),
        order=params["order"],
        hand_over=params["hand_over"],
        cascade=params["cascade"],
        reason=reason,
        requested_by=requester(dag_run),
    )
    return planned(access.settings(), request, dag_run)


def compare(name: str, run: str, access: Access = ENVIRONMENT) -> int | None:
    """Counts the rows that would change."""
    state = advance(name, run, "compare", access)
    return None if state is None else state.differences


def plan_ms(settings: Settings, name: str, run: str) -> int | None:
    """When a replay was planned, which tells it from another one with the same id; None: it has ended."""
    return None if has_ended(settings, name, run) else resume(settings, run).plan.created_ms


def require_approval(wanted: bool, ti: Any, asked_by: str = "approve", *, plan_ms: int | None = None) -> str | None:
    """Returns who approved; None if nobody has to.

    Args:
        wanted: whether somebody has to.
        ti: of the task that needs the approval.
        asked_by: the task that has asked.
        plan_ms: when what is published was planned; None: not compared. Whoever discards a replay, clears `plan` and
            marks `approve` would otherwise publish another replay with the approval of the first.

    Raises:
        AirflowFailException: somebody has to, and nobody did.
    """
    approved_by = ti.xcom_pull(task_ids=asked_by, key="approved_by")
    if wanted and approved_by is None:
        raise AirflowFailException(
            f"Nobody has approved this: marking the task `{asked_by}` does not answer it. Clear the task and answer."
        )
    if approved_by is None:
        return None
    if plan_ms is not None and ti.xcom_pull(task_ids=asked_by, key=APPROVED_PLAN) != plan_ms:
        raise AirflowFailException(
            f"{approved_by} has approved an earlier plan of this replay. Clear the task `{asked_by}` and answer."
        )
    log.info("approved by %s", approved_by)
    return f"airflow {approved_by}"


def publish(name: str, run: str, approved_by: str | None, access: Access = ENVIRONMENT) -> None:
    """Publishes the replay."""
    approve(name, run, approved_by, access)
    if advance(name, run, "publish", access) is not None:
        log.info("to restore the previous rows: deltaworks rollback %s", run)


def approve(name: str, run: str, approved_by: str | None, access: Access = ENVIRONMENT) -> None:
    """Records who approved the replay; if no approval was requested, whoever triggered it."""
    settings = access.settings()
    if has_ended(settings, name, run):
        return
    with at_its_turn(settings, run, "publish") as replay:
        if not replay.paths.read_state().has_done("publish"):
            replay.approve(approved_by or replay.plan.request.requested_by)


def published(settings: Settings, name: str, run: str, tables: Tables) -> list[TableEvent]:
    """An event for each of `tables.all`. Of a table that was not published, it names no day."""
    from deltaworks.lakehouse import cuts
    from deltaworks.lakehouse.publish import publication

    record = publication.read(PipelinePaths.of(settings, name).publications, run)
    done = {} if record is None else record.tables
    cut = cut_of(cuts.latest(settings.tables, name))
    found = []
    for table in tables.all:
        days: list[date] | None = [] if record is not None and table not in done else None
        if record is not None and table in done and table in tables.with_days:
            days = _days(record.request.from_ms, record.request.to_ms)
        version = done[table].version_after if table in done else None
        found.append(TableEvent(why="published", table=table, days=days, version=version, run=run, **cut))
    return found


def verify(name: str, run: str, access: Access = ENVIRONMENT) -> None:
    """Compares production with what was published."""
    advance(name, run, "verify", access)


def cascade(name: str, run: str, access: Access = ENVIRONMENT) -> None:
    """Computes the batch jobs behind the replay again, if that was asked for; another try completes it."""
    from deltaworks.cascade import release

    settings = access.settings()
    if has_ended(settings, name, run):
        log.info("replay %s has ended: nothing to do", run)
        return
    with at_its_turn(settings, run, "clean") as replay:
        if not replay.plan.request.cascade:
            log.info("nobody asked for it")
            return
        done = release.complete(settings, replay.plan, replay.paths.read_state(), log.info)
    log.info("computed again: %s", ", ".join(done.days) or "nothing, since no batch job reads it")


def clean(name: str, run: str, access: Access = ENVIRONMENT) -> None:
    """Removes the staging tables; the publication can be rolled back all the same."""
    advance(name, run, "clean", access)
    shutil.rmtree(_paths(access.settings(), name, run).root, ignore_errors=True)


def discard(name: str, run: str, ti: Any = None, access: Access = ENVIRONMENT) -> None:
    """Removes a rejected replay; production is unchanged."""
    rejected_by = ti.xcom_pull(task_ids="approve", key="rejected_by")
    if rejected_by is None:
        raise AirflowSkipException("nobody has rejected this: marking the task `approve` does not answer it")
    log.info("rejected by %s", rejected_by)
    throw_away(access.settings(), name, run)
    log.info("replay %s is removed; nothing was published", run)


def throw_away(settings: Settings, name: str, run: str) -> None:
    """Removes a replay; completes a removal that was killed."""
    from deltaworks.replay import runs

    paths = _paths(settings, name, run)
    if paths.plan.exists():
        with no_retry_where_it_cannot_help():
            patiently(lambda: runs.discard(settings, run))
    shutil.rmtree(paths.root, ignore_errors=True)


def advance(name: str, run: str, phase: Phase, access: Access = ENVIRONMENT) -> ReplayState | None:
    """Does a phase if it is next; does nothing if it is already done.

    Returns:
        The state of the replay afterwards; None if it has ended before.
    """
    settings = access.settings()
    if has_ended(settings, name, run):
        log.info("replay %s has ended: nothing to do", run)
        return None
    with at_its_turn(settings, run, phase) as replay:
        state = replay.advance(phase, lambda phase: reporter())
    if phase not in state.done:
        raise AirflowFailException(f"Replay {run} has not passed the gate, so {phase} cannot run.")
    return state


@contextmanager
def at_its_turn(settings: Settings, run: str, phase: Phase) -> Iterator[ReplayRun]:
    """Locks the replay for this task."""
    with no_retry_where_it_cannot_help(), ExitStack() as stack:
        replay = resume(settings, run)
        require_turn(replay.paths.read_state(), phase)
        patiently(lambda: stack.enter_context(replay.held()))
        yield replay


def resume(settings: Settings, run: str) -> ReplayRun:
    """Opens a replay that has not ended."""
    from deltaworks.replay import runs

    return runs.resume(settings, run)


def has_ended(settings: Settings, name: str, run: str) -> bool:
    """Whether the replay has published or handed over and is cleaned up."""
    paths = _paths(settings, name, run)  # refuses an id that leads elsewhere
    handed_over = PipelinePaths.of(settings, name).handover(run)
    return (paths.publication.exists() or handed_over.exists()) and not paths.plan.exists()


def hands_over(settings: Settings, name: str, run: str) -> bool:
    """Whether the replay is for a hand-over and has not ended."""
    paths = _paths(settings, name, run)
    return paths.plan.exists() and paths.read_plan().request.hand_over


def require_turn(state: ReplayState, phase: Phase) -> None:
    """Refuses a phase whose earlier phases are not done: they have their own tasks.

    Raises:
        AirflowFailException: another phase is next.
    """
    if phase not in state.done and state.next == "gate" and state.passed is False:
        raise AirflowFailException(f"The replay has not passed the gate, so {phase} cannot run.")
    if phase not in state.done and state.next != phase:
        raise AirflowFailException(f"{phase} follows {state.next}, which is not done: clear the task {state.next}.")


def run_id_of(dag_run: Any, number: int = 1) -> str:
    """The id of a replay: readable, and one per DAG run.

    Args:
        dag_run: Airflow's.
        number: which replay of the DAG run this is, from 1.
    """
    return id_of(dag_run.dag_id, dag_run.run_id, number)


def id_of(dag_id: str, dag_run_id: str, number: int = 1) -> str:
    """Likewise, by the ids of the DAG and its run."""
    readable = re.sub(r"[^0-9A-Za-z]+", "-", dag_run_id)[:_NAME].strip("-")
    digest = hashlib.sha256(f"{dag_id}/{dag_run_id}".encode()).hexdigest()[:8]
    return f"{readable}-{digest}" + (f"-{number}" if number > 1 else "")


def planned(settings: Settings, request: ReplayRequest, dag_run: Any) -> str:
    """Plans a replay; returns its id, which follows from the DAG run.

    Raises:
        AirflowSkipException: only complete days are asked for, and there is none.
    """
    from deltaworks.cascade.readers import readers
    from deltaworks.replay import runs
    from deltaworks.replay.days import NoCompleteDayError

    run_id = _id_of(settings, request.pipeline, dag_run)
    listeners.require_own_kafka(settings)
    with no_retry_where_it_cannot_help():
        try:
            plan = runs.start(settings, request, run_id=run_id).plan
        except NoCompleteDayError as error:
            raise AirflowSkipException(str(error)) from error
    log.info("replay %s of %s, code %s", plan.run_id, request.pipeline, plan.code_version)
    log.info(plan.extent)
    log.info("tables: %s", ", ".join(plan.tables))
    for note in plan.notes:
        log.warning(note)
    for line in readers(settings, plan).lines:
        log.info("reader: %s", line)
    return plan.run_id


def throw_away_leftovers(settings: Settings, name: str, dag_run: Any) -> None:
    """Discards what earlier runs of the same DAG have left; see `runs.throw_away_leftovers`."""
    from deltaworks.replay import runs

    own = _id_of(settings, name, dag_run)

    def throw_away() -> None:
        for run in runs.throw_away_leftovers(settings, name, but=[own]):
            log.warning("replay %s, which was left unfinished, is discarded", run)

    with no_retry_where_it_cannot_help():
        patiently(throw_away)


def _id_of(settings: Settings, name: str, dag_run: Any) -> str:
    """The id of the replay that a DAG run makes or goes on with: a run that is cleared may be the second one."""
    ids = (run_id_of(dag_run, number) for number in count(1))
    return next(run_id for run_id in ids if not has_ended(settings, name, run_id))


def patiently(take: Callable[[], object]) -> None:
    """Waits for a lock that the process of an earlier try may still hold; after a while, Airflow retries the task."""
    end = clock.ticks_s() + HOLD_S
    while True:
        try:
            take()
            return
        except ConflictError as error:
            if clock.ticks_s() > end:
                raise AirflowException(str(error)) from error
        time.sleep(_POLL_S)


def _paths(settings: Settings, name: str, run: str) -> ReplayPaths:
    with no_retry_where_it_cannot_help():
        return ReplayPaths.of(PipelinePaths.of(settings, name), run)


def _day(text: str | None) -> date | None:
    return None if text is None else date.fromisoformat(text)


def _days(from_ms: int | None, to_ms: int | None) -> list[date] | None:
    """The days of a range; None: it has no bound."""
    if from_ms is None or to_ms is None:
        return None
    first, end = (date(1970, 1, 1) + timedelta(milliseconds=time_ms) for time_ms in (from_ms, to_ms))
    return [first + timedelta(days=number) for number in range((end - first).days)]


def ms(day: date | None) -> int | None:
    return None if day is None else (day - date(1970, 1, 1)) // timedelta(milliseconds=1)
