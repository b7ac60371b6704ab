"""What the tasks of a replay ask of `deltaworks.replay`, and what they make of its answers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from deltaworks.airflow import replay_tasks
from deltaworks.airflow.replay_form import Tables
from deltaworks.cascade import release
from deltaworks.control.paths import PipelinePaths
from deltaworks.errors import ConflictError, StackError, TableError
from deltaworks.replay import runs
from deltaworks.replay.model import ReplayPaths, ReplayPlan
from deltaworks.settings import Settings
from tests.unit.airflow.replays import Notes, phase_done, planned, project_settings, take_notes, write_publication

NAME = "wordcount"
DAY_MS = 86_400_000
NOV_22_MS = 1_795_305_600_000


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    settings = project_settings(tmp_path, monkeypatch)
    monkeypatch.setattr(replay_tasks, "HOLD_S", 0.0)
    monkeypatch.setattr(replay_tasks, "_POLL_S", 0.0)
    return settings


@pytest.fixture
def notes(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Notes:
    return take_notes(monkeypatch)


def form(**given: Any) -> dict[str, Any]:
    days: dict[str, Any] = {"from": None, "to": None, "tables": []}
    return {
        **days,
        "order": "recorded",
        "hand_over": False,
        "cascade": False,
        "approval": True,
        "reason": "prices",
        **given,
    }


def dag_run(run_id: str = "manual__2026-11-24T10:00:00+00:00", dag: str = "replay", day: str | None = None) -> Any:
    return SimpleNamespace(
        dag_id=f"{NAME}__{dag}",
        run_id=run_id,
        run_type="manual",
        triggering_user_name="admin",
        partition_key=day,
    )


def answer(by: str | None) -> Any:
    """The answer that a task looks for was given by somebody, or by nobody."""
    return SimpleNamespace(xcom_pull=lambda task_ids, key: by)


def publish(run: str, by: str | None, *, approval: bool = True) -> None:
    """As the task does, with somebody's approval or nobody's."""
    replay_tasks.publish(NAME, run, replay_tasks.require_approval(approval, answer(by)))


def folder(settings: Settings, run: str) -> ReplayPaths:
    return ReplayPaths.of(PipelinePaths.of(settings, NAME), run)


def test_the_form_becomes_a_request(notes: Notes) -> None:
    params = form(**{"from": "2026-11-22", "to": "2026-11-24", "tables": ["wordcount_hours"], "reason": " prices "})

    replay_tasks.plan(NAME, params, dag_run())

    [request] = notes.requests
    assert (request.from_ms, request.to_ms) == (NOV_22_MS, NOV_22_MS + 2 * DAY_MS)
    assert (request.pipeline, request.tables, request.order) == (NAME, ("wordcount_hours",), "recorded")
    assert (request.reason, request.requested_by) == ("prices", "airflow admin")


def test_an_empty_form_is_all_history(notes: Notes) -> None:
    replay_tasks.plan(NAME, form(), dag_run())

    assert (notes.requests[0].from_ms, notes.requests[0].to_ms, notes.requests[0].tables) == (None, None, ())


@pytest.mark.parametrize("end", ["2026-11-22", "2026-11-21"])
def test_an_empty_range_of_days_fails_at_once_and_without_a_retry(notes: Notes, end: str) -> None:
    with pytest.raises(AirflowFailException, match=f"From is 2026-11-22, To is {end}"):
        replay_tasks.plan(NAME, form(**{"from": "2026-11-22", "to": end}), dag_run())

    assert notes.done == []


def test_what_the_plan_refuses_is_not_tried_again(notes: Notes) -> None:
    notes.errors["plan"] = ConflictError("another run replays some of the same days")

    with pytest.raises(AirflowFailException, match="another run"):
        replay_tasks.plan(NAME, form(), dag_run())


def test_a_broker_that_is_away_is_asked_again(notes: Notes) -> None:
    notes.errors["plan"] = StackError("Kafka does not answer")

    with pytest.raises(StackError):
        replay_tasks.plan(NAME, form(), dag_run())


def test_a_plan_that_is_tried_again_is_the_same_plan(notes: Notes) -> None:
    first = replay_tasks.plan(NAME, form(), dag_run())

    assert replay_tasks.plan(NAME, form(), dag_run()) == first
    assert notes.done == ["plan"]


def test_another_dag_run_is_another_replay() -> None:
    runs = [dag_run(), dag_run("manual__2026-11-24T10:00:00+00:01"), dag_run(dag="another")]

    assert len({replay_tasks.run_id_of(run) for run in runs}) == 3


@pytest.mark.parametrize("run_id", ["manual__2026-11-24T10:00:00+00:00_x1", "ä b/../c", "x" * 250, "___"])
def test_the_id_of_a_replay_is_the_name_of_a_folder(run_id: str) -> None:
    name = replay_tasks.run_id_of(dag_run(run_id))

    assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-")
    assert 8 <= len(name) < 80


def test_a_run_that_is_cleared_after_it_has_ended_replays_again(settings: Settings, notes: Notes) -> None:
    first = replay_tasks.plan(NAME, form(), dag_run())
    _end(settings, first)
    second = replay_tasks.plan(NAME, form(), dag_run())
    _end(settings, second)
    third = replay_tasks.plan(NAME, form(), dag_run())

    assert (second, third) == (f"{first}-2", f"{first}-3")


def _end(settings: Settings, run: str) -> None:
    for phase in ("run", "compare", "gate", "publish", "verify", "clean"):
        replay_tasks.advance(NAME, run, phase)
    assert not folder(settings, run).root.exists()


@pytest.mark.parametrize("asked", [True, False])
def test_the_batch_jobs_behind_it_are_computed_if_the_form_says_so(
    settings: Settings, notes: Notes, monkeypatch: pytest.MonkeyPatch, asked: bool
) -> None:
    done: list[str] = []

    def complete(settings: Settings, plan: ReplayPlan, *_: Any) -> release.Release:
        done.append(plan.run_id)
        return release.Release(run_id=plan.run_id, days={})

    monkeypatch.setattr(release, "complete", complete)
    run = replay_tasks.plan(NAME, form(cascade=asked), dag_run())
    with pytest.raises(AirflowFailException, match="clean follows run"):
        replay_tasks.cascade(NAME, run)
    for phase in ("run", "compare", "gate", "publish", "verify"):
        replay_tasks.advance(NAME, run, phase)
    replay_tasks.cascade(NAME, run)
    assert done == ([run] if asked else [])

    replay_tasks.advance(NAME, run, "clean")
    replay_tasks.cascade(NAME, run)  # of a run that is cleared
    assert len(done) == asked


def test_a_run_of_a_backfill_is_for_its_day(notes: Notes) -> None:
    replay_tasks.plan(NAME, form(), dag_run(day="2026-11-22"))

    [request] = notes.requests
    assert (request.from_ms, request.to_ms) == (NOV_22_MS, NOV_22_MS + DAY_MS)


def test_a_backfill_may_leave_the_reason_empty_and_nobody_else(notes: Notes) -> None:
    replay_tasks.plan(NAME, form(reason=""), dag_run(day="2026-11-22"))
    with pytest.raises(AirflowFailException, match="the field Reason is empty"):
        replay_tasks.plan(NAME, form(reason=" "), dag_run())

    assert [request.reason for request in notes.requests] == ["replay of 2026-11-22"]


def test_a_partition_key_that_is_no_day_fails_at_once_and_without_a_retry(notes: Notes) -> None:
    with pytest.raises(AirflowFailException, match=r"'22\.11\.2026' is not a day, such as 2026-11-22"):
        replay_tasks.plan(NAME, form(), dag_run(day="22.11.2026"))
    assert notes.requests == []


def test_a_run_of_a_backfill_takes_no_other_days(notes: Notes) -> None:
    with pytest.raises(AirflowFailException, match="This run is for 2026-11-22"):
        replay_tasks.plan(NAME, form(**{"from": "2026-11-01"}), dag_run(day="2026-11-22"))

    assert notes.done == []


def test_a_task_does_its_phase_and_no_other(settings: Settings, notes: Notes) -> None:
    planned(settings, NAME, "r", "run")

    assert replay_tasks.compare(NAME, "r") == 12
    assert notes.done == ["compare"]
    assert folder(settings, "r").read_state().next == "gate"


def test_a_task_that_is_tried_again_does_nothing_twice(settings: Settings, notes: Notes) -> None:
    planned(settings, NAME, "r", "run")
    replay_tasks.compare(NAME, "r")

    assert replay_tasks.compare(NAME, "r") == 12
    assert notes.done == ["compare"]


def test_a_task_out_of_turn_does_not_do_the_work_of_the_one_before(settings: Settings, notes: Notes) -> None:
    planned(settings, NAME, "r", "run", passed=True)

    with pytest.raises(AirflowFailException, match="publish follows compare, which is not done: clear the task"):
        publish("r", "admin")

    assert notes.done == []


def test_nothing_is_published_that_nobody_has_approved(settings: Settings, notes: Notes) -> None:
    planned(settings, NAME, "r", "run", "compare", "gate", passed=True)

    with pytest.raises(AirflowFailException, match="Nobody has approved this"):
        publish("r", None, approval=True)

    assert notes.done == []


@pytest.mark.parametrize(("approval", "approved_by"), [(True, "admin"), (False, None)])
def test_what_was_approved_or_needs_no_approval_is_published(
    settings: Settings, notes: Notes, approval: bool, approved_by: str | None
) -> None:
    planned(settings, NAME, "r", "run", "compare", "gate", passed=True)

    publish("r", approved_by, approval=approval)

    assert notes.done == ["publish"]


@pytest.mark.parametrize(
    ("approval", "answered_by", "noted"), [(True, "ada", "airflow ada"), (False, None, "airflow admin")]
)
def test_who_has_approved_it_or_else_triggered_it_is_noted_before_it_is_published(
    settings: Settings, notes: Notes, approval: bool, answered_by: str | None, noted: str
) -> None:
    run = replay_tasks.plan(NAME, form(approval=approval), dag_run())
    for phase in ("run", "compare", "gate"):
        replay_tasks.advance(NAME, run, phase)
    notes.errors["publish"] = StackError("the driver does not answer")

    with pytest.raises(StackError):
        publish(run, answered_by, approval=approval)

    found = runs.resume(settings, run)
    assert found.publication_request().approved_by == noted
    assert found.publication_request().requested_by == "airflow admin"


def test_what_was_not_asked_for_in_turn_is_not_approved(settings: Settings, notes: Notes) -> None:
    paths = planned(settings, NAME, "r", "run", passed=True)

    with pytest.raises(AirflowFailException, match="publish follows compare"):
        publish("r", "admin")

    assert paths.read_state().approval is None


def test_nothing_is_published_that_has_not_passed_the_gate(settings: Settings, notes: Notes) -> None:
    planned(settings, NAME, "r", "run", "compare", "gate", passed=False)

    with pytest.raises(AirflowFailException, match="has not passed the gate"):
        publish("r", "admin")

    assert notes.done == []


def test_a_publish_that_cannot_work_is_not_tried_again_and_one_that_may_is(settings: Settings, notes: Notes) -> None:
    planned(settings, NAME, "r", "run", "compare", "gate", passed=True)
    notes.errors["publish"] = StackError("the driver does not answer")
    with pytest.raises(StackError):
        publish("r", "admin")

    notes.errors["publish"] = TableError("a day is open")
    with pytest.raises(AirflowFailException, match="a day is open"):
        publish("r", "admin")


def test_production_that_is_not_what_was_published_fails_for_good(settings: Settings, notes: Notes) -> None:
    planned(settings, NAME, "r", "run", "compare", "gate", "publish", passed=True)
    notes.errors["verify"] = TableError("12 rows differ")

    with pytest.raises(AirflowFailException, match="12 rows differ"):
        replay_tasks.verify(NAME, "r")


def test_after_the_end_every_task_may_be_cleared_to_no_effect(settings: Settings, notes: Notes) -> None:
    run = replay_tasks.plan(NAME, form(), dag_run())
    _end(settings, run)
    notes.done.clear()

    assert replay_tasks.compare(NAME, run) is None
    publish(run, "admin")
    replay_tasks.verify(NAME, run)
    replay_tasks.clean(NAME, run)

    assert notes.done == []


def test_a_clean_up_that_was_killed_half_way_is_completed(settings: Settings, notes: Notes) -> None:
    run = replay_tasks.plan(NAME, form(), dag_run())
    _end(settings, run)
    left = folder(settings, run).tables / "order_counts"
    left.mkdir(parents=True)

    replay_tasks.clean(NAME, run)

    assert not folder(settings, run).root.exists()


def test_what_was_rejected_is_thrown_away_once(settings: Settings, notes: Notes) -> None:
    paths = planned(settings, NAME, "r", "run", "compare", "gate", passed=True)

    replay_tasks.discard(NAME, "r", answer("admin"))
    replay_tasks.discard(NAME, "r", answer("admin"))

    assert not paths.root.exists()
    assert runs.all_unfinished(settings) == []


def test_nothing_is_thrown_away_that_nobody_has_rejected(settings: Settings, notes: Notes) -> None:
    paths = planned(settings, NAME, "r", "run", "compare", "gate", passed=True)

    with pytest.raises(AirflowSkipException, match="nobody has rejected this"):
        replay_tasks.discard(NAME, "r", answer(None))

    assert paths.plan.exists()


def test_a_run_that_an_earlier_try_still_works_on_is_tried_again(settings: Settings, notes: Notes) -> None:
    planned(settings, NAME, "r", "run")
    with runs.resume(settings, "r").held():
        with pytest.raises(AirflowException, match="Another process works on the replay") as error:
            replay_tasks.compare(NAME, "r")
        with pytest.raises(AirflowException):
            replay_tasks.discard(NAME, "r", answer("admin"))

    assert not isinstance(error.value, AirflowFailException)
    assert replay_tasks.compare(NAME, "r") == 12


def test_a_run_whose_code_has_changed_fails_and_says_what_to_do(settings: Settings, notes: Notes) -> None:
    paths = planned(settings, NAME, "r", "run")
    paths.plan.write_bytes(paths.plan.read_bytes().replace(b'"code_version":"', b'"code_version":"x'))

    with pytest.raises(AirflowFailException, match="deltaworks discard r"):
        replay_tasks.compare(NAME, "r")


def test_a_replay_that_somebody_has_discarded_is_no_more(settings: Settings, notes: Notes) -> None:
    planned(settings, NAME, "r", "run")
    runs.discard(settings, "r")

    with pytest.raises(AirflowFailException, match="no unfinished replay 'r'"):
        replay_tasks.compare(NAME, "r")


def test_a_phase_that_another_process_did_meanwhile_is_done(settings: Settings, notes: Notes) -> None:
    paths = planned(settings, NAME, "r", "run")
    phase_done(paths, "compare", differences=5)

    assert replay_tasks.compare(NAME, "r") == 5
    assert notes.done == []


@pytest.mark.parametrize("run", ["../../..", "..", "", "/etc"])
def test_an_id_that_leads_elsewhere_is_refused_and_nothing_is_deleted(
    settings: Settings, notes: Notes, run: str
) -> None:
    kept = planned(settings, NAME, "r").plan

    acts: list[Callable[[], object]] = [
        lambda: replay_tasks.compare(NAME, run),
        lambda: publish(run, "admin"),
        lambda: replay_tasks.verify(NAME, run),
        lambda: replay_tasks.clean(NAME, run),
        lambda: replay_tasks.discard(NAME, run, answer("admin")),
    ]
    for act in acts:
        with pytest.raises(AirflowFailException, match="cannot be the id of a replay"):
            act()

    assert kept.exists()
    assert notes.done == []


TABLES = Tables(with_days=("wordcount_hours", "wordcount_dead_letters"), whole=("wordcount_counts",))


@pytest.mark.parametrize(
    ("bounds", "days"),
    [
        ({"from_ms": NOV_22_MS, "to_ms": NOV_22_MS + 2 * DAY_MS}, [date(2026, 11, 22), date(2026, 11, 23)]),
        ({"from_ms": None, "to_ms": NOV_22_MS}, None),
        ({"from_ms": NOV_22_MS, "to_ms": None}, None),
    ],
)
def test_the_events_of_a_publication_name_the_days_of_each_table(
    settings: Settings, bounds: dict[str, Any], days: list[date] | None
) -> None:
    write_publication(folder(settings, "r"), "r", "wordcount_hours", "wordcount_counts", **bounds)

    events = replay_tasks.published(settings, NAME, "r", TABLES)

    assert [(event.table, event.days, event.version) for event in events] == [
        ("wordcount_hours", days, 8),
        ("wordcount_dead_letters", [], None),
        ("wordcount_counts", None, 8),
    ]
    assert {(event.why, event.run) for event in events} == {("published", "r")}


def test_after_a_handover_any_day_may_have_changed(settings: Settings) -> None:
    events = replay_tasks.published(settings, NAME, "r", TABLES)

    assert [(event.table, event.days) for event in events] == [(table, None) for table in TABLES.all]
