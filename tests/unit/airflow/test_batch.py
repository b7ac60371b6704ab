"""The DAG of a batch job: which day a run computes, and what becomes of its child process."""

from __future__ import annotations

import sys
from datetime import UTC, date, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from airflow.serialization.serialized_objects import DagSerialization

from deltaworks.airflow import batch
from deltaworks.airflow.assets import table_asset
from deltaworks.airflow.batch import BatchOperator, batch_dag
from deltaworks.airflow.dags import batch_dags
from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings
from tests.unit.airflow.replays import project_settings
from tests.unit.airflow.since import AIRFLOW_3_3, BY_HAND

NAME = "daily_sales"
RUN_AFTER = datetime(2026, 11, 24, 2, tzinfo=UTC)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    return project_settings(tmp_path, monkeypatch)


class Runs:
    """Runs the task; a script stands in for the command."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.code = ""
        self.events: dict[Any, Any] = {table_asset(NAME): SimpleNamespace(extra={})}
        monkeypatch.setattr(batch, "command", self._command)

    def _command(self, *arguments: str) -> list[str]:
        self.asked.append(arguments)
        return [sys.executable, "-c", self.code]

    def run(self, *, day: str | None = None, key: str | None = None) -> Any:
        with DAG("batch"):
            operator = BatchOperator(task_id="compute", job=NAME, outlets=[table_asset(NAME)])
        dag_run = SimpleNamespace(run_id="scheduled__1", partition_key=key, run_after=RUN_AFTER)
        context: Any = {"dag_run": dag_run, "params": {"day": day}, "outlet_events": self.events}
        return operator.execute(context)


@pytest.fixture
def runs(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Runs:
    return Runs(monkeypatch)


@pytest.mark.parametrize(
    ("given", "day"),
    [
        ({"key": "2026-11-20"}, "2026-11-20"),
        ({"day": "2026-11-21"}, "2026-11-21"),
        ({}, "2026-11-23"),
    ],
)
def test_a_run_is_for_the_day_of_its_key_or_of_the_form_or_for_yesterday(
    runs: Runs, given: dict[str, str], day: str
) -> None:
    assert runs.run(**given) == day

    assert runs.asked == [("batch", NAME, "--day", day, "--run-id", "scheduled__1")]
    assert [event.extra for event in runs.events.values()] == [{"day": day}]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"key": "2026-11-20", "day": "2026-11-21"}, "leave Day empty"),
        ({"key": "20th of November"}, "is not a day, such as 2026-11-22"),
    ],
)
def test_a_day_that_cannot_be_told_fails_before_anything_runs(runs: Runs, given: dict[str, str], message: str) -> None:
    with pytest.raises(AirflowFailException, match=message):
        runs.run(**given)

    assert runs.asked == []


@pytest.mark.parametrize(
    ("code", "is_final"),
    [(1, True), (65, True), (78, True), (69, False), (75, False), (-9, False)],
    ids=["checks", "Spark cannot compute it", "settings", "unavailable", "conflict", "killed"],
)
def test_what_a_repetition_cannot_help_is_not_repeated(runs: Runs, code: int, is_final: bool) -> None:
    how = f"raise SystemExit({code})" if code > 0 else "import os; os.kill(os.getpid(), 9)"
    runs.code = f"print('error: it is so', flush=True)\n{how}"

    with pytest.raises(AirflowException, match=r"daily_sales for 2026-11-23 .*:\n.*it is so") as raised:
        runs.run()

    assert isinstance(raised.value, AirflowFailException) == is_final
    assert [event.extra for event in runs.events.values()] == [{}]


def scheduled() -> Any:
    """The DAG as the scheduler has it."""
    dag = batch_dag(NAME)
    return DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag))


def test_by_its_schedule_it_computes_the_day_before() -> None:
    info = scheduled().next_dagrun_info(last_automated_run_info=None)

    assert info.run_after.hour == 2
    assert (info.run_after.date() - date.fromisoformat(info.partition_key)).days == 1


def test_a_backfill_has_a_run_per_day_up_to_the_day_before_its_end() -> None:
    """Airflow 3.2 takes the limits for times of runs, which compute the day before."""
    first, end = (datetime(2026, 11, day if AIRFLOW_3_3 else day + 1, tzinfo=UTC) for day in (10, 13))
    days = scheduled().iter_dagrun_infos_between(first, end)

    assert [day.partition_key for day in days] == ["2026-11-10", "2026-11-11", "2026-11-12"]


def test_who_may_start_it_and_what_it_updates() -> None:
    dag = batch_dag(NAME, heavy_pool="heavy", owner="sales")
    (task,) = dag.tasks

    kinds = [kind.value for kind in dag.allowed_run_types or ()]  # type: ignore[attr-defined]
    assert sorted(kinds) == sorted([*BY_HAND, "backfill", "scheduled"])
    assert (task.pool, task.owner, task.outlets) == ("heavy", "sales", [table_asset(NAME)])
    assert "enriched_orders" in str(dag.doc_md)


def test_a_project_has_a_dag_per_batch_job() -> None:
    assert list(batch_dags()) == ["daily_sales__batch"]
    with pytest.raises(ConfigurationError, match="There is no batch job 'weekly'"):
        batch_dags(["weekly"])
