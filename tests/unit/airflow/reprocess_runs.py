"""Runs of the DAG of a reprocessing under Airflow's own rules, as `replay_runs`; prints the ends."""

from __future__ import annotations

from dataclasses import replace
from datetime import time, timedelta
from unittest import mock

import msgspec
from airflow.sdk import DAG

from deltaworks import ChangeLimit, HandOver, Pipeline, Reprocess, clock
from deltaworks.airflow import reprocess_tasks
from deltaworks.control import jobs
from deltaworks.settings import Settings
from tests.unit.airflow import dag_runs
from tests.unit.airflow.replay_runs import NAME, Run, run
from tests.unit.airflow.since import AIRFLOW_3_3

POLICY = Reprocess("0 3 * * *", days=3, limit=ChangeLimit(rows=12))
SWITCHES = replace(POLICY, days=1, hand_over=HandOver(window=(time(2), time(4))))
STRICT = replace(POLICY, limit=ChangeLimit(rows=11))
_load = jobs.load
_policies = [POLICY]


def ended() -> dict[str, Run]:
    """Each scenario."""
    dag = "from tests.unit.airflow.reprocess_runs import made\nreprocess = made()\n"
    return dag_runs.ended("tests.unit.airflow.reprocess_runs", dag, Run, AIRFLOW__LOGGING__LOGGING_LEVEL="WARNING")


def load(settings: Settings, name: str) -> Pipeline:
    """The job, with the policy of the scenario."""
    return replace(_load(settings, name), reprocess=_policies[-1])


def made() -> DAG | None:
    """The DAG, also for Airflow, which imports the file anew."""
    from deltaworks.airflow.reprocess import reprocess_dag

    mock.patch.object(jobs, "load", load).start()
    return reprocess_dag(NAME)


def main() -> None:
    from airflow.utils.db import initdb

    initdb()
    dag = made()
    ends = {"never ran": run(dag)}
    mock.patch.object(reprocess_tasks, "stored_plan", lambda path: path).start()
    ends |= {"within the limit": run(dag), "equal": run(dag, equal=True)}
    _policies.append(SWITCHES)
    with mock.patch.object(HandOver, "opens_at", side_effect=[clock.utc_now() + timedelta(seconds=1), None]):
        ends["handed over"] = run(dag)
    _policies.append(STRICT)
    if AIRFLOW_3_3:
        ends |= {"approved": run(dag, option="Approve"), "rejected": run(dag, option="Reject")}
    ends["approval marked as success"] = run(dag, mark_success_pattern="approve")
    print()
    print(msgspec.json.encode(ends).decode())


if __name__ == "__main__":
    from tests.unit.airflow import reprocess_runs  # the module whose policies the DAG file sees

    reprocess_runs.main()
