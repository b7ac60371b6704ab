"""The DAGs `<name>__replay` and `<name>__reprocess` of one pipeline.

```
plan --> run --> compare --> gate --> approve --> publish --> verify --> clean
                                             '-> discard (rejected)  '-> quality
```

`<name>__replay` publishes a range of days that somebody chooses in its form. In `<name>__reprocess`, each run publishes
one day, its partition, so a backfill publishes one day after the other, and each day has its entry in the history. It
has a schedule because only a periodic DAG can have a backfill; the schedule itself ended in the past.

Each task makes one call to `deltaworks.replay`, as the command line does. If the gate fails, the run fails and keeps
the staging tables so that people can see why.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, CronPartitionTimetable, TriggerRule, task
from airflow.sdk.api.datamodels._generated import DagRunType

from deltaworks.airflow import quality, replay_tasks
from deltaworks.airflow.docs import replay_doc, reprocess_doc
from deltaworks.airflow.replay_form import Tables, replay_form, reprocess_form
from deltaworks.airflow.replay_operators import ApproveReplayOperator, PhaseOperator, PublishOperator
from deltaworks.airflow.stream import DEFAULTS
from deltaworks.control import jobs
from deltaworks.settings import Settings

_SHORT = timedelta(minutes=15)
_LONG = timedelta(hours=12)
_RUN = timedelta(days=2)
"""A run that takes longer is retried and resumes where it stopped."""
_REPLAY = "{{ ti.xcom_pull(task_ids='plan') }}"
"""The id of the replay, for the tasks after `plan`."""
_SCHEDULE_ENDED = datetime(2000, 1, 1, tzinfo=UTC)
"""Without this, an unpaused DAG would start a run every midnight. Backfills and manual runs do not depend on it."""


def replay_dag(name: str) -> DAG | None:
    """Makes the DAG for a range of days; None for a pipeline that writes no table."""
    pipeline = jobs.load(Settings.from_environment(), name)
    tables = Tables.of(pipeline)
    if not tables.with_days and not tables.whole:
        return None
    return _dag(
        name,
        replay_dag_id(name),
        replay_tasks.plan,
        description=f"Processes the history of {name} again; compares, checks and publishes the results.",
        schedule=None,
        params=replay_form(tables),
        allowed_run_types=[DagRunType.MANUAL, DagRunType.OPERATOR_TRIGGERED],
        max_active_runs=4,  # one may wait for approval while another one works on other days
        doc_md=replay_doc(name, tables),
    )


def reprocess_dag(name: str) -> DAG | None:
    """Makes the DAG for single days; None for a pipeline that writes no table with days."""
    pipeline = jobs.load(Settings.from_environment(), name)
    tables = Tables.of(pipeline)
    if not tables.with_days:
        return None
    return _dag(
        name,
        reprocess_dag_id(name),
        replay_tasks.plan_day,
        description=f"Processes one day of {name} again and publishes it; made for backfills.",
        schedule=CronPartitionTimetable("0 0 * * *", timezone="UTC", key_format="%Y-%m-%d"),
        end_date=_SCHEDULE_ENDED,
        is_paused_upon_creation=True,
        params=reprocess_form(tables),
        allowed_run_types=[DagRunType.BACKFILL, DagRunType.MANUAL, DagRunType.SCHEDULED],
        max_active_runs=1,
        doc_md=reprocess_doc(name, tables),
    )


def replay_dag_id(name: str) -> str:
    """The id of the DAG for a range of days."""
    return f"{name}__replay"


def reprocess_dag_id(name: str) -> str:
    """The id of the DAG for single days."""
    return f"{name}__reprocess"


def _dag(name: str, dag_id: str, make_plan: Callable[..., str], **properties: Any) -> DAG:
    with DAG(dag_id=dag_id, catchup=False, default_args=DEFAULTS, tags=["replay", name], **properties) as dag:
        plan = task(task_id="plan", execution_timeout=_SHORT)(make_plan)(name)
        run = _heavy(name, "run", _RUN)
        compare = task(task_id="compare", execution_timeout=_LONG, max_active_tis_per_dag=1)(replay_tasks.compare)
        compared = compare(name, _REPLAY)
        gate = _heavy(name, "gate", _LONG)
        approve = ApproveReplayOperator(
            task_id="approve", pipeline=name, replay=_REPLAY, publish="publish", discard="discard"
        )
        # A skipped approval is one that nobody asked for. After a rejection this task is skipped, whatever its rule.
        published = PublishOperator(
            task_id="publish",
            pipeline=name,
            replay=_REPLAY,
            execution_timeout=_LONG,
            trigger_rule=TriggerRule.NONE_FAILED,
        )
        verified = task(task_id="verify", execution_timeout=_LONG)(replay_tasks.verify)(name, _REPLAY)
        cleaned = task(task_id="clean", execution_timeout=_SHORT)(replay_tasks.clean)(name, _REPLAY)
        discarded = task(task_id="discard", execution_timeout=_SHORT)(replay_tasks.discard)(name, _REPLAY)
        plan >> run >> compared >> gate >> approve >> [published, discarded]
        published >> verified >> cleaned
        if name in jobs.names_with(Settings.from_environment(), quality.SUITES):
            verified >> TriggerDagRunOperator(
                task_id="quality",
                trigger_dag_id=quality.dag_id(name),
                trigger_run_id=f"published__{_REPLAY}",
                logical_date=None,
                skip_when_already_exists=True,
            )
    return dag


def _heavy(name: str, phase: Literal["run", "gate"], limit: timedelta) -> PhaseOperator:
    """A phase that fills the machine, so only one runs at a time, even if a backfill sets another `max_active_runs`."""
    return PhaseOperator(
        task_id=phase, phase=phase, execution_timeout=limit, max_active_tis_per_dag=1, pipeline=name, replay=_REPLAY
    )
