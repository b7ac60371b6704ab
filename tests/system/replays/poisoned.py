"""A code version with a bug that the suite knows: the gate stops it, and production never hears of it."""

from __future__ import annotations

from tests.system.replays.findings import Findings
from tests.system.replays.payments import NOTHING, POISON, Payments
from tests.system.replays.project import Project


def check(project: Project, findings: Findings) -> None:
    """Once under the running stream, then with the stream stopped, so that not even a Delta version is new."""
    payments = Payments(project, "poisoned")
    payments.write()
    payments.pay(60)
    with payments.streaming():
        payments.write(POISON)
        _is_stopped(payments, findings, "under the stream")
        _production(payments, findings, "under the stream")
        payments.settle()
    before = project.versions(payments.tables)
    _is_stopped(payments, findings, "stream stopped")
    _production(payments, findings, "stream stopped")
    after = project.versions(payments.tables)
    findings.holds(f"Delta versions before {list(before.values())}, after {list(after.values())}", before == after)


def _is_stopped(payments: Payments, findings: Findings, when: str) -> None:
    project = payments.project
    answer = project.deltaworks("replay", payments.name, "--yes", "--reason", "a bug")
    findings.holds(f"{when}: exit code {answer.code}", answer.code == 1)
    findings.holds(f"{when}: it says that nothing was published", "Nothing was published" in answer.text)
    (run,) = project.unfinished(payments.name)
    state = project.state(run)
    stopped = state.done[-1] == "compare" and state.passed is False  # the gate can be asked again
    findings.holds(f"{when}: phases done: {', '.join(state.done)}", stopped)
    findings.holds(f"{when}: {state.differences:,} rows would have changed", bool(state.differences))
    again = project.deltaworks("replay", payments.name, "--resume", run, "--yes")
    findings.holds(f"{when}: asking again does not help (exit code {again.code})", again.code == 1)
    project.deltaworks("discard", run)


def _production(payments: Payments, findings: Findings, when: str) -> None:
    for table, (rows, different) in payments.differences(NOTHING, factor=1).items():
        findings.rows_equal(f"{when}: {table} is as the stream has written it", rows, different)
