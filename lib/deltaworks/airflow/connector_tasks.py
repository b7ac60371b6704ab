"""The tasks of `<name>__connector`: each does one thing with a connector of Kafka Connect.

Nothing here returns, logs or renders a secret: files have references in place of them, what a plan shows of the cluster
is masked, and the login for the workers is read when it is needed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk.definitions.context import Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from deltaworks.airflow import connector_form
from deltaworks.airflow.access import ENVIRONMENT, Access
from deltaworks.airflow.approvals import Approvals
from deltaworks.airflow.asking import Asks
from deltaworks.airflow.connector_form import DELETE, DEPLOY, FORGETS, RESET
from deltaworks.airflow.tasks import no_retry_where_it_cannot_help, reporter, requester

if TYPE_CHECKING:
    from deltaworks.connect.api import ConnectApi
    from deltaworks.connect.planning import Plan

log = logging.getLogger(__name__)
WAIT_S = 60.0
"""How long a deployment waits until the connector runs."""
_ANYBODY = Approvals()


def action(name: str, params: Any = None, approvals: Approvals = _ANYBODY) -> str:
    """The id of the next task, as chosen in the form."""
    chosen = params["action"]
    if chosen == DEPLOY:
        return "plan"
    if chosen not in FORGETS:
        return "operate"
    if params["confirm"] != name:
        raise AirflowFailException(
            f"Nothing was done: to {chosen}, write the name of the connector, {name}, into the field Confirm."
        )
    return "approve" if approvals.required else "operate"


def plan(name: str, params: Any = None, access: Access = ENVIRONMENT) -> dict[str, Any]:
    """Compares file and cluster, and validates; returns what would change, with secrets masked."""
    with no_retry_where_it_cannot_help(), _api(access) as api:
        planned = _planned(access, api, name, params)
        (change,) = planned.changes
        log.info("%s: %s", name, change.kind)
        for each in change.settings:
            log.info("  %s: %s -> %s", each.setting, _shown(each.before), _shown(each.after))
        for note in planned.notes:
            log.info("  note: %s", note)
        planned.require_sound()
        return {
            "url": planned.url,
            "change": change.kind,
            "settings": [{"setting": s.setting, "before": s.before, "after": s.after} for s in change.settings],
            "notes": list(map(str, planned.notes)),
        }


def apply(
    name: str, params: Any = None, dag_run: Any = None, access: Access = ENVIRONMENT, wait_s: float = WAIT_S
) -> str:
    """Applies the file, records that the connector should run, and waits until it does; returns its state."""
    from deltaworks.connect import planning, states
    from deltaworks.control.connector_book import ConnectorBook

    settings = access.settings()
    with no_retry_where_it_cannot_help(), _api(access) as api:
        planned = _planned(access, api, name, params)
        planning.apply(planned, api)
        (change,) = planned.changes
        wanted = dict(change.wanted or {})
        ConnectorBook.of(settings).deployed(name, wanted, cluster=api.cluster(), by=requester(dag_run))
        (status,) = states.wait(api, [name], wait_s, reporter()).connectors
    state = status.connector.state
    log.info("%s is %s: %s", name, state, ", ".join(f"task {each.id} {each.state}" for each in status.tasks))
    if states.has_failed(status):
        why = f"{name} was deployed and has failed: {states.why_failed(status)}"
        if states.lost(status) is None:
            why += "\nstreams__reconcile restarts it, with growing pauses; fix the cause, then trigger this DAG."
        raise AirflowFailException(why)
    if state in states.AT_REST:
        log.info("it has got its settings, and rests as before: 'resume' lets it go on")
    return state


def operate(
    name: str,
    params: Any = None,
    ti: Any = None,
    dag_run: Any = None,
    access: Access = ENVIRONMENT,
    approvals: Approvals = _ANYBODY,
) -> None:
    """Does what the form says, but for a deployment."""
    from deltaworks.connect import states
    from deltaworks.connectors import sweep
    from deltaworks.control.connector_book import DELETED, ConnectorBook

    chosen = params["action"]
    if chosen in FORGETS and approvals.required and not ti.xcom_pull(task_ids="approve", key="approved_by"):
        raise AirflowFailException("Nobody has approved this: answer the task `approve` (Required Actions).")
    with no_retry_where_it_cannot_help(), _api(access) as api:
        if chosen == DELETE:
            ConnectorBook.of(access.settings()).desire(name, DELETED, by=requester(dag_run))  # first: nobody deploys it
            if name not in api.names():
                raise AirflowSkipException(f"Kafka Connect at {api.url} has no connector {name}: nothing to delete")
            api.delete(name)
        else:
            api.require(name)
        match chosen:
            case "pause":
                api.pause(name)
            case "resume":
                api.resume(name)
            case "stop":
                api.stop(name)
            case connector_form.RESTART:
                ConnectorBook.of(access.settings()).encouraged(name)
                api.restart(name, only_failed=True)
            case connector_form.RESET:
                states.require_stopped(api, name)
                for each in api.offsets(name):
                    log.info("forgets %s: %s", each.partition, each.offset)
                if (note := sweep.reset(access.settings(), api, name)) is not None:
                    log.info("%s", note)
    log.info("%s: %s is done", name, chosen)


class ApproveConnectorOperator(Asks, ApprovalOperator):
    """Asks a person whether to delete a connector, or to reset its offsets.

    Args:
        connector: its name.
        access: where the settings are from.
        approvals: who may approve.
    """

    template_fields = ("subject",)

    def __init__(
        self, *, connector: str, access: Access = ENVIRONMENT, approvals: Approvals = _ANYBODY, **kwargs: Any
    ) -> None:
        super().__init__(subject="{{ params.action }}: " + connector + "?", assigned_users=approvals.assigned, **kwargs)
        self.connector = connector
        self.access = access
        self.approvals = approvals

    def execute(self, context: Context) -> None:
        what = _CONSEQUENCES[context["params"]["action"]]
        told = f"{context['params']['action']} of {self.connector} waits for an approval"
        self.waits(context, self.access.settings(), self.connector, told)
        self.body = f"{self.approvals.note(context['dag_run'])}`{self.connector}`: {what}"
        super().execute(context)


_CONSEQUENCES: Mapping[str, str] = {
    RESET: "it forgets how far it is. A source takes its snapshot anew; a sink reads its topics from the beginning.",
    DELETE: "it is deleted from Kafka Connect. Its offsets stay, so one of this name goes on where it was.",
}


def _api(access: Access) -> ConnectApi:
    from deltaworks.connect.api import ConnectApi

    return ConnectApi.of(access.settings())


def _planned(access: Access, api: ConnectApi, name: str, params: Any) -> Plan:
    from deltaworks.connect import planning, project
    from deltaworks.stack import connect_plugins

    settings = access.settings()
    connector, locked = project.load(settings, name), connect_plugins.versions(settings, api.url)
    return planning.plan({name: connector}, api, whole=False, undefined=params["allow_undefined"], locked=locked)


def _shown(value: str | None) -> str:
    return "not there" if value is None else value
