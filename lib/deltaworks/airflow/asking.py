"""Questions to a person: an answer counts if `approvals` says so."""

from __future__ import annotations

from typing import Any

from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.sdk.definitions.context import Context

from deltaworks.airflow.approvals import APPROVE, Approvals, answered_by


class Asks(HITLOperator):
    """Asks a person, with the options `APPROVE` and `REJECT`; an answer that does not count leaves the question open.

    It waits without a worker and without a trigger. Who has answered is an XCom: `approved_by`, or `rejected_by`.
    """

    approvals: Approvals

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
