"""A task gets the settings of its connection when it runs, under Airflow's own rules."""

from __future__ import annotations

import pytest

from tests.unit.airflow.connection_runs import SECRET, Run, ended


@pytest.fixture(scope="module")
def runs() -> dict[str, Run]:
    return ended()


def test_a_task_without_its_connection_fails(runs: dict[str, Run]) -> None:
    run = runs["without the connection"]

    assert (run.task, run.home) == ("failed", "")


def test_a_task_works_in_the_home_of_its_connection(runs: dict[str, Run]) -> None:
    run = runs["with the connection"]

    assert (run.task, run.home) == ("skipped", "own")


def test_airflow_shows_the_id_of_the_connection_and_nobody_its_secret(runs: dict[str, Run]) -> None:
    run = runs["with the connection"]

    assert "shop" in run.rendered
    assert run.said
    assert SECRET not in run.rendered + run.said


def test_a_task_finds_what_its_project_refers_to_in_the_database_of_airflow(runs: dict[str, Run]) -> None:
    run = runs["with a reference"]

    assert (run.task, run.home, run.password, run.handed_on) == ("skipped", "referring/own", SECRET, True)
    assert SECRET not in run.rendered + run.said
