"""The DAG `<name>__batch` of one batch job.

```
compute
```

It computes the rows of a day with Spark, checks them, and replaces those in the table. When the table has changed, its
asset is updated.

| started by | days |
|---|---|
| cron, or a backfill | the day before the one in which the run is due |
| assets of tables that it reads | those that the events name, if they are closed in all tables that it waits for |
| a person | the field Day, or else yesterday |

A job that waits for assets waits for any of its tables, not for all: Airflow would start it for all of them once each
has had an event, whichever days these name. So the last table in which a day closes brings the run that computes it,
and the runs before are skipped. Whether a day is closed says the mark of `deltaworks.control.closed_days`, which is
written before the event; so no order of events makes a day be forgotten. What a replay publishes is computed again.
Such a job also has a run at noon. It computes the day before if no run has, as when this DAG was paused at the event;
else it is skipped. Airflow makes backfills only of DAGs with a schedule by time, so they come of it, too.

Runs have no partition key: Airflow starts no DAG that is scheduled on plain assets by an event of a run that has one.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any, Unpack

from airflow.sdk import DAG, AssetOrTimeSchedule, CronDataIntervalTimetable, Param
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from airflow.utils.types import DagRunType

from deltaworks.airflow import openlineage
from deltaworks.airflow.access import ENVIRONMENT, Access
from deltaworks.airflow.assets import assets_of
from deltaworks.airflow.child import command
from deltaworks.airflow.child_operator import ChildOperator
from deltaworks.airflow.docs import when_red
from deltaworks.airflow.events import TableEvent, table_events
from deltaworks.airflow.options import DEFAULTS, TRIGGERED_BY_TASK, PipelineOptions, access_of, arguments, run_types
from deltaworks.airflow.tasks import day_of_key
from deltaworks.batch import jobs
from deltaworks.batch.job import BatchJob
from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings

if TYPE_CHECKING:
    from airflow.sdk.definitions.context import Context

_LIMIT = timedelta(hours=12)
_DOC = """
{doc}: computed by `jobs/batch/{name}.py` with Spark, from tables of {pipelines}.

| | |
|---|---|
| When it runs | {when} |
| Which day | {which}; by hand, the field Day or else yesterday |
| What it reads | {reads}, those of one pipeline as of the same batch |
| When it fails | if the rows do not pass their checks (also `jobs/quality/{name}.py`); the table then stays as it is |
| Three days | `airflow backfill create --dag-id {name}__batch --from-date 2026-11-10 --to-date 2026-11-13` |
| Without Airflow | `deltaworks batch {name} --day 2026-11-22` |

A run replaces the rows of each day in one commit, so it may be repeated. {again}
"""
_AGAIN = "After a replay has published days, run them again here."
_NOON = "0 12 * * *"
"""When a job that waits for assets looks whether a day was missed, in UTC; a backfill has a run per day of it."""


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
    kinds = [DagRunType.MANUAL, TRIGGERED_BY_TASK]
    schedule = _schedule(job, options)
    if schedule is not None:
        kinds += [DagRunType.SCHEDULED, DagRunType.BACKFILL_JOB]
    if job.waits_for:
        kinds.append(DagRunType.ASSET_TRIGGERED)
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
                description="UTC day to compute; empty: yesterday.",
            )
        },
        doc_md=when_red(access.parsed().docs_url, _doc(job)),
        **arguments(options, tags=["batch", name], tasks=DEFAULTS),
    ) as dag:
        heavy: dict[str, Any] = {"pool": options["heavy_pool"]} if "heavy_pool" in options else {}
        BatchOperator(
            task_id="compute",
            job=name,
            pipelines=job.pipelines,
            waits_for=job.waits_for,
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
    """Runs a batch job for the days of a run in a child process.

    Args:
        job: name of the batch job.
        pipelines: those whose tables it reads.
        waits_for: the tables whose events start it; a day is computed once it is closed in all of these.
        access: where the settings are from.
    """

    ui_color = "#dfe9d5"

    def __init__(
        self,
        *,
        job: str,
        pipelines: Sequence[str],
        waits_for: Sequence[str] = (),
        access: Access = ENVIRONMENT,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.job = job
        self.pipelines = list(pipelines)
        self.waits_for = list(waits_for)
        self.access = access

    def execute(self, context: Context) -> list[str]:
        """Returns the days."""
        settings, run = self.access.settings(), context["dag_run"]
        days = self._days(settings, context)
        log = settings.logs / f"batch-{self.job}"
        chosen = [word for day in days for word in ("--day", day.isoformat())]
        asked = command("batch", self.job, *chosen, "--run-id", run.run_id)
        code = self.run_child(settings, f"batch-{self.job}", log, asked)
        if code != 0:
            raise self.failure(f"{self.job} for {_listed_days(days)}", code, log)
        event = TableEvent(
            why="computed", table=self.job, days=days, run=run.run_id, version=_version(settings, self.job)
        )
        for asset in self.outlets:
            context["outlet_events"][asset].extra = event.extra
        return [day.isoformat() for day in days]

    def get_openlineage_facets_on_start(self) -> Any:
        """For OpenLineage: what the job reads and writes."""
        return openlineage.of_batch(self.access.settings(), self.job).lineage()

    def _days(self, settings: Settings, context: Context) -> list[date]:
        """The days of a run, in order.

        Raises:
            AirflowSkipException: there is nothing to do.
            AirflowFailException: they cannot be told.
        """
        run, chosen = context["dag_run"], context["params"]["day"]
        kind: str = run.run_type
        if kind == DagRunType.ASSET_TRIGGERED:
            return self._closed(settings, table_events(context["triggering_asset_events"]))
        day = _day(chosen, run.partition_key, run.run_after.date())
        if kind == DagRunType.SCHEDULED:
            if none := _without_tables(settings, self.pipelines):
                raise AirflowSkipException(f"{' and '.join(none)} have no tables yet: nothing to compute")
            if self.waits_for and day in _computed_days(settings, self.job):
                raise AirflowSkipException(f"{day} was computed when it closed")
            if self.waits_for:
                self._require_closed(settings, [day])
        return [day]

    def _closed(self, settings: Settings, events: Iterable[TableEvent]) -> list[date]:
        """The days that the events name and that are closed."""
        named: set[date] = set()
        for event in events:
            self.log.info("%s: %s: %s", event.table, event.why, _listed_days(event.days))
            named.update(_days_in_table(settings, self.job) if event.days is None else event.days)
        return self._require_closed(settings, sorted(named))

    def _require_closed(self, settings: Settings, days: Sequence[date]) -> list[date]:
        """Those of the days that are closed in all tables that it waits for.

        Raises:
            AirflowSkipException: there are none.
        """
        from deltaworks.control import closed_days

        marks = [closed_days.through(settings, pipeline) for pipeline in self.pipelines]
        through = {table: day for mark in marks for table, day in mark.items() if table in self.waits_for}
        if missing := [table for table in self.waits_for if table not in through]:
            raise AirflowSkipException(f"no day has closed yet in {', '.join(missing)}")
        last = min(through.values())
        for day in days:
            if day > last:
                late = ", ".join(sorted(table for table, closed in through.items() if closed < day))
                self.log.info("%s is not closed in %s: the event of its closing starts another run", day, late)
        if not (closed := [day for day in days if day <= last]):
            raise AirflowSkipException("no day to compute")
        return closed


def _schedule(job: BatchJob, options: PipelineOptions) -> Any:
    if job.cron is not None:
        return CronDataIntervalTimetable(job.cron, timezone="UTC")
    if not job.waits_for:
        return None
    if not (assets := assets_of(job.waits_for, options)):
        raise ConfigurationError(
            f"The batch job '{job.name}' waits for tables, but asset_uri=None says that they have no assets.",
            hint="leave asset_uri= out, or give the job a cron expression",
        )
    noon = CronDataIntervalTimetable(_NOON, timezone="UTC")
    return AssetOrTimeSchedule(timetable=noon, assets=reduce(operator.or_, assets))


def _doc(job: BatchJob) -> str:
    when, which, again = "when you trigger this DAG", "the day that you choose", _AGAIN
    if job.cron is not None:
        when, which = f"`{job.cron}` (UTC), and {when}", "the day before"
    elif job.waits_for:
        when = f"when a day has closed in {_listed(job.waits_for)}, or was published there, and {when}"
        which, again = f"that day, once it is closed in {_listed(job.waits_for)}", ""
    return _DOC.format(
        doc=job.doc,
        name=job.name,
        when=when,
        which=which,
        again=again,
        pipelines=_listed(job.pipelines),
        reads=_listed(job.reads),
    ).strip()


def _day(chosen: str | None, key: str | None, run_after: date) -> date:
    if chosen is not None and key:
        raise AirflowFailException(f"This run is for {key}, its partition key: leave Day empty.")
    asked = chosen or key
    return day_of_key(asked) if asked else run_after - timedelta(days=1)


def _without_tables(settings: Settings, pipelines: Iterable[str]) -> list[str]:
    from deltaworks.lakehouse import cuts

    return [name for name in pipelines if cuts.latest(settings.tables, name) is None]


def _computed_days(settings: Settings, job: str) -> set[date]:
    from deltaworks.batch.history import computed_days

    return computed_days(settings.tables, job)


def _days_in_table(settings: Settings, job: str) -> list[date]:
    from deltaworks.batch.history import days_in_table

    return days_in_table(settings.tables, job)


def _version(settings: Settings, job: str) -> int | None:
    from deltaworks.lakehouse import catalog

    return catalog.log_of(settings.tables, job).version if job in catalog.table_names(settings.tables) else None


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _listed_days(days: Sequence[date] | None) -> str:
    return "any day" if days is None else ", ".join(map(str, days))
