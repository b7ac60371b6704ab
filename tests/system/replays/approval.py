"""Replays as DAGs of a real Airflow, over its REST API: approved, rejected, one day, a backfill of two."""

from __future__ import annotations

from deltaworks.control import actions
from tests.system.replays.findings import Findings
from tests.system.replays.payments import BUG, DAY_MS, NOTHING, START_MS, Payments, Published
from tests.system.replays.project import WAIT_S, Project, until
from tests.system.replays.rest import ReplayApi

HOURS = 150


def check(project: Project, findings: Findings) -> None:
    """The stream goes on with the bug, so one can tell its rows."""
    payments = Payments(project, "approved")
    replay = "approved__replay"
    payments.write(BUG)
    payments.pay(HOURS)
    settings = project.settings
    with ReplayApi.of(settings) as airflow, payments.arriving():
        actions.deploy(settings, payments.name, requested_by="check-replay", launch_s=WAIT_S)
        try:
            payments.settle()
            payments.write()
            airflow.wait("its DAG", lambda: replay in {dag.dag_id for dag in airflow.dags()}, timeout_s=WAIT_S)
            _rejected(payments, findings, airflow, replay)
            run = _approved(payments, findings, airflow, replay)
            done = project.deltaworks("rollback", run)
            findings.holds(f"rolled back (exit code {done.code})", done.code == 0)
            _production(payments, findings, "rolled back", NOTHING)
            _one_day(payments, findings, airflow, replay)
            _backfill(payments, findings, airflow, replay)
        finally:
            actions.stop(settings, payments.name, requested_by="check-replay")


def _asked(payments: Payments, findings: Findings, airflow: ReplayApi, dag_id: str) -> str:
    """A run that waits for its approval."""
    conf = {"reason": "amounts counted twice", "from": "2026-03-01", "to": "2026-03-03", "approval": True}
    run_id = airflow.trigger(dag_id, conf)
    asked = until(
        lambda: airflow.run(dag_id, run_id).ended or airflow.task(dag_id, run_id, "approve").state == "awaiting_input",
        f"{run_id} awaits input",
    )
    findings.holds(f"{dag_id}: approve awaits input", asked and not airflow.run(dag_id, run_id).ended)
    question = airflow.question(dag_id, run_id)
    lines = [line for line in question["body"].splitlines() if "rows differ" in line or "invariants hold" in line]
    findings.say(f"{question['subject']} {' '.join(lines)} {question['options']}")
    _production(payments, findings, "while it waits", NOTHING)
    return run_id


def _rejected(payments: Payments, findings: Findings, airflow: ReplayApi, dag_id: str) -> None:
    run_id = _asked(payments, findings, airflow, dag_id)
    _answered(findings, airflow, dag_id, run_id, "Reject")
    states = {task.task_id: task.state for task in airflow.tasks(dag_id, run_id)}
    expected = {
        "approve": "success",
        "publish": "skipped",
        "verify": "skipped",
        "clean": "skipped",
        "discard": "success",
    }
    findings.holds(f"rejected: {_listed(states)}", expected.items() <= states.items())
    _production(payments, findings, "rejected", NOTHING)
    findings.holds("rejected: no run is left", not payments.project.unfinished(payments.name))


def _approved(payments: Payments, findings: Findings, airflow: ReplayApi, dag_id: str) -> str:
    """The id of the replay."""
    run_id = _asked(payments, findings, airflow, dag_id)
    _answered(findings, airflow, dag_id, run_id, "Approve")
    states = {task.task_id: task.state for task in airflow.tasks(dag_id, run_id)}
    findings.holds(f"approved: {_listed(states)}", states["clean"] == "success" and states["discard"] == "skipped")
    _production(payments, findings, "approved", _days(0, 2))
    findings.holds("approved: no run is left", not payments.project.unfinished(payments.name))
    return str(airflow.xcom(dag_id, run_id, "plan"))


def _one_day(payments: Payments, findings: Findings, airflow: ReplayApi, dag_id: str) -> None:
    run_id = airflow.trigger_day(dag_id, "2026-03-01", {"reason": "amounts counted twice", "approval": False})
    _ended(findings, airflow, dag_id, run_id)
    _production(payments, findings, "one day", _days(0, 1))


def _backfill(payments: Payments, findings: Findings, airflow: ReplayApi, dag_id: str) -> None:
    """Two more days, one run each."""
    conf = {"reason": "amounts counted twice", "approval": False}
    backfill = airflow.backfill(dag_id, "2026-03-02", "2026-03-03", conf)
    until(lambda: airflow.backfill_ended(backfill), "the backfill has ended", timeout_s=2 * WAIT_S)
    days = airflow.days(dag_id)
    findings.holds(f"backfill: {days}", {days.get("2026-03-02"), days.get("2026-03-03")} == {"success"})
    _production(payments, findings, "backfill", _days(0, 3))


def _answered(findings: Findings, airflow: ReplayApi, dag_id: str, run_id: str, option: str) -> None:
    """As a program should: an answer gets lost that is there before the scheduler has noted that the task waits.

    Airflow then fails the task ("finished with state success, but the task instance's state attribute is queued", says
    its scheduler), and the next try asks again.
    """
    airflow.noted()
    airflow.answer(dag_id, run_id, option)
    _ended(findings, airflow, dag_id, run_id)


def _ended(findings: Findings, airflow: ReplayApi, dag_id: str, run_id: str) -> None:
    until(lambda: airflow.run(dag_id, run_id).ended, f"{run_id} has ended")
    state = airflow.run(dag_id, run_id).state
    findings.holds(f"{dag_id}: {run_id}: {state}", state == "success")
    for task in airflow.tasks(dag_id, run_id):
        if task.state == "failed":
            findings.say(airflow.log(dag_id, run_id, task.task_id, task.try_number))


def _days(first: int, end: int) -> Published:
    """All payments of some days were there when their replay was planned."""
    everything = {str(part): HOURS * 5 for part in range(2)}
    return Published(START_MS + first * DAY_MS, START_MS + end * DAY_MS, everything)


def _production(payments: Payments, findings: Findings, when: str, published: Published) -> None:
    for table, (rows, different) in payments.differences(published).items():
        findings.rows_equal(f"{when}: {table}", rows, different)


def _listed(states: dict[str, str | None]) -> str:
    return ", ".join(f"{task} {state}" for task, state in states.items())
