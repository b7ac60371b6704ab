"""The heavy phases as processes, and the question whether to publish."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.standard.operators import hitl
from airflow.sdk import DAG
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    DownstreamTasksSkipped,
)

from deltaworks import processes
from deltaworks.airflow import replay_tasks
from deltaworks.airflow.replay import replay_dag
from deltaworks.airflow.replay_operators import ApproveReplayOperator, PhaseOperator, PublishOperator
from deltaworks.replay import handover
from deltaworks.replay.model import Phase, ReplayPaths
from deltaworks.replay.waiting import waiting
from deltaworks.settings import Settings
from tests.unit.airflow.replays import planned, project_settings, write_findings
from tests.unit.airflow.since import WAITS

NAME = "wordcount"
_DONE = """
import msgspec
from deltaworks.replay.model import ReplayPaths, ReplayState
paths = ReplayPaths(__import__("pathlib").Path({root!r}), None)
state = paths.read_state()
state.done.append({phase!r})
state.passed = {passed!r}
paths.write_state(state)
"""


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    return project_settings(tmp_path, monkeypatch)


class Commands:
    """What is run instead of the command line."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.run: list[list[str]] = []
        self.code = ""
        real = PhaseOperator._command

        def command(operator: PhaseOperator) -> list[str]:
            self.run.append(real(operator)[1:])
            return [sys.executable, "-u", "-c", self.code]

        monkeypatch.setattr(PhaseOperator, "_command", command)

    def does(self, paths: ReplayPaths, phase: Phase, *, passed: bool | None = None, then: str = "") -> None:
        self.code = _DONE.format(root=str(paths.root), phase=phase, passed=passed) + then


@pytest.fixture
def commands(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Commands:
    return Commands(monkeypatch)


def heavy(phase: Any = "run") -> PhaseOperator:
    return PhaseOperator(task_id=phase, pipeline=NAME, replay="r", phase=phase)


def execute(operator: PhaseOperator) -> None:
    operator.execute({})


def test_a_heavy_phase_is_the_command_line_in_a_process_whose_lines_are_logged(
    settings: Settings, commands: Commands, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = planned(settings, NAME, "r")
    commands.does(paths, "run", then="print('12,345 records', flush=True)")

    execute(heavy())

    assert commands.run == [["-u", "-m", "deltaworks.cli", "replay", NAME, "--resume", "r", "--until", "run"]]
    assert "12,345 records" in capsys.readouterr().out
    assert (paths.root / "log").read_text() == "12,345 records\n"


def test_its_process_has_the_settings_and_none_of_airflows(
    settings: Settings, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", "secret")
    paths = planned(settings, NAME, "r")
    commands.does(paths, "run", then="import os; print(sorted(os.environ), flush=True)")

    execute(heavy())

    assert "DELTAWORKS_HOME" in (said := (paths.root / "log").read_text())
    assert "AIRFLOW__" not in said


def test_a_phase_that_is_done_is_not_done_again(settings: Settings, commands: Commands) -> None:
    planned(settings, NAME, "r", "run")

    execute(heavy())

    assert commands.run == []


def test_a_gate_does_not_run_the_phases_before_it(settings: Settings, commands: Commands) -> None:
    planned(settings, NAME, "r")

    with pytest.raises(AirflowFailException, match="gate follows run"):
        execute(heavy("gate"))

    assert commands.run == []


def test_after_the_end_there_is_nothing_to_do(settings: Settings, commands: Commands) -> None:
    paths = planned(settings, NAME, "r")
    paths.publication.parent.mkdir()
    paths.publication.write_text("{}")
    paths.plan.unlink()

    execute(heavy())

    assert commands.run == []


@pytest.mark.parametrize(
    ("code", "retried"), [(65, False), (78, False), (2, False), (69, True), (70, True), (73, True), (75, True)]
)
def test_its_exit_code_says_whether_a_retry_can_help(
    settings: Settings, commands: Commands, code: int, retried: bool
) -> None:
    planned(settings, NAME, "r")
    commands.code = f"print('error: this is why'); raise SystemExit({code})"

    with pytest.raises(AirflowException, match=rf"(?s)run ended with exit code {code}:.*this is why") as error:
        execute(heavy())

    assert isinstance(error.value, AirflowFailException) is not retried


def test_one_that_was_killed_is_tried_again(settings: Settings, commands: Commands) -> None:
    planned(settings, NAME, "r")
    commands.code = "import os; os.kill(os.getpid(), 9)"

    with pytest.raises(AirflowException, match="was ended by signal 9") as error:
        execute(heavy())

    assert not isinstance(error.value, AirflowFailException)


def test_one_that_says_it_is_done_and_is_not_has_failed(settings: Settings, commands: Commands) -> None:
    planned(settings, NAME, "r")
    commands.code = "print('well')"

    with pytest.raises(AirflowException, match="ended with exit code 0"):
        execute(heavy())


def test_a_gate_that_is_passed_is_a_success(settings: Settings, commands: Commands) -> None:
    paths = planned(settings, NAME, "r", "run", "compare")
    commands.does(paths, "gate", passed=True)

    execute(heavy("gate"))

    assert paths.root.exists()


@pytest.mark.parametrize("code", [0, 1])
def test_a_gate_that_is_not_passed_fails_for_good_keeps_the_tables_and_says_how_to_discard_them(
    settings: Settings, commands: Commands, code: int
) -> None:
    paths = planned(settings, NAME, "r", "run", "compare")
    commands.does(paths, "gate", passed=False, then=f"raise SystemExit({code})")
    for _ in range(2):  # when the task is cleared, the gate is asked again
        with pytest.raises(AirflowFailException, match=r"(?s)not passed the gate.*deltaworks discard r"):
            execute(heavy("gate"))

    assert len(commands.run) == 2
    assert paths.plan.exists()


def test_a_hand_over_is_a_process_of_its_own_and_needs_the_approval_all_the_same(
    settings: Settings, commands: Commands
) -> None:
    paths = planned(settings, NAME, "r", "run", "compare", "gate", passed=True, hand_over=True)
    commands.does(paths, "publish", passed=True)
    operator = PublishOperator(task_id="publish", pipeline=NAME, replay="r")
    given: dict[str, str | None] = {"approved_by": None}

    class Pulled:
        def xcom_pull(self, task_ids: str, key: str) -> str | None:
            return given[key]

    context: Any = {"params": {"approval": True}, "ti": Pulled()}
    with pytest.raises(AirflowFailException, match="Nobody has approved this"):
        operator.execute(context)
    assert commands.run == []

    given["approved_by"] = "admin"
    operator.execute(context)
    approval = paths.read_state().approval
    assert approval is not None and approval.by == "airflow admin"
    assert handover.request_of(paths, paths.read_plan()).approved_by == "airflow admin"
    [command] = commands.run
    assert command[-6:] == ["replay", NAME, "--resume", "r", "--until", "publish", "--yes"][-6:]


def test_on_kill_ends_the_process(settings: Settings, commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    planned(settings, NAME, "r")
    commands.code = "import time; print('up', flush=True); time.sleep(600)"
    operator = heavy()

    def said(text: str, *line: str) -> None:
        if line == ("up",):
            operator.on_kill()

    monkeypatch.setattr(operator.log, "info", said)

    with pytest.raises(AirflowException, match="was ended by signal"):
        execute(operator)

    assert processes.registered(settings.run) == []


def test_on_kill_before_there_is_a_process_is_nothing() -> None:
    heavy().on_kill()


class Asked:
    """The task `approve` of a real DAG, and what it hands on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        dag = replay_dag(NAME)
        assert isinstance(dag, DAG)
        operator = dag.get_task("approve")
        assert isinstance(operator, ApproveReplayOperator)
        operator.replay = "r"
        self.operator = operator
        self.xcom: dict[str, Any] = {}
        self.shown: dict[str, Any] = {}
        self.task, self.id, self.map_index = operator, "ti", -1
        monkeypatch.setattr(hitl, "upsert_hitl_detail", lambda **detail: self.shown.update(detail))

    def xcom_push(self, key: str, value: Any) -> None:
        self.xcom[key] = value

    def ask(self, approval: bool = True) -> None:
        dag_run = SimpleNamespace(dag_id="wordcount__replay", run_id="manual__1")
        context: Any = {"params": {"approval": approval}, "task_instance": self, "ti": self, "dag_run": dag_run}
        self.operator.execute(context)

    def answer(self, option: str) -> list[str]:
        """The tasks that are skipped then."""
        event = {
            "chosen_options": [option],
            "params_input": {},
            "responded_at": datetime.now(UTC),
            "responded_by_user": {"id": "1", "name": "ada"},
        }
        context: Any = {"ti": self, "task_instance": self, "task": self.operator}
        with pytest.raises(DownstreamTasksSkipped) as skipped:
            self.operator.execute_complete(context, event)
        return [task if isinstance(task, str) else task[0] for task in skipped.value.tasks]


@pytest.fixture
def asked(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(monkeypatch)


def ready(settings: Settings, *more: Phase) -> ReplayPaths:
    paths = planned(settings, NAME, "r", "run", "compare", "gate", *more, passed=True)
    write_findings(paths)
    return paths


def test_a_person_is_asked_with_the_differences_and_the_gate_in_front_of_him(settings: Settings, asked: Asked) -> None:
    ready(settings)

    with pytest.raises(WAITS):
        asked.ask()

    assert asked.shown["options"] == ["Approve", "Reject"]
    assert asked.shown["subject"] == "Publish this replay of wordcount?"
    assert "12 rows differ" in asked.shown["body"]
    assert "1 of 1 expectations and invariants hold" in asked.shown["body"]
    assert "### Who reads it" in asked.shown["body"]


def test_a_replay_is_an_incident_while_somebody_is_asked(settings: Settings, asked: Asked) -> None:
    paths = ready(settings)
    assert waiting(settings) == []

    with pytest.raises(WAITS):
        asked.ask()

    [finding] = waiting(settings)
    assert (finding.pipeline, finding.kind, finding.key) == (NAME, "approval_waits", "r")
    assert (finding.cause, finding.place) == ("prices", "wordcount__replay/runs/manual__1")
    run = replay_tasks.resume(settings, "r")
    with run.held():
        run.approve("ada")
    assert waiting(settings) == []
    paths.remove()
    assert waiting(settings) == []


def test_values_of_tables_are_not_templates() -> None:
    assert "body" not in ApproveReplayOperator.template_fields


def test_nobody_is_asked_if_the_form_says_so(settings: Settings, asked: Asked) -> None:
    ready(settings)

    with pytest.raises(AirflowSkipException, match="no approval was requested"):
        asked.ask(approval=False)

    assert asked.shown == {}


def test_nobody_is_asked_for_what_is_published_already(settings: Settings, asked: Asked) -> None:
    ready(settings, "publish")

    with pytest.raises(AirflowSkipException, match="is published"):
        asked.ask()


def test_an_approval_leads_to_publish_and_names_who_gave_it(asked: Asked) -> None:
    assert asked.answer("Approve") == ["discard"]
    assert asked.xcom["approved_by"] == "ada"
    assert asked.xcom["skipmixin_key"] == {"followed": ["publish"]}


def test_a_rejection_leads_to_discard_and_is_no_approval(asked: Asked) -> None:
    assert asked.answer("Reject") == ["publish"]
    assert "approved_by" not in asked.xcom
    assert asked.xcom["rejected_by"] == "ada"
    assert asked.xcom["skipmixin_key"] == {"followed": ["discard"]}
