"""The DAGs of a project, for a DAG file of one's own in an Airflow that somebody else runs.

```
from deltaworks.airflow.dags import (
    batch_dags,
    connector_dags,
    days_dag,
    dead_letters_dag,
    maintenance_dag,
    pipelines_dags,
    reconcile_dag,
)

globals().update(pipelines_dags(project="/srv/shop", conn_id="deltaworks_default", owner="shop"))
globals().update(batch_dags(project="/srv/shop", conn_id="deltaworks_default", owner="shop"))
globals().update(connector_dags(project="/srv/shop", conn_id="deltaworks_default", owner="shop"))
reconcile = reconcile_dag(project="/srv/shop", conn_id="deltaworks_default")
days = days_dag(project="/srv/shop", conn_id="deltaworks_default")
dead_letters = dead_letters_dag(project="/srv/shop", conn_id="deltaworks_default")
maintenance = maintenance_dag(project="/srv/shop", conn_id="deltaworks_default")
```

`pipeline_dags` makes the DAGs of one pipeline, and `DeltaworksDag` one of them, as do `stream_dag`, `replay_dag`,
`reprocess_dag` and `quality_dag`. The DAG bundle (`bundle`) needs no file and calls `pipeline_dags`. All options are
those of `options.PipelineOptions`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, Unpack, assert_never

from airflow.sdk import DAG, get_parsing_context

from deltaworks.airflow import batch, connector
from deltaworks.airflow.assets import checked_asset, table_asset
from deltaworks.airflow.batch import batch_dag
from deltaworks.airflow.connector import connector_dag
from deltaworks.airflow.days import days_dag
from deltaworks.airflow.dead_letters import dead_letters_dag
from deltaworks.airflow.maintenance import maintenance_dag
from deltaworks.airflow.notices import notices_dag
from deltaworks.airflow.options import PipelineOptions, access_of
from deltaworks.airflow.quality import quality_dag
from deltaworks.airflow.reconcile import reconcile_dag
from deltaworks.airflow.replay import replay_dag
from deltaworks.airflow.reprocess import reprocess_dag
from deltaworks.airflow.stream import stream_dag
from deltaworks.batch import jobs as batch_jobs
from deltaworks.connect import project as connectors
from deltaworks.control import jobs
from deltaworks.errors import ConfigurationError

__all__ = [
    "DeltaworksDag",
    "batch_dag",
    "batch_dags",
    "checked_asset",
    "connector_dag",
    "connector_dags",
    "days_dag",
    "dead_letters_dag",
    "maintenance_dag",
    "notices_dag",
    "pipeline_dags",
    "pipelines_dags",
    "quality_dag",
    "reconcile_dag",
    "replay_dag",
    "reprocess_dag",
    "stream_dag",
    "table_asset",
]


def pipelines_dags(names: Collection[str] | None = None, **options: Unpack[PipelineOptions]) -> dict[str, DAG]:
    """The DAGs of the project's pipelines, by id; a task that is about to run gets only those of its pipeline.

    A pipeline that cannot be imported is an import error of the whole DAG file.

    Args:
        names: the pipelines; None: all of them.
        options: see `PipelineOptions`.

    Raises:
        ConfigurationError: the project has no pipeline, or an option cannot be used.
    """
    settings = access_of(options).parsed()
    chosen = jobs.names(settings) if names is None else sorted(names)
    if not chosen:
        raise ConfigurationError(
            f"There is no pipeline in {settings.jobs}.", hint="project= names the folder that has jobs/"
        )
    wanted = get_parsing_context().dag_id
    dags: dict[str, DAG] = {}
    for name in chosen:
        if wanted is None or wanted.startswith(f"{name}__"):
            dags |= pipeline_dags(name, **options)
    return dags


def batch_dags(names: Collection[str] | None = None, **options: Unpack[PipelineOptions]) -> dict[str, DAG]:
    """The DAGs of the project's batch jobs, by id; a task that is about to run gets only that of its job.

    A job that cannot be imported is an import error of the whole DAG file.

    Args:
        names: the jobs; None: all of them.
        options: see `PipelineOptions`.

    Raises:
        ConfigurationError: there is no such job, or an option cannot be used.
    """
    chosen = batch_jobs.names(access_of(options).parsed()) if names is None else sorted(names)
    wanted = get_parsing_context().dag_id
    made = [batch_dag(name, **options) for name in chosen if wanted in (None, batch.dag_id(name))]
    return {dag.dag_id: dag for dag in made}


def connector_dags(names: Collection[str] | None = None, **options: Unpack[PipelineOptions]) -> dict[str, DAG]:
    """The DAGs of the project's connectors of Kafka Connect, by id; a task that is about to run gets only its own.

    A connector whose file cannot be used is an import error of the whole DAG file.

    Args:
        names: the connectors; None: all of them.
        options: see `PipelineOptions`.

    Raises:
        ConfigurationError: there is no such connector, its file cannot be used, or an option cannot.
    """
    chosen = list(connectors.written(access_of(options).parsed())) if names is None else sorted(names)
    wanted = get_parsing_context().dag_id
    made = [connector_dag(name, **options) for name in chosen if wanted in (None, connector.dag_id(name))]
    return {dag.dag_id: dag for dag in made}


def pipeline_dags(name: str, **options: Unpack[PipelineOptions]) -> dict[str, DAG]:
    """The DAGs of one pipeline, by id: `<name>__stream`, and where they apply `<name>__replay`, `<name>__reprocess` and
    `<name>__quality`.

    Args:
        name: the pipeline, which is in `jobs/<name>.py`.
        options: see `PipelineOptions`.
    """
    makers = (stream_dag, replay_dag, reprocess_dag, quality_dag)
    made = [make(name, **options) for make in makers]
    return {dag.dag_id: dag for dag in made if dag is not None}


def DeltaworksDag(  # named as the classes that DAG files call
    pipeline: str,
    kind: Literal["stream", "replay", "reprocess", "quality"] = "stream",
    **options: Unpack[PipelineOptions],
) -> DAG:
    """One DAG of a pipeline.

    ```
    payments = DeltaworksDag("payments", owner="shop", tags=["money"])
    ```

    Args:
        pipeline: its name; it is in `jobs/<name>.py`.
        kind: `stream` deploys and supervises it, `replay` processes its history again, `reprocess` its newest days on
            a schedule, `quality` checks its tables.
        options: see `PipelineOptions`.

    Raises:
        ConfigurationError: the pipeline has no such DAG, or an option cannot be used.
    """
    match kind:
        case "stream":
            return stream_dag(pipeline, **options)
        case "replay":
            dag, needed = replay_dag(pipeline, **options), "it writes no table"
        case "reprocess":
            dag, needed = reprocess_dag(pipeline, **options), "its pipeline has no reprocess="
        case "quality":
            dag, needed = quality_dag(pipeline, **options), f"there is no jobs/quality/{pipeline}.py"
        case _:
            assert_never(kind)
    if dag is None:
        raise ConfigurationError(f"The pipeline {pipeline!r} has no {kind} DAG: {needed}.")
    return dag
