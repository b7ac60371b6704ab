"""The page of the streams within a real Airflow, in a real browser, while a stream runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deltaworks.stack.airflow import credentials
from tests.integration.own_stack.conftest import JOB, NewPipeline, stack_of_a_copy, write_job
from tests.integration.own_stack.test_new_pipeline import LINES, produce
from tests.support.browser import Person, chromium

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
NAME = "watched"


@pytest.fixture
def stack() -> Iterator[NewPipeline]:
    people = "eve:viewer, ada:operator"
    job = JOB.format(name=NAME)
    with stack_of_a_copy(NAME, lambda project: write_job(project, NAME, job), airflow_users=people) as running:
        yield running


def test_an_operator_and_a_viewer_find_a_stream_in_the_menu(stack: NewPipeline) -> None:
    stack.deltaworks("deploy", NAME)
    produce(stack, *LINES)
    stack.airflow.wait("the bad ones are set aside", lambda: len(stack.table(f"{NAME}_dead")) == 2)

    login = credentials(stack.settings)
    with chromium() as browser:
        for name, role, sees_words in (("ada", "operator", True), ("eve", "viewer", False)):
            person = Person(browser, login.url, login.file, name)
            shown = person.stream(NAME, "ValueError")

            assert role in shown.split("All streams")[0]
            assert "running" in shown and f"{NAME}-lines" in shown and f"{NAME}_counts" in shown
            assert ("boom is no word" in shown) == sees_words, "an error may quote a record"
            assert ("what they say is for operators" in shown) != sees_words
