"""Runs of a DAG whose settings are those of a connection, under Airflow's own rules (`dag.test`, SQLite).

Run as a process of its own (`ended`), since Airflow reads its settings when it is imported.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import msgspec

from tests.unit.airflow import dag_runs

NAME = "wordcount"
SECRET = "s3cret"
_DAG = f"""from deltaworks.airflow.dags import pipelines_dags
globals().update(pipelines_dags(project={str(dag_runs.ROOT)!r}, conn_id="shop", names=[{NAME!r}]))
"""


class Run(msgspec.Struct, frozen=True):
    """How a run of the DAG has ended."""

    task: str
    rendered: str
    """What Airflow shows of the arguments of the task."""
    home: str
    """The home in the settings of the task."""
    said: str
    """All that was logged."""


def ended() -> dict[str, Run]:
    """Each scenario."""
    return dag_runs.ended("tests.unit.airflow.connection_runs", _DAG, Run)


def main() -> None:
    from airflow.utils.db import initdb

    initdb()
    os.environ.pop("DELTAWORKS_PROJECT")
    ends = {"without the connection": _run()}
    extra = {"home": str(Path.cwd() / "own")}
    connection = {"conn_type": "deltaworks", "host": "db", "password": SECRET, "extra": extra}
    os.environ["AIRFLOW_CONN_SHOP"] = json.dumps(connection)
    ends["with the connection"] = _run()
    print()
    print(msgspec.json.encode(ends).decode())


def _run() -> Run:
    from airflow.models.renderedtifields import RenderedTaskInstanceFields
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import select

    from deltaworks.airflow.dags import quality_dag
    from deltaworks.quality import production
    from deltaworks.settings import Settings

    homes: list[str] = []
    said: list[str] = []

    def is_there(settings: Settings, name: str) -> bool:
        homes.append(str(settings.home.relative_to(Path.cwd())))
        logging.getLogger("task").warning("%s, %r", settings, settings.values)
        return False

    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    production.is_there = is_there
    dag: Any = quality_dag(NAME, project=str(dag_runs.ROOT), conn_id="shop", retries=0)
    run = dag.test(logical_date=None)
    logging.getLogger().removeHandler(handler)
    with create_session() as session:
        (task,) = session.scalars(select(TaskInstance).where(TaskInstance.run_id == run.run_id)).all()
        rendered = session.scalars(
            select(RenderedTaskInstanceFields.rendered_fields).where(RenderedTaskInstanceFields.run_id == run.run_id)
        ).first()
        return Run(str(task.state), json.dumps(rendered), "".join(homes), "\n".join(said))


if __name__ == "__main__":
    main()
