"""The tasks of `streams__dead_letters`: what they list, what they ask, and that nothing is sent without an approval."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from deltaworks.airflow.dead_letters import DAG_ID, ApproveResendOperator, dead_letters_dag, look, markdown, send
from deltaworks.control import questions, resends
from deltaworks.lakehouse.dead_letters import Wanted
from deltaworks.settings import Settings
from tests.unit.control.test_resends import NAME, Desk, letter


class Instance:
    """The XComs of a run."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    def xcom_push(self, key: str, value: Any) -> None:
        self.kept[key] = value

    def xcom_pull(self, task_ids: str, key: str) -> Any:
        return self.kept.get(key)


@pytest.fixture
def desk(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(tmp_path, monkeypatch)


def params(**given: Any) -> dict[str, Any]:
    form = {
        "pipeline": NAME,
        "action": "send",
        "operator": None,
        "error": None,
        "key": None,
        "since": None,
        "until": None,
    }
    return {**form, **given}


def context(**given: Any) -> Any:
    return given


RUN = SimpleNamespace(triggering_user_name="ann", run_type="manual", dag_id=DAG_ID, run_id="manual__1")


def test_they_are_listed(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    desk.fail(0, letter(1), letter(2, "lines"))
    instance = Instance()

    assert look(params(action="list"), instance) is None

    assert f"2 dead letters of {NAME}" in caplog.text and "in-0@1: number: ValueError: m" in caplog.text
    assert instance.kept == {}


def test_what_was_found_and_approved_is_sent_and_nothing_that_failed_since(desk: Desk) -> None:
    desk.fail(0, letter(1), letter(2, partition=1), letter(3, "gone"))
    instance = Instance()
    operator = ApproveResendOperator(task_id="approve")

    assert look(params(), instance) == "approve"
    assert instance.kept == {"newest": {"in-0": 1, "in-1": 2}}
    desk.fail(1, letter(4), letter(5, partition=1))
    with pytest.raises(AirflowFailException, match="Nobody has approved this"):
        send(params(), instance, RUN)
    assert desk.records == []
    body = markdown(resends.plan(Settings.from_environment(), NAME, Wanted(), instance.kept["newest"]))
    assert "| `number` | `ValueError` | 2 |  | yes |" in body
    assert "| `gone` | `ValueError` | 1 |  | the topology has no such operator |" not in body, "it is later than in-0@1"
    instance.xcom_push("approved_by", "eve")
    assert send(params(), instance, RUN) == 2
    assert send(params(), instance, RUN) == 0, "a task that is tried again"
    with pytest.raises(AirflowSkipException, match="somebody has sent them meanwhile"):
        operator.execute(context(params=params(), ti=instance))
    assert [partition for partition, *_ in desk.records] == [0, 1]


def test_they_are_an_incident_while_nobody_has_answered(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.fail(0, letter(1), letter(2))
    operator, instance = ApproveResendOperator(task_id="approve"), Instance()
    monkeypatch.setattr(ApprovalOperator, "execute", lambda *_: None)
    look(params(), instance)

    operator.execute(context(params=params(), ti=instance, dag_run=RUN))

    [found] = questions.waiting(desk.settings, lambda _: True)
    assert (found.pipeline, found.kind, found.place) == (NAME, "approval_waits", "streams__dead_letters/runs/manual__1")
    assert found.what == "2 dead letters wait for an approval to be sent again"


def test_who_has_answered_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = ApproveResendOperator(task_id="approve")
    monkeypatch.setattr(ApprovalOperator, "execute_complete", lambda *_, **__: None)
    noted = []
    for answer in ("Reject", "Approve"):
        instance = Instance()
        event = {"chosen_options": [answer], "responded_by_user": {"id": "7", "name": "eve"}}
        operator.execute_complete(context(ti=instance, dag_run=RUN), event)
        noted.append(instance.kept)

    assert noted == [{"rejected_by": "eve"}, {"approved_by": "eve"}]


def test_whoever_has_asked_may_not_approve_where_it_has_to_be_somebody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    dag = dead_letters_dag(approval="other person")
    operator, instance = dag.get_task("approve"), Instance()
    assert isinstance(operator, ApproveResendOperator)
    asked = []
    monkeypatch.setattr(ApproveResendOperator, "execute", lambda *_: asked.append("again"))
    event = {"chosen_options": ["Approve"], "responded_by_user": {"id": "7", "name": "ann"}}

    operator.execute_complete(context(ti=instance, dag_run=RUN), event)

    assert (asked, instance.kept) == (["again"], {})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"pipeline": "none"}, "none"),
        ({"since": "soon"}, "'soon' is no time"),
        ({"since": "2026-03-02T00:00", "until": "2026-03-01T00:00"}, "The range of times is empty"),
    ],
)
def test_what_cannot_be_meant_fails_without_a_retry(desk: Desk, given: dict[str, Any], said: str) -> None:
    with pytest.raises(AirflowFailException, match=said):
        look(params(**given), Instance())


def test_the_form_offers_the_pipelines(desk: Desk) -> None:
    form = dead_letters_dag().params

    assert form.get_param("pipeline").schema["enum"] == ["beside", "elsewhere", NAME]
    assert form["action"] == "list"
