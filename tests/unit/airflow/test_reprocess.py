"""The DAG of a reprocessing: its schedule, its days, what it decides, and which tasks run then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, TaskDeferred

from deltaworks import ChangeLimit, HandOver, Reprocess, clock
from deltaworks.airflow import reprocess_tasks
from deltaworks.airflow.dags import DeltaworksDag, pipeline_dags, reprocess_dag
from deltaworks.airflow.replay_operators import PublishOperator
from deltaworks.control import jobs
from deltaworks.control.paths import PipelinePaths
from deltaworks.errors import ConfigurationError
from deltaworks.replay import runs
from deltaworks.replay.days import NoCompleteDayError
from deltaworks.replay.model import Phase, ReplayPaths
from deltaworks.settings import Settings
from tests.unit.airflow.replay_runs import Run
from tests.unit.airflow.replays import (
    EQUAL,
    Notes,
    planned,
    project_settings,
    take_notes,
    write_findings,
    write_publication,
)
from tests.unit.airflow.reprocess_runs import ended
from tests.unit.airflow.since import AIRFLOW_3_3

NAME = "wordcount"
NIGHTLY = Reprocess("@daily", hand_over=HandOver(window=(time(2), time(4))), limit=ChangeLimit(rows=12))
NOV_24_MS = 1_795_305_600_000 + 2 * 86_400_000
DAY_MS = 86_400_000
BEFORE = ["plan", "run", "compare", "gate"]
ANSWERS = pytest.mark.skipif(not AIRFLOW_3_3, reason="nobody can answer in `dag.test` of Airflow 3.2")


class Project:
    """This repository, one of whose pipelines reprocesses its days."""

    def __init__(self, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
        self.settings = settings
        self.policy: Reprocess | None = Reprocess("0 3 * * *", days=3, limit=ChangeLimit(rows=12))
        load = jobs.load
        monkeypatch.setattr(jobs, "load", lambda settings, name: replace(load(settings, name), reprocess=self.policy))
        monkeypatch.setattr(reprocess_tasks, "stored_plan", lambda path: path)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    return Project(project_settings(tmp_path, monkeypatch), monkeypatch)


@pytest.fixture
def notes(project: Project, monkeypatch: pytest.MonkeyPatch) -> Notes:
    return take_notes(monkeypatch)


def moment(day: int, hour: int = 3) -> datetime:
    return datetime(2026, 11, day, hour, tzinfo=UTC)


def dag_run(kind: str = "scheduled", begin: int = 26, end: int = 27, after: datetime | None = None) -> Any:
    return SimpleNamespace(
        dag_id=f"{NAME}__reprocess",
        run_id=f"{kind}__{end}",
        run_type=kind,
        triggering_user_name=None,
        data_interval_start=moment(begin),
        data_interval_end=moment(end),
        run_after=after or moment(end),
    )


def test_only_a_pipeline_that_says_so_has_the_dag(project: Project) -> None:
    dag = pipeline_dags(NAME)[f"{NAME}__reprocess"]
    assert (dag.catchup, dag.max_active_runs, dag.start_date) == (False, 1, None)
    assert dag.allowed_run_types is not None
    assert {"scheduled", "manual", "backfill"} <= set(dag.allowed_run_types)
    assert DeltaworksDag(NAME, "reprocess").dag_id == dag.dag_id

    project.policy = None
    assert f"{NAME}__reprocess" not in pipeline_dags(NAME)
    with pytest.raises(ConfigurationError, match="has no reprocess DAG: its pipeline has no reprocess="):
        DeltaworksDag(NAME, "reprocess")


def test_missed_runs_are_made_up_for_if_the_pipeline_says_so(project: Project) -> None:
    project.policy = Reprocess("@weekly", catchup=True, start_date=date(2026, 11, 1))
    dag = reprocess_dag(NAME)
    assert isinstance(dag, DAG)
    assert (dag.catchup, dag.start_date) == (True, datetime(2026, 11, 1, tzinfo=UTC))
    assert "made up for, from 2026-11-01 on" in (dag.doc_md or "")


def test_a_schedule_that_airflow_does_not_understand_is_an_error_of_the_pipeline(project: Project) -> None:
    project.policy = Reprocess("99 3 * * *")
    with pytest.raises(ConfigurationError, match=r"reprocess= of wordcount has the schedule '99 3 \* \* \*'"):
        reprocess_dag(NAME)


def test_the_page_says_when_what_and_within_which_limit(project: Project) -> None:
    project.policy = Reprocess(
        "0 3 * * *", days=3, order="time", limit=ChangeLimit(rows=5, share=0.01, sums={"wordcount_hours.count": 0.1})
    )
    dag = reprocess_dag(NAME)
    assert isinstance(dag, DAG)
    for text in (
        "`0 3 * * *` (UTC)", "the 3 UTC days before that time", "at most 5 rows differ", "at most 1.000% of the rows",
        "the sum of `wordcount_hours.count` changes by at most 10.000%; otherwise it asks", "| time |",
        f"--dag-id {NAME}__reprocess", "`unchanged`",
    ):  # fmt: skip
        assert text in (dag.doc_md or ""), text


@pytest.mark.parametrize(
    ("run", "first", "end"),
    [
        (dag_run(), 24, 27),
        (dag_run(after=moment(29, 23)), 24, 27),
        (dag_run("manual", after=moment(29, 23)), 26, 29),
        (dag_run("backfill"), 26, 27),
        (dag_run("backfill", 15, 22), 15, 22),
        (dag_run("backfill", 26, 26), 25, 26),
    ],
    ids=["scheduled", "late", "triggered", "backfill by day", "backfill by week", "backfill by hour"],
)
def test_the_days_follow_from_the_kind_of_run(run: Any, first: int, end: int) -> None:
    days = reprocess_tasks.days_of(Reprocess("0 3 * * *", days=3), run)
    assert days == (date(2026, 11, first), date(2026, 11, end))


def test_the_request_is_for_complete_days_and_differences(project: Project, notes: Notes) -> None:
    project.policy = Reprocess("0 3 * * *", days=3, tables=("wordcount_hours",), order="time")
    run = reprocess_tasks.plan(NAME, dag_run())
    assert reprocess_tasks.plan(NAME, dag_run()) == run, "of a run that is tried again"

    [request] = notes.requests
    assert (request.from_ms, request.to_ms) == (NOV_24_MS, NOV_24_MS + 3 * DAY_MS)
    assert (request.complete_days, request.only_different) == (True, True)
    assert (request.tables, request.order) == (("wordcount_hours",), "time")
    assert (request.reason, request.requested_by) == ("reprocess 2026-11-24 to 2026-11-27", "airflow scheduled")


def left(project: Project, run: str, *done: Phase, code: str | None = None, **state: Any) -> ReplayPaths:
    """What an earlier run of the DAG has left; with other code than that of now, if it is given."""
    paths = planned(project.settings, NAME, run, *done, by_policy=True, **state)
    if code is not None:
        paths.write_plan(msgspec.structs.replace(paths.read_plan(), code_version=code))
    return paths


def test_what_earlier_runs_have_left_does_not_fail_the_next(project: Project, notes: Notes) -> None:
    gone = [
        left(project, "killed", "run"),
        left(project, "old-code", "run", code="before"),
        left(project, "refused-old-code", "run", "compare", passed=False, code="before"),
        left(project, "nobody-approved", "run", "compare", "gate", passed=True),
    ]
    run = reprocess_tasks.plan(NAME, dag_run())
    assert [paths.plan.exists() for paths in gone] == [False] * 4

    mine, _ = runs.find(project.settings, run)
    mine.write_plan(msgspec.structs.replace(mine.read_plan(), code_version="before"))
    assert reprocess_tasks.plan(NAME, dag_run()) == run
    assert mine.read_plan().code_version != "before", "a run that is cleared after a repair begins anew"


def test_what_somebody_should_see_or_has_begun_stays(project: Project, notes: Notes) -> None:
    refused = left(project, "refused", "run", "compare", passed=False)
    by_hand = planned(project.settings, NAME, "by-hand", "run")
    publishing = left(project, "publishing", "run", "compare", "gate", passed=True, code="before")
    write_publication(publishing, "publishing", "wordcount_hours")
    switching = left(project, "switching", "run", "compare", "gate", passed=True, hand_over=True)
    (record := PipelinePaths.of(project.settings, NAME).handover("switching")).parent.mkdir(parents=True)
    record.write_bytes(b"{}")

    with pytest.raises(AirflowFailException, match=r"replays some of the same days of .*, and is not finished"):
        reprocess_tasks.plan(NAME, dag_run())
    assert all(paths.plan.exists() for paths in (refused, by_hand, publishing, switching))


def test_a_run_without_a_complete_day_is_skipped(notes: Notes) -> None:
    notes.errors["plan"] = NoCompleteDayError("None of the days is complete")
    with pytest.raises(AirflowSkipException, match="None of the days is complete"):
        reprocess_tasks.plan(NAME, dag_run())


def test_a_stream_that_never_ran_is_skipped(notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reprocess_tasks, "stored_plan", lambda path: None)
    with pytest.raises(AirflowSkipException, match="wordcount has not run yet"):
        reprocess_tasks.plan(NAME, dag_run())
    assert notes.requests == []


def test_a_policy_that_is_gone_fails_for_good(project: Project, notes: Notes) -> None:
    project.policy = None
    with pytest.raises(AirflowFailException, match=r"jobs/wordcount.py has no reprocess= any more"):
        reprocess_tasks.plan(NAME, dag_run())


def ready(
    project: Project,
    *,
    equal: bool = False,
    done: tuple[Phase, ...] = ("run", "compare", "gate"),
    hand_over: bool = False,
) -> ReplayPaths:
    paths = planned(project.settings, NAME, "r", *done, passed=True, hand_over=hand_over)
    write_findings(paths, **({"rows": EQUAL} if equal else {}))
    return paths


def answered(by: str | None) -> Any:
    return SimpleNamespace(xcom_pull=lambda task_ids, key: by)


@pytest.mark.parametrize(
    ("limit", "equal", "task"), [(12, False, "publish"), (11, False, "approve"), (0, True, "unchanged")]
)
def test_it_publishes_asks_or_leaves_production_alone(project: Project, limit: int, equal: bool, task: str) -> None:
    project.policy = Reprocess("@daily", limit=ChangeLimit(rows=limit))
    ready(project, equal=equal)
    assert reprocess_tasks.decide(NAME, "r") == task


def test_it_decides_nothing_before_the_gate(project: Project) -> None:
    ready(project, done=("run", "compare"))
    with pytest.raises(AirflowFailException, match="publish follows gate"):
        reprocess_tasks.decide(NAME, "r")


def test_within_the_limit_the_policy_is_what_approves(project: Project) -> None:
    ready(project)
    found = reprocess_tasks.approved_by(project.settings, NAME, "r", answered(None))
    assert found == "reprocess= of wordcount: 12 rows differ, and that is within the limit"


def test_over_the_limit_a_person_has_to(project: Project) -> None:
    project.policy = Reprocess("@daily", limit=ChangeLimit(rows=11))
    ready(project)
    with pytest.raises(AirflowFailException, match="Nobody has approved this"):
        reprocess_tasks.approved_by(project.settings, NAME, "r", answered(None))
    assert reprocess_tasks.approved_by(project.settings, NAME, "r", answered("ada")) == "airflow ada"


def test_what_equals_production_is_not_published(project: Project) -> None:
    ready(project, equal=True)
    with pytest.raises(AirflowFailException, match="Nothing is to be published: every row equals production"):
        reprocess_tasks.approved_by(project.settings, NAME, "r", answered("ada"))


def test_unchanged_removes_the_run_once(project: Project) -> None:
    paths = ready(project, equal=True)
    reprocess_tasks.unchanged(NAME, "r")
    reprocess_tasks.unchanged(NAME, "r")
    assert not paths.root.exists()
    assert runs.all_unfinished(project.settings) == []


def test_unchanged_removes_nothing_that_differs(project: Project) -> None:
    paths = ready(project)
    with pytest.raises(AirflowFailException, match="Production is not equal: 12 rows differ"):
        reprocess_tasks.unchanged(NAME, "r")
    assert paths.plan.exists()


def test_a_hand_over_is_of_all_history_so_it_has_no_backfill(project: Project, notes: Notes) -> None:
    project.policy = NIGHTLY
    dag = pipeline_dags(NAME)[f"{NAME}__reprocess"]
    assert dag.allowed_run_types is not None and "backfill" not in dag.allowed_run_types
    within = "it switches what differs if at most 12 rows differ; otherwise it asks"
    for text in ("all history of `wordcount`", f"from 02:00 to 04:00 UTC, for which `publish` waits, {within}"):
        assert text in (dag.doc_md or ""), text
    assert "backfill" not in (dag.doc_md or "")

    reprocess_tasks.plan(NAME, dag_run())
    [request] = notes.requests
    assert (request.hand_over, request.from_ms, request.to_ms, request.only_different) == (True, None, None, False)


def test_without_a_window_a_person_is_asked_about_any_difference(project: Project) -> None:
    project.policy = Reprocess("@daily", hand_over=HandOver())
    dag = reprocess_dag(NAME)
    assert isinstance(dag, DAG) and "| Handing over | asks about any difference |" in (dag.doc_md or "")
    paths = ready(project, hand_over=True)
    assert reprocess_tasks.decide(NAME, "r") == "approve"
    assert reprocess_tasks.opens_at(project.settings, NAME, "r") is None, "an approval switches at once"
    write_findings(paths, rows=EQUAL)
    assert reprocess_tasks.decide(NAME, "r") == "unchanged"


class Switched(PublishOperator):
    """Notes what the command line would have been asked to do."""

    def run_child(self, settings: Any, name: str, log: Path, command: Sequence[str], **more: Any) -> int:
        paths = planned_paths(settings)
        state = paths.read_state()
        state.done.append("publish")
        paths.write_state(state)
        return 0


def planned_paths(settings: Settings) -> ReplayPaths:
    return runs.find(settings, "r")[0]


def test_it_waits_without_a_worker_until_the_window_opens(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.policy = NIGHTLY
    paths = ready(project, hand_over=True)
    operator = Switched(task_id="publish", pipeline=NAME, replay="r", by_policy=True)
    context: Any = {"params": {}, "ti": answered(None)}

    for hour, opens in ((1, moment(5, 2)), (23, moment(6, 2))):  # at 23:00, the triggerer was down all night
        monkeypatch.setattr(clock, "utc_now", lambda hour=hour: moment(5, hour))
        with pytest.raises(TaskDeferred) as waits:
            operator.execute_later(context, None) if hour == 23 else operator.execute(context)
        assert (waits.value.trigger.moment, waits.value.method_name) == (opens, "execute_later")
    assert "publish" not in paths.read_state().done

    monkeypatch.setattr(clock, "utc_now", lambda: moment(6, 2))
    operator.execute_later(context, None)
    state = paths.read_state()
    assert "publish" in state.done and state.approval is not None
    assert state.approval.by == "reprocess= of wordcount: 12 rows differ, and that is within the limit"


def test_a_hand_over_that_was_begun_is_completed_at_any_time(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.policy = NIGHTLY
    ready(project, hand_over=True)
    monkeypatch.setattr(clock, "utc_now", lambda: moment(5, 4))
    assert reprocess_tasks.opens_at(project.settings, NAME, "r") == moment(6, 2)
    record = PipelinePaths.of(project.settings, NAME).handover("r")
    record.parent.mkdir(parents=True)
    record.write_text("{}")
    assert reprocess_tasks.opens_at(project.settings, NAME, "r") is None


@pytest.fixture(scope="module")
def ends() -> dict[str, Run]:
    return ended()


def test_a_stream_that_never_ran_skips_everything(ends: dict[str, Run]) -> None:
    run = ends["never ran"]
    assert (run.state, run.phases, set(run.tasks.values())) == ("success", [], {"skipped"})


def test_within_the_limit_nobody_is_asked(ends: dict[str, Run]) -> None:
    run = ends["within the limit"]
    assert (run.state, run.asked, run.left) == ("success", [], [])
    assert run.phases == [*BEFORE, "publish", "verify", "quality"]
    skipped = {task for task, state in run.tasks.items() if state == "skipped"}
    assert skipped == {"approve", "discard", "unchanged"}


def test_if_production_is_equal_the_run_is_green_and_publishes_nothing(ends: dict[str, Run]) -> None:
    run = ends["equal"]
    assert (run.state, run.asked, run.left, run.phases) == ("success", [], [], BEFORE)
    done = {task for task, state in run.tasks.items() if state == "success"}
    assert done == {*BEFORE, "decide", "unchanged"}


def test_a_hand_over_waits_for_its_window(ends: dict[str, Run]) -> None:
    run = ends["handed over"]
    assert (run.state, run.asked, run.left) == ("success", [], [])
    assert run.phases == [*BEFORE, "publish", "verify", "quality"]


@ANSWERS
def test_over_the_limit_a_person_is_asked_and_answers(ends: dict[str, Run]) -> None:
    approved, rejected = ends["approved"], ends["rejected"]
    assert approved.asked == rejected.asked == ["Publish this replay of wordcount?"]
    assert (approved.state, approved.left) == (rejected.state, rejected.left) == ("success", [])
    assert approved.phases == [*BEFORE, "publish", "verify", "quality"]
    assert rejected.phases == BEFORE
    assert (rejected.tasks["discard"], rejected.tasks["publish"]) == ("success", "skipped")


def test_over_the_limit_marking_the_approval_publishes_nothing(ends: dict[str, Run]) -> None:
    run = ends["approval marked as success"]
    assert (run.state, run.phases, len(run.left)) == ("failed", BEFORE, 1)
    assert run.tasks["publish"] == "failed"
