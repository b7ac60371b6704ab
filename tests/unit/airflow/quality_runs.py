"""Runs of a quality DAG under Airflow's own rules (`dag.test`, SQLite), on tables of a real run; prints how they end.

Run as a process of its own (`ended`), since Airflow reads its settings when it is imported.
"""

from __future__ import annotations

import contextlib
import io
import logging
from typing import Any

import msgspec

from tests.unit.airflow import dag_runs

NAME = "invoices"


class Run(msgspec.Struct, frozen=True):
    """How a run of the DAG has ended."""

    state: str
    task: str
    said: list[str]
    """What the task has logged."""
    outcomes: dict[str, int]
    """What `quality_results` has of it."""


def ended() -> dict[str, Run]:
    """Each scenario."""
    dag = f"from deltaworks.airflow.quality import quality_dag\nquality = quality_dag({NAME!r})\n"
    return dag_runs.ended("tests.unit.airflow.quality_runs", dag, Run)


def main() -> None:
    from airflow.utils.db import initdb

    initdb()
    from deltaworks.airflow.quality import quality_dag
    from deltaworks.settings import Settings
    from tests.support.data_defects import defect, planted
    from tests.system.data_defects.run import run

    dag, settings = quality_dag(NAME), Settings.from_environment()
    ends = {"before the first batch": _run(dag)}
    made = run(NAME, settings.home, records=600, seed=1)
    ends["as they should be"] = _run(dag)
    damage = defect("wrong value", "invoices_line_items", "UPDATE {} SET total_value = total_value + 1 WHERE rowid = 7")
    with planted(settings.tables, made.names, damage):
        ends["damaged"] = _run(dag)
    print()
    print(msgspec.json.encode(ends).decode())


def _run(dag: Any) -> Run:
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from deltalake import DeltaTable
    from sqlalchemy import select

    from deltaworks.settings import Settings

    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("deltaworks.airflow.quality")
    log.addHandler(handler)
    with contextlib.redirect_stdout(io.StringIO()):
        ended = dag.test(logical_date=None)
    log.removeHandler(handler)
    with create_session() as session:
        (task,) = session.scalars(select(TaskInstance).where(TaskInstance.run_id == ended.run_id)).all()
        state = str(task.state)
    path = Settings.from_environment().tables / "quality_results"
    rows = DeltaTable(path).to_pyarrow_table().to_pylist() if path.exists() else []
    mine = [row["outcome"] for row in rows if row["run_id"] == ended.run_id]
    return Run(str(ended.state), state, said, {outcome: mine.count(outcome) for outcome in set(mine)})


if __name__ == "__main__":
    main()
