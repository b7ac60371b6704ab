"""What the tasks of `<name>__replay` and `<name>__reprocess` do: one phase of `deltaworks.replay` each.

The id of a replay follows from that of the DAG run, so every task can be tried again and cleared: it finds what is done
already. A DAG run that is cleared as a whole after its replay has ended replays once more, under another id.

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
from deltaworks.airflow.tasks import no_retry_where_it_cannot_help, reporter, requester
from deltaworks.control.paths import PipelinePaths
from deltaworks.errors import ConflictError
from deltaworks.replay.model import Phase, ReplayPaths, ReplayRequest, ReplayState
from deltaworks.settings import Settings

if TYPE_CHECKING:
    from deltaworks.replay.phases import ReplayRun

log = logging.getLogger(__name__)
HOLD_S = 60.0
"""So long the process of an earlier try, which Airflow is ending, may still work on the run."""
_POLL_S = 1.0
_NAME = 60


def plan(name: str, params: Any = None, dag_run: Any = None) -> str:
    """Plans the replay that the form asks for; gives its id."""
    first, end = _day(params["from"]), _day(params["to"])
    if first is not None and end is not None and first >= end:
        raise AirflowFailException(
            f"The range of days is empty: From is {first}, To is {end}.\n"
            "To is the first day that is not published any more: for one day it is the day after."
        )
    return _planned(name, params, dag_run, first, end, params["reason"].strip())


def plan_day(name: str, params: Any = None, dag_run: Any = None) -> str:
    """Plans the replay of the day that the DAG run is for; gives its id."""
    key = dag_run.partition_key
    if not key:
        raise AirflowFailException(
            f"This run is for no day. Trigger {name}__reprocess with a partition key such as 2026-11-22, or make a "
            f"backfill; {name}__replay takes a range of days."
        )
    day = _day(key)
    assert day is not None
    return _planned(name, params, dag_run, day, day + timedelta(days=1), params["reason"].strip() or f"reprocess {day}")


def compare(name: str, run: str) -> int | None:
    """How many rows would change."""
    state = advance(name, run, "compare")
    return None if state is None else state.differences


def require_approval(params: Any, ti: Any) -> str | None:
    """Who has approved it; None: no approval was asked for.

    Raises:
        AirflowFailException: an approval was asked for, and nobody gave it.
    """
    approved_by = ti.xcom_pull(task_ids="approve", key="approved_by")
    if params["approval"] and approved_by is None:
        raise AirflowFailException(
            "Nobody has approved this: marking the task `approve` is no answer. Clear it, and answer."
        )
    if approved_by is None:
        return None
    log.info("approved by %s", approved_by)
    return f"airflow {approved_by}"


def publish(name: str, run: str, params: Any, ti: Any) -> None:
    """Publishes what was approved, if an approval was asked for."""
    approved_by = require_approval(params, ti)
    approve(name, run, approved_by)
    if advance(name, run, "publish") is not None:
        log.info("to bring back what was there before: deltaworks rollback %s", run)


def approve(name: str, run: str, approved_by: str | None) -> None:
    """Notes who has approved it; if no approval was asked for, that is who has triggered it."""
    settings = Settings.from_environment()
    if has_ended(settings, name, run):
        return
    with _at_its_turn(settings, run, "publish") as replay:
        if not replay.paths.read_state().has_done("publish"):
            replay.approve(approved_by or replay.plan.request.requested_by)


def verify(name: str, run: str) -> None:
    """Compares production with what was published."""
    advance(name, run, "verify")


def clean(name: str, run: str) -> None:
    """Removes the staging tables; the publication can be rolled back all the same."""
    advance(name, run, "clean")
    shutil.rmtree(_paths(Settings.from_environment(), name, run).root, ignore_errors=True)


def discard(name: str, run: str, ti: Any = None) -> None:
    """Throws away what was rejected; production is as it was."""
    from deltaworks.replay import phases

    rejected_by = ti.xcom_pull(task_ids="approve", key="rejected_by")
    if rejected_by is None:
        raise AirflowSkipException("nobody has rejected this: marking the task `approve` is no answer")
    log.info("rejected by %s", rejected_by)
    settings = Settings.from_environment()
    paths = _paths(settings, name, run)
    if paths.plan.exists():
        with no_retry_where_it_cannot_help():
            _patiently(lambda: phases.discard(settings, run))
    shutil.rmtree(paths.root, ignore_errors=True)
    log.info("replay %s is gone; nothing was published", run)


def advance(name: str, run: str, phase: Phase) -> ReplayState | None:
    """Does a phase, if it is its turn and it has not been done.

    Returns:
        How far the replay is then; None if it has ended before.
    """
    settings = Settings.from_environment()
    if has_ended(settings, name, run):
        log.info("replay %s has ended: there is nothing to do", run)
        return None
    with _at_its_turn(settings, run, phase) as replay:
        state = replay.advance(phase, lambda phase: reporter())
    if phase not in state.done:
        raise AirflowFailException(f"Replay {run} has not passed the gate: {phase} does nothing.")
    return state


@contextmanager
def _at_its_turn(settings: Settings, run: str, phase: Phase) -> Iterator[ReplayRun]:
    """The replay, for this task alone."""
    with no_retry_where_it_cannot_help(), ExitStack() as stack:
        replay = resume(settings, run)
        require_turn(replay.paths.read_state(), phase)
        _patiently(lambda: stack.enter_context(replay.held()))
        yield replay


def resume(settings: Settings, run: str) -> ReplayRun:
    """A replay that has not ended."""
    from deltaworks.replay.phases import ReplayRun

    return ReplayRun.resume(settings, run)


def has_ended(settings: Settings, name: str, run: str) -> bool:
    """It has published or handed over, and nothing else of it is left."""
    paths = _paths(settings, name, run)  # refuses an id that leads elsewhere
    handed_over = PipelinePaths.of(settings, name).handover(run)
    return (paths.publication.exists() or handed_over.exists()) and not paths.plan.exists()


def require_turn(state: ReplayState, phase: Phase) -> None:
    """A phase does not do those before it, which have tasks of their own.

    Raises:
        AirflowFailException: it is another's turn.
    """
    if phase not in state.done and state.next == "gate" and state.passed is False:
        raise AirflowFailException(f"The replay has not passed the gate: {phase} does nothing.")
    if phase not in state.done and state.next != phase:
        raise AirflowFailException(f"{phase} comes after {state.next}, which is not done: clear the task {state.next}.")


def run_id_of(dag_run: Any, number: int = 1) -> str:
    """The id of a replay: readable, and one per DAG run.

    Args:
        dag_run: of Airflow.
        number: how many replays it has made, with this one.
    """
    readable = re.sub(r"[^0-9A-Za-z]+", "-", dag_run.run_id)[:_NAME].strip("-")
    digest = hashlib.sha256(f"{dag_run.dag_id}/{dag_run.run_id}".encode()).hexdigest()[:8]
    return f"{readable}-{digest}" + (f"-{number}" if number > 1 else "")


def _planned(name: str, params: Any, dag_run: Any, first: date | None, end: date | None, reason: str) -> str:
    from deltaworks.replay.phases import ReplayRun

    settings = Settings.from_environment()
    ids = (run_id_of(dag_run, number) for number in count(1))
    run_id = next(run_id for run_id in ids if not has_ended(settings, name, run_id))
    request = ReplayRequest(
        pipeline=name,
        from_ms=_ms(first),
        to_ms=_ms(end),
        tables=tuple(params["tables"]),
        order=params["order"],
        hand_over=params.get("hand_over", False),
        reason=reason,
        requested_by=requester(dag_run),
    )
    listeners.require_own_kafka(settings)
    with no_retry_where_it_cannot_help():
        plan = ReplayRun.start(settings, request, run_id=run_id).plan
    log.info("replay %s of %s, code %s", plan.run_id, name, plan.code_version)
    log.info(plan.extent)
    log.info("tables: %s", ", ".join(plan.tables))
    for note in plan.notes:
        log.warning(note)
    return plan.run_id


def _patiently(take: Callable[[], object]) -> None:
    """Takes what the process of an earlier try may still have; after a while Airflow tries again."""
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


def _ms(day: date | None) -> int | None:
    return None if day is None else (day - date(1970, 1, 1)) // timedelta(milliseconds=1)
