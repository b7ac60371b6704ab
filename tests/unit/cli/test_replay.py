"""`replay` notes who says that a replay may be published, and `replays` shows it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer

from deltaworks.cascade import release
from deltaworks.cli import replay as commands
from deltaworks.cli.pipelines import user
from deltaworks.control import table_commands
from deltaworks.control.paths import PipelinePaths
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.lakehouse.publish.ownership import Handover, HandoverRequest
from deltaworks.lakehouse.publish.publication import Publication, PublicationRequest
from deltaworks.replay import days, handover, phases, runs
from deltaworks.replay.model import Approval, ReplayPaths, ReplayPlan, ReplayState
from deltaworks.replay.phases import ReplayRun
from deltaworks.settings import Settings
from tests.unit.airflow.replays import planned, project_settings, take_notes, write_findings
from tests.unit.control.test_corrections import Home

NAME = "wordcount"
PUBLISH = ReplayRun._publish
"""Before it only takes notes."""


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    settings = project_settings(tmp_path, monkeypatch)
    monkeypatch.setenv("DELTAWORKS_RUN_FROM", "source")
    take_notes(monkeypatch)
    return settings


@pytest.fixture
def paths(settings: Settings) -> ReplayPaths:
    paths = planned(settings, NAME, "r", "run", "compare", "gate", passed=True)
    write_findings(paths)
    return paths


def publish(*, yes: bool = False) -> None:
    commands.replay(NAME, resume="r", until="publish", yes=yes, from_=None, to=None, tables=None)


def answer(monkeypatch: pytest.MonkeyPatch, agreed: bool) -> None:
    """Of somebody at a terminal."""
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(typer, "confirm", lambda question: agreed)


def approved_by(paths: ReplayPaths) -> str | None:
    approval = paths.read_state().approval
    return None if approval is None else approval.by


def test_a_yes_at_the_terminal_is_noted_with_user_and_host(paths: ReplayPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, agreed=True)

    publish()

    assert approved_by(paths) == user()
    assert " at " in user()
    assert "publish" in paths.read_state().done


def test_a_no_approves_nothing(paths: ReplayPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, agreed=False)

    publish()

    assert approved_by(paths) is None
    assert "publish" not in paths.read_state().done


def test_who_says_yes_beforehand_approves_it(paths: ReplayPaths) -> None:
    publish(yes=True)

    assert approved_by(paths) == user()


def test_an_approval_that_is_there_stays_that_of_who_gave_it(paths: ReplayPaths) -> None:
    state = paths.read_state()
    state.approval = Approval(by="airflow ada", at_ms=1)
    paths.write_state(state)

    publish(yes=True)

    assert approved_by(paths) == "airflow ada"


def test_a_published_replay_says_who_approved_it(
    settings: Settings, paths: ReplayPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    own = PipelinePaths.of(settings, NAME)
    asked: dict[str, Any] = {"pipeline": NAME, "code_version": "c", "end_offsets": {}, "reason": "prices"}
    request = PublicationRequest(
        run_id="r1", batches=(0, 1), tables=(), requested_by="airflow bob", approved_by="airflow ada", **asked
    )
    told = Publication(request=request, state="published", round=1, tables={}, begun_ms=0)
    own.publications.mkdir()
    (own.publications / "r1.json").write_bytes(msgspec.json.encode(told))
    followed = HandoverRequest(
        run_id="r2", predecessor="q", last_batch=1, requested_by="bob at here", approved_by="eve at here", **asked
    )
    own.handovers.mkdir()
    own.handover("r2").write_bytes(
        msgspec.json.encode(Handover(request=followed, state="handed over", tables={}, begun_ms=0))
    )

    Home(settings.home, pipeline=NAME).release("r1", 1_234)

    commands.replays(None)

    lines = capsys.readouterr().out.splitlines()
    [publication] = [line for line in lines if line.startswith("r1 ")]
    [handed_over] = [line for line in lines if line.startswith("r2 ")]
    assert publication.split("  ")[-1].strip() == "airflow ada" and "airflow bob" in publication
    assert "publish 1,234 waiting" in publication
    assert handed_over.split("  ")[-1].strip() == "eve at here"


def test_what_is_asked_of_the_committer_and_told_names_who_approved_it(
    settings: Settings, paths: ReplayPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = runs.resume(settings, "r")
    run.approve("airflow ada")
    asked: list[PublicationRequest] = []
    said: list[str] = []

    def committed(settings: Settings, pipeline: Pipeline, staging: Path, request: PublicationRequest) -> Publication:
        asked.append(request)
        return Publication(request=request, state="published", round=1, tables={}, begun_ms=0)

    monkeypatch.setattr(table_commands, "publish", committed)
    monkeypatch.setattr(phases, "require_same_stream", lambda *_: None)
    monkeypatch.setattr(days, "require_some", lambda *_: None)
    PUBLISH(run, None, paths.read_state(), said.append)

    assert [request.approved_by for request in asked] == ["airflow ada"]
    assert said == ["0 tables, approved by airflow ada"]


def test_nobody_is_asked_about_what_equals_production(
    settings: Settings, paths: ReplayPaths, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = paths.read_plan()
    paths.write_plan(msgspec.structs.replace(plan, request=msgspec.structs.replace(plan.request, only_different=True)))
    monkeypatch.setattr(commands, "_agreed", lambda run: pytest.fail("a question"))

    publish()

    assert "Production is equal: nothing was published." in capsys.readouterr().out
    assert "publish" in paths.read_state().done
    assert approved_by(paths) is None


@pytest.mark.parametrize("asked", [True, False])
def test_a_cascade_is_computed_between_verifying_and_cleaning_up(
    settings: Settings, paths: ReplayPaths, monkeypatch: pytest.MonkeyPatch, asked: bool
) -> None:
    plan = paths.read_plan()
    paths.write_plan(msgspec.structs.replace(plan, request=msgspec.structs.replace(plan.request, cascade=asked)))
    done: list[Any] = []

    def complete(settings: Settings, plan: ReplayPlan, state: ReplayState, report: Any) -> release.Release:
        done.append((plan.run_id, state.done[-1]))
        return release.Release(run_id=plan.run_id, days={})

    monkeypatch.setattr(release, "complete", complete)
    monkeypatch.setattr(commands, "_is_well", lambda *_: True)
    commands.replay(NAME, resume="r", until="clean", yes=True, from_=None, to=None, tables=None)

    assert done == ([("r", "verify")] if asked else [])
    assert not paths.plan.exists()


def test_a_rollback_restores_the_tables_and_then_computes_the_cascade(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def note(what: str, answer: Any) -> Any:
        def called(*_: Any, **__: Any) -> Any:
            done.append(what)
            return answer

        return called

    for target, name, answer in (
        (release, "require_jobs", None),
        (handover, "take_back", 2),
        (release, "days_of", {"daily": []}),
        (release, "roll_back", ["daily"]),
    ):
        monkeypatch.setattr(target, name, note(name, answer))
    commands.rollback("r")
    assert done == ["require_jobs", "take_back", "days_of", "roll_back"]
