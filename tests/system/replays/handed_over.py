"""A stream with a bug goes on with the stores and tables of a replay; killed, undone, and handed over again.

What it then has in its tables is compared with the job's recomputation, which has the right code from the first record
on, and with another replay, row by row.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, ExitStack
from importlib import import_module

from deltaworks.control import actions, heartbeat, jobs
from deltaworks.control.paths import PipelinePaths
from deltaworks.settings import Settings
from jobs.recomputed.results import Comparison, Recomputation
from tests.support.live_stack import has_read, settled_end_offsets
from tests.system.replays import equal
from tests.system.replays.findings import Findings
from tests.system.replays.kills import killed_at
from tests.system.replays.project import WAIT_S, Project, until
from tests.system.sample_data import flowing

JOB = "invoices"
RIGHT, WRONG = 'POINTS_PER_AMOUNT = Decimal("0.02")', 'POINTS_PER_AMOUNT = Decimal("0.03")'
"""Every balance of loyalty points is built on those before: no day of it can be published."""
POINTS = (
    "handover.before_record", "handover.after_record", "handover.after_commit:invoices_line_items",
    "handover.between_switch",
)  # fmt: skip
BY, RATE, MORE_S = "check-replay", 20.0, 5.0


def check(project: Project, findings: Findings) -> None:
    """The driver is deployed again at every switch, and records arrive all the time."""
    settings, source = project.settings, project.settings.project / "jobs" / f"{JOB}.py"
    right = source.read_text()
    assert right.count(RIGHT) == 1
    wrong = right.replace(RIGHT, WRONG)
    with ExitStack() as stack:
        stack.callback(source.write_text, right)
        source.write_text(wrong)
        assert project.deltaworks("produce", JOB, "--records", "20000").code == 0
        actions.deploy(settings, JOB, requested_by=BY, launch_s=WAIT_S)
        stack.callback(actions.stop, settings, JOB, requested_by=BY)
        different = _different(project)
        findings.holds(f"with the bug: {different:,} rows are wrong", different > 1000)

        source.write_text(right)
        with _records(project):
            run = _killed_again_and_again(project, findings)
        _is_right(project, findings, "handed over")

        source.write_text(wrong)
        with _records(project):
            answer = project.deltaworks("rollback", run)
        findings.holds(f"undone (exit code {answer.code})", answer.code == 0)
        findings.holds("undone: the bug is back", _different(project) > 1000)
        equal.replay(project, JOB, findings)

        source.write_text(right)
        with _records(project):
            answer = project.deltaworks("replay", JOB, "--hand-over", "--reason", "again", "--yes")
        findings.holds(f"handed over again (exit code {answer.code})", answer.code == 0)
        _is_right(project, findings, "again")


def _records(project: Project) -> AbstractContextManager[object]:
    """They keep arriving, until the block ends."""
    return flowing(project.settings, RATE, job=JOB, continued=True)


def _killed_again_and_again(project: Project, findings: Findings) -> str:
    """One hand-over, whose process is killed at every point; the id of its run."""
    arguments: tuple[str, ...] = ("replay", JOB, "--hand-over", "--reason", "points", "--yes")
    for point in POINTS:
        killed_at(project, findings, point, *arguments)
        (run,) = project.unfinished(JOB)
        arguments = ("replay", JOB, "--resume", run, "--yes")
    answer = project.deltaworks(*arguments)
    findings.holds(f"--resume completes it (exit code {answer.code})", answer.code == 0)
    switched = PipelinePaths.of(project.settings, JOB).switched
    findings.holds(f"the checkpoint {run} runs", switched[-1:] == (run,))
    return run


def _is_right(project: Project, findings: Findings, when: str) -> None:
    """Now, and with records that were written since."""
    for moment in ("", ", and goes on"):
        for found in _recomputed(project):
            findings.rows_equal(f"{when}{moment}: {found.name} and its recomputation", found.expected, found.different)
        with _records(project):
            time.sleep(MORE_S)
    equal.replay(project, JOB, findings)


def _different(project: Project) -> int:
    return sum(found.different for found in _recomputed(project))


def _recomputed(project: Project) -> list[Comparison]:
    """The tables, when all records are in them. Topics are left out: they keep what the bug has sent."""
    settings = project.settings
    until(lambda: _caught_up(settings), f"{JOB} has caught up")
    recomputation: Recomputation = import_module(f"jobs.recomputed.{JOB}").recomputation
    found = recomputation.check(settings.cluster, settings.tables, settings.pipeline(JOB) / "batches")
    return [each for each in found if each.kind == "table"]


def _caught_up(settings: Settings) -> bool:
    beat = heartbeat.read(PipelinePaths.of(settings, JOB).heartbeat)
    if beat is not None and beat.state == "failed":  # nobody supervises it, and Spark's workers have 10 s to start
        actions.restart(settings, JOB, requested_by=BY)
    if beat is None or beat.state != "running" or beat.stale_snapshots:
        return False
    ends = settled_end_offsets(settings.cluster, jobs.load(settings, JOB).plan().source_topics)
    return has_read(beat, ends)
