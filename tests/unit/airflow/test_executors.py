"""Where tasks may run, and what that means for the supervisor."""

from __future__ import annotations

from pathlib import Path

import pytest

from deltaworks.airflow.access import Access
from deltaworks.airflow.executors import may_run_anywhere

EXECUTOR = "AIRFLOW__CORE__EXECUTOR"


@pytest.fixture(autouse=True)
def project(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DELTAWORKS_PROJECT", str(tmp_path))
    monkeypatch.delenv("DELTAWORKS_SUPERVISOR", raising=False)


@pytest.mark.parametrize(
    ("executors", "anywhere"),
    [
        ("LocalExecutor", False),
        ("airflow.executors.local_executor.LocalExecutor", False),
        ("CeleryExecutor", True),
        ("KubernetesExecutor", True),
        ("LocalExecutor,KubernetesExecutor", True),
        ("LocalExecutor, pods:company.executors.PodExecutor", True),
        ("LocalExecutor;team1=CeleryExecutor", True),
    ],
)
def test_tasks_of_other_executors_may_run_anywhere(
    monkeypatch: pytest.MonkeyPatch, executors: str, anywhere: bool
) -> None:
    monkeypatch.setenv(EXECUTOR, executors)

    assert may_run_anywhere() is anywhere
    assert Access().settings().supervisor == ("elsewhere" if anywhere else "here")


def test_the_pod_of_a_task_is_gone_after_it_whatever_its_configuration_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(EXECUTOR, "LocalExecutor")
    monkeypatch.setenv("AIRFLOW_IS_K8S_EXECUTOR_POD", "True")

    assert may_run_anywhere()


def test_workers_that_all_run_on_one_machine_may_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(EXECUTOR, "CeleryExecutor")
    monkeypatch.setenv("DELTAWORKS_SUPERVISOR", "here")

    assert Access().settings().supervisor == "here"


def test_a_connection_does_not_change_where_tasks_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(EXECUTOR, "CeleryExecutor")
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", '{"conn_type": "deltaworks"}')

    assert Access(conn_id="shop").settings().supervisor == "elsewhere"
