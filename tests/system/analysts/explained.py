"""A hundred random rows of all jobs are explained; each test that is written gives the row again in the driver."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

from deltaworks.explain.written import write_test
from deltaworks.settings import Settings
from tests.hosts import test_replay_of_jobs as jobs
from tests.hosts.explaining import Explained
from tests.system.analysts.findings import Findings

ROWS = 100
RECORDS = 300
"""Of each job."""


def check(work: Path, findings: Findings, seconds: float) -> None:
    """Rows of random tables of each job; the budget does not matter."""
    seed = random.SystemRandom().randrange(1_000_000)
    findings.say(f"seed {seed}")
    rng, written = random.Random(seed), work / "written"
    written.mkdir()
    rows = 0
    for number, job in enumerate(jobs.JOBS):
        share = -((rows - ROWS) // (len(jobs.JOBS) - number))  # a job may have fewer rows than its share
        rows += _explain(job, share, work / job, written, findings, rng, seed)
    findings.holds(f"{rows} rows were explained", rows == ROWS)
    _run(written, findings, rows)
    findings.counts["explained rows"] = rows


def _explain(job: str, share: int, home: Path, written: Path, findings: Findings, rng: random.Random, seed: int) -> int:
    jobs.JOBS[job] = RECORDS
    stream = jobs.streamed(job, home, seed)
    stream.close()
    explained = Explained(stream)
    tables = {schema.name: schema for schema in explained.tables()}
    there = [(name, question) for name in tables for question in explained.questions(tables[name], share, rng)]
    chosen = rng.sample(there, min(share, len(there)))
    for number, (table, question) in enumerate(chosen):
        found = explained(question)
        what = f"{table} {' '.join(question.key)} {question.window or ''}: {len(found.inputs)} records"
        again = found.case.found(stream.pipeline)
        equal = found.reproduced and found.found == found.case.row == again
        findings.rows_equal(what, 1, int(not equal))
        if not equal:
            findings.say(f"  differs: {found.differing}; the driver gives {again}")
            continue
        write_test(found, written / f"test_{job}_{number}.py")
    return len(chosen)


def _run(written: Path, findings: Findings, rows: int) -> None:
    """The files as whoever got them runs them."""
    report = written / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(written)]
    done = subprocess.run(
        [*command, f"--junitxml={report}", str(written)],
        cwd=Settings.from_environment({}).project, env=dict(os.environ), capture_output=True, text=True, check=False,
    )  # fmt: skip
    (suite,) = ElementTree.parse(report).getroot().iter("testsuite")
    passed = int(suite.get("tests", 0)) - sum(int(suite.get(name, 0)) for name in ("failures", "errors", "skipped"))
    if not findings.holds(f"{passed} written tests pass under pytest", done.returncode == 0 and passed == rows):
        findings.say(done.stdout[-3000:])
