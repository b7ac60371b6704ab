"""Stores beside executors are asked while an executor and the server beside it are killed; each answer is compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.live_stack import LiveStack
from tests.system.breakages import begin_anew
from tests.system.queries.cluster import asked_on_a_cluster
from tests.system.queries.job.asked import pipeline


@pytest.mark.slow  # three minutes
@pytest.mark.timeout(600)
def test_every_answer_of_stores_beside_executors_is_of_the_batch_that_it_names(
    kafka: LiveStack, tmp_path: Path
) -> None:
    try:
        run = asked_on_a_cluster(kafka.settings, tmp_path, ("executor", "store server"), rate=100.0)
    finally:
        begin_anew(kafka.settings, pipeline)
    assert run.wrong == []
    assert run.kills == {"executor": 1, "store server": 1, "store": 0}
    assert len(run.asked.answers) > 100
