"""What the form of a replay can ask for besides a new one: to roll one back, to remove one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from deltaworks.airflow import replay_actions, replay_tasks
from deltaworks.airflow.replay_actions import known_as
from deltaworks.cascade import release
from deltaworks.control.paths import PipelinePaths
from deltaworks.errors import ConflictError
from deltaworks.replay import handover, runs
from deltaworks.settings import Settings
from tests.unit.airflow.replays import planned, project_settings, write_publication

NAME = "wordcount"
DAG_RUN = SimpleNamespace(triggering_user_name="ada", run_type="manual")


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    return project_settings(tmp_path, monkeypatch)


def form(action: str = "replay", run: str = "") -> dict[str, Any]:
    return {"action": action, "run": run}


def roll_back(run: str) -> str:
    return replay_actions.roll_back(NAME, form("roll back", run), DAG_RUN)


def remove(run: str) -> str:
    return replay_actions.remove(NAME, form("discard", run))


@pytest.mark.parametrize(("chosen", "task"), [("replay", "plan"), ("roll back", "roll_back"), ("discard", "remove")])
def test_the_form_says_what_is_done(chosen: str, task: str) -> None:
    assert replay_actions.action(NAME, form(chosen, "" if chosen == "replay" else "r")) == task


def test_a_rollback_may_have_to_be_approved_first(settings: Settings, asked: Asked) -> None:
    write_publication(planned(settings, NAME, "r"), "r", "hours")
    answers = {("approve_roll_back", "approved_by"): "bob"}

    def roll_back(**known: str) -> str:
        ti = SimpleNamespace(xcom_pull=lambda task_ids, key: known.get("by") and answers[task_ids, key])
        return replay_actions.roll_back(NAME, form("roll back", "r"), DAG_RUN, ti, ask=True)

    assert replay_actions.action(NAME, form("roll back", "r"), ask=True) == "approve_roll_back"
    assert replay_actions.action(NAME, form("discard", "r"), ask=True) == "remove"
    with pytest.raises(AirflowFailException, match="marking the task `approve_roll_back` does not answer it"):
        roll_back()
    assert asked == []
    assert roll_back(by="bob") == "r"
    assert asked == [("rollback", "r")]


@pytest.mark.parametrize(
    ("chosen", "run", "says"),
    [
        ("roll back", " ", "Say which replay to roll back: the field Run is empty"),
        ("discard", "", "Say which replay to discard"),
        ("replay", "r", "The field Run says r, but a new replay gets a new id"),
    ],
)
def test_a_form_that_contradicts_itself_fails_at_once(chosen: str, run: str, says: str) -> None:
    with pytest.raises(AirflowFailException, match=says):
        replay_actions.action(NAME, form(chosen, run))


class Asked(list[tuple[str, str]]):
    """What was asked for."""

    def of(self, what: str) -> Any:
        def note(settings: Settings, run: str, **more: Any) -> Any:
            self.append((what, run))
            assert more["requested_by"] in ("airflow ada", "airflow ada, approved by airflow bob")
            done = SimpleNamespace(tables={"hours": 1}, request=SimpleNamespace(pipeline=NAME))
            return (done, []) if what == "rollback" else done

        return note


@pytest.fixture
def asked(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Asked:
    asked = Asked()
    monkeypatch.setattr(runs, "rollback", asked.of("rollback"))
    monkeypatch.setattr(handover, "undo", asked.of("undo"))
    return asked


def test_a_publication_is_rolled_back_and_a_hand_over_undone(settings: Settings, asked: Asked) -> None:
    own = PipelinePaths.of(settings, NAME)
    write_publication(planned(settings, NAME, "r"), "r", "hours")
    own.handovers.mkdir()
    own.handover("h").write_text("{}")

    assert (roll_back("r"), roll_back(" h ")) == ("r", "h")
    assert asked == [("rollback", "r"), ("undo", "h")]


def test_batch_jobs_that_were_computed_with_it_are_computed_again(
    settings: Settings, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_publication(planned(settings, NAME, "r"), "r", "hours")

    def roll_back_jobs(settings: Settings, run: str, report: Any) -> list[str]:
        asked.append(("compute", run))
        return ["daily"]

    monkeypatch.setattr(release, "require_jobs", lambda settings, run: asked.append(("require", run)))
    monkeypatch.setattr(release, "roll_back", roll_back_jobs)
    roll_back("r")
    assert asked == [("require", "r"), ("rollback", "r"), ("compute", "r")]


def test_a_run_that_has_published_nothing_is_not_rolled_back(settings: Settings, asked: Asked) -> None:
    write_publication(planned(settings, NAME, "r"), "r", "hours")
    write_publication(planned(settings, "orders", "o"), "o", "order_counts")

    for run in ("another", "o", "../r"):
        with pytest.raises(AirflowFailException, match=r"(?s)of wordcount is published.*Those that are: r"):
            roll_back(run)
    assert asked == []


def test_what_forbids_a_rollback_fails_without_a_retry(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def rollback(*_: Any, **__: Any) -> None:
        raise ConflictError("a later publication has replaced the same files")

    write_publication(planned(settings, NAME, "r"), "r", "hours")
    monkeypatch.setattr(runs, "rollback", rollback)
    with pytest.raises(AirflowFailException, match="a later publication"):
        roll_back("r")


def test_an_unfinished_run_is_removed_once(settings: Settings) -> None:
    paths = planned(settings, NAME, "r", "run", "compare")

    assert remove("r") == "r"
    assert not paths.root.exists()
    with pytest.raises(AirflowSkipException, match="nothing to remove"):
        remove("r")


def test_a_run_that_somebody_works_on_is_not_removed(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_tasks, "HOLD_S", 0.0)
    planned(settings, NAME, "r", "run")
    with runs.resume(settings, "r").held(), pytest.raises(Exception, match="Another process works on the replay"):
        remove("r")
    assert len(runs.all_unfinished(settings)) == 1


def test_the_id_of_the_dag_run_names_the_last_replay_that_it_has_made() -> None:
    dag_run = "manual__2026-11-24T10:00:00+00:00"
    first = replay_tasks.id_of(f"{NAME}__replay", dag_run)
    by_schedule = replay_tasks.id_of(f"{NAME}__reprocess", dag_run)

    assert known_as(NAME, dag_run, [first], "published") == first
    assert known_as(NAME, dag_run, [f"{first}-10", first, f"{first}-9", f"{first}-x"], "published") == f"{first}-10"
    assert known_as(NAME, dag_run, [by_schedule], "published") == by_schedule
    assert known_as(NAME, first, [first, f"{first}-2"], "published") == first, "which was named itself"
    with pytest.raises(AirflowFailException):
        known_as("orders", dag_run, [first], "published")
