"""The DAG `streams__reconcile`: every minute, watches what nobody watches, and restarts what nobody has restarted.

```
look --> act (one run of <name>__stream per stream that needs it)
```

What dies is started again by the supervisor of the home, at once. This DAG starts the supervisor if there is none, and
is the second line behind it. It acts through the streams' own DAGs, so that a stream that lives again has somebody who
watches it, a log and an entry in the history of its DAG. Back-off, the limit for crash loops and the exit codes that
forbid a restart are decided in `deltaworks.control.reconcile`, which both may call at once.

A stream that is not restarted any more gets a run of its DAG too: one that fails and says why and what to do. Its id is
that of the generation, so there is one for each time that a stream is given up, not one a minute: whoever is told of
failed runs is told once, in the place where the stream's owner looks.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, task
from airflow.sdk.api.datamodels._generated import DagRunType

from deltaworks.airflow.stream import FIRST, dag_id
from deltaworks.control.model import Decision
from deltaworks.errors import StackError
from deltaworks.settings import Settings

log = logging.getLogger(__name__)
DAG_ID = "streams__reconcile"
_NOTE = 900
"""Airflow's database takes notes of up to 1,000 characters, and refuses the run otherwise."""


def reconcile_dag(every: timedelta = timedelta(minutes=1)) -> DAG:
    """Makes the DAG."""
    with DAG(
        dag_id=DAG_ID,
        description="Restarts streams that should run and do not; supervises those that nobody watches.",
        schedule=every,
        catchup=False,
        max_active_runs=1,
        allowed_run_types=[DagRunType.SCHEDULED, DagRunType.MANUAL],
        default_args=FIRST,
        dagrun_timeout=timedelta(minutes=10),
        tags=["streams"],
        doc_md=__doc__,
    ) as dag:
        runs = task(task_id="look", execution_timeout=timedelta(minutes=5))(look)()
        TriggerDagRunOperator.partial(
            task_id="act",
            logical_date=None,
            wait_for_completion=False,
            skip_when_already_exists=True,
            map_index_template="{{ task.trigger_dag_id }}",
        ).expand_kwargs(runs)
    return dag


def look(dag_run: Any = None) -> list[dict[str, Any]]:
    """What is to be done, as arguments of `TriggerDagRunOperator`."""
    from deltaworks.control.reconcile import reconcile
    from deltaworks.control.supervisor import client

    settings = Settings.from_environment()
    try:
        client.ensure(settings)
    except StackError as error:
        log.warning("%s", error)
    decisions = reconcile(settings, claimed_by=f"airflow {dag_run.run_id}")
    for decision in decisions:
        log.info("%s, generation %s: %s (%s)", decision.pipeline, decision.generation, decision.action, decision.reason)
    return [run for decision in decisions if (run := run_of(decision, dag_run.run_id)) is not None]


def run_of(decision: Decision, cause: str) -> dict[str, Any] | None:
    """The run of the stream's DAG that does it; its id says why it exists, and a retry gives the same."""
    generation, reason = decision.generation, decision.reason
    conf: dict[str, Any]
    match decision.action:
        case "restart":
            conf = {"action": "restart", "expected_generation": generation}
            run_id = f"restart__generation_{generation}__{cause}"
        case "attach":
            conf = {"attach": generation}
            run_id = f"attach__generation_{generation}__{cause}"
        case "give_up":
            conf = {"given_up": reason}
            run_id = f"given_up__generation_{generation}"
        case "wait" | "nothing":
            return None
    return {
        "trigger_dag_id": dag_id(decision.pipeline),
        "trigger_run_id": run_id,
        "conf": conf,
        "note": f"{decision.action}: {reason}"[:_NOTE],
    }
