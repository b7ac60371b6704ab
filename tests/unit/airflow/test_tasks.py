"""What the tasks ask of `deltaworks.control`, and what they make of its answers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from deltaworks.airflow import tasks
from deltaworks.control import actions, code
from deltaworks.control.code import Code
from deltaworks.control.model import Deployment, DeployOptions, Observation
from deltaworks.control.registry import Registry
from deltaworks.errors import ConfigurationError, ConflictError, ControlUnavailableError, StackError

LAST = DeployOptions(trigger_interval_s=7.0, start_offsets="latest")
RUN = SimpleNamespace(run_id="manual__1", run_type="manual", triggering_user_name="admin")


def params(**given: Any) -> dict[str, Any]:
    names = ("trigger_interval_s", "start_offsets", "attach", "expected_generation", "given_up")
    return {"action": "deploy", "launcher": "local", **dict.fromkeys(names), **given}


def deployment(generation: int, options: DeployOptions, code: str | None = None) -> Deployment:
    return Deployment(
        pipeline="orders",
        generation=generation,
        requested_by="admin",
        requested_at=datetime.now(UTC),
        options=options,
        state="running",
        log="orders.log",
        code=code,
    )


class Control:
    """Takes notes of what it is asked for; `error` is raised instead of an answer."""

    def __init__(self) -> None:
        self.generation = 3
        self.asked: list[tuple[Any, ...]] = []
        self.error: Exception | None = None
        self.given_up: list[tuple[str, int, str]] = []
        self.code: str | None = None

    def _answer(self, *asked: Any) -> None:
        self.asked.append(asked)
        if self.error is not None:
            raise self.error

    def preflight(self, settings: object, name: str, options: DeployOptions, report: object) -> None:
        self._answer("preflight", name, options)

    def preflight_again(self, settings: object, name: str, runs: Code, options: DeployOptions, report: object) -> None:
        self._answer("preflight again", name, runs, options)

    def deploy(self, settings: object, name: str, options: DeployOptions, **how: Any) -> Deployment:
        how.pop("report")
        self._answer("deploy", name, options, how)
        return deployment(self.generation + 1, options)

    def stop(self, settings: object, name: str, **how: Any) -> Observation:
        self._answer("stop", name, how["requested_by"])
        return Observation(pipeline=name, generation=self.generation, state="stopped")


@pytest.fixture
def control(monkeypatch: pytest.MonkeyPatch) -> Control:
    control = Control()
    for name in ("preflight", "preflight_again", "deploy", "stop"):
        monkeypatch.setattr(actions, name, getattr(control, name))
    book = SimpleNamespace(
        pipeline=lambda name: SimpleNamespace(generation=control.generation) if control.generation else None,
        deployments=lambda name, limit: [deployment(control.generation, LAST, control.code)],
        gave_up=lambda *what: control.given_up.append(what),
    )
    monkeypatch.setattr(Registry, "of", lambda settings: book)
    return control


class StateStore(dict[str, Any]):
    """Airflow keeps it for a task across its tries."""

    def set(self, key: str, value: Any) -> None:
        self[key] = value


@pytest.mark.parametrize(("action", "next_task"), [("deploy", "preflight"), ("restart", "preflight"), ("stop", "stop")])
def test_the_form_decides_the_way(action: str, next_task: str) -> None:
    assert tasks.action("orders", params(action=action)) == next_task


def test_a_stream_that_was_given_up_fails_the_run_and_says_what_to_do() -> None:
    with pytest.raises(AirflowFailException, match="orders is no longer restarted: 5 restarts"):
        tasks.action("orders", params(given_up="5 restarts"))


def test_a_deployment_is_bound_to_its_run(control: Control) -> None:
    answer = tasks.deploy("orders", params(trigger_interval_s=2.0, start_offsets="latest"), RUN)

    how = {"request_id": "manual__1", "requested_by": "airflow admin", "expected_generation": None, "runs": None}
    options = DeployOptions(trigger_interval_s=2.0, start_offsets="latest")
    assert control.asked == [("deploy", "orders", options, how)]
    assert answer == {"generation": 4}


def test_a_restart_takes_the_options_of_the_last_deployment(control: Control) -> None:
    tasks.preflight("orders", params(action="restart"))
    tasks.deploy("orders", params(action="restart", expected_generation=3), RUN)

    assert control.asked[0] == ("preflight", "orders", LAST)
    assert control.asked[1][2] == LAST
    assert control.asked[1][3]["expected_generation"] == 3


def test_a_restart_takes_the_code_of_the_last_deployment_and_does_not_look_at_the_project(
    control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    control.code = "digest"
    runs = Code("digest", Path("archive"))
    monkeypatch.setattr(code, "find", lambda settings, digest: runs if digest == "digest" else None)

    tasks.preflight("orders", params(action="restart", expected_generation=3))
    tasks.deploy("orders", params(action="restart", expected_generation=3), RUN)
    tasks.deploy("orders", params(action="deploy"), RUN)

    assert control.asked[0] == ("preflight again", "orders", runs, LAST)
    assert [asked[3]["runs"] for asked in control.asked[1:]] == [runs, None]


def test_a_restart_whose_code_is_gone_is_given_up(control: Control) -> None:
    control.code = "0" * 24

    with pytest.raises(AirflowFailException, match="is gone"):
        tasks.preflight("orders", params(action="restart", expected_generation=3))
    assert [(name, generation) for name, generation, _ in control.given_up] == [("orders", 3)]


def test_attaching_deploys_nothing(control: Control) -> None:
    tasks.preflight("orders", params(attach=3))

    assert tasks.deploy("orders", params(attach=3), RUN) == {"generation": 3}
    assert control.asked == []


def test_a_deployment_that_somebody_else_made_first_is_skipped(control: Control) -> None:
    control.error = ConflictError("generation 4 runs")

    with pytest.raises(AirflowSkipException, match="nothing to do: generation 4 runs"):
        tasks.deploy("orders", params(expected_generation=3), RUN)


def test_what_a_retry_cannot_repair_is_not_tried_again(control: Control) -> None:
    control.error = ConfigurationError("no such launcher")

    with pytest.raises(AirflowFailException, match="no such launcher"):
        tasks.preflight("orders", params())


def test_a_restart_that_is_not_possible_now_is_left_to_the_next_look(control: Control) -> None:
    control.error = StackError("Kafka does not answer")

    with pytest.raises(AirflowSkipException, match=r"not now.*Kafka does not answer"):
        tasks.preflight("orders", params(action="restart", expected_generation=3))

    assert control.given_up == []


def test_a_restart_that_cannot_work_is_given_up_and_not_tried_every_few_minutes(control: Control) -> None:
    control.error = ConfigurationError("no such file")

    with pytest.raises(AirflowFailException):
        tasks.preflight("orders", params(action="restart", expected_generation=3))

    assert control.given_up == [("orders", 3, "no such file")]


def test_traces_that_cannot_be_sent_stop_a_deployment_but_never_a_restart_of_what_died(
    control: Control, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "deltaworks.toml").write_text('[traces]\nendpoint = { env = "NOWHERE" }\n')
    monkeypatch.setenv("DELTAWORKS_PROJECT", str(tmp_path))

    with pytest.raises(AirflowFailException, match="NOWHERE, which is not set"):
        tasks.preflight("orders", params())
    assert control.asked == []
    tasks.preflight("orders", params(action="restart", expected_generation=3))
    assert control.asked[0][0] == "preflight" and control.given_up == []


def test_what_an_action_repeats_is_not_repeated_in_the_log(
    control: Control, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def starting(settings: object, name: str, options: object, report: Any) -> None:
        for second in range(30):
            report(f"is starting, {second} s")
        report("runs")

    monkeypatch.setattr(actions, "preflight", starting)
    with caplog.at_level("INFO"):
        tasks.preflight("orders", params())

    assert [record.getMessage() for record in caplog.records] == ["is starting, 0 s", "runs"]


def test_what_may_be_gone_a_moment_later_is_tried_again(control: Control) -> None:
    control.error = StackError("Kafka does not answer")
    with pytest.raises(StackError):
        tasks.preflight("orders", params())

    control.error = ControlUnavailableError("PostgreSQL is away")
    with pytest.raises(ControlUnavailableError):
        tasks.deploy("orders", params(), RUN)


def test_a_deployment_that_failed_is_not_tried_again_because_the_same_run_gets_the_same_answer(
    control: Control,
) -> None:
    control.error = StackError("did not get going", log=["the last line"])

    with pytest.raises(AirflowFailException, match="the last line"):
        tasks.deploy("orders", params(), RUN)


def test_stop_drains(control: Control) -> None:
    tasks.stop("orders", RUN, StateStore())

    assert control.asked == [("stop", "orders", "airflow admin")]


def test_a_stop_that_is_tried_again_stops_the_same_generation(control: Control) -> None:
    store = StateStore()
    control.error = StackError("it does not answer")
    with pytest.raises(StackError):
        tasks.stop("orders", RUN, store)
    control.error = None

    tasks.stop("orders", RUN, store)

    assert len(control.asked) == 2


def test_a_stop_that_is_cleared_does_not_stop_a_later_generation(control: Control) -> None:
    store = StateStore()
    tasks.stop("orders", RUN, store)
    control.generation = 4

    with pytest.raises(AirflowSkipException, match="generation 4 has replaced 3"):
        tasks.stop("orders", RUN, store)

    assert len(control.asked) == 1


@pytest.mark.parametrize(("made_s", "stops"), [(1, True), (-1, False)], ids=["deployed before", "deployed since"])
def test_where_airflow_keeps_nothing_no_later_generation_is_stopped(control: Control, made_s: int, stops: bool) -> None:
    run = SimpleNamespace(**vars(RUN), run_after=datetime.now(UTC) + timedelta(seconds=made_s))
    if stops:
        tasks.stop("orders", run)
    else:
        with pytest.raises(AirflowSkipException, match="generation 3 was deployed after this run was made"):
            tasks.stop("orders", run)

    assert len(control.asked) == stops


def test_there_is_nothing_to_stop_before_the_first_deployment(control: Control) -> None:
    control.generation = 0

    with pytest.raises(AirflowSkipException):
        tasks.stop("orders", RUN, StateStore())
