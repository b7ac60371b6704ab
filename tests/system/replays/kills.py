"""SIGKILL of the replay and all its processes, in every phase and at every named point; then it goes on.

Under the stream, which publishes at the replay's command, kills come at random moments of a phase. With the stream
stopped the replay publishes itself, so kills at the points between the commits leave some tables old and some new.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from deltaworks.errors import ConfigurationError
from deltaworks.replay.model import PHASES, Phase
from tests.system.replays.findings import Findings
from tests.system.replays.payments import BUG, NOTHING, Payments, Published
from tests.system.replays.project import WAIT_S, Project

DAYS = ("--from", "2026-03-01", "--to", "2026-03-04")
VICTIMS: tuple[Phase, ...] = ("plan", "run", "run", "run", "compare", "gate", "publish", "verify", "clean")
IN_RUN = ("replay.before_commit", "replay.committed", "replay.noted")
IN_PUBLISH = ("publish.before_record", "publish.after_record", "publish.between_tables", "publish.after_commits")
_LONGEST_S: dict[Phase, float] = {"plan": 3.0, "run": 6.0, "compare": 0.1, "gate": 3.0}
"""A kill comes so long after the beginning of a phase at most, and when it ends; of the others a few milliseconds."""
_SHORT_S = 0.02


def check(project: Project, findings: Findings) -> None:
    """Everything twice: under the stream, and with the stream stopped."""
    rng = random.Random(1)
    payments = Payments(project, "killed")
    payments.write(BUG)
    payments.pay(1_000)
    with payments.streaming():
        payments.write()
        published = _every_phase(payments, findings, rng)
        _rolled_back(payments, findings)
        payments.settle()
    _every_point(payments, findings, published)
    _rolled_back(payments, findings)


def _every_phase(payments: Payments, findings: Findings, rng: random.Random) -> Published:
    """One replay, killed in each of its phases, three times in the long one; what it published."""
    project, published, hits = payments.project, NOTHING, set[Phase]()
    arguments: tuple[str, ...] = ("replay", payments.name, *DAYS, "--reason", "killed", "--yes")
    for phase in VICTIMS:
        process = project.launch(*arguments)
        _await_phase(payments, process, phase)
        _stay(payments, phase, rng.uniform(0, _LONGEST_S.get(phase, _SHORT_S)))
        end_group(process)
        hit = _phase(payments, if_gone="plan" if phase == "plan" else "clean")
        hits.add(hit)
        left = project.unfinished(payments.name)
        if left:
            arguments = ("replay", payments.name, "--resume", left[0], "--yes")
            state = project.state(left[0])
            if "run" in state.done and published is NOTHING:
                published = Published.days(project.plan(left[0]), state)
        findings.say(f"SIGKILL, meant for {phase}: hit {hit}; {len(left)} unfinished")
        if PHASES.index(hit) < PHASES.index("publish"):
            _production(payments, findings, f"killed in {hit}", NOTHING)
        elif hit == "publish":
            _old_or_new(payments, findings, published)
        else:
            _production(payments, findings, f"killed in {hit}", published)
    if project.unfinished(payments.name):
        answer = project.deltaworks(*arguments)
        findings.holds(f"--resume completes it (exit code {answer.code})", answer.code == 0)
    findings.holds(f"phases hit: {', '.join(sorted(hits, key=PHASES.index))}", {*PHASES[:-1]} <= hits)
    _production(payments, findings, "after all kills", published)
    findings.holds("no run is left", not project.unfinished(payments.name))
    _leftovers(payments, findings)
    return published


def _every_point(payments: Payments, findings: Findings, published: Published) -> None:
    """One replay without the stream, killed at each point, resumed for the next one."""
    project = payments.project
    before = project.versions(payments.tables)
    arguments: tuple[str, ...] = (*DAYS, "--reason", "killed at points", "--yes")
    for point in (*IN_RUN, *IN_PUBLISH):
        killed_at(project, findings, point, "replay", payments.name, *arguments)
        (run,) = project.unfinished(payments.name)
        arguments = ("--resume", run, "--yes")
        after = project.versions(payments.tables)
        changed = [table for table in payments.tables if before[table] != after[table]]
        findings.say(f"{point}: new Delta versions of {', '.join(changed) or 'no table'}")
        if point in IN_RUN:
            findings.holds(f"{point}: production is untouched", not changed)
        else:
            _old_or_new(payments, findings, published)
    answer = project.deltaworks("replay", payments.name, *arguments)
    findings.holds(f"--resume completes it (exit code {answer.code})", answer.code == 0)
    _production(payments, findings, "killed at all points, completed", published)


def killed_at(project: Project, findings: Findings, point: str, *arguments: str) -> None:
    """A command that goes on until it is killed at a point."""
    with tempfile.TemporaryDirectory() as folder:
        faults = Path(folder)
        (faults / "inject").mkdir()
        (faults / "inject" / point).write_text("kill")
        process = project.launch(*arguments, faults=faults)
        process.wait(timeout=WAIT_S)
        end_group(process)
        findings.holds(f"SIGKILL at {point} (exit code {process.returncode})", (faults / "done" / point).exists())


def _await_phase(payments: Payments, process: subprocess.Popen[str], phase: Phase) -> None:
    """Until the run is in the phase or beyond it, or the process has ended."""
    end = time.monotonic() + WAIT_S
    while process.poll() is None and PHASES.index(_phase(payments, if_gone="plan")) < PHASES.index(phase):
        assert time.monotonic() < end, f"{phase} did not begin"
        time.sleep(0.001)


def _stay(payments: Payments, phase: Phase, seconds: float) -> None:
    """For so long, or until the phase is over; a plan is no phase of a run yet."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and _phase(payments, if_gone=phase) == phase:
        time.sleep(0.001)


def _phase(payments: Payments, *, if_gone: Phase) -> Phase:
    """The phase that the run is in."""
    for run in payments.project.unfinished(payments.name):
        with contextlib.suppress(ConfigurationError):  # gone meanwhile
            return payments.project.state(run).next or "clean"
    return if_gone


def end_group(process: subprocess.Popen[str]) -> None:
    """SIGKILL for whatever is left of a session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _rolled_back(payments: Payments, findings: Findings) -> None:
    publications = sorted((payments.project.settings.pipeline(payments.name) / "publications").glob("*.json"))
    run = max(publications, key=lambda path: path.stat().st_mtime_ns).stem
    answer = payments.project.deltaworks("rollback", run)
    findings.holds(f"rolled back (exit code {answer.code})", answer.code == 0)
    _production(payments, findings, "rolled back", NOTHING)


def _production(payments: Payments, findings: Findings, when: str, published: Published) -> None:
    found = payments.differences(published)
    rows, different = (sum(counts) for counts in zip(*found.values(), strict=True))
    findings.rows_equal(f"{when}: production", rows, different)


def _old_or_new(payments: Payments, findings: Findings, published: Published) -> None:
    """Each table has all of its old rows or all of its new ones."""
    for table in payments.tables:
        counts = [payments.differences(each, tables=(table,))[table] for each in (NOTHING, published)]
        state = "old" if counts[0][1] == 0 else "new" if counts[1][1] == 0 else "neither"
        findings.holds(f"killed in publish: {table}: {counts[0][0]:,} rows, {state}", state != "neither")


def _leftovers(payments: Payments, findings: Findings) -> None:
    """The next replay finds nothing of an earlier one."""
    project = payments.project
    answer = project.deltaworks("replay", payments.name, *DAYS, "--until", "plan")
    folders = [path.name for path in (project.settings.pipeline(payments.name) / "replays").iterdir() if path.is_dir()]
    findings.holds(f"folders of runs after the next plan: {len(folders)}", folders == [answer.run])
    project.deltaworks("discard", answer.run)
