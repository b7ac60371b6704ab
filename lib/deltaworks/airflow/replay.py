"""The DAG `<name>__replay` of one pipeline.

```
action --> plan --> run --> compare --> gate --> approve --> publish --> verify --> cascade --> clean
       '-> roll_back                                    '-> discard (rejected)  '-> quality
       '-> remove
```

With `approval="always"` or `"other person"`, `approve_roll_back` asks before `roll_back`.

A run publishes the range of days that somebody chooses in the form. A run with a partition key publishes that one day,
so a backfill publishes one day after the other, and each day has its entry in the history. The DAG has a schedule
because only a periodic DAG can have a backfill; the schedule itself ended in the past.

Each task makes one call to `deltaworks.replay`, as the command line does. If the gate fails, the run fails and keeps
the staging tables so that people can see why.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Unpack

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, CronPartitionTimetable, TriggerRule, task
from airflow.utils.types import DagRunType

from deltaworks.airflow import quality, replay_actions, replay_tasks, reprocess_tasks
from deltaworks.airflow.access import Access
from deltaworks.airflow.approvals import Approvals
from deltaworks.airflow.assets import assets_of
from deltaworks.airflow.docs import replay_doc, when_red
from deltaworks.airflow.options import (
    DEFAULTS,
    TRIGGERED_BY_TASK,
    PipelineOptions,
    access_of,
    approvals_of,
    arguments,
    run_types,
)
from deltaworks.airflow.replay_form import Tables, replay_form
from deltaworks.airflow.replay_operators import (
    ApproveReplayOperator,
    ApproveRollBackOperator,
    PhaseOperator,
    PublishOperator,
)
from deltaworks.control import jobs
from deltaworks.control.roles import Action

ACTIONS = (Action.PLAN, Action.PUBLISH, Action.ROLL_BACK, Action.DISCARD)
"""What one does with the DAG of a replay, for its permissions."""
_SHORT = timedelta(minutes=15)
_LONG = timedelta(hours=12)
_RUN = timedelta(days=2)
"""A run that takes longer is retried and resumes where it stopped."""
_REPLAY = "{{ ti.xcom_pull(task_ids='plan') }}"
"""The id of the replay, for the tasks after `plan`."""
_SCHEDULE_ENDED = datetime(2000, 1, 1, tzinfo=UTC)
"""Without this, an unpaused DAG would start a run every midnight. Backfills and manual runs do not depend on it."""


def replay_dag(name: str, **options: Unpack[PipelineOptions]) -> DAG | None:
    """Makes the DAG; None for a pipeline that writes no table.

    Args:
        name: the pipeline.
        options: see `PipelineOptions`.
    """
    access = access_of(options)
    settings = access.parsed()
    pipeline = jobs.load(settings, name)
    tables = Tables.of(pipeline)
    if not tables.with_days and not tables.whole:
        return None
    approvals = approvals_of(options, settings)
    by_hand = [DagRunType.MANUAL, TRIGGERED_BY_TASK]
    days: dict[str, Any] = {
        "schedule": CronPartitionTimetable("0 0 * * *", timezone="UTC", key_format="%Y-%m-%d"),
        "end_date": _SCHEDULE_ENDED,
        "allowed_run_types": run_types(*by_hand, DagRunType.BACKFILL_JOB, DagRunType.SCHEDULED),
    }
    whole: dict[str, Any] = {"schedule": None, "allowed_run_types": run_types(*by_hand)}
    with DAG(
        dag_id=dag_id(name),
        description=f"Processes the history of {name} again; compares, checks and publishes the results.",
        catchup=False,
        params=replay_form(tables, approval_required=approvals.required),
        max_active_runs=4,  # one may wait for approval while another one works on other days
        doc_md=when_red(settings.docs_url, replay_doc(name, tables)),
        **(days if tables.with_days else whole),
        **arguments(options, tags=["replay", name], tasks=DEFAULTS, actions=ACTIONS),
    ) as dag:
        checked = name in jobs.names_with(settings, quality.SUITES)
        add_tasks(name, access, options, approvals, tables=tables, checked=checked)
    return dag


def dag_id(name: str) -> str:
    """The id of a pipeline's DAG."""
    return f"{name}__replay"


def add_tasks(
    name: str,
    access: Access,
    options: PipelineOptions,
    approvals: Approvals,
    *,
    tables: Tables,
    checked: bool,
    by_policy: bool = False,
) -> None:
    """Adds the tasks to the DAG at hand.

    Args:
        name: the pipeline.
        access: where tasks get their settings.
        options: see `PipelineOptions`.
        approvals: who has to approve, and who may.
        tables: its tables.
        checked: whether it has a suite.
        by_policy: its `reprocess=` says which days are processed and who is asked, not a form.
    """
    heavy: dict[str, Any] = {"pool": options["heavy_pool"]} if "heavy_pool" in options else {}
    of_days = reprocess_tasks.plan if by_policy else replay_tasks.plan
    plan = task(task_id="plan", execution_timeout=_SHORT)(of_days)(name, access=access)
    run = _heavy(name, "run", _RUN, access=access, **heavy)
    compare = task(task_id="compare", execution_timeout=_LONG, max_active_tis_per_dag=1)(replay_tasks.compare)
    compared = compare(name, _REPLAY, access=access)
    gate = _heavy(name, "gate", _LONG, access=access, **heavy)
    approve = ApproveReplayOperator(
        task_id="approve",
        pipeline=name,
        replay=_REPLAY,
        publish="publish",
        discard="discard",
        access=access,
        approvals=approvals,
        by_policy=by_policy,
    )
    # A skipped approval is one that nobody asked for; if nothing was planned, the gate is skipped, too. After a
    # rejection this task is skipped, whatever its rule.
    published = PublishOperator(
        task_id="publish",
        pipeline=name,
        replay=_REPLAY,
        access=access,
        execution_timeout=_LONG,
        trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS,
        tables=tables,
        approvals=approvals,
        by_policy=by_policy,
        outlets=assets_of(tables.all, options),
    )
    verified = task(task_id="verify", execution_timeout=_LONG)(replay_tasks.verify)(name, _REPLAY, access=access)
    cascaded = task(task_id="cascade", execution_timeout=_LONG)(replay_tasks.cascade)(name, _REPLAY, access=access)
    cleaned = task(task_id="clean", execution_timeout=_SHORT)(replay_tasks.clean)(name, _REPLAY, access=access)
    discarded = task(task_id="discard", execution_timeout=_SHORT)(replay_tasks.discard)(name, _REPLAY, access=access)
    plan >> run >> compared >> gate
    if by_policy:
        decided = task.branch(task_id="decide", execution_timeout=_SHORT)(reprocess_tasks.decide)(
            name, _REPLAY, access=access
        )
        unchanged = task(task_id="unchanged", execution_timeout=_SHORT)(reprocess_tasks.unchanged)(
            name, _REPLAY, access=access
        )
        gate >> decided >> [approve, published, unchanged]
    else:
        gate >> [approve, published]
        ask = approvals.required
        chosen = task.branch(task_id="action")(replay_actions.action)(name, ask=ask)
        rolled_back = task(task_id="roll_back", execution_timeout=_LONG)(replay_actions.roll_back)(
            name, access=access, ask=ask
        )
        removed = task(task_id="remove", execution_timeout=_SHORT)(replay_actions.remove)(name, access=access)
        first: Any = rolled_back
        if ask:
            first = ApproveRollBackOperator(
                task_id=replay_actions.ASK,
                pipeline=name,
                access=access,
                approvals=approvals,
            )
            first >> rolled_back
        chosen >> [plan, first, removed]
    approve >> [published, discarded]
    published >> verified >> cascaded >> cleaned
    if checked:
        verified >> TriggerDagRunOperator(
            task_id="quality",
            trigger_dag_id=quality.dag_id(name),
            trigger_run_id=f"published__{_REPLAY}",
            logical_date=None,
            skip_when_already_exists=True,
        )


def _heavy(name: str, phase: Literal["run", "gate"], limit: timedelta, **more: Any) -> PhaseOperator:
    """A phase that fills the machine, so only one runs at a time, even if a backfill sets another `max_active_runs`."""
    return PhaseOperator(
        task_id=phase,
        phase=phase,
        execution_timeout=limit,
        max_active_tis_per_dag=1,
        pipeline=name,
        replay=_REPLAY,
        **more,
    )
