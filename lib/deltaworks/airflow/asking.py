"""Questions to a person: an answer counts if `approvals` says so; what waits for one is an incident."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.sdk.definitions.context import Context

from deltaworks.airflow.approvals import APPROVE, Approvals, answered_by
from deltaworks.control import questions
from deltaworks.control.questions import Question
from deltaworks.settings import Settings

log = logging.getLogger(__name__)
_ENDED = ("success", "failed", "upstream_failed", "skipped", "removed")


class Asks(HITLOperator):
    """Asks a person, with the options `APPROVE` and `REJECT`; an answer that does not count leaves the question open.

    It waits without a worker and without a trigger. Who has answered is an XCom: `approved_by`, or `rejected_by`.
    """

    approvals: Approvals

    def waits(self, context: Context, settings: Settings, pipeline: str, what: str) -> None:
        """Makes an incident of the question until it is answered or the run ends; call it before asking."""
        run = context["dag_run"]
        question = Question(pipeline=pipeline, dag=run.dag_id, run=run.run_id, task=self.task_id, what=what)
        questions.note(settings, question)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Called with the answer."""
        if chosen := event.get("chosen_options"):
            if refused := self.approvals.refusal(event, context["dag_run"]):
                self.log.error("%s. The question stays open.", refused)
                return self.execute(context)
            key = "approved_by" if chosen == [APPROVE] else "rejected_by"
            context["ti"].xcom_push(key=key, value=answered_by(event))
            if chosen == [APPROVE]:
                self.approved(context["ti"])
        return super().execute_complete(context, event)

    def approved(self, ti: Any) -> None:
        """Called with an approval that counts."""


def still_waits(ti: Any) -> Callable[[Question], bool]:
    """Asks Airflow whether a task waits for an answer; one whose state cannot be told now waits.

    Args:
        ti: the task that wants to know.
    """

    def waits(question: Question) -> bool:
        try:
            states = ti.get_task_states(dag_id=question.dag, task_ids=[question.task], run_ids=[question.run])
        except Exception as error:
            log.warning("whether %s waits for an answer is unknown now: %s", question.key, error)
            return True
        run = states.get(question.run)
        return run is not None and str(run.get(question.task)) not in _ENDED

    return waits
