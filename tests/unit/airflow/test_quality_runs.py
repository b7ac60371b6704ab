"""A quality DAG under Airflow's own rules: with Great Expectations in the process of the task, on real tables."""

from __future__ import annotations

import pytest

from tests.unit.airflow.quality_runs import Run, ended


@pytest.fixture(scope="module")
def runs() -> dict[str, Run]:
    return ended()


def test_before_the_first_batch_the_check_is_skipped(runs: dict[str, Run]) -> None:
    run = runs["before the first batch"]

    assert (run.state, run.task, run.outcomes) == ("success", "skipped", {})


def test_tables_that_are_as_they_should_be_pass(runs: dict[str, Run]) -> None:
    run = runs["as they should be"]

    assert (run.state, run.task) == ("success", "success")
    assert run.outcomes.keys() == {"passed"}


def test_damaged_tables_fail_the_run_say_why_and_are_not_checked_again(runs: dict[str, Run]) -> None:
    run = runs["damaged"]

    assert (run.state, run.task) == ("failed", "failed")
    assert run.outcomes["failed"] >= 1
    said = "\n".join(run.said)
    for words in ("price times quantity", "Revenue is the sum of values", "rows, such as:", "total_value="):
        assert words in said
    assert said.count("price times quantity") == 1
