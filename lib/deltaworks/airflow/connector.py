"""The DAG `<name>__connector` of one connector of Kafka Connect.

```
action --> plan --> apply
       '-> approve --> operate (pause, resume, stop, restart, reset offsets, delete)
```

Its runs are the history of the connector: who has deployed or stopped it, and what has changed. A run ends when its
work is done; `streams__reconcile` watches the connector from then on. Making the DAG reads the file of the connector
and asks nobody.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Unpack

from airflow.sdk import DAG, task
from airflow.utils.types import DagRunType

from deltaworks.airflow import connector_tasks
from deltaworks.airflow.connector_form import form
from deltaworks.airflow.connector_tasks import ApproveConnectorOperator
from deltaworks.airflow.docs import when_red
from deltaworks.airflow.options import (
    FIRST,
    TRIGGERED_BY_TASK,
    PipelineOptions,
    access_of,
    approvals_of,
    arguments,
    run_types,
)
from deltaworks.connect import project
from deltaworks.connect.connector import Connector
from deltaworks.control.roles import Action

_DOC = """
The connector `{name}` of Kafka Connect.

| | |
|---|---|
| Defined in | `{file}` |
| Class | `{class_}` |
| Tasks, at most | {tasks} |
| If file and cluster differ | {drift} |
| Without Airflow | `deltaworks connect plan {name}`, and its other commands |

Trigger this DAG; the form asks what to do. *deploy* compares the file with the cluster, validates it and applies it;
the log of `plan` and its XCom show what changes, with secrets masked. To *reset offsets* or to *delete*, write the name
of the connector into the field Confirm.

The connector does not depend on a run. `streams__reconcile` looks at it every minute: it restarts tasks that have
failed, with growing pauses and a limit, deploys the connector again if somebody has deleted it elsewhere, and leaves
it alone while it is paused or stopped.
"""
_DRIFT = {
    "show": 'it is told (`on_drift="show"`)',
    "repair": '`streams__reconcile` applies the file, so a changed file needs no run (`on_drift="repair"`)',
}


def connector_dag(name: str, **options: Unpack[PipelineOptions]) -> DAG:
    """Makes the DAG of `jobs/connectors/<name>.py` or `.json`; an error in that file names the file.

    Args:
        name: the connector.
        options: see `PipelineOptions`.

    Raises:
        ConfigurationError: there is no such connector, its file cannot be used, or an option cannot.
    """
    access = access_of(options)
    settings = access.parsed()
    with _named(name):
        connector = project.load(settings, name)
        file = project.shown(project.file_of(settings, name))
    approvals = approvals_of(options, settings)
    with DAG(
        dag_id=dag_id(name),
        description=f"The connector in {file}",
        schedule=None,
        catchup=False,
        params=form(name),
        allowed_run_types=run_types(DagRunType.MANUAL, TRIGGERED_BY_TASK),
        max_active_runs=1,
        doc_md=when_red(settings.docs_url, _doc(connector, file)),
        **arguments(options, tags=["connector", name], tasks=FIRST, actions=(Action.CONNECT, Action.FORGET)),
    ) as dag:
        limit = timedelta(minutes=10)
        action = task.branch(task_id="action")(connector_tasks.action)(name, approvals=approvals)
        plan = task(task_id="plan", execution_timeout=limit)(connector_tasks.plan)(name, access=access)
        apply = task(task_id="apply", execution_timeout=limit)(connector_tasks.apply)(name, access=access)
        approve = ApproveConnectorOperator(task_id="approve", connector=name, access=access, approvals=approvals)
        operate = task(task_id="operate", execution_timeout=limit, trigger_rule="none_failed_min_one_success")(
            connector_tasks.operate
        )(name, access=access, approvals=approvals)
        action >> [plan, approve, operate]
        plan >> apply
        approve >> operate
    return dag


def dag_id(name: str) -> str:
    """The id of a connector's DAG."""
    return f"{name}__connector"


def _doc(connector: Connector, file: str) -> str:
    return _DOC.format(
        name=connector.name,
        file=file,
        class_=connector.class_,
        tasks=connector.tasks_max or 1,
        drift=_DRIFT[connector.on_drift],
    ).strip()


@contextmanager
def _named(name: str) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        error.add_note(f"The connector {name!r} has no DAG until this is fixed.")
        raise
