"""Runs of `streams__days` under Airflow's own rules (`dag.test`, SQLite), on real tables; prints what they tell.

Run as a process of its own (`ended`), since Airflow reads its settings when it is imported.
"""

from __future__ import annotations

import contextlib
import io
from datetime import timedelta
from typing import Any

import msgspec

from tests.unit.airflow import dag_runs

_DAG = """
from airflow.sdk import DAG
from airflow.providers.standard.operators.empty import EmptyOperator

from deltaworks.airflow.dags import table_asset
from deltaworks.airflow.days import days_dag

days = days_dag()
for name in ("orders", "counts"):
    with DAG(f"waits_for_{name}", schedule=[table_asset(name)]) as dag:
        EmptyOperator(task_id="nothing")
    globals()[dag.dag_id] = dag
"""


class Run(msgspec.Struct, frozen=True):
    """What a run of the DAG has told."""

    state: str
    told: dict[str, list[str]]
    """Asset -> days, of all runs until then."""
    queued: list[str]
    """The DAGs that Airflow would start now."""


def ended() -> dict[str, Run]:
    """Each scenario."""
    unpaused = {"AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False"}  # nothing starts a DAG that is paused
    return dag_runs.ended("tests.unit.airflow.days_runs", _DAG, Run, **unpaused)


def main() -> None:
    from airflow.utils.db import initdb

    initdb()
    from deltaworks.airflow.days import days_dag
    from deltaworks.settings import Settings
    from tests.unit.control.test_closed_days import MIDNIGHT, Stream, lake

    dag, settings = days_dag(), Settings.from_environment()
    ends = {"before the first batch": _run(dag)}
    stream = Stream(lake(settings.home, 2))
    stream.beats(MIDNIGHT + timedelta(minutes=6))
    ends["a day has closed"] = _run(dag)
    ends["once more"] = _run(dag)
    stream.beats(MIDNIGHT + timedelta(days=1, minutes=6))
    ends["a day later"] = _run(dag)
    print()
    print(msgspec.json.encode(ends).decode())


def _run(dag: Any) -> Run:
    from airflow.models.asset import AssetDagRunQueue, AssetEvent, AssetModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with contextlib.redirect_stdout(io.StringIO()):
        ended = dag.test(logical_date=None)
    told: dict[str, list[str]] = {}
    with create_session() as session:
        names = {asset.id: asset.uri.rpartition("/")[2] for asset in session.scalars(select(AssetModel))}
        for event in session.scalars(select(AssetEvent).order_by(AssetEvent.id)):
            told.setdefault(names[event.asset_id], []).extend(event.extra["days"])
        queued = sorted(set(session.scalars(select(AssetDagRunQueue.target_dag_id))))
    return Run(str(ended.state), told, queued)


if __name__ == "__main__":
    main()
