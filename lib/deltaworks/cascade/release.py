"""Computes the batch jobs behind a replay again, as part of it: approved with it, and rolled back with it.

```
published --> the days of each batch job, in order --> complete
rolled back --> the same days again, from the tables as they are then
```

What is to be computed is written down before the first job begins, and each job when it is done. So a killed process
leaves what the next one completes. The history of the jobs' tables names the replay.
"""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from deltaworks import formats
from deltaworks.batch import jobs
from deltaworks.batch.history import computed_days, days_in_table
from deltaworks.cascade.readers import readers
from deltaworks.control.paths import PipelinePaths, known_pipelines
from deltaworks.errors import TerminalError, TransientError
from deltaworks.exits import CONFLICT, LEASE, NO_RESTART
from deltaworks.files import replace_file
from deltaworks.names import RUN
from deltaworks.replay.model import Narrowed, ReplayPlan, ReplayState, day_of
from deltaworks.settings import Settings

FORMAT = 1
_LINES = 5
_FAILED = "has failed; days that it has not computed have the rows of before"
_FOR_GOOD = (NO_RESTART - {LEASE, CONFLICT}) | {1}
"""Exit codes of jobs that would fail again; 1: a check was not passed."""
Report = Callable[[str], None]


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """What is computed again behind a replay, in a file."""

    run_id: str
    days: dict[str, list[dt.date]]
    """Batch job -> its days, in the order in which they are computed."""
    done: tuple[str, ...] = ()
    """The batch jobs that are computed."""
    state: Literal["computing", "complete", "rolled back"] = "computing"
    format: int = FORMAT


def record_of(settings: Settings, run_id: str) -> Path | None:
    """The file of what was computed behind a run; None: nothing was."""
    RUN.checked(run_id)
    return next((file for own in known_pipelines(settings) if (file := own.cascade(run_id)).exists()), None)


def read(record: Path) -> Release | None:
    """What is computed behind a run; None: there is no such file."""
    return formats.read(record, Release, FORMAT, f"The record of a cascade {record}")


def complete(settings: Settings, plan: ReplayPlan, state: ReplayState, report: Report) -> Release:
    """Computes the batch jobs behind a replay that is published; called again, it completes what was begun.

    Only the days that a job's table has are computed.

    Raises:
        TerminalError: a job fails, or its rows do not pass its checks; jobs behind it are not computed.
        TransientError: a job was killed, or another process works on its table.
    """
    record = PipelinePaths.of(settings, plan.request.pipeline).cascade(plan.run_id)
    release = read(record)
    if release is None:
        release = _written(record, Release(run_id=plan.run_id, days=days_behind(settings, plan, state)))
    for name in [name for name in release.days if name not in release.done]:
        compute(settings, name, release.days[name], plan.run_id, report, _FAILED)
        release = _written(record, msgspec.structs.replace(release, done=(*release.done, name)))
    return _written(record, msgspec.structs.replace(release, state="complete"))


def require_jobs(settings: Settings, run_id: str) -> None:
    """Raises `ConfigurationError` if a batch job that was computed behind a run is not there any more."""
    for name in days_of(settings, run_id):
        jobs.load(settings, name)


def roll_back(settings: Settings, run_id: str, report: Report) -> list[str]:
    """Computes the batch jobs behind a run again, after its tables were rolled back; returns their names."""
    computed = days_of(settings, run_id)
    for name, days in computed.items():
        compute(settings, name, days, f"{run_id}__rollback", report, _FAILED)
    if (record := record_of(settings, run_id)) is not None and (release := read(record)) is not None:
        _written(record, msgspec.structs.replace(release, state="rolled back"))
    return list(computed)


def days_of(settings: Settings, run_id: str) -> Mapping[str, list[dt.date]]:
    """The batch jobs that are computed behind a run, and their days; none after a rollback."""
    record = record_of(settings, run_id)
    release = None if record is None else read(record)
    return {} if release is None or release.state == "rolled back" else release.days


def days_behind(settings: Settings, plan: ReplayPlan, state: ReplayState) -> dict[str, list[dt.date]]:
    """The batch jobs for which a replay changes rows, in order, and the days of their tables for which it does."""
    found = {name: _days(settings, name, plan, state) for name in readers(settings, plan, state).batch_jobs}
    return {name: days for name, days in found.items() if days}


def _days(settings: Settings, job: str, plan: ReplayPlan, state: ReplayState) -> list[dt.date]:
    """The days of a batch job's table that a replay has changed."""
    known = {*computed_days(settings.tables, job), *days_in_table(settings.tables, job)}
    chosen = state.narrowed or Narrowed(tables=(), from_ms=state.from_ms, to_ms=state.to_ms)
    if plan.request.hand_over:
        return sorted(known)
    first = dt.date.min if chosen.from_ms is None else dt.date.fromisoformat(day_of(chosen.from_ms))
    end = dt.date.max if chosen.to_ms is None else dt.date.fromisoformat(day_of(chosen.to_ms))
    return sorted(day for day in known if first <= day < end)


def compute(settings: Settings, name: str, days: Sequence[dt.date], run_id: str, report: Report, failed: str) -> None:
    """Runs a batch job in a process of its own: a JVM that a replay has started has not the jars of Delta.

    Args:
        settings: name the tables.
        name: of the job.
        days: UTC days.
        run_id: in the history of its table.
        report: called with what it prints.
        failed: what it means if it fails, as the end of a sentence whose subject is the job.

    Raises:
        TerminalError: it would fail again, or its rows do not pass its checks.
        TransientError: it was killed, or another process works on its table.
    """
    last: deque[str] = deque(maxlen=_LINES)
    with subprocess.Popen(
        _command(name, days, run_id),
        env=settings.process_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        for line in process.stdout or ():
            last.append(line.rstrip())
            report(f"{name}: {last[-1]}")
    if process.returncode != 0:
        told = "\n  ".join(last)
        wrong = TerminalError if process.returncode in _FOR_GOOD else TransientError
        raise wrong(
            f"The batch job '{name}' {failed} (exit code {process.returncode}).\n  {told}",
            hint="repair it, then give the same command again: what is done is not done again",
        )


def _command(name: str, days: Sequence[dt.date], run_id: str) -> list[str]:
    chosen = [word for day in days for word in ("--day", day.isoformat())]
    return [sys.executable, "-u", "-m", "deltaworks.cli", "batch", name, *chosen, "--run-id", run_id]


def _written(record: Path, release: Release) -> Release:
    record.parent.mkdir(parents=True, exist_ok=True)
    replace_file(record, msgspec.json.format(msgspec.json.encode(release), indent=1))
    return release
