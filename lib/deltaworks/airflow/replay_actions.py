"""Rolls a replay back, or removes one: what the form of `<name>__replay` asks for besides a new replay.

A run is named by its id, which the log of `plan` has, or by the id of the DAG run that made it, which is on the page.
Each task may be retried: what is rolled back or removed already stays so.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from deltaworks.airflow import replay_tasks
from deltaworks.airflow.access import ENVIRONMENT, Access
from deltaworks.airflow.tasks import no_retry_where_it_cannot_help, reporter, requester
from deltaworks.control.paths import PipelinePaths
from deltaworks.names import RUN
from deltaworks.settings import Settings

log = logging.getLogger(__name__)
ACTIONS = {"replay": "plan", "roll back": "roll_back", "discard": "remove"}
"""Choice in the form -> the first task."""
ASK = "approve_roll_back"
"""The task before `roll_back` where a person has to approve it."""


def action(name: str, params: Any = None, ask: bool = False) -> str:
    """The id of the next task, as chosen in the form.

    Args:
        name: the pipeline.
        params: the form.
        ask: whether a person has to approve a rollback.
    """
    chosen, run = params["action"], (params["run"] or "").strip()
    if chosen != "replay" and not run:
        raise AirflowFailException(f"Say which replay to {chosen}: the field Run is empty.")
    if chosen == "replay" and run:
        raise AirflowFailException(
            f"The field Run says {run}, but a new replay gets a new id: empty it, or choose another action."
        )
    log.info("%s %s", chosen, run)
    return ASK if ask and chosen == "roll back" else ACTIONS[chosen]


def what_is_rolled_back(settings: Settings, name: str, given: str) -> str:
    """What a rollback would do, in Markdown, for the question.

    Raises:
        UnknownRun: no such run is published or handed over to.
    """
    from deltaworks.lakehouse.publish import publication  # imports pyarrow

    run = _to_roll_back(settings, name, given)
    record = publication.read(PipelinePaths.of(settings, name).publications, run)
    if record is None:
        return f"The stream {name} goes back to what it was before the hand-over to `{run}`."
    tables = "\n".join(f"- `{table}`" for table in sorted(record.tables))
    return f"These tables get the rows again that they had before `{run}`:\n\n{tables}"


def roll_back(
    name: str, params: Any = None, dag_run: Any = None, ti: Any = None, access: Access = ENVIRONMENT, ask: bool = False
) -> str:
    """Restores what a run has replaced, or the stream before a hand-over; returns the id of the run.

    Batch jobs that were computed again with it are computed once more.

    Raises:
        AirflowFailException: a person has to approve it, and nobody did.
    """
    from deltaworks.cascade import release
    from deltaworks.replay import handover

    settings = access.settings()
    by = requester(dag_run)
    if ask and (approved_by := replay_tasks.require_approval(True, ti, ASK)):
        by = f"{by}, approved by {approved_by}"
    with no_retry_where_it_cannot_help():
        run = _to_roll_back(settings, name, params["run"])
        release.require_jobs(settings, run)
        done = handover.take_back(settings, run, requested_by=by, report=reporter())
        log.info("%s, as before %s", done, run)
        for job in release.roll_back(settings, run, log.info):
            log.info("%s is computed again", job)
    return run


def remove(name: str, params: Any = None, access: Access = ENVIRONMENT) -> str:
    """Removes a run that has not been published; returns its id.

    Raises:
        AirflowSkipException: there is no such run any more.
    """
    from deltaworks.replay import runs

    settings = access.settings()
    unfinished = [plan.run_id for plan in runs.unfinished(settings, name)]
    with no_retry_where_it_cannot_help():
        try:
            run = known_as(name, params["run"], unfinished, "unfinished")
        except UnknownRun as error:
            raise AirflowSkipException(f"nothing to remove: {error}") from error
        replay_tasks.patiently(lambda: runs.discard(settings, run))
    log.info("replay %s is removed; production is unchanged", run)
    return run


class UnknownRun(AirflowFailException):
    """The form names a run that is not there."""


def known_as(name: str, given: str, known: Sequence[str], what: str) -> str:
    """The id of a run that somebody has named.

    Args:
        name: the pipeline.
        given: the id of the run, or that of the DAG run that has made it.
        known: the ids that there are.
        what: what these runs are.

    Raises:
        UnknownRun: there is none.
    """
    given = given.strip()
    if given in known:
        return given
    made = [run for dag in (f"{name}__replay", f"{name}__reprocess") for run in _made_by(dag, given, known)]
    if made:
        return made[-1]
    raise UnknownRun(f"No run {given!r} of {name} is {what}.\nThose that are: {', '.join(sorted(known)) or 'none'}")


def _made_by(dag_id: str, dag_run: str, known: Sequence[str]) -> list[str]:
    """The known runs of a DAG run, oldest first: one that is cleared after its replay has ended makes another."""
    first = replay_tasks.id_of(dag_id, dag_run)
    numbers = {run: int(run.removeprefix(f"{first}-")) for run in known if re.fullmatch(f"{first}-[0-9]+", run)}
    return [*([first] if first in known else []), *sorted(numbers, key=numbers.__getitem__)]


def _to_roll_back(settings: Settings, name: str, given: str) -> str:
    return known_as(name, given, _published(PipelinePaths.of(settings, name)), "published or handed over to")


def _published(own: PipelinePaths) -> list[str]:
    files = [*own.publications.glob("*.json"), *own.handovers.glob("*.json")]
    return [file.stem for file in files if RUN.allows(file.stem)]
