"""Runs of a replay's DAG under Airflow's own rules (`dag.test`, SQLite), with phases that take notes; prints the ends.

Run as a process of its own (`ended`), since Airflow reads its settings when it is imported.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any
from unittest import mock

import msgspec

from tests.unit.airflow import dag_runs
from tests.unit.airflow.since import AIRFLOW_3_3

NAME = "wordcount"
BY_TEST = "dag_test"
"""Who triggers a run of `dag.test`."""


class Run(msgspec.Struct, frozen=True):
    """How a run of the DAG has ended."""

    state: str
    tasks: dict[str, str]
    phases: list[str]
    """What was done, in order."""
    asked: list[str]
    """The questions that a person was asked."""
    left: list[str]
    """Folders of replays that are still there."""
    approved_by: list[str] = []
    """Who is noted to have approved what was published."""


def ended() -> dict[str, Run]:
    """Each scenario."""
    dag = f"from deltaworks.airflow.replay import replay_dag\nreplay = replay_dag({NAME!r})\n"
    return dag_runs.ended("tests.unit.airflow.replay_runs", dag, Run, AIRFLOW__LOGGING__LOGGING_LEVEL="WARNING")


def main() -> None:
    from airflow.utils.db import initdb

    initdb()
    from deltaworks.airflow.replay import replay_dag

    dag = replay_dag(NAME)
    strict = replay_dag(NAME, approval="other person")
    ends = {
        "without approval": run(dag, approval=False),
        "discard": run(dag, conf={"action": "discard", "run": "of-another"}),
        **({"approved": run(dag, option="Approve"), "rejected": run(dag, option="Reject")} if AIRFLOW_3_3 else {}),
        **({"approved by two": run(strict, option="Approve", people=(BY_TEST, "bob"))} if AIRFLOW_3_3 else {}),
        "gate not passed": run(dag, passes=False),
        "approval marked as success": run(dag, mark_success_pattern="approve"),
    }
    print()
    print(msgspec.json.encode(ends).decode())


def run(
    dag: Any,
    *,
    approval: bool = True,
    option: str = "",
    passes: bool = True,
    equal: bool = False,
    conf: dict[str, Any] | None = None,
    people: tuple[str, ...] = ("ada",),
    **how: Any,
) -> Run:
    """Runs the DAG to its end.

    Args:
        dag: of a replay, or of a reprocessing.
        approval: what the form says.
        option: what a person answers if asked.
        passes: what the gate says.
        equal: whether production equals the replay.
        conf: the form; None: of a new replay.
        people: who answers, one after the other.
        how: see `DAG.test`.
    """
    from airflow.models.taskinstance import TaskInstance
    from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
    from airflow.utils.session import create_session
    from sqlalchemy import select

    from deltaworks.airflow.replay_operators import PhaseOperator
    from deltaworks.replay import runs
    from deltaworks.settings import Settings
    from tests.unit.airflow.replays import take_notes

    settings = Settings.from_environment()
    asked: list[str] = []
    over = threading.Event()
    person = threading.Thread(target=_answer, args=(option, people, asked, over))
    with _Patch() as patch:
        notes = take_notes(patch)
        notes.passes, notes.equal = passes, equal

        def here(operator: PhaseOperator, context: Any) -> None:
            """Instead of another process."""
            replay = runs.resume(settings, operator.replay)
            state = replay.advance(operator.phase, lambda phase: print)
            if operator.phase == "gate" and not state.passed:
                from airflow.sdk.exceptions import AirflowFailException

                raise AirflowFailException("not passed")

        patch.setattr(PhaseOperator, "execute", here)
        patch.setattr(TriggerDagRunOperator, "execute", lambda operator, context: notes.done.append("quality"))
        person.start()
        try:
            if conf is None:
                new = {
                    "action": "replay",
                    "run": None,
                    "reason": "prices",
                    "approval": approval,
                }  # `dag.test` keeps the last
                conf = new if "approval" in dag.params else {}
            ended = dag.test(logical_date=None, run_conf=conf, **how)
        finally:
            over.set()
            person.join()
    with create_session() as session:
        found = session.scalars(select(TaskInstance).where(TaskInstance.run_id == ended.run_id)).all()
        tasks = {task.task_id: str(task.state) for task in found}
    left = [plan.run_id for _, plan in runs.all_unfinished(settings)]
    for each in left:
        runs.discard(settings, each)
    return Run(
        state=str(ended.state), tasks=tasks, phases=notes.done, asked=asked, left=left, approved_by=notes.approved_by
    )


class _Patch:
    """`setattr` as pytest's, undone at the end."""

    def __enter__(self) -> _Patch:
        self._patches: list[Any] = []
        return self

    def __exit__(self, *_: object) -> None:
        for patch in reversed(self._patches):
            patch.stop()

    def setattr(self, target: object, name: str, value: object) -> None:
        patch = mock.patch.object(target, name, value)
        patch.start()
        self._patches.append(patch)


def _answer(option: str, people: tuple[str, ...], asked: list[str], over: threading.Event) -> None:
    """A person at the page: what Airflow's API does with an answer."""
    from airflow.models.hitl import HITLDetail
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.trigger import handle_event_submit
    from airflow.sdk import timezone
    from airflow.triggers.base import TriggerEvent
    from airflow.utils.session import create_session
    from airflow.utils.state import TaskInstanceState
    from sqlalchemy import select

    if not AIRFLOW_3_3:  # nobody can answer in `dag.test`
        return
    tries: Counter[Any] = Counter()
    while not over.wait(0.2):
        with create_session() as session:
            waiting = select(TaskInstance).where(TaskInstance.state == TaskInstanceState.AWAITING_INPUT)
            for task in session.scalars(waiting).all():
                detail = session.get(HITLDetail, task.id)
                assert detail is not None
                if task.id not in tries:
                    asked.append(detail.subject)
                if detail.responded_at is None:  # an answer takes a while to be heard
                    tries[task.id] += 1
                name = people[min(tries[task.id], len(people)) - 1]
                detail.chosen_options, detail.params_input = [option], {}
                detail.responded_at, detail.responded_by = timezone.utcnow(), {"id": name, "name": name}
                event = TriggerEvent(detail.as_resume_event_payload())  # type: ignore[no-untyped-call]
                handle_event_submit(event, task_instance=task, session=session)


if __name__ == "__main__":
    main()
