"""Rehearses the cascade of a replay before anybody is asked: what would the batch jobs behind it make of its rows?

```
tables of the pipeline, cloned -- the replay is published into the clone --> each batch job, on the clone --> compared
```

It belongs to the gate. A batch job that fails, or whose rows do not pass its checks, fails it, so that nothing is
published. The rows in which its table would change are shown and count, like those of the pipeline's own tables. Until
the publication, production stays as it is. A clone costs names of files, not bytes; it goes once it is compared. Clones
of tables in an object store are on this machine, so they are downloads, and the jobs run here, too.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec

from deltaworks import clock
from deltaworks.batch import jobs
from deltaworks.batch.job import BatchJob
from deltaworks.cascade import release
from deltaworks.cascade.changes import changes
from deltaworks.control import fence
from deltaworks.control.paths import PipelinePaths
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.errors import TableError
from deltaworks.files import replace_file
from deltaworks.lakehouse import cuts
from deltaworks.lakehouse.clone import clone
from deltaworks.lakehouse.committer import TableCommitter
from deltaworks.lakehouse.cuts import Cut, CutWriter
from deltaworks.lakehouse.publish import publication
from deltaworks.lakehouse.publish.scope import Scope
from deltaworks.lakehouse.schema import plan_schemas
from deltaworks.replay import work
from deltaworks.replay.model import ReplayPaths, ReplayPlan
from deltaworks.replay.phases import ReplayRun
from deltaworks.settings import Settings

Report = Callable[[str], None]


class Engines:
    """`replay.work`, with the rehearsal behind its gate; see `replay.phases.Engines`."""

    process = staticmethod(work.process)
    hand_over = staticmethod(work.hand_over)

    @staticmethod
    def judge(
        settings: Settings, pipeline: Pipeline, paths: ReplayPaths, plan: ReplayPlan, scope: Scope, report: Report
    ) -> bool:
        passed = work.judge(settings, pipeline, paths, plan, scope, report)
        if passed and plan.request.cascade:
            rehearse(ReplayRun(settings, pipeline, paths, plan), report)
        return passed


def rehearse(run: ReplayRun, report: Report) -> None:
    """Computes the batch jobs behind a replay as if it were published; keeps what they would change with the run.

    Args:
        run: a replay whose staging tables have passed the gate.
        report: called with lines of progress.

    Raises:
        TerminalError: a job fails, or its rows do not pass its checks.
        TableError: the replay cannot be published.
        TransientError: a job was killed, or a file was removed meanwhile.
    """
    settings, plan, paths = run.settings, run.plan, run.paths
    paths.rehearsal.unlink(missing_ok=True)
    shutil.rmtree(paths.rehearsed, ignore_errors=True)
    state = paths.read_state()
    if plan.request.only_different and state.narrowed is None:
        return
    days = release.days_behind(settings, plan, state)
    if not days:
        return
    behind = [jobs.load(settings, name) for name in days]
    there = replace(settings, home=paths.rehearsed, tables_address=None, storage_address=None, spark_tasks="here")
    _clone_own(run, there.tables, behind)
    _clone_others(settings.tables, there.tables, run.pipeline.name, behind)
    found = []
    for job in behind:
        clone(settings.tables / job.name, there.tables / job.name)
        release.compute(there, job.name, days[job.name], plan.run_id, report, "would fail; nothing was published")
        found.append(compared := changes(job, settings.tables, there.tables, days[job.name]))
        report(f"{job.name}: {compared.rows.different:,} rows would differ")
    replace_file(paths.rehearsal, msgspec.json.encode(found))
    shutil.rmtree(paths.rehearsed)


def _clone_own(run: ReplayRun, target: Path, behind: list[BatchJob]) -> None:
    """The pipeline's tables as they would be: of a hand-over those of the replay, else production with its days."""
    plan, name = run.plan, run.pipeline.name
    if plan.request.hand_over:
        read = {table for job in behind for table in job.reads}
        known = plan_schemas(run.pipeline.plan().tables, run.pipeline.dead_letters.table)
        versions = {
            schema.name: clone(run.paths.tables / schema.name, target / schema.name).version
            for schema in known
            if schema.name in read
        }
        CutWriter(target, name).write(
            Cut(
                pipeline=name,
                query=plan.run_id,
                batch_id=plan.last_batch,
                at_ms=clock.wall_ms(),
                tables=versions,
            )
        )
        return
    if (cut := cuts.latest(run.settings.tables, name)) is None or cut.query != plan.query_id:
        raise TableError(f"The tables of '{name}' are not those that the replay was planned for.", hint="plan another")
    archives = set(run.pipeline.archives(run.pipeline.plan()).tables)
    for table, version in cut.tables.items():
        if table not in archives:
            clone(run.settings.tables / table, target / table, version)
    committer = TableCommitter(target, name, cut.query, run.pipeline.plan().tables, run.pipeline.dead_letters.table)
    committer.open(fence.read(PipelinePaths.of(run.settings, name).fence) + 1)
    try:
        committer.settled(cut.batch_id)
        request = msgspec.structs.replace(run.publication_request(), corrections=None, sinks=None)
        publication.publish(committer, run.paths.tables, request, target / "publications")
        committer.publish_cut()
    finally:
        committer.close()


def _clone_others(source: Path, target: Path, own: str, behind: list[BatchJob]) -> None:
    """The tables of other pipelines that the jobs read, as of one batch of each."""
    read = {table for job in behind for table in job.reads}
    for pipeline in sorted({each for job in behind for each in job.pipelines} - {own}):
        if (cut := cuts.latest(source, pipeline)) is not None:
            tables = {table: version for table, version in cut.tables.items() if table in read}
            for table, version in tables.items():
                clone(source / table, target / table, version)
            CutWriter(target, pipeline).write(msgspec.structs.replace(cut, tables=tables))
