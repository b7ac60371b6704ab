"""A deployment by the DAG of a connector, under Airflow's own rules, against a real worker: all that Airflow keeps and
shows of it.

Run as a process of its own (`kept`), since Airflow reads its settings when it is imported.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
from pathlib import Path
from typing import Any

from deltaworks.settings import Settings
from tests.unit.airflow import dag_runs

_DAG = """from deltaworks.airflow.dags import connector_dags
globals().update(connector_dags())
"""
_NAME = "DELTAWORKS_TESTS_CONNECTOR"


def kept(settings: Settings, name: str) -> dict[str, str]:
    """Deploys a connector; how that has ended (`state`), and what there is to see of it, by place."""
    environment = {**settings.environment(), _NAME: name}
    return dag_runs.ended("tests.integration.connector_in_airflow", _DAG, str, **environment)


def main() -> None:
    from airflow.serialization.serialized_objects import DagSerialization
    from airflow.utils.db import initdb

    from deltaworks.airflow.connector import connector_dag

    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    initdb()
    dag: Any = connector_dag(os.environ[_NAME], retries=0)
    logging.getLogger().addHandler(handler)
    logging.getLogger("deltaworks").setLevel(logging.INFO)
    run = dag.test(logical_date=None, run_conf={"action": "deploy"})
    logging.getLogger().removeHandler(handler)
    with sqlite3.connect(Path(os.environ["AIRFLOW_HOME"]) / "airflow.db") as database:
        tables = "\n".join(database.iterdump())
    found = {
        "state": str(run.state),
        "serialized DAG": json.dumps(DagSerialization.serialize_dag(dag), default=str),
        "page and form of the DAG": f"{dag.doc_md}\n{dag.params.dump()}",
        "log of the tasks": "\n".join(said),
        "database of Airflow": tables,
    }
    print()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
