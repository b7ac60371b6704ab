"""Airflow's REST API, as far as replays need more of it than the product."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from deltaworks.stack.airflow_api import AirflowApi

WAITS = ("awaiting_input", "deferred")
"""States of a task that has asked a person."""
_A_LOOP = timedelta(seconds=5)
"""Airflow 3.3 loses an answer that arrives before its scheduler has recorded that the task waits. It beats at the end
of a loop, which takes no longer than this."""


class ReplayApi(AirflowApi):
    """With approvals, days and backfills."""

    def trigger_day(self, dag_id: str, day: str, conf: Mapping[str, Any]) -> str:
        """A run for one day; its id."""
        body = {"logical_date": None, "partition_key": day, "conf": dict(conf)}
        return str(self._authorized("POST", f"/api/v2/dags/{quote(dag_id)}/dagRuns", body)["dag_run_id"])

    def question(self, dag_id: str, run_id: str) -> dict[str, Any]:
        """What the task `approve` asks."""
        return self._get(_question(dag_id, run_id))

    def scheduler_beat(self) -> datetime:
        """When the scheduler was last at work."""
        return datetime.fromisoformat(self.health()["scheduler"]["latest_scheduler_heartbeat"])

    def asks(self, dag_id: str, run_id: str, task_id: str = "approve") -> bool:
        """Whether a task waits for a person."""
        return self.task(dag_id, run_id, task_id).state in WAITS

    def noted(self) -> None:
        """Waits until the scheduler has recorded what waits; see `_A_LOOP`."""
        begun = datetime.now(UTC) + _A_LOOP
        self.wait("the scheduler has gone on", lambda: self.scheduler_beat() > begun, timeout_s=120)

    def answer(self, dag_id: str, run_id: str, option: str) -> None:
        """Answers the task `approve`."""
        self._authorized("PATCH", _question(dag_id, run_id), {"chosen_options": [option], "params_input": {}})

    def backfill(self, dag_id: str, first: str, last: str, conf: Mapping[str, Any]) -> int:
        """Runs for some days, both included; the id of the backfill."""
        body = {
            "dag_id": dag_id,
            "from_date": f"{first}T00:00:00Z",
            "to_date": f"{last}T00:00:00Z",
            "max_active_runs": 1,
            "reprocess_behavior": "completed",
            "dag_run_conf": dict(conf),
        }
        return int(self._authorized("POST", "/api/v2/backfills", body)["id"])

    def backfill_ended(self, backfill: int) -> bool:
        """Whether all of its runs have ended."""
        return self._get(f"/api/v2/backfills/{backfill}")["completed_at"] is not None

    def days(self, dag_id: str) -> dict[str, str]:
        """The state of the latest run of each day."""
        runs = self._get(f"/api/v2/dags/{quote(dag_id)}/dagRuns?order_by=run_after&limit=100")["dag_runs"]
        return {run["partition_key"]: run["state"] for run in runs if run["partition_key"]}


def _question(dag_id: str, run_id: str) -> str:
    run = f"/api/v2/dags/{quote(dag_id)}/dagRuns/{quote(run_id, safe='')}"
    return f"{run}/taskInstances/approve/-1/hitlDetails"
