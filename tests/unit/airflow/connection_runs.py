"""Runs of a DAG whose settings are those of connections, under Airflow's own rules (`dag.test`, SQLite).

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
    password: str
    """The password that Kafka's clients get in the task."""
    handed_on: bool
    """Whether a driver that the task starts gets it, too."""
    said: str
    """All that was logged."""


def ended() -> dict[str, Run]:
    """Each scenario."""
    return dag_runs.ended("tests.unit.airflow.connection_runs", _DAG, Run)


def main() -> None:
    from airflow.utils.db import initdb

    initdb()
    os.environ.pop("DELTAWORKS_PROJECT")
    ends = {"without the connection": _run(conn_id="shop")}
    extra = {"home": str(Path.cwd() / "own")}
    connection = {"conn_type": "deltaworks", "host": "db", "password": SECRET, "extra": extra}
    os.environ["AIRFLOW_CONN_SHOP"] = json.dumps(connection)
    ends["with the connection"] = _run(conn_id="shop")
    _store("shop_kafka", SECRET)
    ends["with a reference"] = _run(_referring())
    print()
    print(msgspec.json.encode(ends).decode())


def _store(conn_id: str, password: str) -> None:
    """Adds a connection to Airflow's database."""
    from airflow.models.connection import Connection
    from airflow.utils.session import create_session

    with create_session() as session:
        session.add(Connection(conn_id=conn_id, conn_type="kafka", password=password))


def _referring() -> Path:
    """A project whose settings refer to that connection."""
    project = Path("referring").absolute()
    project.mkdir()
    (project / "jobs").symlink_to(dag_runs.ROOT / "jobs")
    reference = '{ airflow = "shop_kafka", field = "password" }'
    (project / "deltaworks.toml").write_text(f'home = "own"\n[kafka]\n"sasl.password" = {reference}\n')
    os.environ.pop("DELTAWORKS_HOME")
    return project


def _run(project: Path = dag_runs.ROOT, **access: Any) -> Run:
    from airflow.models.renderedtifields import RenderedTaskInstanceFields
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import select

    from deltaworks.airflow.dags import quality_dag
    from deltaworks.quality import production
    from deltaworks.settings import Settings

    homes: list[str] = []
    passwords: list[str] = []
    handed_on: list[bool] = []
    said: list[str] = []

    def is_there(settings: Settings, name: str) -> bool:
        homes.append(str(settings.home.relative_to(Path.cwd())))
        passwords.append(settings.cluster.client({}).get("sasl.password", ""))
        handed_on.append(passwords[-1] in settings.driver_environment().values())
        logging.getLogger("task").warning("%s, %r", settings, settings.values)
        return False

    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    production.is_there = is_there
    dag: Any = quality_dag(NAME, project=str(project), retries=0, **access)
    run = dag.test(logical_date=None)
    logging.getLogger().removeHandler(handler)
    with create_session() as session:
        (task,) = session.scalars(select(TaskInstance).where(TaskInstance.run_id == run.run_id)).all()
        rendered = session.scalars(
            select(RenderedTaskInstanceFields.rendered_fields).where(RenderedTaskInstanceFields.run_id == run.run_id)
        ).first()
        return Run(
            task=str(task.state),
            rendered=json.dumps(rendered),
            home="".join(homes),
            password="".join(passwords),
            handed_on=any(handed_on),
            said="\n".join(said),
        )


if __name__ == "__main__":
    main()
