"""How a supervising task ends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, TaskDeferred

from deltaworks.airflow.access import Access
from deltaworks.airflow.supervise import SuperviseOperator
from deltaworks.airflow.triggers import StreamTrigger


def operator() -> SuperviseOperator:
    return SuperviseOperator(task_id="supervise", pipeline="orders", generation=3)


def event(state: str, **more: Any) -> dict[str, Any]:
    return {"state": state, "reason": None, "exit_code": None, "log_lines": [], **more}


def context() -> Any:
    return {"dag_run": SimpleNamespace(run_id="manual__1")}


def test_it_defers_at_once() -> None:
    with pytest.raises(TaskDeferred) as deferred:
        operator().execute(context())

    trigger = deferred.value.trigger
    assert isinstance(trigger, StreamTrigger)
    assert (trigger.pipeline, trigger.generation, trigger.supervisor) == ("orders", 3, "airflow manual__1")
    assert (deferred.value.method_name, deferred.value.timeout) == ("ended", None)


def test_the_trigger_gets_the_id_of_the_connection_and_none_of_its_secrets() -> None:
    access = Access(conn_id="shop", project="/srv/shop")
    with pytest.raises(TaskDeferred) as deferred:
        SuperviseOperator(task_id="supervise", pipeline="orders", generation=3, access=access).execute(context())

    arguments = deferred.value.trigger.serialize()[1]
    assert (arguments["conn_id"], arguments["project"]) == ("shop", "/srv/shop")


@pytest.mark.parametrize("state", ["stopped", "superseded"])
def test_a_stream_that_was_stopped_or_replaced_is_a_success(state: str) -> None:
    assert operator().ended(context(), event(state)) == state


def test_a_stream_that_failed_fails_the_task_for_good_with_the_reason() -> None:
    failed = event("failed", reason="Kafka does not answer", exit_code=69)

    with pytest.raises(AirflowFailException) as error:
        operator().ended(context(), failed)

    assert str(error.value).splitlines() == [
        "orders, generation 3: failed with exit code 69: Kafka does not answer",
        "The supervisor restarts it, unless it has failed too often; streams__reconcile supervises it again.",
    ]


def test_an_exit_code_that_forbids_a_restart_says_that_somebody_has_to_act() -> None:
    with pytest.raises(AirflowFailException, match="It is not restarted"):
        operator().ended(context(), event("failed", reason="a record does not decode", exit_code=65))


def test_a_killed_stream_has_no_exit_code() -> None:
    with pytest.raises(AirflowFailException, match=r"generation 3: dead: reason unknown\n"):
        operator().ended(context(), event("dead"))
