"""Airflow says whether a task still waits for an answer."""

from __future__ import annotations

from typing import Any

import pytest

from deltaworks.airflow.asking import still_waits
from deltaworks.control.questions import Question

QUESTION = Question(pipeline="orders", dag="streams__dead_letters", run="manual__1", task="approve", what="some wait")


class Airflow:
    """Knows the states of tasks, or does not answer."""

    def __init__(self, states: dict[str, Any] | Exception) -> None:
        self.states = states

    def get_task_states(self, *, dag_id: str, task_ids: list[str], run_ids: list[str]) -> dict[str, Any]:
        assert (dag_id, task_ids, run_ids) == ("streams__dead_letters", ["approve"], ["manual__1"])
        if isinstance(self.states, Exception):
            raise self.states
        return self.states


@pytest.mark.parametrize(
    ("state", "waits"),
    [
        ("running", True),
        ("awaiting_input", True),
        ("deferred", True),
        ("up_for_retry", True),
        (None, True),
        ("success", False),
        ("failed", False),
        ("skipped", False),
    ],
)
def test_a_task_waits_until_it_has_ended(state: str | None, waits: bool) -> None:
    assert still_waits(Airflow({"manual__1": {"approve": state}}))(QUESTION) is waits


def test_a_run_that_is_gone_waits_no_more() -> None:
    assert still_waits(Airflow({}))(QUESTION) is False


def test_nothing_is_over_while_airflow_does_not_answer() -> None:
    assert still_waits(Airflow(RuntimeError("API_SERVER_ERROR")))(QUESTION) is True
