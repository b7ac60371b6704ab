"""Runs a batch job for some days: reads tables at a consistent cut, checks the rows, replaces those of each day.

Nothing changes before the rows of a day have passed all checks, and then one commit replaces them. So a run that was
killed is run again, and a run that is repeated changes nothing but the history. The history of the table names the run
and the versions of the tables that it has read.
"""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from deltaworks import clock
from deltaworks.batch import delta_tables, jobs
from deltaworks.batch.definition import KIND, definition
from deltaworks.batch.history import Note, Read
from deltaworks.batch.job import BatchJob
from deltaworks.catalogue.table import refresh_on_the_way
from deltaworks.dsl import failures
from deltaworks.errors import ConfigurationError, TableError, TerminalError
from deltaworks.files import alone, remove_tree
from deltaworks.lakehouse import catalog, cuts, descriptions, layout
from deltaworks.lakehouse.cuts import Cut
from deltaworks.lakehouse.described import Definition
from deltaworks.lakehouse.reading import dataset, parquet_files
from deltaworks.lakehouse.sandbox import Limits
from deltaworks.quality import Suites, Verdict, results, suites
from deltaworks.quality.of_day import judge_day
from deltaworks.settings import Settings
from deltaworks.tables import Table, Tables

Report = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class DayResult:
    """The result of one day."""

    day: dt.date
    rows: int
    version: int | None
    """The version of the table that has the rows; None: they did not pass, and the table has those of before."""
    verdicts: tuple[Verdict, ...]


def run(
    settings: Settings,
    name: str,
    days: Sequence[dt.date],
    *,
    run_id: str,
    report: Report = lambda _: None,
) -> list[DayResult]:
    """Runs a job for some days, each in a commit of its own; ends behind the first day that does not pass.

    Runs of the same job in one home wait for each other.

    Args:
        settings: name the project and the home.
        name: of the job.
        days: UTC days.
        run_id: id under which verdicts are kept, also in the history of the table.
        report: told what happens.

    Raises:
        ConfigurationError: there is no such job, it does not fit its tables, or a pipeline has no tables yet.
        TableError: there is a table of this name that the job did not make, or that has other columns.
        TerminalError: Spark cannot compute the rows.
        ConflictError: somebody else has changed the same rows meanwhile.
        TransientError: a file that it reads was removed meanwhile.
    """
    job = jobs.load(settings, name)
    table = definition(job)
    wanted = table.columns
    suite = suites.load_if_there(settings, name)
    folder = settings.home / KIND / name
    folder.mkdir(parents=True, exist_ok=True)
    with alone(folder):
        _check_table(settings.tables, job, wanted)
        at = {pipeline: _cut(settings.tables, pipeline, name) for pipeline in job.pipelines}
        report(
            "; ".join(
                f"{cut.pipeline} as of batch {cut.batch_id}, {cut.at:%Y-%m-%d %H:%M:%S} UTC" for cut in at.values()
            )
        )
        inputs = _inputs(settings.tables, job, at)
        staging = delta_tables.staging(settings, name, folder)
        running = _Run(settings, job, table, suite, at, inputs, staging, run_id)
        found: list[DayResult] = []
        _clear(folder)
        try:
            with delta_tables.opened(settings, name, folder / "scratch") as spark:
                frames = running.frames(spark)
                for day in days:
                    found.append(result := running.day(frames, day))
                    done = "not published" if result.version is None else f"version {result.version}"
                    report(f"{day}: {result.rows:,} rows, {done}")
                    if result.version is None:
                        break
        finally:
            if staging != folder:
                remove_tree(staging)
        _clear(folder)
    refresh_on_the_way(settings)
    return found


@dataclass(frozen=True)
class _Run:
    """What is the same for all days."""

    settings: Settings
    job: BatchJob
    table: Definition
    suite: Suites
    at: Mapping[str, Cut]
    inputs: Mapping[str, Table]
    staging: Path
    run_id: str

    def frames(self, spark: Any) -> dict[str, Any]:
        """The tables as data frames."""
        return {name: delta_tables.at_version(spark, each.path, each.version) for name, each in self.inputs.items()}

    def day(self, frames: dict[str, Any], day: dt.date) -> DayResult:
        job, name, what = self.job, self.job.name, f"{self.job.name}, {day}"
        staged = self.staging / f"{day}"
        delta_tables.stage(self._computed(frames, day, what), self.table.columns, staged, what)
        rows = parquet_files(staged)
        verdicts = judge_day(
            name,
            rows,
            day,
            key=job.key,
            required=[column.name for column in job.columns if not column.is_optional],
            suites=self.suite,
            inputs={table: each.rows for table, each in self.inputs.items()},
            limits=Limits.of(self.settings),
        )
        results.append(self.settings.tables, self.run_id, name, verdicts, clock.utc_now())
        version = None
        if not any(verdict.blocks for verdict in verdicts):
            note = _note(job, day, self.run_id, self.at)
            version = delta_tables.replace_day(staged, self.settings.tables, self.table, day, note=note, what=what)
        return DayResult(day=day, rows=rows.count_rows(), version=version, verdicts=tuple(verdicts))

    def _computed(self, frames: dict[str, Any], day: dt.date, what: str) -> Any:
        """Calls the author's function."""
        try:
            return self.job.rows(day, frames)
        except Exception as error:
            failed = failures.problem(error)
            first = failed.what.strip().split("\n", 1)[0]
            raise TerminalError(f"{what} fails: {first}\n  at {failed.where}", hint=failed.hint) from error


def _check_table(root: Path, job: BatchJob, wanted: pa.Schema) -> None:
    path = root / job.name
    if not (path / layout.LOG_FOLDER).is_dir():
        return
    kind = catalog.log_of(root, job.name).properties.get(descriptions.KIND)
    if kind != KIND:
        raise TableError(
            f"The Delta table '{job.name}' at {root} is not from a batch job.",
            hint="give the job another name; a table belongs to what has made it",
        )
    there = dataset(path).schema
    if {(each.name, each.type) for each in there} != {(each.name, each.type) for each in wanted}:
        raise TableError(
            f"The Delta table '{job.name}' at {root} has other columns than the job: {_listed(there)} instead of "
            f"{_listed(wanted)}.",
            hint="move its folder away and run the job for all days again, such as with a backfill",
        )


def _listed(schema: pa.Schema) -> str:
    return ", ".join(f"{each.name} {each.type}" for each in schema)


def _cut(root: Path, pipeline: str, job: str) -> Cut:
    cut = cuts.latest(root, pipeline)
    if cut is None:
        raise ConfigurationError(
            f"The batch job '{job}' reads tables of '{pipeline}', of which there are none yet.",
            hint=f"pipelines with tables: {', '.join(cuts.pipelines(root)) or 'none yet'}",
        )
    return cut


def _inputs(root: Path, job: BatchJob, at: Mapping[str, Cut]) -> dict[str, Table]:
    found: dict[str, Table] = {}
    for name in job.reads:
        cut = next((cut for cut in at.values() if name in cut.tables), None)
        if cut is None:
            known = sorted({table for cut in at.values() for table in cut.tables})
            raise ConfigurationError(
                f"The batch job '{job.name}' reads a table '{name}', which {' and '.join(job.pipelines)} do not have.",
                hint=f"parameters of compute are named like tables: {', '.join(known)}",
            )
        found[name] = Tables(root, cut)[name]
    return found


def _note(job: BatchJob, day: dt.date, run_id: str, at: Mapping[str, Cut]) -> str:
    """What the history of the table says of the commit."""
    read = {
        pipeline: Read(cut.query, cut.batch_id, {t: v for t, v in cut.tables.items() if t in job.reads})
        for pipeline, cut in at.items()
    }
    return Note(job=job.name, day=day, run=run_id, read=read).text


def _clear(folder: Path) -> None:
    for left in folder.iterdir():
        shutil.rmtree(left, ignore_errors=True)
