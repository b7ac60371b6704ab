"""The DAG `streams__dead_letters`: what has failed in a pipeline, and sending it again after a repair.

```
look --> approve --> send
```

Trigger it; the form asks for the pipeline and which dead letters are meant. The log of `look` lists them, and says how
many can be sent again, and why others cannot. To send them, choose so in the form; a person approves first what `look`
has found (*Required Actions*). What fails meanwhile is left for another run.

Each record is sent once, to the operator that failed on it, however often a task is retried. Those that fail again are
dead letters again, counted under *failed again*.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Unpack

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, Param, task
from airflow.sdk.definitions.context import Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from airflow.utils.types import DagRunType

from deltaworks.airflow.access import ENVIRONMENT, Access
from deltaworks.airflow.approvals import Approvals
from deltaworks.airflow.asking import Asks
from deltaworks.airflow.docs import when_red
from deltaworks.airflow.options import (
    DEFAULTS,
    TRIGGERED_BY_TASK,
    DagOptions,
    access_of,
    approvals_of,
    arguments,
    run_types,
)
from deltaworks.airflow.tasks import no_retry_where_it_cannot_help, reporter, requester
from deltaworks.control import jobs
from deltaworks.control.roles import Action
from deltaworks.settings import Settings

if TYPE_CHECKING:
    from deltaworks.control.resends import Resend
    from deltaworks.lakehouse.dead_letters import Wanted

log = logging.getLogger(__name__)
DAG_ID = "streams__dead_letters"
_ACTIONS = {
    "list": "list: count them by operator and error, and show the latest",
    "send": "send again: after an approval, to the operators that failed",
}
_SHOWN = 20
_ANYBODY = Approvals()


def dead_letters_dag(**options: Unpack[DagOptions]) -> DAG:
    """Makes the DAG, which an Airflow has once for a home.

    Args:
        options: see `DagOptions`.
    """
    access = access_of(options)
    settings = access.parsed()
    with DAG(
        dag_id=DAG_ID,
        description="Lists the records that failed in a pipeline, and sends them again.",
        schedule=None,
        catchup=False,
        allowed_run_types=run_types(DagRunType.MANUAL, TRIGGERED_BY_TASK),
        params=_form(jobs.names(settings)),
        doc_md=when_red(settings.docs_url, str(__doc__)),
        **arguments(options, tags=["streams"], tasks=DEFAULTS, actions=(Action.RESEND,)),
    ) as dag:
        limit = timedelta(minutes=30)
        looked = task.branch(task_id="look", execution_timeout=limit)(look)(access=access)
        approve = ApproveResendOperator(task_id="approve", access=access, approvals=approvals_of(options, settings))
        sent = task(task_id="send", execution_timeout=limit)(send)(access=access)
        looked >> approve >> sent
    return dag


def look(params: Any = None, ti: Any = None, access: Access = ENVIRONMENT) -> str | None:
    """Lists what is meant; the id of the next task, if there is one."""
    from deltaworks.control import resends
    from deltaworks.lakehouse import dead_letters

    settings, name = access.settings(), params["pipeline"]
    with no_retry_where_it_cannot_help():
        table, wanted = resends.table_of(jobs.load(settings, name)), _wanted(params)
        if params["action"] == "list":
            counts = dead_letters.failures(settings.tables, table, wanted)
            log.info("%s dead letters of %s", f"{sum(each.count for each in counts):,}", name)
            for each in counts:
                log.info("%s: %s: %s, last %s UTC", each.operator, each.error_class, f"{each.count:,}", each.last)
            for letter in dead_letters.newest(settings.tables, table, wanted, _SHOWN):
                log.info("%s: %s: %s: %s", letter.record.name, letter.operator, letter.error_class, letter.message)
            return None
        planned = resends.plan(settings, name, wanted)
    log.info("%s", markdown(planned))
    if not planned.count:
        return None
    ti.xcom_push(key="newest", value=planned.newest)
    return "approve"


def send(params: Any = None, ti: Any = None, dag_run: Any = None, access: Access = ENVIRONMENT) -> int:
    """Sends what `look` has found and somebody has approved; returns how many."""
    from deltaworks.control import resends

    if not ti.xcom_pull(task_ids="approve", key="approved_by"):
        raise AirflowFailException("Nobody has approved this: answer the task `approve` (Required Actions).")
    settings, report = access.settings(), reporter()
    with no_retry_where_it_cannot_help():
        planned = _found(settings, params, ti)
        sent = resends.send(
            settings,
            planned,
            by=requester(dag_run),
            report=lambda count: report(f"{count:,} of {planned.count:,} sent"),
        )
    log.info("%s sent to %s", f"{sent:,}", params["pipeline"])
    return sent


class ApproveResendOperator(Asks, ApprovalOperator):
    """Asks a person whether to send what `look` has found.

    Args:
        access: where the settings are from.
        approvals: who may approve.
    """

    template_fields = ("subject",)  # not the body: it contains texts of errors

    def __init__(self, *, access: Access = ENVIRONMENT, approvals: Approvals = _ANYBODY, **kwargs: Any) -> None:
        super().__init__(
            subject="Send these dead letters of {{ params.pipeline }} again?",
            assigned_users=approvals.assigned,
            **kwargs,
        )
        self.access = access
        self.approvals = approvals

    def execute(self, context: Context) -> None:
        settings = self.access.settings()
        with no_retry_where_it_cannot_help():
            planned = _found(settings, context["params"], context["ti"])
        if not planned.count:
            raise AirflowSkipException("somebody has sent them meanwhile: nothing to approve")
        what = f"{planned.count:,} dead letters wait for an approval to be sent again"
        self.waits(context, settings, planned.pipeline, what)
        self.body = self.approvals.note(context["dag_run"]) + markdown(planned)
        super().execute(context)


def markdown(planned: Resend) -> str:
    """Shows what would be sent, and what stays and why."""
    rows = [
        f"| `{each.operator}` | `{each.error_class}` | {each.count:,} | {each.again or ''} | {each.stays or 'yes'} |"
        for each in planned.groups
    ]
    head = ["| operator | error | count | failed again | sent again? |", "|---|---|---|---|---|"]
    return "\n".join([f"{planned.count:,} dead letters of `{planned.pipeline}` can be sent again.", "", *head, *rows])


def _found(settings: Settings, params: Any, ti: Any) -> Resend:
    """Plans again what `look` has found; leaves out what was sent since."""
    from deltaworks.control import resends

    newest = ti.xcom_pull(task_ids="look", key="newest") or {}
    return resends.plan(settings, params["pipeline"], _wanted(params), newest)


def _wanted(params: Any) -> Wanted:
    from deltaworks.lakehouse.dead_letters import Wanted

    # A field that is left empty stands for any.
    return Wanted.of(**{name: params[name] or None for name in ("operator", "error", "key", "since", "until")})


def _form(names: list[str]) -> dict[str, Param]:
    return {
        "pipeline": Param(
            type="string",
            enum=names or [""],
            title="Pipeline",
            description="One that keeps its dead letters in a table.",
        ),
        "action": Param("list", type="string", enum=list(_ACTIONS), values_display=dict(_ACTIONS), title="What to do"),
        "operator": _text("Operator", "Of this operator only."),
        "error": _text("Error", "With this text in the error's class or message."),
        "key": _text("Key", "Of records with this key."),
        "since": _time("Since", "Of records from this UTC time on."),
        "until": _time("Until", "Of records before this UTC time."),
    }


def _text(title: str, description: str) -> Param:
    return Param(None, type=["null", "string"], title=title, description=description)


def _time(title: str, description: str) -> Param:
    return Param(None, type=["null", "string"], format="date-time", title=title, description=description)
