"""The DAG `<name>__quality`, which checks the tables of a pipeline that has a suite.

```
check
```

It runs the suite in `jobs/quality/<name>.py` and the built-in invariants on production, on a schedule and when
triggered. It only reads, so it affects neither the stream nor its tables. If something is wrong, the run fails without
a retry: a moment later the table would be just as wrong. That is an incident until all checks pass again.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Unpack

from airflow.sdk import DAG, BaseOperator, CronTriggerTimetable
from airflow.sdk.definitions.context import Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from airflow.utils.types import DagRunType

from deltaworks.airflow import openlineage
from deltaworks.airflow.access import ENVIRONMENT, Access
from deltaworks.airflow.assets import assets_of_checks, checked_asset
from deltaworks.airflow.docs import when_red
from deltaworks.airflow.events import CheckEvent, cut_of
from deltaworks.airflow.options import DEFAULTS, TRIGGERED_BY_TASK, PipelineOptions, access_of, arguments, run_types
from deltaworks.airflow.tasks import no_retry_where_it_cannot_help
from deltaworks.control import jobs
from deltaworks.control.incidents import Finding
from deltaworks.errors import ControlUnavailableError
from deltaworks.settings import Settings

if TYPE_CHECKING:
    from deltaworks.quality import Verdict

log = logging.getLogger(__name__)
SUITES = "quality"
"""Folder of the suites, below `jobs/`."""
_LIMIT = timedelta(minutes=30)
_DOC = """
Checks the tables of `{name}` with the suite in `jobs/quality/{name}.py` (Great Expectations, and rules in SQL) and with
the invariants that hold for every pipeline. It reads all tables as of the same micro-batch and changes none of them, so
the stream may keep running.

| | |
|---|---|
| When it runs | {when} |
| When it fails | if a rule other than a warning is broken or could not be checked |
| What is wrong, why it matters, and sample rows | the log of `check` |
| History | the Delta tables `quality_results` and `quality_failures` (sample rows), column `run_id` |
| Without Airflow | `deltaworks quality {name}` |

A failed run stops nothing and repairs nothing. Once the code is fixed, `{name}__replay` computes days again.
"""


def quality_dag(name: str, **options: Unpack[PipelineOptions]) -> DAG | None:
    """Makes the DAG; None for a pipeline without a suite.

    Its minute follows from the name, so that the checks of all pipelines do not start at the same time, neither each
    hour nor when a stack starts.

    Args:
        name: the pipeline.
        options: see `PipelineOptions`.
    """
    access = access_of(options)
    if name not in jobs.names_with(access.parsed(), SUITES):
        return None
    minute = zlib.crc32(name.encode()) % 60
    when = f"every hour at minute {minute} (UTC), and when you trigger this DAG"
    schedule: Any = CronTriggerTimetable(f"{minute} * * * *", timezone="UTC", run_immediately=timedelta(0))
    kinds = [DagRunType.SCHEDULED, DagRunType.MANUAL, TRIGGERED_BY_TASK]
    if "quality_schedule" in options:
        schedule = options["quality_schedule"]
        when = ("" if schedule is None else "by the schedule of this DAG, and ") + "when you trigger this DAG"
        kinds.append(DagRunType.ASSET_TRIGGERED)
    with DAG(
        dag_id=dag_id(name),
        description=f"Checks the tables of {name} with its suite and the built-in invariants.",
        schedule=schedule,
        catchup=False,
        max_active_runs=1,
        allowed_run_types=run_types(*kinds),
        dagrun_timeout=2 * _LIMIT,
        doc_md=when_red(access.parsed().docs_url, _DOC.format(name=name, when=when)),
        **arguments(options, tags=["quality", name], tasks=DEFAULTS),
    ) as dag:
        passed = assets_of_checks(name, options)
        CheckOperator(task_id="check", pipeline=name, access=access, execution_timeout=_LIMIT, outlets=passed)
    return dag


def dag_id(name: str) -> str:
    """The id of a pipeline's DAG."""
    return f"{name}__quality"


class CheckOperator(BaseOperator):
    """Calls `check`.

    Args:
        pipeline: name of the pipeline.
        access: where the settings are from; the page of a run shows it.
    """

    template_fields: Sequence[str] = ("access",)

    def __init__(self, *, pipeline: str, access: Access = ENVIRONMENT, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.access = access

    def execute(self, context: Context) -> dict[str, int]:
        return check(self.pipeline, context["dag_run"], self.access, context["outlet_events"])

    def get_openlineage_facets_on_start(self) -> Any:
        """For OpenLineage: what is checked."""
        return openlineage.of_checks(self.access.settings(), self.pipeline).lineage()


def check(name: str, dag_run: Any = None, access: Access = ENVIRONMENT, outlet_events: Any = None) -> dict[str, int]:
    """Checks the tables and logs what is wrong; fails if anything is worse than a warning.

    Returns:
        The number of verdicts per outcome.
    """
    from deltaworks.lakehouse import cuts
    from deltaworks.quality import Outcome, production  # imports Great Expectations, which takes seconds

    settings = access.settings()
    with no_retry_where_it_cannot_help():
        if not production.is_there(settings, name):
            raise AirflowSkipException(f"{name} has no tables yet: nothing to check")
        cut = cuts.latest(settings.tables, name)
        verdicts = production.check(settings, name, run_id=dag_run.run_id)
    for verdict in verdicts:
        if not verdict.passed:
            _tell(verdict)
        elif verdict.observed:
            log.info("%s: %s: %s", verdict.table, verdict.expects, verdict.observed)
    counts = {outcome.value: sum(verdict.outcome is outcome for verdict in verdicts) for outcome in Outcome}
    log.info("%s", ", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    blocking = [verdict for verdict in verdicts if verdict.blocks]
    _record(settings, name, _summary(name, blocking) if blocking else None, f"{dag_id(name)}/runs/{dag_run.run_id}")
    if blocking:
        raise AirflowFailException(_summary(name, blocking))
    event = CheckEvent(
        suite=name,
        passed=counts[Outcome.PASSED.value],
        warnings=len(verdicts) - counts[Outcome.PASSED.value],
        run=dag_run.run_id,
        **{"pipeline": name, **cut_of(cut)},
    )
    if outlet_events is not None:
        outlet_events[checked_asset(name)].extra = event.extra
    return counts


def _record(settings: Settings, name: str, wrong: str | None, place: str) -> None:
    """Opens an incident if something is wrong, or else ends it; without a registry, the next check does."""
    from deltaworks.control.incident_book import IncidentBook

    found = [] if wrong is None else [Finding(pipeline=name, kind="quality_failed", what=wrong, place=place)]
    try:
        IncidentBook.of(settings).settle(
            found, lambda incident: (incident.pipeline, incident.kind) == (name, "quality_failed")
        )
    except ControlUnavailableError as error:
        log.warning("this is not recorded as an incident: %s", error)


def _tell(verdict: Verdict) -> None:
    """Logs a verdict that did not pass: what it expects, why, and sample rows."""
    level = logging.ERROR if verdict.blocks else logging.WARNING
    log.log(level, "%s: %s: %s", verdict.outcome.value, verdict.table, verdict.expects)
    for line in (verdict.why, verdict.error, verdict.observed):
        if line:
            log.log(level, "  | %s", line)
    if verdict.unexpected:
        log.log(level, "  | %s of %s rows, such as:", verdict.unexpected, verdict.rows)
    for row in verdict.sample:
        log.log(level, "  |   %s", ", ".join(f"{column}={cell}" for column, cell in row.items()))


def _summary(name: str, blocking: Sequence[Verdict]) -> str:
    first = blocking[0]
    more = f", and {len(blocking) - 1} more" if len(blocking) > 1 else ""
    return f"the tables of {name} do not pass their checks: {first.table}: {first.expects}{more}"
