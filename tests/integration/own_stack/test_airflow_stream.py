"""A stream under real Airflow: what happens to its tasks does not happen to it, and what happens to it is healed."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass

import pytest

from deltaworks.airflow.reconcile import DAG_ID as RECONCILE
from deltaworks.control import heartbeat
from deltaworks.control.heartbeat import Heartbeat
from deltaworks.control.paths import PipelinePaths
from tests.integration.own_stack.conftest import NewPipeline

ON_KILL_S = 3.0
"""What Airflow does to the trigger of a task that is marked or cleared is done after this long."""


@dataclass(frozen=True)
class Supervised:
    """A stream that runs, and the run that supervises it."""

    stack: NewPipeline
    run_id: str

    def beat(self) -> Heartbeat:
        beat = heartbeat.read(PipelinePaths.of(self.stack.settings, self.stack.name).heartbeat)
        assert beat is not None
        return beat

    def lives_on(self, before: Heartbeat) -> bool:
        """The same driver has beaten since, long enough after what was done to its task."""
        since = time.time()

        def beats() -> bool:
            beat = self.beat()
            assert (beat.pid, beat.generation, beat.state) == (before.pid, before.generation, "running")
            return beat.at > since + ON_KILL_S

        return bool(self.stack.airflow.wait("the stream lives on", beats))

    def supervise_is(self, state: str) -> bool:
        return bool(
            self.stack.airflow.wait(
                f"supervise is {state}", lambda: self.stack.state(self.run_id, "supervise") == state, timeout_s=120
            )
        )


@pytest.fixture
def supervised(new_pipeline: NewPipeline) -> Supervised:
    """By the run that does so already, if there is one.

    A run may watch a stream that has just been stopped: it has not noticed yet.
    """
    beat = heartbeat.read(PipelinePaths.of(new_pipeline.settings, new_pipeline.name).heartbeat)
    if beat is not None and beat.state == "running":
        for run in new_pipeline.airflow.runs(new_pipeline.dag_id):
            if not run.ended and new_pipeline.state(run.dag_run_id, "supervise") == "deferred":
                return Supervised(new_pipeline, run.dag_run_id)
    return Supervised(new_pipeline, new_pipeline.deployed())


def test_marking_clearing_and_failing_the_supervising_task_leaves_the_stream_alone(supervised: Supervised) -> None:
    airflow, dag_id, run_id = supervised.stack.airflow, supervised.stack.dag_id, supervised.run_id
    before = supervised.beat()

    airflow.patch_task(dag_id, run_id, "supervise", "failed")
    assert supervised.supervise_is("failed")
    assert supervised.lives_on(before)

    airflow.clear(dag_id, run_id, "supervise")
    assert supervised.supervise_is("deferred")

    airflow.patch_task(dag_id, run_id, "supervise", "success")
    assert supervised.supervise_is("success")
    assert supervised.lives_on(before)

    airflow.clear(dag_id, run_id, "deploy", "supervise")
    assert supervised.supervise_is("deferred")
    assert airflow.xcom(dag_id, run_id, "deploy") == {"generation": before.generation}

    airflow.patch_run(dag_id, run_id, "failed")
    assert supervised.supervise_is("failed")
    assert supervised.lives_on(before)

    airflow.clear(dag_id, run_id, "supervise")
    assert supervised.supervise_is("deferred")
    assert supervised.lives_on(before)


def test_a_killed_stream_fails_its_run_and_is_brought_back_and_watched_by_another_one(supervised: Supervised) -> None:
    stack, airflow = supervised.stack, supervised.stack.airflow
    before = supervised.beat()

    os.kill(before.pid, signal.SIGKILL)

    assert supervised.supervise_is("failed")
    tries = airflow.task(stack.dag_id, supervised.run_id, "supervise").try_number
    said = airflow.log(stack.dag_id, supervised.run_id, "supervise", tries)
    assert f"generation {before.generation}: " in said
    assert "its process was killed" in said
    assert "The supervisor restarts it" in said

    attached = airflow.wait("it is watched", lambda: attached_run(stack, before.generation + 1), timeout_s=120)
    healed = Supervised(stack, attached)
    assert healed.supervise_is("deferred")
    assert airflow.xcom(stack.dag_id, attached, "deploy") == {"generation": before.generation + 1}
    after = healed.beat()
    assert (after.generation, after.query_id) == (before.generation + 1, before.query_id)
    assert after.pid != before.pid


def attached_run(stack: NewPipeline, generation: int) -> str | None:
    """Lets the reconciler look, now and not at its next minute; the run that it made."""
    if all(run.ended for run in stack.airflow.runs(RECONCILE)):
        stack.airflow.trigger(RECONCILE)
    ids = [run.dag_run_id for run in stack.airflow.runs(stack.dag_id)]
    return next((run_id for run_id in ids if run_id.startswith(f"attach__generation_{generation}__")), None)


def test_the_stop_task_drains_and_may_be_cleared(supervised: Supervised) -> None:
    stack, airflow = supervised.stack, supervised.stack.airflow

    stop = airflow.trigger(stack.dag_id, {"action": "stop"})

    airflow.wait("it stopped", lambda: airflow.run(stack.dag_id, stop).state == "success")
    assert stack.state(stop, "deploy") == "skipped"
    assert supervised.beat().state == "stopped"
    assert supervised.supervise_is("success")

    airflow.clear(stack.dag_id, stop, "stop")

    airflow.wait("it ran again", lambda: airflow.task(stack.dag_id, stop, "stop").try_number == 2)
    airflow.wait("to no effect", lambda: stack.state(stop, "stop") == "success")


def test_a_pipeline_that_cannot_be_imported_is_one_error_and_goes_when_it_is_removed(new_pipeline: NewPipeline) -> None:
    airflow = new_pipeline.airflow
    before = {dag.dag_id for dag in airflow.dags()}
    broken = new_pipeline.project / "jobs" / "broken.py"

    broken.write_text("pipeline = (\n")
    errors = airflow.wait("the error is shown", lambda: airflow.import_errors() or None)

    assert [(error.bundle_name, error.filename) for error in errors] == [("pipelines", "jobs/broken.py")]
    assert "jobs/broken.py, line 1" in errors[0].stack_trace
    assert {dag.dag_id for dag in airflow.dags()} == before

    broken.unlink()
    airflow.wait("it is forgotten", lambda: airflow.import_errors() == [])
