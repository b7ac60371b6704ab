"""Runs of the DAG of a connector under Airflow's own rules (`dag.test`, SQLite), against a worker that asks for a
password, which a connection of Airflow has.

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

PASSWORD = "c0nnect-p@ss"
SECRET = "s3cret-in-the-cluster"
_DAG = """from deltaworks.airflow.dags import connector_dags
globals().update(connector_dags(project="project", conn_id="shop"))
"""


class Run(msgspec.Struct, frozen=True):
    """How a run of the DAG has ended."""

    state: str
    tasks: dict[str, str]
    asked: list[str]
    """The requests that have changed something."""
    kept: str
    """All XComs, and what Airflow shows of the arguments of the tasks."""
    said: str
    """All that was logged."""


def ended() -> dict[str, Run]:
    """Each scenario."""
    return dag_runs.ended("tests.unit.airflow.connector_runs", _DAG, Run)


def main() -> None:
    from airflow.utils.db import initdb

    from deltaworks.connect import states
    from deltaworks.control.connector_book import ConnectorBook
    from tests.support.connector_book import BookInMemory
    from tests.support.fake_connect import fake_connect
    from tests.unit.airflow import connectors

    book, ends = BookInMemory(), {}
    ConnectorBook.of = lambda settings: book  # type: ignore[method-assign]
    states._SETTLE_S, states._ASK_S = 0.0, 0.02
    connectors.make(Path("project"))
    with fake_connect() as fake:
        _connections(fake.url)
        initdb()
        fake.login = ("deltaworks", PASSWORD)
        fake.add("lines", {**connectors.LINES, "topic": "old", "old.password": SECRET})
        ends["deployed"] = _run(fake, action="deploy")
        ends["not confirmed"] = _run(fake, action="delete")
        ends["stopped"] = _run(fake, action="stop")
        ends["deleted"] = _run(fake, action="delete", confirm="lines")
        ends["deleted again"] = _run(fake, action="delete", confirm="lines")
    print()
    print(msgspec.json.encode(ends).decode())


def _connections(url: str) -> None:
    """As an administrator has made them."""
    host, port = url.removeprefix("http://").split(":")
    extra = {"project": str(Path("project").absolute()), "connect_conn_id": "deltaworks_connect"}
    os.environ.pop("DELTAWORKS_PROJECT")
    os.environ["AIRFLOW_CONN_SHOP"] = json.dumps({"conn_type": "deltaworks", "extra": extra})
    os.environ["AIRFLOW_CONN_DELTAWORKS_CONNECT"] = json.dumps(
        {"conn_type": "http", "host": host, "port": int(port), "login": "deltaworks", "password": PASSWORD}
    )


def _run(fake: Any, **conf: Any) -> Run:
    from airflow.models.renderedtifields import RenderedTaskInstanceFields
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    from deltaworks.airflow.connector import connector_dag

    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    logging.getLogger("deltaworks").setLevel(logging.INFO)
    before = len(fake.changes)
    dag: Any = connector_dag("lines", project=str(Path("project").absolute()), conn_id="shop", retries=0)
    run = dag.test(logical_date=None, run_conf=conf)
    logging.getLogger().removeHandler(handler)
    with create_session() as session:
        tasks = session.scalars(select(TaskInstance).where(TaskInstance.run_id == run.run_id)).all()
        xcoms = session.scalars(select(XComModel.value).where(XComModel.run_id == run.run_id)).all()
        fields = RenderedTaskInstanceFields
        rendered = session.scalars(select(fields.rendered_fields).where(fields.run_id == run.run_id)).all()
        return Run(
            state=str(run.state),
            tasks={each.task_id: str(each.state) for each in tasks},
            asked=[f"{way} {path}" for way, path in fake.changes[before:]],
            kept=json.dumps([*map(str, xcoms), *map(str, rendered)]),
            said="\n".join(said),
        )


if __name__ == "__main__":
    main()
