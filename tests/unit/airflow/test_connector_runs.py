"""The DAG of a connector under Airflow's own rules: which tasks run, and that the password is nowhere."""

from __future__ import annotations

import pytest

from tests.unit.airflow.connector_runs import PASSWORD, SECRET, Run, ended


@pytest.fixture(scope="module")
def runs() -> dict[str, Run]:
    return ended()


def tasks(run: Run, state: str = "success") -> set[str]:
    return {name for name, each in run.tasks.items() if each == state}


def test_a_deployment_plans_and_applies(runs: dict[str, Run]) -> None:
    run = runs["deployed"]

    assert (run.state, tasks(run)) == ("success", {"action", "plan", "apply"})
    assert tasks(run, "skipped") == {"approve", "operate"}
    assert run.asked == ["PUT /connectors/lines/config"]
    assert "topic" in run.kept and "***" in run.kept, "the plan is an XCom"
    assert "topic: old -> lines" in run.said


def test_what_is_not_confirmed_is_not_done(runs: dict[str, Run]) -> None:
    run = runs["not confirmed"]

    assert (run.state, run.asked) == ("failed", [])
    assert tasks(run, "failed") == {"action"}


def test_a_stop_and_a_confirmed_deletion_are_done_without_a_plan(runs: dict[str, Run]) -> None:
    for name, asked in (("stopped", "PUT /connectors/lines/stop"), ("deleted", "DELETE /connectors/lines")):
        run = runs[name]
        assert (run.state, tasks(run), run.asked) == ("success", {"action", "operate"}, [asked])
        assert tasks(run, "skipped") == {"approve", "plan", "apply"}


def test_what_is_gone_has_nothing_to_delete(runs: dict[str, Run]) -> None:
    assert (runs["deleted again"].tasks["operate"], runs["deleted again"].asked) == ("skipped", [])


@pytest.mark.parametrize("secret", [PASSWORD, SECRET])
def test_nobody_who_sees_a_run_sees_a_secret(runs: dict[str, Run], secret: str) -> None:
    assert [name for name, run in runs.items() if secret in f"{run.kept}{run.said}"] == []
