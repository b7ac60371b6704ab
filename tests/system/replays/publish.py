"""Publish, verify, rollback and publish again, under the running stream with records arriving."""

from __future__ import annotations

from tests.system.replays.findings import Findings
from tests.system.replays.payments import BUG, NOTHING, Payments, Published
from tests.system.replays.project import Project

FROM, TO = "2026-03-02", "2026-03-04"


def check(project: Project, findings: Findings) -> None:
    """At every stage every row of every table; the stream goes on with the bug, so one can tell its rows."""
    payments = Payments(project, "published")
    payments.write(BUG)
    payments.pay(100)
    with payments.streaming():
        _tables(payments, findings, "before", NOTHING)
        payments.write()
        for time in ("first", "again"):
            days = _days(payments, findings, time)
            payments.settle()
            _tables(payments, findings, f"{time}: published", days[1])
            if time == "first":
                _rollback(payments, findings, days[0])
        _whole(payments, findings, days[1])
        payments.settle()


def _days(payments: Payments, findings: Findings, time: str) -> tuple[str, Published]:
    """Two days, phase by phase."""
    project = payments.project
    chosen = ("replay", payments.name, "--from", FROM, "--to", TO, "--reason", time)
    answer = project.deltaworks(*chosen, "--until", "gate")
    findings.holds(f"{time}: --until gate (exit code {answer.code})", answer.code == 0)
    run = answer.run
    _tables(payments, findings, f"{time}: gate passed, nothing published", NOTHING)
    published = Published.days(project.plan(run), project.state(run))
    for until in ("publish", "verify", "clean"):
        answer = project.deltaworks("replay", payments.name, "--resume", run, "--until", until, "--yes")
        findings.holds(f"{time}: --until {until} (exit code {answer.code})", answer.code == 0)
        _tables(payments, findings, f"{time}: after {until}", published)
    changed = sum(different for _, different in payments.differences(NOTHING).values())
    findings.holds(f"{time}: {changed:,} rows are other than before", changed > 0)
    return run, published


def _rollback(payments: Payments, findings: Findings, run: str) -> None:
    answer = payments.project.deltaworks("rollback", run)
    findings.holds(f"rolled back (exit code {answer.code})", answer.code == 0)
    _tables(payments, findings, "rolled back", NOTHING)
    payments.settle()
    _tables(payments, findings, "rolled back, a while later", NOTHING)


def _whole(payments: Payments, findings: Findings, days: Published) -> None:
    """The changelog and the snapshot of the KTable, which have no days; and back."""
    project = payments.project
    chosen = ("replay", payments.name, "--table", f"{payments.name}_latest", "--reason", "as a whole")
    answer = project.deltaworks(*chosen, "--until", "gate")
    findings.holds(f"as a whole: --until gate (exit code {answer.code})", answer.code == 0)
    whole = Published(days.from_ms, days.to_ms, days.end_offsets, project.plan(answer.run).last_batch)
    done = project.deltaworks("replay", payments.name, "--resume", answer.run, "--yes")
    findings.holds(f"as a whole: published and verified (exit code {done.code})", done.code == 0)
    _tables(payments, findings, "as a whole: published", whole)
    done = project.deltaworks("rollback", answer.run)
    findings.holds(f"as a whole: rolled back (exit code {done.code})", done.code == 0)
    _tables(payments, findings, "as a whole: rolled back", days)


def _tables(payments: Payments, findings: Findings, when: str, published: Published) -> None:
    for table, (rows, different) in payments.differences(published).items():
        findings.rows_equal(f"{when}: {table}", rows, different)
