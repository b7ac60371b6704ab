"""What becomes of the decisions about streams."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from deltaworks.airflow.reconcile import connectors, look, run_of
from deltaworks.connectors import watch as connectors_watch
from deltaworks.connectors.supervision import Decision as ConnectorDecision
from deltaworks.control import questions, reconcile, watch
from deltaworks.control.incidents import Finding
from deltaworks.control.model import Action, Decision
from deltaworks.control.questions import Question
from deltaworks.control.supervisor import client
from deltaworks.errors import ConfigurationError, ConnectUnavailableError, ControlUnavailableError
from deltaworks.settings import Settings


def decision(action: Action) -> Decision:
    return Decision(pipeline="orders", action=action, generation=3, reason="so it is")


class World:
    """No stream needs anything, and no supervisor answers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
        self.started = 0
        monkeypatch.setenv("DELTAWORKS_HOME", str(home))
        monkeypatch.delenv("DELTAWORKS_SUPERVISOR", raising=False)
        monkeypatch.setattr(reconcile, "reconcile", lambda *_, **__: [])
        self.watched: list[Collection[str]] = []
        self.error: Exception | None = None
        monkeypatch.setattr(watch, "watch", self._watch)
        monkeypatch.setattr(client, "answers", lambda _: False)
        monkeypatch.setattr(client, "ensure", self._ensure)

    def _watch(self, settings: object, others: Sequence[Finding], of_others: Collection[str]) -> None:
        self.watched.append(of_others)
        self.found = [each.what for each in others]
        if self.error is not None:
            raise self.error

    def asked(self, run: str) -> None:
        """A task asks somebody, in a run that Airflow knows."""
        question = Question(
            pipeline="orders", dag="streams__dead_letters", run=run, task="approve", what=f"{run} waits"
        )
        questions.note(Settings.from_environment(), question)

    def _ensure(self, settings: object) -> None:
        self.started += 1


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    return World(monkeypatch, tmp_path)


@pytest.mark.parametrize(("executor", "started"), [("LocalExecutor", 1), ("CeleryExecutor", 0)])
def test_a_look_starts_the_supervisor_only_where_it_can_stay(
    world: World, monkeypatch: pytest.MonkeyPatch, executor: str, started: int
) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", executor)

    assert look(SimpleNamespace(run_id="scheduled__1")) == []
    assert world.started == started


def test_a_look_records_incidents(world: World) -> None:
    look(SimpleNamespace(run_id="scheduled__1"))

    assert world.watched == [["approval_waits"]]


def test_a_question_waits_until_its_task_has_ended(world: World) -> None:
    world.asked("manual__1")
    world.asked("manual__2")
    states = {"manual__1": {"approve": "awaiting_input"}, "manual__2": {"approve": "success"}}

    look(SimpleNamespace(run_id="scheduled__1"), SimpleNamespace(get_task_states=lambda **_: states))

    assert world.found == ["manual__1 waits"]


def test_incidents_that_cannot_be_recorded_keep_no_stream_from_its_restart(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.error = ControlUnavailableError("The registry's database has no tables yet.")
    monkeypatch.setattr(reconcile, "reconcile", lambda *_, **__: [decision("restart")])

    assert len(look(SimpleNamespace(run_id="scheduled__1"))) == 1


def test_connectors_are_looked_after_and_what_was_done_is_said(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    decided = [
        ConnectorDecision(name="cdc", action="restart", reason="1 of 1 tasks have failed"),
        ConnectorDecision(name="sink", action="nothing", reason="it runs"),
    ]
    monkeypatch.setattr(connectors_watch, "watch", lambda settings: tuple(decided))

    assert connectors() == {"cdc": "restart"}


def test_a_project_without_connectors_is_skipped(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connectors_watch, "watch", lambda settings: None)

    with pytest.raises(AirflowSkipException, match="no connectors"):
        connectors()


def test_kafka_connect_that_is_away_is_an_incident_and_no_red_task_every_minute(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(settings: object) -> None:
        raise ConnectUnavailableError("Kafka Connect does not answer")

    monkeypatch.setattr(connectors_watch, "watch", away)

    with pytest.raises(AirflowSkipException, match="does not answer"):
        connectors()


def test_connectors_that_cannot_be_looked_after_are_red(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(settings: object) -> None:
        raise ConfigurationError("The settings do not say where Kafka Connect is.")

    monkeypatch.setattr(connectors_watch, "watch", unknown)

    with pytest.raises(AirflowFailException, match="do not say where"):
        connectors()


def test_a_restart_is_a_run_that_expects_the_generation_that_ended() -> None:
    assert run_of(decision("restart"), "scheduled__1") == {
        "trigger_dag_id": "orders__stream",
        "trigger_run_id": "restart__generation_3__scheduled__1",
        "conf": {"action": "restart", "expected_generation": 3},
        "note": "restart: so it is",
    }


def test_an_unwatched_stream_is_watched_and_not_deployed() -> None:
    run = run_of(decision("attach"), "scheduled__1")

    assert run is not None
    assert run["conf"] == {"attach": 3}


def test_a_stream_that_is_given_up_is_told_once_however_often_it_is_found() -> None:
    runs = [run_of(decision("give_up"), f"scheduled__{minute}") for minute in range(3)]

    assert runs[0] is not None
    assert runs[0]["conf"] == {"given_up": "so it is"}
    assert {run["trigger_run_id"] for run in runs if run} == {"given_up__generation_3"}


@pytest.mark.parametrize("action", ["wait", "nothing"])
def test_there_is_no_run_where_nothing_is_to_be_done(action: Action) -> None:
    assert run_of(decision(action), "scheduled__1") is None


def test_a_reason_may_be_longer_than_a_note_in_airflow() -> None:
    decision = Decision(pipeline="orders", action="restart", generation=3, reason="x" * 5_000)

    run = run_of(decision, "scheduled__1")

    assert run is not None and len(run["note"]) <= 1_000
