"""The DAG `<name>__stream` of one pipeline.

```
action --> preflight --> deploy --> supervise (deferred for as long as the stream lives)
       '-> stop
```

Stopping is a choice in the form of this DAG, not a separate DAG. So the runs of one DAG are the whole history of a
stream, in order, with who requested what, and the list of DAGs stays readable.

Every task may be retried, cleared or marked at any time: `deploy` and `stop` are bound to their run (the same run
never deploys twice and never stops a later generation), and `supervise` only watches.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Unpack

from airflow.sdk import DAG, task
from airflow.utils.types import DagRunType

from deltaworks.airflow import tasks
from deltaworks.airflow.docs import stream_doc, when_red
from deltaworks.airflow.form import form
from deltaworks.airflow.options import FIRST, TRIGGERED_BY_TASK, PipelineOptions, access_of, arguments, run_types
from deltaworks.airflow.supervise import SuperviseOperator
from deltaworks.control import jobs
from deltaworks.control.roles import Action
from deltaworks.settings import Settings


def stream_dag(name: str, **options: Unpack[PipelineOptions]) -> DAG:
    """Makes the DAG of `jobs/<name>.py`; an error in that file names the file and line.

    Args:
        name: the pipeline.
        options: see `PipelineOptions`.
    """
    access = access_of(options)
    settings = access.parsed()
    with _named(settings, name):
        module = jobs.load_module(settings, name)
        pipeline = jobs.load(settings, name)
        doc = when_red(settings.docs_url, stream_doc(name, module.__doc__, pipeline))
        fields = form(pipeline)
    with DAG(
        dag_id=dag_id(name),
        description=(module.__doc__ or f"The pipeline in jobs/{name}.py").strip().splitlines()[0],
        schedule=None,
        catchup=False,
        params=fields,
        allowed_run_types=run_types(DagRunType.MANUAL, TRIGGERED_BY_TASK),
        max_active_runs=16,  # a run ends soon after its stream is replaced; until then both runs are active
        doc_md=doc,
        **arguments(options, tags=["stream", name], tasks=FIRST, actions=(Action.DEPLOY, Action.STOP)),
    ) as dag:
        limit = timedelta(minutes=15)
        action = task.branch(task_id="action")(tasks.action)(name)
        preflight = task(task_id="preflight", execution_timeout=limit)(tasks.preflight)(name, access=access)
        deploy = task(task_id="deploy", execution_timeout=limit)(tasks.deploy)(name, access=access)
        stop = task(task_id="stop", execution_timeout=limit)(tasks.stop)(name, access=access)
        generation = deploy["generation"]  # type: ignore[index]
        supervise = SuperviseOperator(task_id="supervise", pipeline=name, generation=generation, access=access)
        action >> [preflight, stop]
        preflight >> deploy >> supervise
    return dag


def dag_id(name: str) -> str:
    """The id of a pipeline's DAG."""
    return f"{name}__stream"


@contextmanager
def _named(settings: Settings, name: str) -> Iterator[None]:
    """Adds the author's file and line to an error: the frames that Airflow shows may not include them."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"The pipeline {name!r} has no DAG until this is fixed: {_where(settings, name, error)}")
        raise


def _where(settings: Settings, name: str, error: BaseException) -> str:
    """The author's last line in the traceback, such as `jobs/orders.py, line 41`."""
    folder = settings.jobs
    if isinstance(error, SyntaxError) and error.filename:
        return f"jobs/{Path(error.filename).name}, line {error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).parent == folder]
    return f"jobs/{Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else f"jobs/{name}.py"
