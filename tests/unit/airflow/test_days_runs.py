"""`streams__days` under Airflow's own rules: its events reach who waits for the tables, and none comes twice."""

from __future__ import annotations

import pytest

from tests.unit.airflow.days_runs import Run, ended
from tests.unit.control.test_closed_days import DAY, PLAIN


@pytest.fixture(scope="module")
def runs() -> dict[str, Run]:
    return ended()


def test_before_the_first_batch_nothing_is_told(runs: dict[str, Run]) -> None:
    assert runs["before the first batch"] == Run("success", {}, [])


def test_a_day_that_has_closed_starts_who_waits_for_its_table(runs: dict[str, Run]) -> None:
    run = runs["a day has closed"]

    assert run == Run("success", {table: [DAY.isoformat()] for table in PLAIN}, ["waits_for_orders"])


def test_nobody_is_told_twice(runs: dict[str, Run]) -> None:
    assert runs["once more"] == runs["a day has closed"]


def test_each_day_is_told(runs: dict[str, Run]) -> None:
    assert runs["a day later"].told["orders"] == [DAY.isoformat(), "2026-09-22"]
