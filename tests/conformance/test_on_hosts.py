"""Every recorded case on the streaming host's own tasks, with restarts and failed attempts."""

from __future__ import annotations

from itertools import islice

import pytest

from tests import mutation
from tests.conformance.data import curated, once_different, random
from tests.conformance.on_hosts import differing, task_hosts
from tests.conformance.run import run_case

PARTS = 4
"""Of the random cases: two minutes for all of them on a quiet machine, and more than five on one that is not."""


def test_a_case_is_the_same_on_the_tasks_of_the_streaming_host() -> None:
    assert differing([*curated(), *once_different()], task_hosts, cuts=1) == {}


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_random_cases_are_the_same_on_the_tasks_of_the_streaming_host(part: int) -> None:
    assert differing(islice(random(), part, None, PARTS), task_hosts, cuts=1) == {}


def test_an_attempt_that_leaves_something_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.apply("local store written before the batch is committed", monkeypatch.setattr)

    assert differing((case for case in curated() if case["family"] == "aggregates"), task_hosts, cuts=3) != {}


def test_a_case_on_the_host_task_has_the_form_of_a_recording() -> None:
    case = next(case for case in curated() if case["name"] == "word_count")

    found, recorded = run_case(case, host="task"), case["expected"]

    assert found["stores"] == recorded["stores"]
    shown, wanted = (
        sorted((row["topic"], row["key"], row["value"], row["timestamp"]) for row in each["outputs"])
        for each in (found, recorded)
    )
    assert shown == wanted
