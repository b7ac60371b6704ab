"""The DAG `<name>__batch` of one batch job.

```
compute
```

It computes the rows of a day with Spark, checks them, and replaces those in the table. By its schedule, it does so for
the day before; a backfill does it for a day after the other. When the table has changed, its asset is updated.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, Unpack

from airflow.sdk import DAG, CronPartitionTimetable, Param
from airflow.sdk.exceptions import AirflowFailException
from airflow.utils.types import DagRunType

from deltaworks.airflow.access import ENVIRONMENT, Access
from deltaworks.airflow.assets import assets_of
from deltaworks.airflow.child import command
from deltaworks.airflow.child_operator import ChildOperator
from deltaworks.airflow.options import DEFAULTS, TRIGGERED_BY_TASK, PipelineOptions, access_of, arguments, run_types
from deltaworks.airflow.tasks import day_of_key
from deltaworks.batch import jobs

if TYPE_CHECKING:
    from airflow.sdk.definitions.context import Context

_LIMIT = timedelta(hours=12)
_DOC = """
{doc}: computed by `jobs/batch/{name}.py` with Spark, from tables of {pipelines}.

| | |
|---|---|
| When it runs | {when} |
| Which day | the partition key of the run (`2026-11-22`) or the field Day; by the schedule, the day before |
| What it reads | {reads}, those of one pipeline as of the same batch |
| When it fails | if the rows do not pass their checks (also `jobs/quality/{name}.py`); the table then stays as it is |
| Three days | `airflow backfill create --dag-id {name}__batch --from-date 2026-11-10 --to-date 2026-11-13` |
| Without Airflow | `deltaworks batch {name} --day 2026-11-22` |

A run replaces the rows of its day in one commit. So it may be repeated, and after a replay has published days, run them
again here.
"""


def batch_dag(name: str, **options: Unpack[PipelineOptions]) -> DAG:
    """Makes the DAG.

    Args:
        name: the batch job, which is in `jobs/batch/<name>.py`.
        options: see `PipelineOptions`.

    Raises:
        ConfigurationError: there is no such job, or an option cannot be used.
    """
    access = access_of(options)
    job = jobs.load(access.parsed(), name)
    when = "when you trigger this DAG" if job.schedule is None else f"`{job.schedule}` (UTC), and when you trigger it"
    kinds = [DagRunType.MANUAL, TRIGGERED_BY_TASK]
    schedule: Any = None
    if job.schedule is not None:
        schedule = CronPartitionTimetable(job.schedule, timezone="UTC", run_offset=-1, key_format="%Y-%m-%d")
        kinds += [DagRunType.SCHEDULED, DagRunType.BACKFILL_JOB]
    with DAG(
        dag_id=dag_id(name),
        description=job.doc,
        schedule=schedule,
        catchup=False,
        max_active_runs=1,
        allowed_run_types=run_types(*kinds),
        params={
            "day": Param(
                None,
                type=["null", "string"],
                format="date",
                title="Day",
                description="UTC day to compute; empty: the run's partition key, or else yesterday.",
            )
        },
        doc_md=_DOC.format(
            doc=job.doc, name=name, when=when, pipelines=_listed(job.pipelines), reads=_listed(job.reads)
        ).strip(),
        **arguments(options, tags=["batch", name], tasks=DEFAULTS),
    ) as dag:
        heavy: dict[str, Any] = {"pool": options["heavy_pool"]} if "heavy_pool" in options else {}
        BatchOperator(
            task_id="compute",
            job=name,
            access=access,
            outlets=assets_of([name], options),
            execution_timeout=_LIMIT,
            **heavy,
        )
    return dag


def dag_id(name: str) -> str:
    """The id of a batch job's DAG."""
    return f"{name}__batch"


class BatchOperator(ChildOperator):
    """Runs a batch job for a day in a child process.

    Args:
        job: name of the batch job.
        access: where the settings are from.
    """

    ui_color = "#dfe9d5"

    def __init__(self, *, job: str, access: Access = ENVIRONMENT, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.job = job
        self.access = access

    def execute(self, context: Context) -> str:
        """Returns the day."""
        settings, run = self.access.settings(), context["dag_run"]
        day = _day(context["params"]["day"], run.partition_key, run.run_after.date())
        log = settings.logs / f"batch-{self.job}"
        asked = command("batch", self.job, "--day", day.isoformat(), "--run-id", run.run_id)
        code = self.run_child(settings, f"batch-{self.job}", log, asked)
        if code != 0:
            raise self.failure(f"{self.job} for {day}", code, log)
        for asset in self.outlets:
            context["outlet_events"][asset].extra = {"day": day.isoformat()}
        return day.isoformat()


def _day(chosen: str | None, key: str | None, run_after: date) -> date:
    if chosen is not None and key:
        raise AirflowFailException(f"This run is for {key}, its partition key: leave Day empty.")
    asked = chosen or key
    return day_of_key(asked) if asked else run_after - timedelta(days=1)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
