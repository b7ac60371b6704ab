"""The DAG `streams__reconcile`: every minute, it watches unsupervised streams and restarts dead ones.

```
look --> act (one run of <name>__stream per stream that needs it)
connectors
```

The supervisor of the home restarts a dead stream at once. This DAG starts the supervisor if there is none, and steps
in where the supervisor does not. It acts through the streams' own DAGs, so a restarted stream has a supervising task,
a log and an entry in the history of its DAG. `deltaworks.control.reconcile` decides about back-off, the limit for
crash loops and the exit codes that forbid a restart; both may call it at once.

A stream that is no longer restarted also gets a run of its DAG, which fails and says why and what to do. The run's id
follows from the generation, so there is one run each time a stream is given up, not one a minute. An alert on failed
runs therefore fires once, on the DAG that the stream's owner looks at.

Then it records what is an incident now (`deltaworks.control.watch`). `streams__notices` tells people of them.

`connectors` does the same for connectors of Kafka Connect (`deltaworks.connectors.supervision`), beside the streams: a
Kafka Connect that does not answer delays no restart of a stream. It acts itself, since a restart is one request.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any, Unpack

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from deltaworks.airflow.access import ENVIRONMENT, Access
from deltaworks.airflow.home_dags import home_dag
from deltaworks.airflow.options import FIRST, DagOptions, access_of
from deltaworks.airflow.stream import dag_id
from deltaworks.control.model import Decision
from deltaworks.errors import ConfigurationError, ConnectUnavailableError, DeltaworksError, StackError
from deltaworks.settings import Settings

log = logging.getLogger(__name__)
DAG_ID = "streams__reconcile"
_NOTE = 900
"""Airflow's database accepts notes of up to 1,000 characters and refuses a run with a longer one."""


def reconcile_dag(every: timedelta = timedelta(minutes=1), **options: Unpack[DagOptions]) -> DAG:
    """Makes the DAG, which an Airflow has once for all streams of a home.

    Args:
        every: time between looks.
        options: see `DagOptions`.
    """
    access = access_of(options)
    with home_dag(
        DAG_ID,
        "Restarts streams that should run but do not; supervises streams that nobody watches.",
        __doc__,
        options,
        access,
        schedule=every,
        limit=timedelta(minutes=10),
        tasks=FIRST,
    ) as dag:
        runs = task(task_id="look", execution_timeout=timedelta(minutes=5))(look)(access=access)
        TriggerDagRunOperator.partial(
            task_id="act",
            logical_date=None,
            wait_for_completion=False,
            skip_when_already_exists=True,
            map_index_template="{{ task.trigger_dag_id }}",
        ).expand_kwargs(runs)
        task(task_id="connectors", execution_timeout=timedelta(minutes=5))(connectors)(access=access)
    return dag


def look(dag_run: Any = None, ti: Any = None, access: Access = ENVIRONMENT) -> list[dict[str, Any]]:
    """The runs to trigger, as arguments of `TriggerDagRunOperator`."""
    from deltaworks.control.reconcile import reconcile
    from deltaworks.control.supervisor import client

    settings = access.settings()
    try:
        client.require_elsewhere(settings)  # waits for nobody, since the next look follows in a minute
        client.ensure(settings)
    except StackError as error:
        log.warning("%s", error)
    decisions = reconcile(settings, claimed_by=f"airflow {dag_run.run_id}")
    for decision in decisions:
        log.info("%s, generation %s: %s (%s)", decision.pipeline, decision.generation, decision.action, decision.reason)
    _watch(settings, ti)
    return [run for decision in decisions if (run := run_of(decision, dag_run.run_id)) is not None]


def connectors(access: Access = ENVIRONMENT) -> dict[str, str]:
    """Restarts, deploys and repairs connectors that need it; returns what was done, by name."""
    from deltaworks.connectors.watch import watch

    try:
        decisions = watch(access.settings())
    except ConfigurationError as error:
        raise AirflowFailException(str(error)) from error
    except ConnectUnavailableError as error:
        raise AirflowSkipException(f"an incident says so: {error}") from error
    if decisions is None:
        raise AirflowSkipException("the project has no connectors")
    for each in decisions:
        log.info("%s: %s (%s)", each.name, each.action, each.reason)
    return {each.name: each.action for each in decisions if each.action in ("restart", "deploy", "repair")}


def _watch(settings: Settings, ti: Any) -> None:
    """Records the incidents; nothing that goes wrong here keeps a stream from its restart."""
    from deltaworks.airflow.asking import still_waits
    from deltaworks.control import questions
    from deltaworks.control.watch import watch
    from deltaworks.replay import waiting

    try:
        asked = questions.waiting(settings, still_waits(ti))
        watch(settings, [*waiting.waiting(settings), *asked], ["approval_waits"])
    except (DeltaworksError, OSError) as error:
        log.warning("incidents cannot be recorded now: %s", error)


def run_of(decision: Decision, cause: str) -> dict[str, Any] | None:
    """The run of the stream's DAG that carries out a decision; its id says why, and a retry gives the same id."""
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
