"""The heavy phases as processes, and the question whether to publish."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
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
from deltaworks.control import questions
from deltaworks.replay import handover
from deltaworks.replay.model import Phase, ReplayPaths
from deltaworks.replay.waiting import waiting
from deltaworks.settings import Settings
from tests.unit.airflow.replays import planned, project_settings, write_findings, write_publication
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


def run_by(user: str | None) -> SimpleNamespace:
    """A run of the DAG; a schedule has no name."""
    return SimpleNamespace(triggering_user_name=user, dag_id="wordcount__replay", run_id="manual__1")


class Asked:
    """The task `approve` of a real DAG, and what it hands on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
        dag = replay_dag(NAME, **options)
        assert isinstance(dag, DAG)
        operator = dag.get_task("approve")
        assert isinstance(operator, ApproveReplayOperator)
        operator.replay = "r"
        self.operator = operator
        self.xcom: dict[str, Any] = {}
        self.shown: dict[str, Any] = {}
        self.task, self.id, self.map_index = operator, "ti", -1
        self.dag_run = run_by("ada")
        monkeypatch.setattr(hitl, "upsert_hitl_detail", lambda **detail: self.shown.update(detail))

    def xcom_push(self, key: str, value: Any) -> None:
        self.xcom[key] = value

    def ask(self, approval: bool = True) -> None:
        self.operator.execute(self._context(approval))

    def answer(self, option: str, by: str | None = "ada") -> list[str]:
        """The tasks that are skipped then."""
        with pytest.raises(DownstreamTasksSkipped) as skipped:
            self.heard(option, by)
        return [task if isinstance(task, str) else task[0] for task in skipped.value.tasks]

    def heard(self, option: str, by: str | None) -> None:
        event = {
            "chosen_options": [option],
            "params_input": {},
            "responded_at": datetime.now(UTC),
            "responded_by_user": None if by is None else {"id": f"id of {by}", "name": by},
        }
        self.operator.execute_complete(self._context(True), event)

    def _context(self, approval: bool) -> Any:
        params = {"approval": approval}
        return {"params": params, "task_instance": self, "ti": self, "task": self.operator, "dag_run": self.dag_run}


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


def test_where_it_is_always_asked_the_form_cannot_do_without(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Asked(monkeypatch, approval="always")
    paths = ready(settings)

    with pytest.raises(WAITS):
        asked.ask(approval=False)
    publish: Any = asked.operator.dag.get_task("publish")
    publish.replay = "r"
    with pytest.raises(AirflowFailException, match="Nobody has approved this"):
        publish.execute({"params": {"approval": False}, "ti": SimpleNamespace(xcom_pull=lambda **_: None)})

    assert paths.read_state().approval is None
    assert asked.answer("Approve") == ["discard"], "who triggered it may approve it"


def test_an_approval_is_of_one_plan(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch, approval="always")
    paths = ready(settings)
    asked.answer("Approve", "bob")
    plan = msgspec.structs.replace(paths.read_plan(), created_ms=1)
    paths.plan.write_bytes(msgspec.json.encode(plan))
    publish: Any = asked.operator.dag.get_task("publish")
    publish.replay = "r"

    with pytest.raises(AirflowFailException, match="bob has approved an earlier plan"):
        publish.execute({"params": {}, "ti": SimpleNamespace(xcom_pull=lambda task_ids, key: asked.xcom.get(key))})


@pytest.mark.parametrize("by", ["ada", None])
def test_whoever_triggered_the_run_may_not_approve_it_and_the_question_stays_open(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, by: str | None
) -> None:
    asked = Asked(monkeypatch, approval="other person")
    ready(settings)

    with pytest.raises(WAITS):
        asked.heard("Approve", by)

    assert asked.xcom == {}
    assert asked.shown["body"].startswith("ada triggered this run, so somebody else has to approve it.")
    assert asked.answer("Approve", "bob") == ["discard"]
    assert asked.xcom["approved_by"] == "bob"


def test_whoever_triggered_the_run_may_reject_it(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Asked(monkeypatch, approval="other person").answer("Reject") == ["publish"]


def test_a_run_of_a_schedule_may_be_approved_by_anybody(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch, approval="other person")
    asked.dag_run = run_by(None)
    ready(settings)

    assert asked.answer("Approve") == ["discard"]


def test_only_approvers_may_answer(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch, approvers=["id of bob"])
    ready(settings)

    for option in ("Approve", "Reject"):
        with pytest.raises(WAITS):
            asked.heard(option, "ada")
    assert asked.shown["assigned_users"] == [{"id": "id of bob", "name": "id of bob"}]
    assert asked.xcom == {}
    assert asked.answer("Approve", "bob") == ["discard"]


def test_a_rollback_asks_for_what_it_would_do(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: dict[str, Any] = {}
    monkeypatch.setattr(hitl, "upsert_hitl_detail", lambda **detail: shown.update(detail))
    write_publication(planned(settings, NAME, "r"), "r", "wordcount_hours")
    dag = replay_dag(NAME, approval="other person")
    assert isinstance(dag, DAG)
    ask: Any = dag.get_task("approve_roll_back")
    context = {
        "params": {"run": "r"},
        "task_instance": SimpleNamespace(id="ti"),
        "dag_run": run_by("ada"),
    }

    with pytest.raises(WAITS):
        ask.execute(context)
    assert [each.what for each in questions.waiting(settings, lambda _: True)] == [
        "rolling back r waits for an approval"
    ]
    with pytest.raises(AirflowFailException, match="No run 'another'"):
        ask.execute({**context, "params": {"run": "another"}})

    assert shown["body"].startswith("ada triggered this run")
    assert "before `r`:\n\n- `wordcount_hours`" in shown["body"]
    assert dag.get_task("roll_back").upstream_task_ids == {"approve_roll_back"}
