"""Which tasks of a replay run after which answer, under Airflow's own rules."""

from __future__ import annotations

import pytest

from tests.unit.airflow.replay_runs import Run, ended
from tests.unit.airflow.since import AIRFLOW_3_3

ANSWERS = pytest.mark.skipif(not AIRFLOW_3_3, reason="nobody can answer in `dag.test` of Airflow 3.2")
BEFORE = ["plan", "run", "compare", "gate"]


@pytest.fixture(scope="module")
def runs() -> dict[str, Run]:
    return ended()


def test_without_approval_it_is_published_at_once_and_nobody_is_asked(runs: dict[str, Run]) -> None:
    run = runs["without approval"]

    assert (run.state, run.asked, run.left) == ("success", [], [])
    assert (run.tasks["approve"], run.tasks["discard"], run.tasks["clean"]) == ("skipped", "skipped", "success")
    assert run.phases == [*BEFORE, "publish", "verify", "quality"]


def test_another_action_plans_and_publishes_nothing(runs: dict[str, Run]) -> None:
    run = runs["discard"]

    assert (run.state, run.phases, run.asked) == ("success", [], [])
    assert {task for task, state in run.tasks.items() if state != "skipped"} == {"action"}, (
        "there was nothing to remove"
    )


@ANSWERS
def test_what_was_approved_is_published_and_cleaned_up(runs: dict[str, Run]) -> None:
    run = runs["approved"]

    assert (run.state, run.asked, run.left) == ("success", ["Publish this replay of wordcount?"], [])
    assert (run.tasks["approve"], run.tasks["discard"], run.tasks["clean"]) == ("success", "skipped", "success")
    assert run.phases == [*BEFORE, "publish", "verify", "quality"]


@ANSWERS
def test_what_was_rejected_is_discarded_and_not_published(runs: dict[str, Run]) -> None:
    run = runs["rejected"]

    assert (run.state, run.left) == ("success", [])
    assert (run.tasks["discard"], run.tasks["publish"], run.tasks["clean"]) == ("success", "skipped", "skipped")
    assert run.phases == BEFORE


def test_a_gate_that_is_not_passed_fails_the_run_and_keeps_the_tables(runs: dict[str, Run]) -> None:
    run = runs["gate not passed"]

    assert (run.state, run.asked, len(run.left)) == ("failed", [], 1)
    assert (run.tasks["gate"], run.tasks["publish"]) == ("failed", "upstream_failed")
    assert run.tasks["discard"] == "upstream_failed"
    assert run.phases == BEFORE


def test_marking_the_approval_neither_publishes_nor_discards(runs: dict[str, Run]) -> None:
    run = runs["approval marked as success"]

    assert (run.state, len(run.left)) == ("failed", 1)
    assert (run.tasks["publish"], run.tasks["discard"]) == ("failed", "skipped")
    assert run.phases == BEFORE


@ANSWERS
def test_the_answer_of_whoever_triggered_the_run_leaves_the_question_open(runs: dict[str, Run]) -> None:
    run = runs["approved by two"]

    assert (run.state, run.tasks["approve"], run.left) == ("success", "success", [])
    assert run.phases == [*BEFORE, "publish", "verify", "quality"]
    assert run.approved_by == ["airflow bob"]
