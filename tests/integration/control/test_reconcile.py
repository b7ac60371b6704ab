"""What is restarted, attached to, waited for and given up, on a real PostgreSQL and with real processes."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import sqlalchemy as sa

from deltaworks import exits
from deltaworks.control.model import Decision, Deployment
from deltaworks.control.policy import RestartPolicy
from deltaworks.control.reconcile import reconcile
from deltaworks.control.registry import supervised
from deltaworks.errors import ConflictError, ControlUnavailableError, StackError
from tests.integration.control.conftest import Control
from tests.integration.control.test_actions import deploy as deploy_by
from tests.integration.control.test_actions import (
    drivers,
    observe,
    paths,
    pid_of,
    started,
    stop,
    unregistered_driver,
    without_registry,
)
from tests.support.polling import until

AT_ONCE = RestartPolicy(first_s=0.0)
RECONCILE = """
import os
from deltaworks.control.policy import RestartPolicy
from deltaworks.control.reconcile import reconcile
from deltaworks.settings import Settings
(decision,) = reconcile(Settings.from_environment(), claimed_by=str(os.getpid()), policy=RestartPolicy(first_s=0.0))
print(decision.action, flush=True)
"""


def deploy(control: Control, **more: object) -> Deployment:
    """As a run of a DAG does it."""
    return deploy_by(control, **{"requested_by": "airflow test", **more})


def look(control: Control, policy: RestartPolicy = AT_ONCE, **more: object) -> Decision:
    known: dict[str, object] = {"claimed_by": "test", "policy": policy, "launchers": control.launchers}
    (decision,) = reconcile(control.settings, **{**known, **more})  # type: ignore[arg-type]
    return decision


def kill(control: Control, generation: int) -> None:
    deployment = control.registry.deployment("p", generation)
    assert deployment is not None
    os.kill(pid_of(deployment), signal.SIGKILL)
    until(lambda: observe(control, generation).state == "dead")


def heal(control: Control, policy: RestartPolicy = AT_ONCE) -> int:
    """What Airflow does with a `restart`."""
    decision = look(control, policy)
    assert decision.action == "restart", decision
    return deploy(control, expected_generation=decision.generation).generation


def test_what_runs_or_should_not_run_is_left_alone(control: Control) -> None:
    assert reconcile(control.settings, claimed_by="test") == []
    deploy(control)
    assert look(control).action == "nothing"

    stop(control)

    decision = look(control)
    assert (decision.action, decision.reason) == ("nothing", "it should not run")


def test_a_killed_stream_is_restarted_once(control: Control) -> None:
    deploy(control)
    kill(control, 1)

    decision = look(control)

    assert (decision.action, decision.generation) == ("restart", 1)
    assert decision.reason == "dead: its process was killed, or crashed without leaving a reason"
    assert look(control, claimed_by="another").action == "wait"
    assert look(control).action == "restart", "it may have been killed before it could act"
    assert deploy(control, expected_generation=1).generation == 2
    assert look(control).action == "nothing"
    assert len(drivers(control)) == 1
    with pytest.raises(ConflictError):
        deploy(control, expected_generation=1)


def test_whoever_looks_late_hears_that_it_had_failed(control: Control) -> None:
    """A supervisor that was away while its stream died and was brought back."""
    deploy(control)
    kill(control, 1)
    heal(control)

    seen = observe(control, 1)

    assert seen.state == "failed"
    assert seen.reason is not None and "killed" in seen.reason and "generation 2 has taken over" in seen.reason


def test_of_many_reconcilers_one_gets_the_restart(control: Control) -> None:
    deploy(control)
    kill(control, 1)
    processes = [started(control, RECONCILE) for _ in range(3)]
    with ThreadPoolExecutor(8) as pool:
        threads = list(pool.map(lambda n: look(control, claimed_by=f"thread {n}").action, range(16)))
    said = [process.communicate(timeout=60)[0].strip() for process in processes]

    assert sorted({*threads, *said}) == ["restart", "wait"]
    assert [*threads, *said].count("restart") == 1


def test_a_stream_that_hangs_is_restarted(control: Control) -> None:
    done = deploy(control)
    os.kill(pid_of(done), signal.SIGSTOP)
    until(lambda: observe(control, 1, stalled_after_s=0.3).state == "stalled")

    assert look(control).action == "nothing", "not yet: it may be a short pause"
    decision = look(control, stalled_after_s=0.3)
    assert decision.action == "restart"
    assert decision.reason.startswith("stalled: no heartbeat for")


def test_a_stream_that_was_drained_by_somebody_else_comes_back(control: Control) -> None:
    done = deploy(control)
    os.kill(pid_of(done), signal.SIGTERM)
    until(lambda: observe(control, 1).state == "stopped")

    assert look(control).action == "restart"


def test_after_a_restart_without_a_batch_comes_a_pause(control: Control) -> None:
    patient = RestartPolicy(first_s=60.0)
    deploy(control)
    kill(control, 1)
    assert heal(control, patient) == 2, "the first one comes at once"
    kill(control, 2)

    decision = look(control, patient)

    assert decision.action == "wait"
    assert "restart in" in decision.reason


def test_a_crash_loop_is_given_up_until_somebody_deploys(control: Control) -> None:
    deploy(control)
    for generation in range(1, 6):
        kill(control, generation)
        assert heal(control) == generation + 1
    assert control.registry.pipeline("p").restarts == 5  # type: ignore[union-attr]
    kill(control, 6)

    decision = look(control)

    assert (decision.action, decision.reason) == ("give_up", "5 restarts without a batch or 10 healthy minutes")
    assert look(control) == decision
    deploy(control)
    record = control.registry.pipeline("p")
    assert record is not None and (record.restarts, record.gave_up) == (0, None)


def test_kills_with_batches_in_between_are_no_crash_loop(control: Control) -> None:
    patient = RestartPolicy(first_s=60.0)
    deploy(control.with_driver("--commits"))
    for generation in range(1, 8):
        kill(control, generation)
        assert heal(control.with_driver("--commits"), patient) == generation + 1
    assert control.registry.pipeline("p").restarts == 1  # type: ignore[union-attr]


def test_a_healthy_period_forgets_the_restarts(control: Control) -> None:
    deploy(control)
    kill(control, 1)
    heal(control)
    assert control.registry.pipeline("p").restarts == 1  # type: ignore[union-attr]

    assert look(control).action == "nothing"
    assert control.registry.pipeline("p").restarts == 1  # type: ignore[union-attr]
    assert look(control, RestartPolicy(healthy_s=0.0)).action == "nothing"

    assert control.registry.pipeline("p").restarts == 0  # type: ignore[union-attr]


def test_what_a_restart_would_not_mend_is_given_up(control: Control) -> None:
    with pytest.raises(StackError):
        deploy(control.with_driver("--fail", str(exits.CONFIG)))

    decision = look(control)

    assert decision.action == "give_up"
    assert "exit code 78" in decision.reason and "it was told to fail" in decision.reason


def test_a_failure_that_may_pass_is_tried_again(control: Control) -> None:
    with pytest.raises(StackError):
        deploy(control.with_driver("--fail", str(exits.UNAVAILABLE)))

    assert heal(control) == 2
    assert observe(control, 2).state == "running"


def test_nothing_is_decided_while_somebody_deploys(control: Control) -> None:
    deploy(control)
    kill(control, 1)
    with control.registry.deploying("p"):
        assert look(control).action == "wait"


def test_a_stream_that_no_run_has_deployed_is_watched_at_once(control: Control) -> None:
    deploy(control, requested_by="somebody")

    assert look(control, attach=False).action == "nothing"
    assert look(control).action == "attach"


def test_a_stream_without_supervisor_gets_one_and_only_one(control: Control) -> None:
    deploy(control)
    soon = timedelta(0)
    assert look(control).action == "nothing", "a new deployment gets time to be supervised"

    assert look(control, unsupervised_after=soon).action == "attach"
    assert look(control, unsupervised_after=soon, claimed_by="another").action == "wait"
    assert supervised(control.settings, "p", 1, "dag run 1")
    assert look(control).action == "nothing"
    with sa.create_engine(control.settings.registry_url, poolclass=sa.NullPool).begin() as connection:
        late = "supervised_at - interval '121 s', launched_at = launched_at - interval '1 h'"
        connection.execute(
            sa.text(f"UPDATE deployments SET supervised_at = {late}, requested_at = requested_at - interval '1 h'")
        )
        connection.execute(sa.text("UPDATE pipelines SET claimed_at = claimed_at - interval '181 s'"))
    assert look(control).action == "attach"


def test_a_stop_that_the_registry_missed_is_made_up_for(control: Control) -> None:
    deploy(control)
    stop(without_registry(control))
    assert control.registry.pipeline("p").desired == "running"  # type: ignore[union-attr]

    assert look(control).action == "nothing"

    assert control.registry.pipeline("p").desired == "stopped"  # type: ignore[union-attr]
    assert control.registry.deployment("p", 1).state == "stopped"  # type: ignore[union-attr]
    assert look(control).action == "nothing"
    assert deploy(control).state == "running"
    assert look(control).action == "nothing", "the old stop is forgotten"


def test_a_run_by_hand_is_left_alone_and_followed_by_a_restart(control: Control) -> None:
    deploy(control)
    kill(control, 1)
    with unregistered_driver(control, 2) as driver:
        until(lambda: observe(control, 2).state == "running")
        assert look(control).action == "nothing"
        driver.terminate()
        driver.wait(10)

    assert heal(control) == 3


def test_a_pipeline_whose_files_cannot_be_read_does_not_hide_the_others(control: Control) -> None:
    deploy(control)
    kill(control, 1)
    paths(control).fence.unlink()
    paths(control).fence.mkdir()

    decision = look(control)

    assert decision.action == "wait"
    assert "cannot be looked at" in decision.reason


def test_without_the_registry_nothing_is_decided(control: Control) -> None:
    with pytest.raises(ControlUnavailableError):
        reconcile(without_registry(control).settings, claimed_by="test")
