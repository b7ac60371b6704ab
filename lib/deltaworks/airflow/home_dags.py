"""What the scheduled DAGs have in common of which an Airflow has one for a home."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG
from airflow.utils.types import DagRunType

from deltaworks.airflow.access import Access
from deltaworks.airflow.docs import when_red
from deltaworks.airflow.options import DEFAULTS, DagOptions, arguments, run_types


def home_dag(
    dag_id: str,
    description: str,
    doc: str | None,
    options: DagOptions,
    access: Access,
    *,
    schedule: Any,
    limit: timedelta,
    tasks: Mapping[str, Any] = DEFAULTS,
) -> DAG:
    """Makes a DAG without tasks; one run of it is active at a time, and missed runs are not made up for.

    Args:
        dag_id: its id.
        description: for the list of DAGs.
        doc: Markdown for its page.
        options: of the team.
        access: where the settings are from.
        schedule: when, as `DAG(schedule=...)` takes it.
        limit: of a run.
        tasks: arguments of its tasks unless the options say otherwise.
    """
    return DAG(
        dag_id=dag_id,
        description=description,
        schedule=schedule,
        catchup=False,
        max_active_runs=1,
        allowed_run_types=run_types(DagRunType.SCHEDULED, DagRunType.MANUAL),
        dagrun_timeout=limit,
        doc_md=when_red(access.parsed().docs_url, str(doc)),
        **arguments(options, tags=["streams"], tasks=tasks),
    )
