"""The DAG `<name>__reprocess` of a pipeline that says when its history is processed again (`reprocess=`).

```
plan --> run --> compare --> gate --> decide --> publish --> verify --> cascade --> clean
                                        '-> approve (over the limit) --> publish, or discard
                                        '-> unchanged (production is equal)
```

It is `<name>__replay` with days that follow from the schedule, and with a decision in the place of the form. Runs wait
for each other: one that waits for an approval holds up the next, and none has days of another.

With `hand_over=`, `publish` switches the stream. Without an approval it does so in the author's window of time only;
until then it is deferred, so it takes no worker.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Unpack

from airflow.sdk import DAG, CronDataIntervalTimetable
from airflow.sdk.exceptions import AirflowTimetableInvalid
from airflow.utils.types import DagRunType

from deltaworks.airflow import quality, replay
from deltaworks.airflow.docs import reprocess_doc, when_red
from deltaworks.airflow.options import (
    DEFAULTS,
    TRIGGERED_BY_TASK,
    PipelineOptions,
    access_of,
    approvals_of,
    arguments,
    run_types,
)
from deltaworks.airflow.replay_form import Tables
from deltaworks.control import jobs
from deltaworks.errors import ConfigurationError


def reprocess_dag(name: str, **options: Unpack[PipelineOptions]) -> DAG | None:
    """Makes the DAG; None for a pipeline without `reprocess=`.

    Args:
        name: the pipeline.
        options: see `PipelineOptions`.

    Raises:
        ConfigurationError: the schedule is no cron expression.
    """
    access = access_of(options)
    settings = access.parsed()
    pipeline = jobs.load(settings, name)
    policy = pipeline.reprocess
    if policy is None:
        return None
    tables = Tables.of(pipeline)
    start = policy.start_date
    kinds = [DagRunType.SCHEDULED, DagRunType.MANUAL, TRIGGERED_BY_TASK]
    if policy.hand_over is None:
        kinds.append(DagRunType.BACKFILL_JOB)
    what = "the newest days" if policy.hand_over is None else "all history"
    then = "publishes what differs" if policy.hand_over is None else "hands the stream over if anything differs"
    try:
        dag = DAG(
            dag_id=dag_id(name),
            description=f"Processes {what} of {name} again, and {then}.",
            schedule=CronDataIntervalTimetable(policy.schedule, timezone="UTC"),
            start_date=None if start is None else datetime(start.year, start.month, start.day, tzinfo=UTC),
            catchup=policy.catchup,
            max_active_runs=1,
            allowed_run_types=run_types(*kinds),
            doc_md=when_red(settings.docs_url, reprocess_doc(name, policy, tables)),
            **arguments(options, tags=["reprocess", name], tasks=DEFAULTS, actions=replay.ACTIONS),
        )
        dag.validate()  # type: ignore[no-untyped-call]
    except AirflowTimetableInvalid as error:
        raise ConfigurationError(
            f"reprocess= of {name} has the schedule {policy.schedule!r}: {error}",
            hint="'0 3 * * *' is 03:00 UTC each day",
        ) from error
    with dag:
        checked = name in jobs.names_with(settings, quality.SUITES)
        approvals = approvals_of(options, settings)
        replay.add_tasks(name, access, options, approvals, tables=tables, checked=checked, by_policy=True)
    return dag


def dag_id(name: str) -> str:
    """The id of a pipeline's DAG."""
    return f"{name}__reprocess"
